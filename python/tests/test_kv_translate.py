"""kv_translate and kv_slots: the worked examples of their pages, types, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchyard import KvTranslate, kv_slots, kv_translate

BATCH: dict[str, Any] = {
    "indices": np.array([[4, 0, -1, 3], [2, 1, 99, 99], [0, 3, -1, -1]]),
    "block_table": np.array([[4, 1, 3], [5, 0, -1]]),
    "req_id": np.array([0, 1, 0]),
    "counts": np.array([4, 2, 4]),
    "seq_lens": np.array([5, 3, 5]),
    "block_size": 2,
}


@pytest.mark.parametrize("pad", ["zero", "skip"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_padded_batch(pad: Any, dtype: Any) -> None:
    got = kv_translate(**(BATCH | {"indices": BATCH["indices"].astype(dtype)}), pad=pad)
    want = np.array([[6, 8, -1, 3], [0, 11, -1, -1], [8, 3, -1, -1]], dtype)
    np.testing.assert_array_equal(got.slots, want, strict=True)
    np.testing.assert_array_equal(got.valid, np.array([3, 2, 2], dtype), strict=True)


def test_slots_alone() -> None:
    out = KvTranslate(np.empty((3, 4), np.int32), None)
    assert kv_translate(**BATCH, pad="skip", out=out) is out
    assert out.slots[0].tolist() == [6, 8, -1, 3]


def test_partial_block() -> None:
    table, at = np.array([2, 0, 1, 2]), {"block_size": 3, "num_rows": 7}
    assert kv_translate(np.array([3, 0, 8, 5, 9, 0]), table, **at).slots.tolist() == [0, 6, 5, 2, 6, 6]
    with pytest.raises(IndexError, match="ROW_RANGE") as caught:
        kv_translate(np.array([3, 0, 1]), table, **at)
    fault = caught.value.fault  # type: ignore[attr-defined]
    assert (fault.position, fault.value, fault.limit) == (2, 7, 7)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_slots_of_positions(dtype: Any) -> None:
    got = kv_slots(np.arange(4, dtype=dtype), block_table=np.array([2, 0, 1]), block_size=2)
    np.testing.assert_array_equal(got, np.array([4, 5, 0, 1], dtype), strict=True)
    out = np.empty(4, np.int32)
    assert kv_slots(np.arange(4), block_table=np.array([2, 0, 1]), block_size=2, out=out) is out
    assert out.tolist() == [4, 5, 0, 1]


def test_slots_of_page_lists() -> None:
    lists = {"page_indices": np.array([3, 1, 0]), "indptr": np.array([0, 2, 3]), "last_page_len": np.array([1, 2])}
    got = kv_slots(np.array([2, -1, 1]), np.array([0, 0, 1]), **lists, block_size=2, pad="skip")
    assert got.tolist() == [2, -1, 1]


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"position": None}, TypeError, "kv_slots: position is missing, want a tensor"),
        ({"batch": np.zeros(6, np.uint32)}, TypeError, "kv_slots: batch is u32, want i32 or i64"),
        ({"batch": None}, ValueError, r"kv_slots: block_table has 2 rows, want 1 \(or give batch\)"),
        ({"block_size": 0}, ValueError, "kv_slots: block_size is 0, want 1 or more"),
        ({"out": np.empty(7, np.int64)}, ValueError, r"kv_slots: slots has shape \[7\], want \[6\]"),
        (
            {"position": np.array([0, 1, 2, -1, 0, 0])},
            IndexError,
            "kv_slots: position of token 3 is -1, want 0 or more",
        ),
        ({"pad": "drop"}, ValueError, "kv_slots: pad is 'drop', want error, zero or skip"),
    ],
)
def test_refused(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    call: dict[str, Any] = {"position": np.arange(6), "batch": np.zeros(6, np.int64), "block_size": 2}
    call["block_table"] = np.arange(32).reshape(2, 16)
    assert kv_slots(**call).tolist() == list(range(6))
    with pytest.raises(kind, match=sentence):
        kv_slots(**(call | change))
