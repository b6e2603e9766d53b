"""One call against its oracle: every bit of every output, every rejection, every byte that must stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Rejected
from oracle.arith import F32, narrow
from reader import Array, Reader

import switchyard

Spec = tuple[tuple[int, ...], Any] | None  # shape and type of an output, None where it is not asked for
Oracle = Callable[..., dict[str, Any]]
T = TypeVar("T")


@dataclass
class Case:
    """Arguments of one call by name. `outs` are its outputs, in their order in its results."""

    inputs: dict[str, Array | None]
    fields: dict[str, Any]
    outs: dict[str, Spec]
    held: dict[str, Array] = field(default_factory=dict)  # what outputs hold before the call, where that matters
    changed: tuple[str, ...] = ()  # inputs that the call writes to
    plain: tuple[str, ...] = ()  # arrays that must lie without gaps
    untyped: tuple[str, ...] = ()  # inputs of any type
    longer: tuple[str, ...] = ()  # outputs that may be longer than they must be
    only_out: bool = False  # outputs of types or contents that only the caller can choose
    no_out: bool = False  # outputs that only the call makes
    hints: dict[str, Any] = field(default_factory=dict)  # what the oracle must know and the call is not told
    fresh: dict[str, Any] = field(default_factory=dict)  # the same, where the call makes its outputs itself
    asked: dict[str, Any] = field(default_factory=dict)  # what only such a call is told
    ways: Reader = field(default_factory=lambda: Reader(b""), repr=False)  # how the call is made


@dataclass
class Tally:
    examples: int = 0
    answered: int = 0
    rejected: int = 0
    spoiled: int = 0


tallies: dict[str, Tally] = {}


# ---- Arrays as callers have them ----


def lay(x: Array, how: int) -> tuple[Array, Array]:
    """The same elements as they may lie in a caller's memory: behind something else, or in wider rows.

    Returns the array and the memory around it, in which only the elements of the array may ever change.
    """
    room = 1 + how % 3
    if how & 4 and x.ndim >= 2:
        around = np.full((*x.shape[:-1], (x.shape[-1] + room) * x.dtype.itemsize), 0xA5, np.uint8).view(x.dtype)
        inside = around[..., : x.shape[-1]] if how & 8 else around[..., room:]
    else:
        around = np.full((x.size + room) * x.dtype.itemsize, 0xA5, np.uint8).view(x.dtype)
        inside = around[room:].reshape(x.shape)
    inside[...] = x
    return inside, around


class Laid:
    """An array in a caller's memory, and what that memory must hold afterwards."""

    def __init__(self, x: Array, ways: Reader, plain: bool) -> None:
        self.how = ways.take(1)[0] & (0xFB if plain else 0xFF)
        self.array, self.around = lay(x, self.how)
        self.before = self.around.tobytes()

    def expect(self, name: str, wanted: Array) -> None:
        wanted = converted(wanted, self.array.dtype)
        assert self.array.shape == wanted.shape, f"{name} has shape {self.array.shape}, want {wanted.shape}"
        assert self.around.tobytes() == lay(wanted, self.how)[1].tobytes(), f"{name}: {self.array!r}, want {wanted!r}"

    def expect_unchanged(self, name: str) -> None:
        assert self.around.tobytes() == self.before, f"{name} was written to"


def converted(wanted: Array, dtype: Any) -> Array:
    """An oracle's answer in the type of an output: whole numbers fit, floats are rounded once."""
    if wanted.dtype == dtype:
        return wanted
    return narrow(wanted, dtype) if wanted.dtype == F32 else wanted.astype(dtype)


# ---- The call ----


def call(op: str, inputs: dict[str, Any], fields: dict[str, Any], out: dict[str, Any] | None) -> Any:
    """One output is given and returned as it is, several in a tuple."""
    function = getattr(switchyard, op)
    if not out:
        return function(**inputs, **fields)
    return function(**inputs, **fields, out=next(iter(out.values())) if len(out) == 1 else tuple(out.values()))


def check(op: str, oracle: Oracle, case: Case, tally: Tally) -> None:
    """Runs one example in one of the ways it can be run."""
    ways = case.ways
    laid = {name: Laid(x, ways, name in case.plain) for name, x in case.inputs.items() if x is not None}
    inputs = {name: laid[name].array if name in laid else None for name in case.inputs}
    for name in laid:
        if name not in case.changed and ways.chance(25):
            inputs[name].flags.writeable = False  # type: ignore[union-attr]
    makes = case.no_out or (bool(case.outs) and not case.only_out and ways.chance(50))
    try:
        wanted = oracle(**case.inputs, **case.fields, **case.hints | (case.fresh if makes else {}))
    except Rejected as rejection:
        tally.rejected += 1
        expect_rejection(op, inputs, case, None if makes else given_out(case), (rejection.status,))
        wanted = {}
    else:
        if ways.chance(8) and spoil(op, inputs, case):
            tally.spoiled += 1
            wanted = {}
        else:
            tally.answered += 1
            (expect_results if makes else expect_written)(op, inputs, case, wanted)
    for name, x in laid.items():
        if name in case.changed and name in wanted:
            x.expect(name, wanted[name])
        else:
            x.expect_unchanged(name)


def given_out(case: Case) -> dict[str, Laid | None]:
    out: dict[str, Laid | None] = {}
    for name, spec in case.outs.items() if not case.no_out else ():
        if spec is not None:
            held = case.held.get(name)
            if held is None:
                held = (
                    np.full(int(np.prod(spec[0])) * np.dtype(spec[1]).itemsize, 0x5A, np.uint8)
                    .view(spec[1])
                    .reshape(spec[0])
                )
            out[name] = Laid(held, case.ways, name in case.plain)
        else:
            out[name] = None
    return out


def arrays(out: dict[str, Laid | None] | None) -> dict[str, Any]:
    return {name: None if x is None else x.array for name, x in (out or {}).items()}


def expect_results(op: str, inputs: dict[str, Any], case: Case, wanted: dict[str, Any]) -> None:
    """Of a call that makes its outputs itself: one alone, several in a named tuple."""
    found = call(op, inputs, case.fields | case.asked, None)
    if len(case.outs) > 1:
        assert found._fields == tuple(case.outs)
    results = found if len(case.outs) > 1 else (np.array([found]),) if case.no_out else (found,)
    for name, got in zip(case.outs, results, strict=True):
        want, spec = wanted[name], case.outs[name]
        assert (got is None) == (spec is None), f"{name}: {got!r}, want {want!r}"
        if spec is not None:
            assert (got.shape, got.dtype) == spec, f"{name}: {got.dtype} {got.shape}, want {spec}"
            want = converted(want, got.dtype)
            assert got.tobytes() == want.tobytes(), f"{name}: {got!r}, want {want!r}"


def expect_written(op: str, inputs: dict[str, Any], case: Case, wanted: dict[str, Any]) -> None:
    """Of a call that is given its outputs, or changes an input."""
    out = given_out(case)
    call(op, inputs, case.fields, arrays(out))
    for name, x in out.items():
        if x is not None:
            x.expect(name, wanted[name])


def expect_rejection(
    op: str, inputs: dict[str, Any], case: Case, out: dict[str, Laid | None] | None, statuses: tuple[str, ...] = ()
) -> None:
    """The call must be rejected, and outputs given to it must stay as they are."""
    try:
        call(op, inputs, case.fields | (case.asked if out is None else {}), arrays(out))
    except switchyard.Error as error:
        assert not statuses or error.status.name in statuses, f"{error.status.name}, want {statuses}: {error}"
        assert str(error).startswith(f"{op}: "), error
    else:
        raise AssertionError(f"not rejected, want {statuses}")
    for name, x in (out or {}).items():
        if x is not None:
            x.expect_unchanged(name)


# ---- Good calls made bad ----


def spoil(op: str, inputs: dict[str, Any], case: Case) -> bool:
    """Breaks one thing about a call that would succeed, and expects a rejection; False where nothing can break."""
    return case.ways.pick(spoil_extent, spoil_type, spoil_output, spoil_stride)(op, inputs, case)


def spoil_extent(op: str, inputs: dict[str, Any], case: Case) -> bool:
    names = [name for name, spec in case.outs.items() if spec is not None and name not in case.longer]
    if not names or case.no_out:
        return False
    name = case.ways.pick(*names)
    shape, dtype = case.outs[name]  # type: ignore[misc]
    longer = Case({}, {}, {**case.outs, name: ((shape[0] + 1, *shape[1:]), dtype)}, ways=case.ways)
    expect_rejection(op, inputs, case, given_out(longer), ("SHAPE",))
    return True


def spoil_type(op: str, inputs: dict[str, Any], case: Case) -> bool:
    names = [name for name, x in inputs.items() if x is not None and name not in case.untyped]
    if not names:
        return False
    name = case.ways.pick(*names)
    expect_rejection(
        op, {**inputs, name: np.zeros(inputs[name].shape, np.complex64)}, case, given_out(case), ("DTYPE",)
    )
    return True


def spoil_output(op: str, inputs: dict[str, Any], case: Case) -> bool:
    out = given_out(case)
    locked = [x.array for x in out.values() if x is not None and x.array.size]
    if not locked:
        return False
    case.ways.pick(*locked).flags.writeable = False
    expect_rejection(op, inputs, case, out)
    return True


def spoil_stride(op: str, inputs: dict[str, Any], case: Case) -> bool:
    names = [name for name, x in inputs.items() if x is not None and x.ndim >= 2 and x.shape[-1] >= 2 and x.size]
    if not names:
        return False
    name = case.ways.pick(*names)
    expect_rejection(op, {**inputs, name: np.repeat(inputs[name], 2, -1)[..., ::2]}, case, given_out(case), ("STRIDE",))
    return True


def run_examples(op: str, check_one: Callable[[T, Tally], None], build: Callable[[Reader], T]) -> None:
    """Checks an operator on as many examples as the profile asks for, and that they were as many."""
    tally = tallies.setdefault(op, Tally())

    @given(st.binary(min_size=192, max_size=192).map(lambda data: build(Reader(data))))
    def every(example: T) -> None:
        tally.examples += 1
        check_one(example, tally)

    every()
    assert tally.examples >= settings.default.max_examples  # type: ignore[union-attr]


def run_property(op: str, oracle: Oracle, build: Callable[[Reader], Case]) -> None:
    """The same for an operator whose calls are cases."""

    def case(reader: Reader) -> Case:
        made = build(reader)
        made.ways = Reader(reader.take(16))
        return made

    run_examples(op, lambda made, tally: check(op, oracle, made, tally), case)
