"""Paged caches: shape and type of their rows, and calls on several of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NamedTuple, Protocol, cast, overload

import numpy as np
from typing_extensions import ParamSpec

from ._arrays import PLAIN, A, Array
from ._operator import PLANE, Operator, place
from ._row_formats import FP4, INLINE
from ._sentences import bad, shown
from .errors import Error, Status, rejection

MOST = 256  # caches of one call: its own, and SY_KV_MAX_PLANES further ones

# Elements of an unpacked row, where the format fixes them; rows of other formats have the shape of the cache's rows.
_WIDTHS = {"ds32_fp8": 576, "pto_int8": 576, "ds4_fp8": 512, "indexer_fp8": 128}
_UNPACKED = ("bfloat16", "float16", "float32")


P = ParamSpec("P")


class Gathers(Protocol[P]):
    """A function whose result is an array for a cache, and a tuple of them for several."""

    @overload
    def __call__(self, cache: A, *args: P.args, **kwargs: P.kwargs) -> A: ...
    @overload
    def __call__(self, cache: Sequence[A], *args: P.args, **kwargs: P.kwargs) -> tuple[A, ...]: ...


def gathers(function: Callable[Concatenate[Any, P], Any]) -> Gathers[P]:
    """For type checkers; the function stays as it is."""
    return cast("Gathers[P]", function)


class Plane(NamedTuple):
    """One of the caches of a call."""

    cache: Any
    format: str | None
    scale: Any
    global_scale: Any = None


def row_shape(cache: Any, layout: str, format: str | None) -> tuple[Any, ...]:
    """Shape of a row of a cache, unpacked where a format is given."""
    if format in _WIDTHS:
        return (_WIDTHS[format],)
    shape = tuple(cache.shape)
    if format in INLINE:
        return (shape[-1] // INLINE[format] * 32,)
    if format in FP4:
        shape = (*shape[:-1], shape[-1] * 2)
    if len(shape) == 2:
        return shape[1:]
    return (shape[1], *shape[3:]) if layout == "hnd" else shape[2:]


def row_type(xp: Any, name: str, cache: Any, format: str | None, dtype: Any) -> Any:
    """Element type of the rows that come out of a cache."""
    if format is None:
        return cache.dtype
    if dtype is not None:
        return asked_type(xp, name, dtype)
    wide = xp.dtype("bfloat16")
    return xp.dtype("float32") if wide is None else wide


def asked_type(xp: Any, name: str, dtype: Any) -> Any:
    """The element type of unpacked rows that a caller wants."""
    word = str(dtype).removeprefix("torch.")
    if word not in _UNPACKED:
        word = _numpy_name(dtype)
    if word not in _UNPACKED:
        raise bad(Status.DTYPE, name, "dtype", f"is {shown(dtype)}, want bfloat16, float16 or float32")
    found = xp.dtype(word)
    if found is None:
        raise bad(Status.DTYPE, name, "dtype", "is bfloat16, want ml_dtypes installed for it, or float16 or float32")
    return found


def _numpy_name(dtype: Any) -> str:
    try:
        return str(np.dtype(dtype).name)
    except Exception:  # of anything that is no type
        return ""


def planes(name: str, cache: Any, format: Any, scale: Any, global_scale: Any) -> list[Plane]:
    """The caches of a call, each with its format and scales. A single format or scale applies to all."""
    caches = spread(name, "cache", cache, None)
    count(name, "cache", cache)
    missing = [i for i, one in enumerate(caches) if one is None and i > 0]
    if missing:
        raise bad(Status.NULL, name, "cache", f"of plane {missing[0]} is missing, want a tensor")
    formats = spread(name, "format", format, len(caches))
    scales = spread(name, "scale", scale, len(caches))
    globals = spread(name, "global_scale", global_scale, len(caches))
    return [Plane(*plane) for plane in zip(caches, formats, scales, globals, strict=True)]


def count(name: str, field: str, cache: Any) -> int:
    """The number of caches of a call, one or more."""
    if isinstance(cache, (tuple, list)) and not cache:
        raise bad(Status.VALUE, name, field, f"is an empty {type(cache).__name__}, want one array or more")
    return len(cache) if isinstance(cache, (tuple, list)) else 1


def spread(name: str, field: str, value: Any, count: int | None) -> Sequence[Any]:
    """One value for each cache."""
    if not isinstance(value, (tuple, list)):
        return [value] * (1 if count is None else count)
    if len(value) > MOST:
        raise bad(Status.VALUE, name, field, f"has {len(value)} values, want at most {MOST}")
    if count is not None and len(value) != count:
        raise bad(Status.VALUE, name, field, f"has {len(value)} values, want {count}, one for each cache")
    return value


def beside(name: str, field: str, value: Any, cache: Any, count: int) -> Sequence[Any]:
    """The array that belongs to each cache: one for one cache, as many as caches for several; or None."""
    if value is None:
        return [None] * count
    if isinstance(value, (tuple, list)) != isinstance(cache, (tuple, list)):
        one, many = ("one array", f"{count}") if isinstance(cache, (tuple, list)) else ("several arrays", "one")
        raise bad(Status.VALUE, name, field, f"is {one}, want {many}, one for each cache")
    return spread(name, field, value, count)


PLANE_VALUES = len(PLANE)


def further(planes: Sequence[Plane], rows: Sequence[Any]) -> tuple[Any, ...]:
    """All planes but the first, as the binding takes them."""
    values: list[Any] = []
    for (cache, format, scale, global_scale), beside in zip(planes[1:], rows[1:], strict=True):
        values += (cache, beside, format, scale, global_scale)
    return tuple(values)


def check_dtype(name: str, dtype: Any, format: Any) -> None:
    """Rejects a type for rows that are not unpacked."""
    if dtype is not None and not (any(format) if isinstance(format, (tuple, list)) else format):
        text = f"is {shown(dtype)}, want a format with it: other rows come out as they are"
        raise bad(Status.VALUE, name, "dtype", text)


def _made(operator: Operator[Any], number: int, call: tuple[Any, ...], asked: tuple[Any, ...]) -> Any:
    """The new rows of a plane."""
    try:
        return operator.make(call, asked)[0]
    except Error as error:
        about = f"{operator.name}: {error.fault.argument} "
        if number == 0 or error.fault.argument not in PLANE[2:] or not str(error).startswith(about):
            raise
        text = f"{about}of plane {number} {str(error).removeprefix(about)}"
        raise rejection(error.status, text, error.fault) from error


def gather(
    operator: Operator[Any],
    cache: Any,
    found_by: tuple[Array | None, ...],
    scale: Any,
    global_scale: Any,
    numbers: tuple[Any, ...],
    format: Any,
    out: Any,
    asked: tuple[Any, ...],
) -> Any:
    """Runs an operator that copies rows out of one cache, or out of several by the same indices, as `dtype`."""
    check_dtype(operator.name, asked[-1], format)
    if not isinstance(cache, (tuple, list)):
        given = (cache, *found_by, scale, global_scale, *numbers, format)
        return operator(given, None if out is None else (out,), *asked)[0]
    several = planes(operator.name, cache, format, scale, global_scale)
    calls = [(plane.cache, *found_by, plane.scale, plane.global_scale, *numbers, plane.format) for plane in several]
    run: Any = getattr(operator, "several", None)  # of JAX
    return run(several, calls, out, asked) if run else _several(operator, several, calls, out, asked)


def _several(
    operator: Operator[Any], several: list[Plane], calls: list[tuple[Any, ...]], out: Any, asked: tuple[Any, ...]
) -> Any:
    xp = place((several[0].cache,))
    if not PLAIN.issuperset(map(type, (*calls[0], *[value for plane in several for value in plane]))):
        for call in calls:
            operator.look(call)
    if out is None:
        made = [_made(operator, number, call, asked) for number, call in enumerate(calls)]
        operator.run(calls[0], (made[0],), further(several, made))
        return tuple(xp.finish(rows) for rows in made)
    for rows in beside(operator.name, "out", out, [], len(several)):
        operator.look((*[None] * len(calls[0]), rows))
        operator.check_written("out", rows)
    operator.run(calls[0], (out[0],), further(several, out))
    return tuple(out)
