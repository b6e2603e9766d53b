"""One operator: results made, the call, and what is text when it is rejected."""

from __future__ import annotations

import operator as _python
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

import numpy as np

from . import _arrays, _binding, _rules
from ._arrays import NUMPY, PLAIN, Framework, framework, is_array, known, reject_lost
from ._numbers import count, is_flag
from ._rules import parameter
from ._sentences import bad, device_named, library, shown
from .errors import Error, Status, rejection

ndarray, modules, simple = np.ndarray, sys.modules, _binding.simple  # looked up in every call

# What is raised for a value that tvm-ffi does not take as it is, or that is no word.
ODD = (BufferError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError, KeyError)

ALL = (1 << 64) - 1  # bits: calls.c looks at every tensor
PLANE = (
    "cache",
    "",
    "format",
    "scale",
    "global_scale",
)  # values of each further plane; the second has another name in each operator
SIMPLE = frozenset({type(None), bool, int, float})  # types of values that tvm-ffi takes as they are

R = TypeVar("R", bound=tuple[Any, ...])

if TYPE_CHECKING:
    from ._device import Place

    def pack(kind: type[R], values: tuple[Any, ...]) -> R:
        """A named tuple of these values, in less than half the time of its own constructor."""
else:
    pack = tuple.__new__


class Operator(_binding.Call, Generic[R]):
    """A row of the binding's table, with the rule that makes its results.

    `results` is the named tuple they are, or tuple for one array; `flows` are the inputs that a gradient would go back
    to; `changes` are the inputs that are written where they have a value for each row; `asks` are the parameters of the
    function that are no fields, but are about its results. The other arguments say of the results what the description
    does not, see _rules.Special. The rule may take for granted that the inputs fit: whatever it stumbles over is told
    in the operator's own words.
    """

    __slots__ = (
        "_inputs",
        "_into",
        "_leader",
        "_new",
        "_planned",
        "_query",
        "_run",
        "_strided",
        "_worded",
        "changes",
        "flows",
        "name",
        "outputs",
        "results",
        "writer",
    )

    def __init__(
        self,
        name: str,
        results: type[R],
        flows: tuple[int, ...] = (0,),
        asks: str = "",
        changes: tuple[int, ...] = (),
        **special: Mapping[str, Any],
    ) -> None:
        self.name, self.results = name, results
        self.flows, self.changes = flows, changes
        self.writer = _rules.Writer(name, asks.split(), _rules.Special(**special))
        first = next(field for field in _binding.table(name) if field.written)
        self._leader = _binding.fields(name).index(first.like) if first.like else 0  # the input that results are like
        self._inputs = len(self.writer.inputs)  # which come first
        self._worded = any(field.kind == "enum" for field in _binding.table(name))  # whether `_run` takes other values
        self._run = _binding.operator(name)
        self._query = _binding.query(name)
        self.outputs: Callable[..., R] = self._when_first("outputs")  # those of Writer.write
        self._new: Callable[..., tuple[int, R]] = self._when_first("_new")
        self._strided: Callable[..., tuple[int, R]] = self._when_first("_strided")
        self._into: Callable[..., int] = self._when_first("_into")
        self._planned: Callable[..., tuple[Any, ...]] = self._when_first("_planned")
        watched, changed = sum(1 << i for i in flows), sum(1 << i for i in changes)
        self.prepare(name, self._leader, watched, changed, self.writer.numbered(), results, self._plan, self.general)

    if TYPE_CHECKING:

        def __call__(self, given: tuple[Any, ...], out: R | None = None, *asked: Any) -> R:
            """Runs the operator: by calls.c where that can, else by `general`."""

    def _plan(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """How the results of a call are made, for calls.c: the functions that make an array and one of zeros, and the
        arguments of one of them for each result; None: the general way makes them.
        """
        xp = framework(values[self._leader]).at(values[self._leader])
        return None if xp.strided is None else (xp.strided, xp.zeros, *self._planned(xp, *values))

    def _when_first(self, which: str) -> Callable[..., Any]:
        """Writes the functions when one of them is called: the first call takes the time, not the import."""

        def first(*values: Any) -> Any:
            made = self.writer.write(self.results, pack, self.check_asked)
            self.outputs, self._new, self._strided, self._into, self._planned = made
            return getattr(self, which)(*values)

        return first

    def ran(self, given: tuple[Any, ...], out: tuple[Any, ...]) -> bool:
        """Runs a call that writes in place, if calls.c can: not where any tensor has a gradient or a lazy sign."""
        done = self.direct(given, out, ALL)
        return done is not None if type(done) is not int else self._reject(done, given, out)

    # The fast path, for arrays that tvm-ffi takes directly, runs as little Python as possible.
    def general(self, given: tuple[Any, ...], out: R | None = None, *asked: Any) -> R:
        """Runs the operator on its inputs and numbers, in the order of the table, and its outputs.

        A call of the operator itself takes a shorter way for tensors of PyTorch, see _binding.Call.
        """
        if not simple(given, out, ndarray):
            reject_lost(self.name, given[: self._inputs], self.flows)
            if isinstance(out, (tuple, list)):
                reject_lost(self.name, out, first=len(given))
        if out is not None and asked:
            self.check_asks(asked)
        xp = NUMPY if type(given[self._leader]) is ndarray else self._look(given, out)
        if xp.device is not None:
            return self._there(cast("Place", xp), given, out, asked)
        if out is None:
            return self.new(xp, given, asked)
        if "jax" in modules:  # its arrays are immutable, and DLPack does not report it
            self._check_out(len(given), out)
        if status := self.status(given, out):
            self._run_odd(status, given, out, ())
        return out

    def new(self, xp: Framework, given: tuple[Any, ...], asked: tuple[Any, ...] = ()) -> R:
        """The call with new results, without checks for gradients and masks."""
        try:
            new = self._new if xp.strided is None else self._strided
            status, made = new(self._run, xp, *given, *asked)
        except Exception:
            status = -1
        if status:  # retry with plain numbers and arrays; if that fails too, it gives the error
            if status > 0 and xp.device is not None:  # see _run_there
                self._reject(status, given)
            given = _plain_numbers(given)
            made = self.make(xp, given, asked)
            self.run(given, made)
        return _rebuilt(made, xp.finish) if xp.takes_over else made

    def run(self, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...] = ()) -> None:
        """The call itself, without checks for gradients and masks."""
        at = place((*out, *given))
        if at.device is not None:
            self._run_there(cast("Place", at), given, out, planes)
            return
        status = self.status(given, out, planes)
        if status:
            self._run_odd(status, given, out, planes)

    def status(self, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...] = ()) -> int:
        """The status of the binding's function; -1: tvm-ffi does not take a value as it is, or one is no word."""
        try:
            if not self._worded:
                status = self._run(*given, *out, *planes)
            elif not planes:
                status = self._into(self._run, out, *given)
            else:
                status = self._run(*self.writer.numbers(given), *out, *planes)
        except ODD:
            return -1
        if (
            not status
            and "torch" in modules
            and not PLAIN.issuperset(map(type, out if not planes else (*out, *planes)))
        ):
            self._tell(given, out, planes)
        return status

    def _tell(self, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...]) -> None:
        """Tells PyTorch which of its tensors were written to."""
        written = [*out, *(given[i] for i in self.changes if getattr(given[i], "ndim", 1) > 1)]
        for at in range(0, len(planes), len(PLANE)):
            cache, beside, _, scale, _ = planes[at : at + len(PLANE)]
            written.append(cache if self.name == "kv_scatter" or beside is None else beside)
            if self.changes and getattr(scale, "ndim", 1) > 1:
                written.append(scale)
        _arrays.tell_written(written)

    def _run_odd(self, status: int, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...]) -> None:
        """Retries with plain values where the binding failed before the operator; then raises."""
        if status < 0:
            n = len(given)
            self._check_out(n, out)
            numbers = self.writer.numbers(self._read(given, 0))
            status = self._run(*numbers, *self._read(out, n), *self._read(planes, n + len(out)))
        if status:
            self._reject(status, given, out, planes)
        self._tell(given, out, planes)

    def _there(self, xp: Place, given: tuple[Any, ...], out: R | None, asked: tuple[Any, ...]) -> R:
        """The call on a device."""
        direct = xp.direct.issuperset(map(type, given if not isinstance(out, tuple) else (*given, *out)))
        if direct and out is None:
            return self.new(xp, given, asked)
        if direct and isinstance(out, tuple) and (status := self.status(given, out)) >= 0:
            if status:
                self._reject(status, given, out)
            return out
        given = _plain_numbers(given)
        if out is None:
            made = self.make(xp, given, asked)
            self._run_there(xp, given, made, ())
            return _rebuilt(made, xp.finish) if xp.takes_over else made
        self._check_out(len(given), out)
        self._run_there(xp, given, out, ())
        return out

    def _run_there(self, xp: Place, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...]) -> None:
        """Runs on a device. There is no second attempt: the status may be that of an earlier call, read only once."""
        direct = xp.direct.issuperset(map(type, (*given, *out, *planes)))
        status = self.status(given, out, planes) if direct else -1
        if status < 0:  # the binding did not take a value as it is
            numbers = self.writer.numbers(given)
            status = xp.call(self._run, self._read((*numbers, *out, *planes), 0, xp))
            if not status:
                self._tell(given, out, planes)
        if status:
            self._reject(status, given, out, planes)

    def _look(self, given: tuple[Any, ...], out: Any = None) -> Framework:
        """The library of the first array, which makes the results."""
        array = given[self._leader]
        xp = known.get(type(array))
        if xp is None:
            array = _first(given)
            if array is None and isinstance(out, (tuple, list)):
                array = _first(out)
            xp = framework(array)
        return xp.at(array) if xp.elsewhere else xp

    def make(self, xp: Any, given: tuple[Any, ...], asked: tuple[Any, ...] = ()) -> R:
        """Results of the right shape and type; raises the operator's error if there can be none."""
        try:
            return self.outputs(xp, *given, *asked)
        except Error:
            raise
        except Exception:
            if any(isinstance(value, np.integer) for value in given):  # they overflow in their own width
                return self.make(xp, _plain_numbers(given), asked)
            self.check(given)  # the operator's own error is the better one
            self.check_asks(asked)
            return self._make_by_name(xp, given, asked)

    def _make_by_name(self, xp: Any, given: tuple[Any, ...], asked: tuple[Any, ...]) -> R:
        """Results where arrays have no `shape`, or have element types of another library."""
        try:
            read = self._read(given, 0, xp if xp.device is not None else None)
            return self.outputs(_arrays.ByName(xp), *read, *asked)
        except (TypeError, ValueError) as error:
            self._reject_mixed(xp, given)
            raise rejection(
                Status.UNSUPPORTED, f"{self.name}: no result can be made here, want out: {error}"
            ) from error

    def check(self, given: tuple[Any, ...], planes: tuple[Any, ...] = ()) -> None:
        """Rejects inputs and numbers that the operator would reject, by its query."""
        at = place(given)
        status = self._query(
            *self.writer.numbers(self._read(given, 0, None if at.device is None else cast("Place", at)))
        )
        if status:
            self._reject(status, given)

    def check_asks(self, asked: Sequence[Any]) -> None:
        for name, value in zip(self.writer.asks, asked, strict=False):
            self.check_asked(name, value)

    def check_asked(self, name: str, value: Any) -> None:
        """Rejects a value that is about results and no field: a number of rows, a type, or whether there is one."""
        if name == "rows" and value is not None:
            count(self.name, name, value)
        elif name not in ("rows", "dtype") and not is_flag(value):
            raise bad(Status.DTYPE, self.name, name, f"is {shown(value)}, want True or False") from None

    def check_kinds(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Rejects flags that are no booleans and booleans that are no flags; returns the values as Python's own."""
        for at, field in enumerate(self.writer.given):
            if (field.kind == "bool") != is_flag(given[at]):
                self._reject_kind(at, given, (), ())
        self.check_asks(given[len(self.writer.given) :])
        return tuple(value.item() if isinstance(value, np.generic) else value for value in given)

    def _field(self, at: int) -> str:
        fields = _binding.fields(self.name)
        if at < len(fields):
            return fields[at]
        plane, part = divmod(at - len(fields), len(PLANE))
        beside = {"kv_scatter": "src", "kv_blocks": "dst"}.get(self.name, "out")
        return f"{PLANE[part] or beside} of plane {plane + 1}"

    def _described(self, at: int) -> _binding.Field:
        """The description of a value; of those of a plane, that of the first one of its kind."""
        table, fields = _binding.table(self.name), _binding.fields(self.name)
        is_format = at >= len(fields) and PLANE[(at - len(fields)) % len(PLANE)] == "format" and "format" in fields
        return table[fields.index("format") if is_format else at if at < len(fields) else 0]

    def _check_out(self, first: int, out: tuple[Any, ...]) -> None:
        """Rejects arrays that cannot be written to, and an `out` that is no tuple."""
        if not isinstance(out, (tuple, list)):
            self._reject_out(first, f"is {shown(out)}")
        for i, array in enumerate(out):
            if array is not None:
                self.check_written(self._field(first + i), array)

    def look(self, values: tuple[Any, ...]) -> None:
        """Rejects arrays with a gradient, mask or lazy sign, which would be lost, at any position."""
        reject_lost(self.name, values, range(len(values)))

    def check_written(self, field: str, array: Any) -> None:
        """Rejects an array that cannot be written to."""
        if not framework(array).mutable or (isinstance(array, np.ndarray) and not array.flags.writeable):
            self._reject_write(field, array)

    def _reject_write(self, field: str, array: Any) -> NoReturn:
        text = f"is a read-only {library(array)} array, want one that can be written to"
        raise bad(Status.VALUE, self.name, field, text)

    def _reject_mixed(self, xp: Framework, given: tuple[Any, ...]) -> None:
        """Rejects arrays of several libraries where the library of the results lacks an element type of another."""
        arrays = {f: a for f, a in zip(_binding.fields(self.name), given, strict=False) if is_array(a)}
        ours = next((library(array) for array in arrays.values() if framework(array) is xp), "other")
        for field, array in arrays.items():
            if framework(array) is not xp:
                text = f"is a {library(array)} array beside {ours} ones, want arrays of one library, or out"
                raise bad(Status.DTYPE, self.name, field, text) from None

    def _read(self, values: Sequence[Any], first: int, xp: Place | None = None) -> list[Any]:
        """The values; those that tvm-ffi does not take directly become tensors or plain numbers. `xp`: on a device."""
        read: list[Any] = []
        for i, value in enumerate(values):
            if type(value) in SIMPLE:
                read.append(value)
                continue
            try:
                here = xp is None or not isinstance(value, ndarray) or value.size == 1
                there = value if here or not self._described(i).per_row else cast("Place", xp).put(value)
                read.append(_plain(there, _arrays.view if xp is None else xp.view))
            except Exception as error:
                why = str(error).partition("\n")[0]  # some messages add a page of addresses
                text = f"cannot be read as a tensor: {why}"
                if "torch" in modules and isinstance(value, modules["torch"].Tensor) and value.is_meta:
                    text = "is on the meta device and has no data"
                    text = f"{text}, want switchyard.torch.{self.name}, or a tensor with data"
                if "jax" in modules and isinstance(value, modules["jax"].core.Tracer):
                    text = f"is traced by JAX, want switchyard.jax.{self.name}, or a call outside of jit"
                raise bad(Status.DTYPE, self.name, self._field(first + i), text) from error
        return read

    def _reject(
        self, status: int, given: tuple[Any, ...], out: tuple[Any, ...] = (), planes: tuple[Any, ...] = ()
    ) -> NoReturn:
        if status < 0:  # the binding could not fill the argument struct
            self._reject_kind(-1 - status, given, out, planes)
        fault, text = _binding.last_fault(), str(_binding.last("error"))
        raise rejection(status, device_named(text) if status == Status.DEVICE else text, fault) from None

    def _reject_kind(self, at: int, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...]) -> NoReturn:
        if at >= len(given) and len(given) + len(out) != len(_binding.fields(self.name)):
            self._reject_out(len(given), f"has {len(out)} arrays")
        value, field = (*given, *out, *planes)[at], self._described(at)
        too_large = (
            isinstance(value, int) and not is_flag(value) and ("integer" in field.wanted or "number" in field.wanted)
        )
        no_such_word = field.kind == "enum" or (isinstance(value, str) and field.kind == "format")
        status = Status.VALUE if too_large or no_such_word else Status.DTYPE
        raise bad(status, self.name, parameter(self._field(at)), f"is {shown(value)}, want {field.wanted}")

    def _reject_out(self, first: int, text: str) -> NoReturn:
        names = _binding.fields(self.name)[first:]
        want = f"want a tuple of {len(names)}: {', '.join(names)}; None where one is not wanted"
        raise bad(Status.VALUE, self.name, "out", f"{text}, {want}")


def choose(name: str, field: str, words: Sequence[Any], word: Any) -> int:
    """The number of an enum's word."""
    for number, one in enumerate(words):
        if _rules.is_word(one, word):
            return number
    raise bad(Status.VALUE, name, field, f"is {shown(word)}, want {_binding.listed(words)}")


def _first(given: Sequence[Any]) -> Any:
    """The first array."""
    return next((value for value in given if is_array(value)), None)


def place(values: Sequence[Any]) -> Framework:
    """The library of the first array, where that array is."""
    for value in values:
        kind = type(value)
        if kind is ndarray:
            return NUMPY
        if kind not in PLAIN and is_array(value):
            xp = known.get(kind) or framework(value)
            return xp.at(value) if xp.elsewhere else xp
    return NUMPY


def _plain_numbers(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.item() if isinstance(value, np.integer) else value for value in given)


def _rebuilt(out: R, finish: Callable[[Any], Any]) -> R:
    made = [finish(array) for array in out]
    return cast("R", type(out)(*made) if hasattr(out, "_fields") else tuple(made))


def _plain(value: Any, view: Callable[[Any], Any] = _arrays.view) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # no valid name has a character outside UTF-8
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) or is_array(value):
        return view(value) if getattr(value, "ndim", 1) or isinstance(value, np.ndarray) else value
    if hasattr(value, "__index__"):
        return _python.index(value)
    return float(value) if hasattr(value, "__float__") else value
