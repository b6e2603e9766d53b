"""local_reduce: values of Python's own that are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchyard import local_reduce

CALL: dict[str, Any] = {
    "input": np.array([[11, 12, np.nan, 22], [np.nan, 24, np.nan, np.nan]], np.float32)[:, :, None],
    "expert_metadata": np.array([[0, 2], [1, 0], [3, 2], [2, 0]], np.int32),
    "expert_mapping": np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16),
}


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"layout": "packed"}, ValueError, "local_reduce: layout is 'packed', want padded or expert"),
        ({"input": np.float32(1)}, TypeError, "local_reduce: input is"),
    ],
)
def test_rejected(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    assert local_reduce(**CALL).ravel().tolist() == [11, 36, 0, 22]
    with pytest.raises(kind, match=sentence):
        local_reduce(**(CALL | change))
