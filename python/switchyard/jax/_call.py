"""One call of an operator: validated while JAX traces it, then one custom call of XLA.

Shapes, types and scalars are known while a function is traced; the library validates them there. The values of a call
are numbered as the binding takes them: inputs, scalars, outputs, then the values of each further plane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _caches
from .._arrays import NAMES, Framework, reject_lost
from .._binding import Field, core
from .._operator import Operator
from .._sentences import bad, shown
from ..errors import Status
from ._gradients import run
from ._launch import Call, Output, wide


class Result(NamedTuple):
    """An output that has a shape and a type only."""

    shape: tuple[int, ...]
    dtype: Any
    zeros: bool = False  # whether it begins as zeros


class Traced(Framework):
    """Makes such outputs."""

    types = (None, *(np.dtype(getattr(jnp, name)) if hasattr(jnp, name) else None for name in NAMES[1:]))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return Result(tuple(shape), np.dtype(dtype))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return Result(tuple(shape), np.dtype(dtype), True)


TRACED = Traced()


def is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray))


def is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def is_narrow() -> bool:
    """Whether JAX has no types of 64 bits now: jax_enable_x64 is not set."""
    return bool(jax.dtypes.canonicalize_dtype(np.int64) != np.int64)


def kept(array: Any) -> Any:
    """An array of NumPy as one of JAX, with its 64 bits."""
    if not isinstance(array, np.ndarray) or array.dtype.itemsize < 8:
        return array
    with wide():
        return jnp.asarray(array)


def widened(array: Any) -> Any:
    """Integers that JAX holds in 32 bits, such as offsets that another operator made, in 64."""
    if array.dtype != np.int32:
        return array
    with wide():
        return jax.lax.convert_element_type(array, np.int64)


class JaxOperator:
    """An operator for JAX; in the body of a plain function it takes the place of the plain one."""

    def __init__(self, operator: Operator[Any]) -> None:
        self.plain, self.name = operator, operator.name
        self.table, self.inputs = operator.table, operator.given

    def __call__(self, given: tuple[Any, ...], out: Any = None, *asked: Any) -> Any:
        """Runs the operator on its inputs and scalars. Arrays of `out` are the initial contents of its results."""
        known = self.take(given)
        self.plain.check_asks(asked)
        started = self.results(known, asked) if out is None else self.take_out(known, out)
        made = self.launch(known, started)
        found = [made.get(len(known) + at) for at in range(len(started))]
        return tuple(found) if self.plain.results is tuple else self.plain.results(*found)

    def take(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs and scalars of a call; scalars must be known."""
        reject_lost(self.name, tuple(given))
        return tuple(self._read(field, value) for field, value in zip(self.inputs, given, strict=True))

    def take_out(self, known: Sequence[Any], out: Any) -> tuple[Any, ...]:
        """The arrays of `out`."""
        outputs = self.table[len(self.inputs) :]
        if not isinstance(out, (tuple, list)):
            self.plain.reject_out(f"is {shown(out)}")
        if len(out) != len(outputs):
            self.plain.reject_out(f"has {len(out)} arrays")
        reject_lost(self.name, (*known, *out))
        started = tuple(self._read(field, value) for field, value in zip(outputs, out, strict=True))
        self.check(known, started)
        return started

    def results(self, known: Sequence[Any], asked: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a valid call without `out`."""
        return tuple(self.plain.make(self._described(known), tuple(asked), TRACED))

    def check(self, known: Sequence[Any], started: Sequence[Any] = ()) -> None:
        """Rejects what the operator rejects by type, shape and scalars, in its words."""
        self.plain.check(self._described((*known, *started)))

    def launch(
        self,
        known: Sequence[Any],
        started: Sequence[Any],
        planes: Sequence[Any] = (),
        written: Sequence[int] = (),
    ) -> Mapping[int, Any]:
        """The results of a valid call, by position: those of `started` that are there, and of the planes.

        An array in `started`, or at a position of `written`, is the initial contents of a result.
        """
        first, end = len(known), len(known) + len(started)
        scalars: list[tuple[int, Any]] = []
        operands: dict[int, Any] = {}
        outputs: list[Output] = []
        for at, value in enumerate((*known, *started, *planes)):
            field = self.table[at] if at < first else None
            if isinstance(value, Result):
                outputs.append(Output(at, value.shape, value.dtype, -1 if value.zeros else None))
            elif is_array(value):
                if first <= at < end or at in written:
                    outputs.append(Output(at, tuple(value.shape), np.dtype(value.dtype), len(operands)))
                operands[at] = value
            elif field is not None and field.kind == "tensor" and value is not None:  # one number for all rows
                operands[at] = np.array([value], np.float32 if "f32" in field.types else np.int64)
            elif value is not None:
                real = field is not None and field.kind in ("f32", "f64")
                scalars.append((at, float(value).hex() if real else value))
        call = Call(self.name, tuple(scalars), tuple(operands), tuple(outputs))
        made = run(call, is_narrow(), tuple(map(kept, operands.values())))
        return {output.position: array for output, array in zip(outputs, made, strict=True)}

    def several(self, planes: list[_caches.Plane], calls: Sequence[Any], out: Any, asked: Sequence[Any]) -> Any:
        """The rows of several caches, for _caches.gather."""
        known = [self.take(call) for call in calls]
        if out is None:
            rows = [self.results(call, asked)[0] for call in known]
        else:
            starts = _caches.beside(self.name, "out", out, [], len(known))
            rows = [self.take_out(call, (start,))[0] for call, start in zip(known, starts, strict=True)]
        first = len(self.table)
        written = [first - 1, *(first + 1 + _caches.PLANE_VALUES * at for at in range(len(known) - 1))]
        made = self.launch(known[0], rows[:1], _caches.further(planes, rows), written)
        return tuple(made[at] for at in written)

    def _read(self, field: Field, value: Any) -> Any:
        """A value as it is, or as a plain number."""
        if is_array(value) and field.kind != "tensor":
            want = field.wanted
            if is_traced(value):
                want = f"{want} that is known while the function is traced, such as a static argument of jax.jit"
            text = "is traced by JAX" if is_traced(value) else "is an array"
            raise bad(Status.DTYPE, self.name, field.parameter, f"{text}, want {want}")
        if is_array(value) and is_narrow() and "i64" in field.types and "i32" not in field.types:
            return widened(value)
        if value is None or isinstance(value, (str, bool, int, float)) or is_array(value):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if hasattr(value, "__dlpack__"):
            text = f"is {shown(value)}, want an array of JAX or NumPy"
            raise bad(Status.DTYPE, self.name, field.parameter, text)
        return index(value) if hasattr(value, "__index__") else value

    def _described(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Arrays as tensors without memory; other values as they are."""
        described = []
        for field, value in zip(self.table, values, strict=False):
            try:
                name = np.dtype(value.dtype).name if is_array(value) else ""
                described.append(core.view(0, name, tuple(value.shape), None) if name else value)
            except (TypeError, ValueError) as error:
                text = f"cannot be read as a tensor: {str(error).partition(chr(10))[0]}"
                raise bad(Status.DTYPE, self.name, field.parameter, text) from None
        return tuple(described)
