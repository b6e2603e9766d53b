"""kv_scatter and kv_blocks, which change what they are given: several caches, packed rows, read-only arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchyard import Error, kv_blocks, kv_gather, kv_scatter

SRC = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
SLOTS = np.array([5, -1, 0, 2])


def test_scatter_then_gather() -> None:
    cache = np.zeros((6, 2), np.float32)
    assert kv_scatter(cache, SRC, SLOTS, pad="skip") is None  # type: ignore[func-returns-value]
    assert cache.tolist() == [[5, 6], [0, 0], [7, 8], [0, 0], [0, 0], [1, 2]]
    got = kv_gather(cache, np.array([0, 1, 4]), np.array([2, 0, 1]), block_size=2)
    assert got.tolist() == [[0, 0], [1, 2], [7, 8]]


def test_scatter_planes() -> None:
    """Keys and values at once, as parts of one array, equal a call for each."""
    both = np.zeros((3, 2, 5), np.float32)
    keys, values = both[..., :2], both[..., 2:]
    more = np.arange(12, dtype=np.float32).reshape(4, 3)
    kv_scatter((keys, values), [SRC, more], SLOTS, pad="skip")
    for part, src in ((keys, SRC), (values, more)):
        alone = np.zeros((6, src.shape[1]), np.float32)
        kv_scatter(alone, src, SLOTS, pad="skip")
        np.testing.assert_array_equal(part.reshape(6, -1), alone, strict=True)


@pytest.mark.parametrize(
    ("format", "cache", "row"),
    [
        ("ds32_fp8", (3, 2, 656), (576,)),
        ("pto_int8", (6, 656), (576,)),
        ("ds4_fp8", (3, 2 * 584), (512,)),
        ("indexer_fp8", (3, 2 * 132), (128,)),
    ],
)
def test_packed_there_and_back(format: Any, cache: Any, row: Any) -> None:
    """Small powers of two survive any of these formats."""
    rng = np.random.default_rng(3)
    src = np.exp2(rng.integers(0, 3, (4, *row))).astype(np.float32)
    packed = np.zeros(cache, np.uint8)
    kv_scatter(packed, src, np.array([5, 1, 0, 2]), format=format, block_size=2)
    got = kv_gather(packed, np.array([5, 1, 0, 2]), np.arange(3), block_size=2, format=format, dtype="float32")
    np.testing.assert_allclose(got, src, rtol=1 / 127)  # int8 has steps of 4/127
    with pytest.raises(ValueError, match=r"kv_scatter: cache has (rows|blocks) of .* bytes, want at least"):
        kv_scatter(packed[..., :100], src, np.array([5, 1, 0, 2]), format=format, block_size=2)


def test_scales_that_are_read_only() -> None:
    cache, scale = np.zeros((6, 2), np.int8), np.zeros((6, 1), np.float32)
    scale.flags.writeable = False
    with pytest.raises(
        ValueError, match="kv_scatter: scale is a read-only numpy array, want one that can be written to"
    ):
        kv_scatter(cache, SRC, SLOTS, scale, pad="skip", format="int8")
    one = np.ones(1, np.float32)
    one.flags.writeable = False  # a scale that is only read may be
    kv_scatter(cache, SRC, SLOTS, one, pad="skip", format="int8")
    assert cache.tolist()[5] == [1, 2]


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"cache": None}, TypeError, "kv_scatter: cache is missing, want a tensor"),
        ({"src": (SRC, SRC)}, ValueError, "kv_scatter: src is several arrays, want one"),
        ({"cache": (np.zeros((6, 2)),) * 2}, ValueError, "kv_scatter: src is one array, want 2, one for each cache"),
        ({"cache": (np.zeros((6, 2)),), "src": (SRC, SRC)}, ValueError, "kv_scatter: src has 2 values, want 1"),
    ],
)
def test_scatter_rejected(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    call: dict[str, Any] = {"cache": np.zeros((6, 2), np.float32), "src": SRC, "slots": np.array([5, 1, 0, 2])}
    with pytest.raises(kind, match=sentence) as caught:
        kv_scatter(**(call | change))
    assert isinstance(caught.value, Error)


@pytest.mark.parametrize("several", [False, True])
def test_scatter_read_only(several: bool) -> None:
    first, last = np.zeros((6, 2), np.float32), np.zeros((6, 2), np.float32)
    last.flags.writeable = False
    with pytest.raises(
        ValueError, match="kv_scatter: cache is a read-only numpy array, want one that can be written to"
    ):
        kv_scatter((first, last) if several else last, (SRC, SRC) if several else SRC, SLOTS, pad="skip")  # type: ignore[arg-type]
    assert not first.any()
    assert not last.any()


def blocks() -> Any:
    return np.array([[[0, 1]], [[10, 11]], [[20, 21]], [[30, 31]]])


def test_blocks_of_several_caches() -> None:
    keys, values = blocks(), blocks().astype(np.float32)
    kv_blocks(np.array([[0, 1]]), (keys, values))
    assert keys[1].tolist() == values[1].tolist() == [[0, 1]]
    into = (np.zeros((1, 1, 2), np.int64), np.zeros((1, 1, 2), np.float32))
    kv_blocks(np.array([[2, 0]]), src=[keys, values], dst=into)
    assert into[0].tolist() == into[1].tolist() == [[[20, 21]]]
    with pytest.raises(ValueError, match="kv_blocks: dst is one array, want 2, one for each cache"):
        kv_blocks(np.array([[2, 0]]), src=[keys, values], dst=into[0])
    with pytest.raises(TypeError, match="kv_blocks: cache is missing, want a tensor, or src and dst"):
        kv_blocks(np.array([[2, 0]]))
    with pytest.raises(ValueError, match="kv_blocks: cache has 257 values, want at most 256"):
        kv_blocks(np.array([[2, 0]]), [keys] * 257)
    into[1].flags.writeable = False
    with pytest.raises(ValueError, match="kv_blocks: dst is a read-only numpy array"):
        kv_blocks(np.array([[3, 0]]), src=[keys, values], dst=into)
    assert into[0].tolist() == [[[20, 21]]]
