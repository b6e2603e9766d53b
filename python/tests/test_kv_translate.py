"""kv_translate and kv_slots: results that are left out or given, words and types of Python's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchyard import KvTranslate, kv_slots, kv_translate


def test_slots_alone() -> None:
    out = KvTranslate(np.empty(3, np.int32), None)
    assert kv_translate(np.array([0, 4, 3]), np.array([0, 2, 1]), block_size=2, out=out) is out
    assert out.slots.tolist() == [0, 2, 5]


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"position": None}, TypeError, "kv_slots: position is missing, want a tensor"),
        ({"out": np.empty(7, np.int64)}, ValueError, r"kv_slots: slots has shape \[7\], want \[6\]"),
        ({"pad": "drop"}, ValueError, "kv_slots: pad is 'drop', want error, zero or skip"),
    ],
)
def test_rejected(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    call: dict[str, Any] = {"position": np.arange(6), "block_table": np.arange(16), "block_size": 2}
    assert kv_slots(**call).tolist() == list(range(6))
    with pytest.raises(kind, match=sentence):
        kv_slots(**(call | change))
