"""torch.compile: a whole decode step as one graph, static and dynamic, with the bits of eager calls."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from cases import CHOICES, IDS, MAP, PLACES, i32, rand, st, torch

import switchyard

WIDTH, EXPERTS, BLOCK, BLOCKS, VOCABULARY = 8, 4, 2, 16, 32
WEIGHTS = {
    "router": rand(WIDTH, EXPERTS),
    "up": rand(EXPERTS, WIDTH, 12),
    "down": rand(EXPERTS, 12, WIDTH),
    "head": rand(WIDTH, VOCABULARY),
}


def decode_step(x: Any, cache: Any, table: Any, position: Any, seed: Any) -> Any:
    """Experts, a row left in the cache, rows read from it, the next token. Torch does nothing that has an order."""
    count = x.shape[0]
    routed = st.moe_route(x @ WEIGHTS["router"], k=2, renormalize=True)
    mode = {"drop_and_pad": True, "zero_pad": True}
    rows = st.moe_permute(x, routed.routing_map, num_out_tokens=count * EXPERTS, **mode)
    batched = rows.permuted_tokens.view(EXPERTS, count, WIDTH)
    said = torch.bmm(torch.bmm(batched, WEIGHTS["up"]).relu(), WEIGHTS["down"]).view(-1, WIDTH)
    x = st.moe_unpermute(said, rows.sorted_indices, routed.routing_map, routed.probs, **mode)
    sequence = torch.arange(count, dtype=torch.int32)
    st.kv_scatter(cache, x, st.kv_slots(position, sequence, table, block_size=BLOCK))
    near = torch.stack((position, position - 1, torch.zeros_like(position)), 1)
    seen = st.kv_gather(cache, near, table, seq_lens=position + 1, block_size=BLOCK)
    logits = seen.amax(1) @ WEIGHTS["head"]
    picked = st.sample(logits, top_k=8, top_p=0.9, temperature=0.7, seed=seed, offset=position, logprob="raw")
    return picked.token, picked.logprob, picked.kept, x


def inputs(count: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn((count, WIDTH), generator=generator)
    cache = torch.randn((BLOCKS, BLOCK, WIDTH), generator=generator)
    table = torch.randperm(BLOCKS, generator=generator).to(torch.int32)[: count * 2].view(count, 2)
    position = torch.arange(count, dtype=torch.int64) % 3 + 1
    return x, cache, table, position, torch.arange(count)


def check(compiled: Any, count: int) -> None:
    values, again = inputs(count), inputs(count)
    got, want = compiled(*values), decode_step(*again)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(values[1], again[1])  # the cache that was written
    assert not torch.equal(values[1], inputs(count)[1])


class Counter:
    """A backend that counts its graphs."""

    def __init__(self, backend: str) -> None:
        self.backend, self.graphs = backend, 0

    def __call__(self, module: Any, example: Any) -> Any:
        self.graphs += 1
        return torch._dynamo.lookup_backend(self.backend)(module, example)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("shapes", ["static", "dynamic", "marked"])
def test_graphs(shapes: str, backend: str) -> None:
    """A graph for each size, or one for all sizes after the first."""
    counter = Counter(backend)
    compiled = torch.compile(
        decode_step, backend=counter, fullgraph=True, dynamic={"static": False, "dynamic": True}.get(shapes)
    )
    if shapes == "marked":
        values = inputs(4)
        for at in (0, 2, 3, 4):
            torch._dynamo.mark_dynamic(values[at], 0)
        compiled(*values)
    else:
        check(compiled, 3)
    once = counter.graphs  # torch may begin anew while it traces
    for count in (5, 6):
        check(compiled, count)
    assert counter.graphs == (3 if shapes == "static" else once)


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="inductor needs a C++ compiler")
def test_inductor(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compiled = torch.compile(decode_step, backend="inductor", fullgraph=True, dynamic=True)
    for count in (3, 5):
        check(compiled, count)


# Gradients in compiled graphs, and calls with every kind of argument.


def through(x: Any, w: Any, p: Any, rows: Any) -> Any:
    """A sum over every operator that has a gradient."""
    probs = st.moe_map_from_ids(IDS, w, num_experts=3).probs
    made = st.moe_permute(x, MAP, p, num_out_tokens=8)
    back = st.moe_unpermute(made.permuted_tokens * 3, made.sorted_indices, MAP, p)
    weights = st.moe_ids_from_map(MAP, p, k=2).weights
    by_ids = st.moe_permute_ids(x, IDS, w)
    again = st.moe_unpermute_ids(by_ids.permuted_tokens * 2, by_ids.sorted_indices, w)
    buffer = st.moe_dispatch(CHOICES[0, :4], PLACES[0, :4], x, w[:, 0], num_experts=3, capacity=2)
    home = st.moe_combine(CHOICES, PLACES, buffer * 2, None, num_experts=3, capacity=2)
    chunks = st.moe_reorder_chunks(rows, torch.tensor([[1, 2], [0, 2]]), rows[:, 0]).reordered_rows
    return sum(
        t.sum() for t in (probs * p, back, weights, made.permuted_probs, again, by_ids.permuted_probs, home, chunks)
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(dynamic: bool) -> None:
    compiled = torch.compile(through, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    results = []
    for function in (through, compiled):
        leaves = [rand(*shape, grad=True) for shape in ((4, 3), (4, 2), (4, 3), (6, 2))]
        loss = function(*leaves)
        loss.backward()
        results.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    for got, want in zip(*results, strict=True):
        assert torch.equal(got, want)


def test_out() -> None:
    def step(x: Any, out: Any) -> Any:
        made = st.moe_permute(x, MAP, num_out_tokens=8, out=out)
        return made.permuted_tokens + 1

    values = st.moe_permute(rand(4, 3), MAP, num_out_tokens=8)
    room = type(values)(*[None if t is None else torch.zeros_like(t) for t in values])
    got = torch.compile(step, backend="aot_eager", fullgraph=True)(rand(4, 3), room)
    assert torch.equal(got, values.permuted_tokens + 1)
    assert torch.equal(room.permuted_tokens, values.permuted_tokens)
    assert torch.equal(room.expert_offsets, values.expert_offsets)


@pytest.mark.skipif(
    torch.__version__.startswith("2.4."), reason="PyTorch 2.4 compiles no operator that writes into lists"
)
def test_several_caches() -> None:
    def step(keys: Any, values: Any, k: Any, v: Any) -> Any:
        st.kv_scatter((keys, values), (k, v), torch.tensor([1, 0]))
        return st.kv_gather((keys, values), torch.tensor([0, 1]), i32(0), block_size=2)

    pair = torch.zeros(2, 3), torch.zeros(2, 4)
    got = torch.compile(step, backend="aot_eager", fullgraph=True)(*pair, rand(2, 3), rand(2, 4))
    assert torch.equal(got[0], rand(2, 3).flip(0)) and torch.equal(got[1], rand(2, 4).flip(0))
    assert torch.equal(pair[0], got[0]) and torch.equal(pair[1], got[1])


def test_results_on_the_meta_device() -> None:
    with torch.device("meta"):
        made = st.moe_permute(torch.empty(4, 3), torch.empty(4, 5, dtype=torch.bool), num_out_tokens=8)
    assert made.permuted_tokens.device.type == "meta"
    assert made.permuted_tokens.shape == (8, 3) and made.expert_offsets.shape == (6,)


def test_export() -> None:
    class Step(torch.nn.Module):
        def forward(self, x: Any, routing_map: Any) -> Any:
            return st.moe_permute(x, routing_map, num_out_tokens=8).permuted_tokens

    program = torch.export.export(Step(), (rand(4, 3), MAP))
    assert "switchyard.moe_permute" in str(program.graph)
    assert torch.equal(program.module()(rand(4, 3), MAP), Step()(rand(4, 3), MAP))


def test_what_a_graph_cannot_be_is_told_in_the_operators_words() -> None:
    compiled = torch.compile(lambda x: st.moe_permute(x, MAP, num_out_tokens=8), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="moe_permute: tokens has rank 3, want 2"):
        compiled(rand(4, 3, 2))


def test_what_contents_make_wrong_is_told_when_the_graph_runs() -> None:
    compiled = torch.compile(
        lambda m: st.moe_permute(rand(4, 3), m, num_out_tokens=8).expert_counts, backend="aot_eager"
    )
    assert compiled(MAP).tolist() == [3, 2, 3]
    with pytest.raises(switchyard.Error, match="routing_map routes token 0 to 3 experts, want at most 2"):
        compiled(MAP | True)
