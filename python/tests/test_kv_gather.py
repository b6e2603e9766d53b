"""kv_gather: several caches at once, types of packed rows, values of Python's own that are rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from calls import without_ml_dtypes

import switchyard
from switchyard import kv_gather

bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


def rows_of(count: int, width: int) -> Any:
    """Row r is 10r, 10r+1, ..."""
    return (10 * np.arange(count)[:, None] + np.arange(width)).astype(np.float32)


def test_heads_by_strides() -> None:
    """Blocks of heads as a transposed view of blocks of tokens."""
    cache = np.arange(16.0).reshape(2, 2, 2, 2)
    got = kv_gather(cache.swapaxes(1, 2), np.array([1, 2]), np.array([1, 0]), block_size=2)
    np.testing.assert_array_equal(got, [[[10, 11], [14, 15]], [[0, 1], [4, 5]]])


@pytest.mark.parametrize("kind", [tuple, list])
def test_planes(kind: Any) -> None:
    cache = rows_of(6, 5)
    caches = kind([cache[:, :3], cache[:, 3:], cache.astype(np.int16).reshape(3, 2, 5)])
    at = {"indices": np.array([4, 1]), "block_table": np.array([0, 1, 2]), "block_size": 2}
    got = kv_gather(caches, **at)
    assert isinstance(got, tuple)
    for one, rows in zip(caches, got, strict=True):
        np.testing.assert_array_equal(rows, kv_gather(one, **at), strict=True)
    out = [np.empty_like(rows) for rows in got]
    again = kv_gather(caches, **at, out=out)
    assert all(a is b for a, b in zip(again, out, strict=True))
    for rows, same in zip(got, out, strict=True):
        np.testing.assert_array_equal(rows, same, strict=True)


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


def test_many_planes() -> None:
    caches = [rows_of(6, 1) + i for i in range(256)]
    at: dict[str, Any] = {"indices": np.array([4, 1]), "block_table": np.array([0, 1, 2]), "block_size": 2}
    for i, rows in enumerate(kv_gather(caches, **at)):
        assert rows.tolist() == [[40 + i], [10 + i]]
    with pytest.raises(ValueError, match="kv_gather: cache has 257 values, want at most 256"):
        kv_gather([*caches, caches[0]], **at)


def test_mixed_formats() -> None:
    """Packed rows beside rows as they are: formats and scales are tuples."""
    plain, packed = rows_of(1, 3), CODES
    at = {"indices": np.array([0]), "block_table": np.array([0]), "block_size": 1}
    tenth = np.array([0.1], np.float32)
    got = kv_gather((plain, packed), **at, format=(None, "e4m3"), scale=(None, tenth), dtype="float32")
    np.testing.assert_array_equal(got[0], plain, strict=True)
    np.testing.assert_array_equal(got[1], kv_gather(packed, **at, format="e4m3", scale=tenth, dtype="float32"))


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"pad": "drop"}, ValueError, "kv_gather: pad is 'drop', want error, zero or skip"),
        ({"layout": 1}, ValueError, "kv_gather: layout is 1, want nhd or hnd"),
        ({"format": "fp4"}, ValueError, "kv_gather: format is 'fp4', want ds32_fp8, pto_int8, "),
        ({"format": "ds32_fp8", "dtype": "int8"}, TypeError, "dtype is 'int8', want bfloat16, float16 or float32"),
        (
            {"dtype": "float32"},
            ValueError,
            "dtype is 'float32', want a format with it: other rows come out as they are",
        ),
        ({"block_table": None}, TypeError, "kv_gather: block_table is missing, want a tensor, or page_indices"),
        ({"cache": ()}, ValueError, "kv_gather: cache is an empty tuple, want one array or more"),
        ({"cache": np.zeros(6)}, ValueError, "kv_gather: cache has"),
        ({"format": (None,)}, TypeError, "kv_gather: format is a tuple, want ds32_fp8, pto_int8, "),
    ],
)
def test_rejected(change: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    call: dict[str, Any] = {"cache": rows_of(6, 2), "indices": np.array([0, 4, 3])}
    call |= {"block_table": np.array([0, 2, 1]), "block_size": 2}
    with pytest.raises(kind, match=sentence) as caught:
        kv_gather(**(call | change))
    assert isinstance(caught.value, switchyard.Error)


def test_rejected_planes() -> None:
    cache = rows_of(6, 2)
    at: dict[str, Any] = {"indices": np.array([0]), "block_table": np.array([0]), "block_size": 2}
    for change, sentence in [
        ({"format": ("e4m3",)}, "kv_gather: format has 1 values, want 2, one for each cache"),
        ({"scale": (None, None, None)}, "kv_gather: scale has 3 values, want 2, one for each cache"),
        ({"out": np.empty((1, 2), np.float32)}, "kv_gather: out is one array, want 2, one for each cache"),
        ({"out": (np.empty((1, 2), np.float32),)}, "kv_gather: out has 1 values, want 2"),
        ({"cache": (cache, cache[:4])}, "kv_gather: cache of plane 1 has 4 rows, want 6 as in the first plane"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            kv_gather(**({"cache": (cache, cache), **at} | change))
    out = (np.empty((1, 2), np.float32), np.zeros((1, 2), np.float32))
    out[1].flags.writeable = False
    with pytest.raises(ValueError, match="kv_gather: out is a read-only numpy array"):
        kv_gather((cache, cache), **at, out=out)
    assert not out[1].any()


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy has no bfloat16 then: rows come out as float32, and who asks for it is told."""
    without_ml_dtypes(monkeypatch)
    call: dict[str, Any] = {"cache": CODES, "indices": np.array([0]), "block_table": np.array([0]), "block_size": 1}
    call |= {"format": "e4m3", "scale": np.ones(1, np.float32)}
    assert kv_gather(**call).dtype == np.float32
    with pytest.raises(TypeError, match="dtype is bfloat16, want ml_dtypes installed for it, or float16 or float32"):
        kv_gather(**call, dtype="bfloat16")


def test_sentences_of_further_planes() -> None:
    cache, scale, one, ids = (
        np.zeros((4, 32), np.uint8),
        np.zeros((4, 4), np.uint8),
        np.ones(1, np.float32),
        np.arange(2),
    )
    good: dict[str, Any] = {"scale": (scale,) * 3, "global_scale": (one,) * 3, "format": ("nvfp4",) * 3}
    for field, value, kind in (
        ("global_scale", "x", TypeError),
        ("scale", "q", TypeError),
        ("format", "zz", ValueError),
    ):
        wrong = {**good, field: (*good[field][:2], value)}
        with pytest.raises(kind, match=f"kv_gather: {field} of plane 2 is '{value}', want "):
            kv_gather((cache,) * 3, ids, ids, block_size=2, **wrong)
