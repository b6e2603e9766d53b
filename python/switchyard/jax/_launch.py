"""The custom call of XLA: its attributes, its rule for vmap; the call back into Python where there is no handler."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _binding, _caches
from .._arrays import view
from .._operator import Operator

TARGET = "switchyard"
PLATFORMS = ("cpu", "CUDA")
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}

_jax: Any = jax  # for its functions without types
operators: dict[str, Operator[Any]] = {}  # by name; for calls back into Python


class Output(NamedTuple):
    """An output of a call."""

    position: int
    shape: tuple[int, ...]
    dtype: Any
    start: int | None  # the operand with its initial contents; -1: zeros; None: it has none


class Call(NamedTuple):
    """Everything about a call but its arrays: a key of JAX's caches."""

    name: str
    scalars: tuple[tuple[int, Any], ...]  # by position; floats in hexadecimal, because 0.0 equals -0.0
    operands: tuple[int, ...]  # positions
    outputs: tuple[Output, ...]
    batch: tuple[int, ...] = ()  # dimensions that vmap added in front of every array

    def values(self) -> dict[int, Any]:
        """The scalars, by position."""
        table = _binding.table(self.name)
        real = {at for at, field in enumerate(table) if field.kind in ("f32", "f64")}
        return {at: float.fromhex(value) if at in real else value for at, value in self.scalars}


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """JAX with types of 64 bits, which seeds and counts have. Rules for vmap run later, so that they need it again."""
    with _jax.enable_x64(True) if hasattr(_jax, "enable_x64") else _jax.experimental.enable_x64():
        yield


def launch(call: Call, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The call, with a rule for vmap: every array gets one more dimension in front, over which the handler loops.

    An array that is the same for all has an extent of 1 there and is not copied, unless the call changes it.
    """
    if not operands:
        return _bind(call, ())

    @wide()
    def many(size: int, batched: Sequence[bool], *operands: Any) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        changed = {output.start for output in call.outputs}
        taken = [
            x if there else jnp.broadcast_to(x, (size if at in changed else 1, *x.shape))
            for at, (x, there) in enumerate(zip(operands, batched, strict=True))
        ]
        made = launch(call._replace(batch=(size, *call.batch)), taken)
        return made, (True,) * len(made)

    one = _jax.custom_batching.custom_vmap(lambda *operands: _bind(call, operands))
    one.def_vmap(many)
    return tuple(one(*operands))


@wide()
def _bind(call: Call, operands: Sequence[Any]) -> tuple[Any, ...]:
    kinds = [_jax.ShapeDtypeStruct((*call.batch, *output.shape), output.dtype) for output in call.outputs]
    if not has_handlers():
        return _bind_python(call, kinds, operands)
    positions, aliases, taken = [*call.operands], {}, [*operands]
    for at, (output, kind) in enumerate(zip(call.outputs, kinds, strict=True)):
        if output.start is None:
            continue
        aliases[output.start if output.start >= 0 else len(taken)] = at
        if output.start < 0:
            taken.append(jnp.zeros(kind.shape, kind.dtype))
            positions.append(output.position)
    positions += [output.position for output in call.outputs]
    return tuple(
        _jax.ffi.ffi_call(TARGET, kinds, input_output_aliases=aliases)(
            *taken,
            _operator=call.name,
            _positions=np.array(positions, np.int64),
            _batch=np.int64(len(call.batch)),
            **_attributes(call),
        )
    )


def _attributes(call: Call) -> dict[str, Any]:
    """The scalars as attributes of the custom call."""
    types = {int: np.int64, float: np.float64}
    return {f"value_{at}": types.get(type(v), lambda v: v)(v) for at, v in call.values().items()}


@functools.cache
def has_handlers() -> bool:
    """Whether XLA calls the library itself.

    Otherwise it calls Python: with SWITCHYARD_JAX=callback in the environment, where the package was built without the
    header of XLA's C interface, and where JAX has another version of it.
    """
    find = getattr(_binding.core, "jax_handler", None)
    if find is None or os.environ.get("SWITCHYARD_JAX") == "callback":
        return False
    handlers = {platform: int(find(platform, *_version())) for platform in PLATFORMS}
    for platform, address in handlers.items():
        if address:
            _jax.ffi.register_ffi_target(TARGET, _jax.ffi.pycapsule(address), platform=platform)
    return all(handlers.values())


def _version() -> tuple[int, int]:
    """The version of XLA's C interface, which only the header has."""
    try:
        text = Path(_jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    except OSError:
        return -1, -1
    found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text))
    return int(found.get("MAJOR", -1)), int(found.get("MINOR", -1))


# ---- Without handlers ----


def _bind_python(call: Call, kinds: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """JAX may convert 64-bit arrays of a callback to 32 bits, so that they are passed as pairs."""
    passed = [_jax.ShapeDtypeStruct((*k.shape, 2), np.uint32) if k.dtype.itemsize == 8 else k for k in kinds]
    taken = [jax.lax.bitcast_convert_type(x, jnp.uint32) if x.dtype.itemsize == 8 else x for x in operands]
    types = tuple(np.dtype(x.dtype) for x in operands)
    made = jax.pure_callback(functools.partial(_call_back, call, types), passed, *taken)
    return tuple(
        jax.lax.bitcast_convert_type(x, kind.dtype) if kind.dtype.itemsize == 8 else x
        for x, kind in zip(made, kinds, strict=True)
    )


def _call_back(call: Call, types: Sequence[Any], *passed: Any) -> tuple[Any, ...]:
    """Runs the operator once for each element of the batch."""
    operator, table = operators[call.name], _binding.table(call.name)
    operands = [_unpaired(np.asarray(x), dtype) for x, dtype in zip(passed, types, strict=True)]
    made = [
        np.zeros((*call.batch, *output.shape), output.dtype)
        if output.start is None or output.start < 0
        else operands[output.start].copy()
        for output in call.outputs
    ]
    last = max(*call.operands, *(output.position for output in call.outputs), len(table) - 1)
    each = _caches.PLANE_VALUES
    values: list[Any] = [None] * (len(table) + -(-(last + 1 - len(table)) // each) * each)  # whole planes
    for at, value in call.values().items():
        values[at] = value
    for element in np.ndindex(*call.batch):
        for at, x in zip(call.operands, operands, strict=True):
            values[at] = view(x[tuple(i if n > 1 else 0 for i, n in zip(element, x.shape, strict=False))])
        for output, x in zip(call.outputs, made, strict=True):
            values[output.position] = view(x[element])
        n, end = len(operator.given), len(table)
        operator.run(tuple(values[:n]), tuple(values[n:end]), tuple(values[end:]))
    return tuple(x.view(np.uint32).reshape(*x.shape, 2) if x.dtype.itemsize == 8 else x for x in made)


def _unpaired(x: Any, dtype: Any) -> Any:
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape[:-1]) if dtype.itemsize == 8 else x
