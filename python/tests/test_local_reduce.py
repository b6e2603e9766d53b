"""local_reduce: the worked example of its page in both layouts, weights, what is not written, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchyard import local_reduce

nan = np.nan
CHOICES = np.array([[0, 2], [1, 0], [3, 2], [2, 0]], np.int32)
HOSTS = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)
ROWS = np.array([[11, 12, nan, 22], [nan, 24, nan, nan]], np.float32)[:, :, None]
WEIGHTS = np.array([[2, 1], [0.5, 1], [1, 1], [1, 0.5]], np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_padded(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    got = local_reduce(ROWS.astype(dtype), CHOICES, HOSTS)
    np.testing.assert_array_equal(got, np.array([[11], [36], [0], [22]]).astype(dtype), strict=True)
    got = local_reduce(ROWS.astype(dtype), CHOICES, HOSTS, WEIGHTS)
    np.testing.assert_array_equal(got.ravel().astype(np.float32), [22, 24, 0, 11])


def test_shapes_of_the_mesh() -> None:
    got = local_reduce(ROWS.reshape(2, 2, 2, 1), CHOICES.reshape(1, 2, 2, 2), HOSTS[None, None])
    np.testing.assert_array_equal(got, np.array([11, 36, 0, 22], np.float32).reshape(1, 2, 2, 1), strict=True)


def test_kept() -> None:
    assert local_reduce(ROWS, CHOICES, HOSTS, fill="keep").ravel().tolist() == [11, 36, 0, 22]
    out = np.full((4, 1), 5, np.float32)
    assert local_reduce(ROWS, CHOICES, HOSTS, fill="keep", out=out) is out
    assert out.ravel().tolist() == [11, 36, 5, 22]


@pytest.mark.parametrize(("rows", "align"), [([11, 12, 22, 24], 0), ([11, 12, 22, nan, 24, nan], 2)])
def test_expert_layout(rows: list[float], align: int) -> None:
    got = local_reduce(np.array(rows, np.float32)[:, None], CHOICES, HOSTS, layout="expert", align=align)
    assert got.ravel().tolist() == [11, 36, 22, 0]
    out = np.full((3, 1), -1, np.float32)
    local_reduce(np.array(rows, np.float32)[:, None], CHOICES, HOSTS, WEIGHTS, layout="expert", align=align, out=out)
    assert out.ravel().tolist() == [22, 24, 11]


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"expert_mapping": HOSTS.astype(np.int32)}, TypeError, "local_reduce: expert_mapping is i32, want u16"),
        ({"device": 2}, ValueError, "local_reduce: device is 2, want 0 to 1"),
        ({"layout": "packed"}, ValueError, "local_reduce: layout is 'packed', want padded or expert"),
        ({"input": ROWS[:1]}, ValueError, "local_reduce: input has 1 experts, want 2, those of device 0"),
        ({"expert_metadata": CHOICES + 2}, IndexError, "local_reduce: expert_metadata at token 0, slot 1 is 4, want"),
        ({"input": np.float32(1)}, TypeError, "local_reduce: input is"),
    ],
)
def test_refused(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        local_reduce(**({"input": ROWS, "expert_metadata": CHOICES, "expert_mapping": HOSTS} | change))
