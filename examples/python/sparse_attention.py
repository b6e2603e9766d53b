"""Sparse attention of one decode step: kv_select takes the tokens that an indexer scores best, attention reads their
rows alone. With k = all tokens the result is that of dense attention, bit for bit.

    python examples/python/sparse_attention.py
"""

import numpy as np

import switchyard

REQUESTS, TOKENS, DIM, BLOCK = 2, 40, 8, 4


def attend(query, rows):
    """Softmax over rows, each a key and a value, in their order."""
    keys, values = rows[:, :DIM], rows[:, DIM:]
    weights = np.array([np.dot(query, key) for key in keys], np.float32)
    weights = np.exp(weights - weights.max())
    return (weights[:, None] / weights.sum() * values).sum(axis=0)


def main():
    draw = np.random.default_rng(7)
    lengths = np.array([40, 23])
    blocks = draw.permutation(REQUESTS * TOKENS // BLOCK).astype(np.int32).reshape(REQUESTS, -1)
    cache = draw.standard_normal((REQUESTS * TOKENS, 2 * DIM)).astype(np.float32)
    query = draw.standard_normal((REQUESTS, DIM)).astype(np.float32)

    everything = np.arange(TOKENS)[None].repeat(REQUESTS, axis=0)
    rows = switchyard.kv_gather(cache, everything, blocks, counts=lengths, seq_lens=lengths, block_size=BLOCK)
    dense = np.stack([attend(query[b], rows[b, : lengths[b]]) for b in range(REQUESTS)])
    scores = np.einsum("bd,btd->bt", query, rows[:, :, :DIM])  # the indexer; a real one reads less than attention

    errors = {}
    for k in (4, 10, 20, TOKENS):
        best = switchyard.kv_select(scores, lengths, k=k, sink=1, window=2)
        chosen = switchyard.kv_gather(
            cache, best.indices, blocks, counts=best.count, seq_lens=lengths, block_size=BLOCK
        )
        sparse = np.stack([attend(query[b], chosen[b, : best.count[b]]) for b in range(REQUESTS)])
        errors[k] = float(np.abs(sparse - dense).max())
        print(f"k = {k:2}: largest difference from dense attention {errors[k]:.3g}")
    return errors


if __name__ == "__main__":
    if main()[TOKENS] != 0:
        raise SystemExit("with all tokens the result is not that of dense attention")
