"""The operators on caches: several caches at once, packed rows, and results of as many rows as lengths say."""

from typing import Any

import numpy as np
import pytest
from calls import without_ml_dtypes

import switchyard
from switchyard import kv_blocks, kv_gather, kv_ragged, kv_scatter

bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
same = np.testing.assert_array_equal

CACHE = 10 * np.arange(8)[:, None]
TABLE = np.array([[3, 1], [0, 2]])
LENS, STARTS = np.array([0, 3, 5]), np.array([1, 0])
SRC = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
SLOTS = np.array([5, -1, 0, 2])


def rows_of(count: int, width: int) -> Any:
    """Row r is 10r, 10r+1, ..."""
    return (10 * np.arange(count)[:, None] + np.arange(width)).astype(np.float32)


# ---- Several caches ----


@pytest.mark.parametrize("kind", [tuple, list])
def test_gather(kind: Any) -> None:
    cache = rows_of(6, 5)
    caches = kind([cache[:, :3], cache[:, 3:], cache.astype(np.int16).reshape(3, 2, 5)])
    at = {"indices": np.array([4, 1]), "block_table": np.array([0, 1, 2]), "block_size": 2}
    got = kv_gather(caches, **at)
    assert isinstance(got, tuple)
    out = [np.empty_like(rows) for rows in got]
    again = kv_gather(caches, **at, out=out)
    for one, rows, given, made in zip(caches, got, out, again, strict=True):
        same(rows, kv_gather(one, **at), strict=True)
        same(given, rows, strict=True)
        assert made is given


def test_many_caches() -> None:
    caches = [rows_of(6, 1) + i for i in range(256)]
    got = kv_gather(caches, np.array([4, 1]), np.array([0, 1, 2]), block_size=2)
    assert [rows[:, 0].tolist() for rows in got] == [[40 + i, 10 + i] for i in range(256)]


def test_ragged() -> None:
    caches = (CACHE, CACHE.astype(np.float16).reshape(4, 2, 1))
    got = kv_ragged(caches, LENS, TABLE, STARTS, block_size=2)
    for cache, rows in zip(caches, got, strict=True):
        same(rows, kv_ragged(cache, LENS, TABLE, STARTS, block_size=2), strict=True)


def test_scatter() -> None:
    """Keys and values at once, as parts of one array, equal a call for each."""
    both = np.zeros((3, 2, 5), np.float32)
    keys, values = both[..., :2], both[..., 2:]
    more = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert kv_scatter((keys, values), [SRC, more], SLOTS, pad="skip") is None
    for part, src in ((keys, SRC), (values, more)):
        alone = np.zeros((6, src.shape[1]), np.float32)
        kv_scatter(alone, src, SLOTS, pad="skip")
        same(part.reshape(6, -1), alone, strict=True)


def test_blocks() -> None:
    keys = np.array([[[0, 1]], [[10, 11]], [[20, 21]], [[30, 31]]])
    values = keys.astype(np.float32)
    kv_blocks(np.array([[0, 1]]), (keys, values))
    assert keys[1].tolist() == values[1].tolist() == [[0, 1]]
    into = (np.zeros((1, 1, 2), np.int64), np.zeros((1, 1, 2), np.float32))
    kv_blocks(np.array([[2, 0]]), src=[keys, values], dst=into)
    assert into[0].tolist() == into[1].tolist() == [[[20, 21]]]


# ---- Packed rows ----

CODES = np.array([[0x38, 0x01, 0x7E, 0xC4, 0x80, 0x7F, 0x2A, 0x08]], np.uint8)


@pytest.mark.parametrize(
    ("format", "cache", "width"),
    [
        ("ds32_fp8", (6, 656), 576),
        ("pto_int8", (3, 2, 656), 576),
        ("q8_0", (3, 2, 136), 128),
        ("q4_0", (3, 2, 72), 128),
        ("ds4_fp8", (3, 2 * 584), 512),
        ("indexer_fp8", (3, 2, 132), 128),
        ("e5m2", (3, 2, 4, 8), (4, 8)),
    ],
)
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16", "float32"])
def test_unpacked_shapes(format: Any, cache: Any, width: Any, dtype: Any) -> None:
    scale = np.ones(1, np.float32) if format == "e5m2" else None
    at = (np.array([[0, 3, 2]]), np.array([0, 2]))
    got = kv_gather(np.zeros(cache, np.uint8), *at, scale=scale, block_size=2, format=format, dtype=dtype)
    assert got.shape == (1, 3, *np.atleast_1d(width))
    assert got.dtype == (bfloat16 if dtype is None else np.dtype(dtype))
    assert not got.astype(np.float32).any()


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_ragged_rows_are_unpacked(dtype: Any) -> None:
    codes = np.random.default_rng(2).integers(0, 127, (8, 656)).astype(np.uint8)
    codes[:, 512:528] = np.ones(4, np.float32).view(np.uint8)
    at = {"block_size": 2, "format": "ds32_fp8", "dtype": dtype}
    got = kv_ragged(codes, LENS, TABLE, STARTS, **at)
    want = kv_gather(codes, np.array([[1, 2, 3], [0, 1, -1]]), TABLE, pad="zero", **at).reshape(6, 576)[:5]
    assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())


def test_mixed_formats() -> None:
    """Packed rows beside rows as they are: formats and scales are tuples."""
    plain, packed = rows_of(1, 3), CODES
    at = {"indices": np.array([0]), "block_table": np.array([0]), "block_size": 1}
    tenth = np.array([0.1], np.float32)
    got = kv_gather((plain, packed), **at, format=(None, "e4m3"), scale=(None, tenth), dtype="float32")
    same(got[0], plain, strict=True)
    same(got[1], kv_gather(packed, **at, format="e4m3", scale=tenth, dtype="float32"))


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy has no bfloat16 then: rows come out as float32, and who asks for it is told."""
    without_ml_dtypes(monkeypatch)
    call = {"cache": CODES, "indices": np.array([0]), "block_table": np.array([0]), "block_size": 1}
    call |= {"format": "e4m3", "scale": np.ones(1, np.float32)}
    assert kv_gather(**call).dtype == np.float32
    with pytest.raises(TypeError, match="dtype is bfloat16, want ml_dtypes installed for it, or float16 or float32"):
        kv_gather(**call, dtype="bfloat16")


def test_a_scale_that_is_only_read() -> None:
    cache, one = np.zeros((6, 2), np.int8), np.ones(1, np.float32)
    one.flags.writeable = False
    kv_scatter(cache, SRC, SLOTS, one, pad="skip", format="int8")
    assert cache.tolist()[5] == [1, 2]


# ---- As many rows as lengths say ----


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
    module = switchyard if library != "switchyard.torch" else pytest.importorskip(library)
    of = np.asarray if library == "numpy" else pytest.importorskip("torch").from_numpy
    cache, table = of(CACHE), of(TABLE)
    for lengths in (LENS, LENS.astype(np.int32)):
        assert module.kv_ragged(cache, of(lengths), table, block_size=2)[:, 0].tolist() == [60, 70, 20, 0, 10]
    if library == "numpy":
        lengths.flags.writeable = False
        assert len(module.kv_ragged(cache, lengths, table, block_size=2)) == 5
    for wrong in (np.array([0, 3, 5.0]), np.array([0, 3, -5]), np.array([], np.int64), np.arange(6)[::2]):
        with pytest.raises(switchyard.Error, match="kv_ragged: cu_lens"):
            module.kv_ragged(cache, of(wrong), table, block_size=2)


@pytest.mark.parametrize("world", range(2, 9))
@pytest.mark.parametrize("order", ["position", "score"])
def test_selections_of_ranks_merge_to_that_of_the_whole_row(world, order):
    """Few values, so that most cuts are between equal scores; the merge is by kv_select itself."""
    draw = np.random.default_rng(world)
    for run, n in ((1, 64), (3, 61), (5, 9)):
        scores, lengths = draw.integers(-3, 4, (4, n)).astype(np.float32), np.full(4, n)
        scores[3, ::2] = np.nan
        kept: dict[str, Any] = {"k": 9, "sink": 1, "window": 2, "order": order}
        shared: dict[str, Any] = {"world": world, "interleave": run, "columns": "own", "values": True}
        owned = [[t for t in range(n) if t // run % world == rank] for rank in range(world)]
        parts = [
            switchyard.kv_select(np.ascontiguousarray(scores[:, own]), lengths, rank=rank, **kept, **shared)
            for rank, own in enumerate(owned)
        ]
        sent = np.concatenate([part.values for part in parts], axis=1)
        position = np.concatenate([part.indices for part in parts], axis=1)
        merged = switchyard.kv_select(sent, position=position, seq_lens=lengths, **kept)
        whole = switchyard.kv_select(scores, **kept)
        same(merged.indices, whole.indices)
        same(merged.count, whole.count)
