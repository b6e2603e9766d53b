"""kv_ragged: how many rows there are, several caches, packed rows, values of Python's own that are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import switchyard
from switchyard import kv_gather, kv_ragged

CACHE = 10 * np.arange(8)[:, None]
TABLE = np.array([[3, 1], [0, 2]])
LENS, STARTS = np.array([0, 3, 5]), np.array([1, 0])


def test_rows() -> None:
    """As many as the lengths end with, as many as asked for, or those of out; the rest stays."""
    want = [70, 20, 30, 0, 10]
    assert kv_ragged(CACHE, LENS, TABLE, STARTS, block_size=2, rows=7)[:, 0].tolist() == [*want, 0, 0]
    out = np.full((6, 1), -1)
    assert kv_ragged(CACHE, LENS, TABLE, STARTS, block_size=2, out=out) is out
    assert out[:, 0].tolist() == [*want, -1]
    assert kv_ragged(CACHE, np.array([0]), TABLE[:0], block_size=2).shape == (0, 1)
    with pytest.raises(IndexError, match="kv_ragged: cu_lens at entry 2 is 5, want at most 4, the rows of out"):
        kv_ragged(CACHE, LENS, TABLE, STARTS, block_size=2, rows=4)


@pytest.mark.parametrize("library", ["numpy", "torch", "switchyard.torch"])
def test_rows_are_read_from_the_lengths(library: str) -> None:
    module: Any = switchyard if library != "switchyard.torch" else pytest.importorskip(library)
    of = np.asarray if library == "numpy" else pytest.importorskip("torch").from_numpy
    cache, table = of(10 * np.arange(8)[:, None]), of(np.array([[3, 1], [0, 2]]))
    for lengths in (np.array([0, 3, 5]), np.array([0, 3, 5], np.int32)):
        assert module.kv_ragged(cache, of(lengths), table, block_size=2)[:, 0].tolist() == [60, 70, 20, 0, 10]
    if library == "numpy":
        lengths.flags.writeable = False
        assert len(module.kv_ragged(cache, lengths, table, block_size=2)) == 5
    for wrong in (np.array([0, 3, 5.0]), np.array([0, 3, -5]), np.array([], np.int64), np.arange(6)[::2]):
        with pytest.raises(switchyard.Error, match="kv_ragged: cu_lens"):
            module.kv_ragged(cache, of(wrong), table, block_size=2)


def test_planes() -> None:
    caches = (CACHE, CACHE.astype(np.float16).reshape(4, 2, 1))
    got = kv_ragged(caches, LENS, TABLE, STARTS, block_size=2)
    for cache, rows in zip(caches, got, strict=True):
        np.testing.assert_array_equal(rows, kv_ragged(cache, LENS, TABLE, STARTS, block_size=2), strict=True)


def test_packed() -> None:
    codes = np.random.default_rng(2).integers(0, 127, (8, 656)).astype(np.uint8)
    codes[:, 512:528] = np.ones(4, np.float32).view(np.uint8)
    for dtype in (None, "float32"):
        at: dict[str, Any] = {"block_size": 2, "format": "ds32_fp8", "dtype": dtype}
        got = kv_ragged(codes, LENS, TABLE, STARTS, **at)
        want = kv_gather(codes, np.array([[1, 2, 3], [0, 1, -1]]), TABLE, pad="zero", **at).reshape(6, 576)[:5]
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"cu_lens": None}, TypeError, "kv_ragged: cu_lens is missing, want a tensor"),
        ({"cu_lens": np.array([0.0, 3, 5])}, TypeError, "kv_ragged: cu_lens is f64, want i32 or i64"),
        ({"cu_lens": np.array([], np.int64)}, ValueError, "kv_ragged: cu_lens has"),
        ({"cu_lens": np.array([0, 3, -5])}, IndexError, "kv_ragged: cu_lens at entry"),
        ({"rows": -1}, ValueError, "kv_ragged: rows is -1, want 0 or more"),
        ({"rows": 2.5}, TypeError, "kv_ragged: rows is 2.5, want an integer"),
        ({"layout": "dnh"}, ValueError, "kv_ragged: layout is 'dnh', want nhd or hnd"),
    ],
)
def test_rejected(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        kv_ragged(**({"cache": CACHE, "cu_lens": LENS, "block_table": TABLE, "block_size": 2} | change))
