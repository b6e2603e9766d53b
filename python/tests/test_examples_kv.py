"""Worked examples of the paged cache's operators, their numbers typed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import switchyard

sy: Any = switchyard  # calls by dictionaries of arguments, which types cannot follow

ml_dtypes = pytest.importorskip("ml_dtypes")


def rows(n: int, width: int, dtype: Any = np.float32) -> Any:
    """Row r is 10r, 10r+1, ..."""
    return (10 * np.arange(n)[:, None] + np.arange(width)).astype(dtype)


def refused(call: Any, *arguments: Any, **fields: Any) -> tuple[str, int, int, int, int]:
    """Code, batch, position, value and limit of a call that must be refused for what an array holds."""
    with pytest.raises(IndexError) as error:
        call(*arguments, **fields)
    fault = error.value.fault  # type: ignore[attr-defined]
    return fault.code, fault.batch, fault.position, fault.value, fault.limit


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_seed_of_the_vendor(dtype: Any, index: Any) -> None:
    cache = rows(6, 4, dtype)
    found = sy.kv_gather(cache, np.array([[0, 4, 3]], index), np.array([[0, 2, 1]], index), block_size=2)
    assert found.tolist() == [[[0, 1, 2, 3], [20, 21, 22, 23], [50, 51, 52, 53]]]


def test_interpreter_of_the_vendor() -> None:
    found = sy.kv_gather(rows(8, 4), np.array([0, 2, 5, 3]), np.array([2, 0, 1]), block_size=2)
    assert found.tolist() == [[40, 41, 42, 43], [0, 1, 2, 3], [30, 31, 32, 33], [10, 11, 12, 13]]


def test_partial_block_and_shared_block() -> None:
    cache, table = rows(7, 2), np.array([2, 0, 1, 2])
    found = sy.kv_gather(cache, np.array([3, 0, 8, 5, 9, 0]), table, block_size=3)
    assert found.tolist() == [[0, 1], [60, 61], [50, 51], [20, 21], [60, 61], [60, 61]]
    out = np.full((4, 2), 7, np.float32)
    told = refused(sy.kv_gather, cache, np.array([3, 0, 1, -1]), table, block_size=3, out=out)
    assert told == ("ROW_RANGE", 0, 2, 7, 7)
    assert (out == 7).all()
    slots = sy.kv_translate(np.array([3, 0, 8, 5, 9, 0]), table, block_size=3, num_rows=7)
    assert slots.slots.tolist() == [0, 6, 5, 2, 6, 6]


BATCH: dict[str, Any] = {
    "block_table": np.array([[4, 1, 3], [5, 0, -1]]),
    "req_id": np.array([0, 1, 0]),
    "seq_lens": np.array([5, 3, 5]),
    "counts": np.array([4, 2, 4]),
    "block_size": 2,
}
INDICES = np.array([[4, 0, -1, 3], [2, 1, 99, 99], [0, 3, -1, -1]])


def test_padded_batch() -> None:
    cache = rows(12, 2)
    found = sy.kv_gather(cache, INDICES, **BATCH, pad="zero")
    assert found.tolist() == [
        [[60, 61], [80, 81], [0, 0], [30, 31]],
        [[0, 1], [110, 111], [0, 0], [0, 0]],
        [[80, 81], [30, 31], [0, 0], [0, 0]],
    ]
    kept = np.full((3, 4, 2), 5, np.float32)
    sy.kv_gather(cache, INDICES, **BATCH, pad="skip", out=kept)
    padding = [(0, 2), (1, 2), (1, 3), (2, 2), (2, 3)]
    assert [(b, j) for b in range(3) for j in range(4) if (kept[b, j] == 5).all()] == padding
    made = sy.kv_translate(INDICES, **BATCH, pad="zero")
    assert made.slots.tolist() == [[6, 8, -1, 3], [0, 11, -1, -1], [8, 3, -1, -1]]
    assert made.valid.tolist() == [3, 2, 2]
    assert refused(sy.kv_gather, cache, INDICES, **BATCH) == ("INDEX_RANGE", 0, 2, -1, 5)
    wrong = INDICES.copy()
    wrong[1, 1] = 3
    assert refused(sy.kv_gather, cache, wrong, **BATCH, pad="zero") == ("INDEX_RANGE", 1, 1, 3, 3)
    unmapped = refused(sy.kv_gather, cache, np.array([4]), np.array([5, 0, -1]), block_size=2)
    assert unmapped == ("BLOCK_RANGE", 0, 0, -1, 6)


def test_nothing_wraps() -> None:
    cache = rows(16, 2)
    told = refused(sy.kv_gather, cache, np.array([0, 4]), np.array([0, 1073741825], np.int32), block_size=4)
    assert told == ("BLOCK_RANGE", 0, 1, 1073741825, 4)
    told = refused(sy.kv_gather, cache, np.array([0, 4294967299]), np.array([0, 1]), block_size=4)
    assert told == ("INDEX_RANGE", 0, 1, 4294967299, 8)


def words(found: Any) -> list[Any]:
    bits: list[Any] = found.view(np.uint16).tolist()
    return bits


def test_int8_in_groups() -> None:
    codes = np.array([[127, -128, 1, 0, -3, 64, 5, -1], [10, 20, -30, 40, -50, 60, -70, 80]], np.int8)
    scale = np.array([[0.0123, 2], [0.5, 0.00371]], np.float32)
    assert scale.view(np.uint32).tolist() == [[0x3C4985F0, 0x40000000], [0x3F000000, 0x3B732379]]
    found = sy.kv_gather(codes, np.array([0, 1]), np.array([0, 1]), block_size=1, format="int8", scale=scale)
    assert words(found) == [
        [0x3FC8, 0xBFCA, 0x3C4A, 0x0000, 0xC0C0, 0x4300, 0x4120, 0xC000],
        [0x40A0, 0x4120, 0xC170, 0x41A0, 0xBE3E, 0x3E64, 0xBE85, 0x3E98],
    ]


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        (0.1, [0x3DCD, 0x394D, 0x4233, 0xBE9A, 0x8000, 0x7FC0, 0x3D00, 0x3ACD]),
        (2.0**-7, [0x3C00, 0x3780, 0x4060, 0xBCC0, 0x8000, 0x7FC0, 0x3B20, 0x3900]),
    ],
)
def test_e4m3(scale: float, wanted: list[int]) -> None:
    codes = np.array([[0x38, 0x01, 0x7E, 0xC4, 0x80, 0x7F, 0x2A, 0x08]], np.uint8).view(ml_dtypes.float8_e4m3fn)
    by = {"format": "e4m3", "scale": np.array([scale], np.float32)}
    found = sy.kv_gather(codes, np.array([0]), np.array([0]), block_size=1, **by)
    assert words(found) == [wanted]


def test_scatter_then_gather() -> None:
    cache = np.zeros((6, 2), np.float32)
    src = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    sy.kv_scatter(cache, src, np.array([5, -1, 0, 2]), pad="skip")
    assert cache.tolist() == [[5, 6], [0, 0], [7, 8], [0, 0], [0, 0], [1, 2]]
    found = sy.kv_gather(cache, np.array([0, 1, 4]), np.array([2, 0, 1]), block_size=2)
    assert found.tolist() == [[0, 0], [1, 2], [7, 8]]
    assert sy.kv_slots(np.arange(4), block_table=np.array([2, 0, 1]), block_size=2).tolist() == [4, 5, 0, 1]


def test_equal_slots_are_told() -> None:
    cache, src = np.zeros((6, 2), np.float32), np.ones((4, 2), np.float32)
    for slots, told in (
        ([4, 2, 0, 2], ("DUPLICATE", -1, 3, 2, 1)),
        ([1, 1, 9, 3], ("DUPLICATE", -1, 1, 1, 0)),
        ([1, 9, 1, 9], ("SLOT_RANGE", -1, 1, 9, 6)),
    ):
        assert refused(sy.kv_scatter, cache, src, np.array(slots), check_unique=True) == told
    assert not cache.any()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_head_major_blocks(dtype: Any) -> None:
    cache = np.arange(16).reshape(2, 2, 2, 2).astype(dtype)
    found = sy.kv_gather(cache, np.array([1, 2]), np.array([1, 0]), block_size=2, layout="hnd")
    assert found.tolist() == [[[10, 11], [14, 15]], [[0, 1], [4, 5]]]


def test_latent_and_rope_at_once() -> None:
    cache = rows(6, 5)
    latent, rope = sy.kv_gather((cache[:, :3], cache[:, 3:]), np.array([4, 1]), np.array([0, 1, 2]), block_size=2)
    assert latent.tolist() == [[40, 41, 42], [10, 11, 12]]
    assert rope.tolist() == [[43, 44], [13, 14]]


def test_lists_of_pages() -> None:
    lists = {"page_indices": np.array([3, 1, 0]), "indptr": np.array([0, 2, 3]), "last_page_len": np.array([1, 2])}
    found = sy.kv_gather(rows(8, 1), np.array([[2, 0], [1, 0]]), **lists, block_size=2)
    assert found.tolist() == [[[20], [60]], [[10], [0]]]
    told = refused(sy.kv_gather, rows(8, 1), np.array([[3, 0], [1, 0]]), **lists, block_size=2)
    assert told == ("INDEX_RANGE", 0, 0, 3, 3)


def test_one_run_of_each_sequence() -> None:
    tables, cu_lens = np.array([[3, 1], [0, 2]]), np.array([0, 3, 5])
    found = sy.kv_ragged(rows(8, 1), cu_lens, tables, np.array([1, 0]), block_size=2)
    assert found.tolist() == [[70], [20], [30], [0], [10]]
    assert sy.kv_ragged(rows(8, 1), cu_lens, tables, block_size=2).tolist() == [[60], [70], [20], [0], [10]]


def test_blocks() -> None:
    cache = rows(4, 2).reshape(4, 1, 2)
    sy.kv_blocks(np.array([[0, 1], [0, 3], [2, 2]]), cache)
    assert cache[:, 0].tolist() == [[0, 1], [0, 1], [20, 21], [0, 1]]
    for pairs, told in (
        ([[0, 1], [2, 1]], ("DUPLICATE", -1, 1, 1, 0)),
        ([[0, 1], [1, 2]], ("HAZARD", -1, 1, 1, 0)),
        ([[0, 4]], ("BLOCK_RANGE", -1, 0, 4, 4)),
    ):
        assert refused(sy.kv_blocks, np.array(pairs), cache) == told
    with pytest.raises(IndexError):
        sy.kv_blocks(np.array([[0, 1], [1, 0]]), cache)
    other = np.zeros((2, 1, 2), np.float32)
    sy.kv_blocks(np.array([[2, 1]]), src=cache, dst=other)
    assert other[:, 0].tolist() == [[0, 0], [20, 21]]
