# %% [markdown]
# # A tiny MoE decode loop
#
# Eight sequences grow token by token through a model of one layer: attention over a paged KV cache, then a mixture of
# experts, then a draw. The weights are random, so the text has no meaning; the movement of rows is that of a real
# model. NumPy does the arithmetic, Switchyard moves and picks the tokens. Run the file, or its cells in an editor that
# supports `# %%`.

# %%
from __future__ import annotations

import numpy as np

import switchyard

SEQUENCES, STEPS = 8, 48
WIDTH, VOCABULARY = 32, 256
EXPERTS, CHOICES, HIDDEN = 8, 2, 64
BLOCK, BLOCKS_EACH = 4, STEPS // 4

draw = np.random.default_rng(2026)


def weights(*shape: int) -> np.ndarray:
    return (draw.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)


embedding = weights(VOCABULARY, WIDTH) * 16
query, key, value = weights(WIDTH, WIDTH), weights(WIDTH, WIDTH), weights(WIDTH, WIDTH)
router = weights(WIDTH, EXPERTS) * 2
up, down = weights(EXPERTS, WIDTH, HIDDEN), weights(EXPERTS, HIDDEN, WIDTH)
head = weights(WIDTH, VOCABULARY)


def normalize(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


# %% [markdown]
# ## The mixture of experts
#
# `moe_route` picks two experts per token and computes their weights. `moe_permute` groups the rows by expert, so that
# an expert is two plain matrix products over a slice. `moe_unpermute` returns the rows to their tokens and adds them up
# by weight.


# %%
def experts(x: np.ndarray, routed: switchyard.MoeRoute[np.ndarray]) -> np.ndarray:
    rows = switchyard.moe_permute(x, routed.routing_map, num_out_tokens=len(x) * CHOICES)
    assert rows.permuted_tokens is not None and rows.sorted_indices is not None and rows.expert_offsets is not None
    made = np.empty_like(rows.permuted_tokens)
    for e in range(EXPERTS):
        mine = slice(*rows.expert_offsets[e : e + 2])
        made[mine] = np.maximum(rows.permuted_tokens[mine] @ up[e], 0) @ down[e]
    return switchyard.moe_unpermute(made, rows.sorted_indices, routed.routing_map, routed.probs)


# %% [markdown]
# The same layer by its formula, every expert on every token, to check that no row was lost or exchanged.

# %%
x = normalize(embedding[:SEQUENCES])
routed = switchyard.moe_route(x @ router, k=CHOICES, renormalize=True)
every = np.stack([np.maximum(x @ up[e], 0) @ down[e] for e in range(EXPERTS)])
assert np.allclose(experts(x, routed), np.einsum("te,eth->th", routed.probs, every), atol=1e-5)

# %% [markdown]
# ## Keys and values in a paged cache
#
# Keys and values of all sequences share one pool of blocks, in no particular order: `block_table` lists the blocks of a
# sequence. `kv_slots` gives the row of the new token, `kv_scatter` writes it, and `kv_gather` collects the past rows of
# every sequence, keys and values at once.

# %%
block_table = draw.permutation(SEQUENCES * BLOCKS_EACH).reshape(SEQUENCES, BLOCKS_EACH)
key_cache = np.zeros((SEQUENCES * BLOCKS_EACH * BLOCK, WIDTH), np.float32)
value_cache = np.zeros_like(key_cache)
everyone = np.arange(SEQUENCES)


def attend(x: np.ndarray, step: int) -> np.ndarray:
    now = np.full(SEQUENCES, step)
    slots = switchyard.kv_slots(now, everyone, block_table, block_size=BLOCK)
    switchyard.kv_scatter((key_cache, value_cache), (x @ key, x @ value), slots)
    past = np.tile(np.arange(step + 1), (SEQUENCES, 1))
    keys, values = switchyard.kv_gather((key_cache, value_cache), past, block_table, block_size=BLOCK)
    scores = np.einsum("bh,bsh->bs", x @ query, keys) / WIDTH**0.5
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bs,bsh->bh", scores / scores.sum(-1, keepdims=True), values)


# %% [markdown]
# ## The loop
#
# `sample` draws one token per sequence. The noise is a function of seed, step and sequence, so a second run, on any
# machine, writes the same tokens.

# %%
tokens = np.empty((SEQUENCES, STEPS + 1), np.int64)
tokens[:, 0] = everyone
chosen = np.empty((STEPS, SEQUENCES, CHOICES), np.int32)
load = np.empty((STEPS, EXPERTS), np.int64)

for step in range(STEPS):
    x = embedding[tokens[:, step]]
    x = x + attend(normalize(x), step)
    routed = switchyard.moe_route(normalize(x) @ router, k=CHOICES, renormalize=True)
    chosen[step], load[step] = routed.ids, routed.counts
    x = x + experts(normalize(x), routed)
    picked = switchyard.sample(normalize(x) @ head, top_k=40, top_p=0.95, temperature=0.9, seed=7, offset=step)
    tokens[:, step + 1] = picked.token

assert (load.sum(1) == SEQUENCES * CHOICES).all()
print(f"{SEQUENCES} sequences, {STEPS} steps; visits of each expert: {' '.join(map(str, load.sum(0)))}")

# %% [markdown]
# ## The routing
#
# Left, how many tokens each expert had at every step: an even load would be one colour. Right, the first choice of
# every sequence, step by step.

# %%
try:
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
    print("no matplotlib here, so no picture")

if plt is not None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    shown = left.imshow(load.T, aspect="auto", cmap="viridis", vmin=0, vmax=SEQUENCES, interpolation="nearest")
    left.set(title="tokens of each expert", xlabel="step", ylabel="expert", yticks=range(EXPERTS))
    figure.colorbar(shown, ax=left, label="tokens")
    colours = plt.get_cmap("tab10", EXPERTS)
    shown = right.imshow(
        chosen[:, :, 0].T, aspect="auto", cmap=colours, vmin=-0.5, vmax=EXPERTS - 0.5, interpolation="nearest"
    )
    right.set(title="first choice of each sequence", xlabel="step", ylabel="sequence", yticks=range(SEQUENCES))
    figure.colorbar(shown, ax=right, label="expert", ticks=range(EXPERTS))
    if plt.get_backend().lower() == "agg":  # no display
        figure.savefig("decode_loop.png", dpi=120)
        print("the picture is decode_loop.png")
    else:
        plt.show()
