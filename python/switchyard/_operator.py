"""One operator: allocation of results, the call, and the errors of rejected calls."""

from __future__ import annotations

import operator as _python
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, get_args

import numpy as np

from . import _arrays, _binding
from ._arrays import NUMPY, PLAIN, Framework, framework, known, reject_masks
from ._sentences import bad, device_named, library, shown
from .errors import Error, Fault, Status, rejection

ndarray, modules = np.ndarray, sys.modules  # looked up in every call

# What tvm-ffi raises for a value that it cannot pass directly.
ODD = (BufferError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError)

R = TypeVar("R", bound=tuple[Any, ...])

if TYPE_CHECKING:

    def pack(kind: type[R], values: tuple[Any, ...]) -> R:
        """A named tuple of these values, in less than half the time of its own constructor."""
else:
    pack = tuple.__new__


class Operator(Generic[R]):
    """A row of the binding's table, with the rule that makes its results.

    `outputs(xp, *given, *asked)` makes them with `xp.empty(shape, dtype)`; `asked` are options of the Python function
    that affect results only. It may assume valid inputs: when it raises, the operator's query gives the error.
    """

    __slots__ = ("_leader", "_outputs", "_query", "_run", "flows", "name")

    def __init__(self, name: str, outputs: Callable[..., R], leader: int = 0, flows: tuple[int, ...] = (0,)) -> None:
        self.name = name
        self.flows = flows  # positions of the inputs that may have a gradient
        self._leader = leader  # position of the input whose library makes the results
        self._outputs = outputs
        self._run = _binding.operator(name)
        self._query = _binding.query(name)

    # The fast path, for arrays that tvm-ffi takes directly, runs as little Python as possible.
    def __call__(self, given: tuple[Any, ...], out: R | None = None, *asked: Any) -> R:
        """Runs the operator on its inputs and numbers, in the order of the table, and its outputs."""
        xp = NUMPY if type(given[self._leader]) is ndarray else self._look(given)
        if out is None:
            if "numpy.ma" in modules:
                reject_masks(self.name, given)
            return self.new(xp, given, asked)
        if "numpy.ma" in modules:
            reject_masks(self.name, (*given, *out) if isinstance(out, (tuple, list)) else given)
        if "jax" in modules:  # its arrays are immutable, and DLPack does not report it
            self._check_out(len(given), out)
        try:
            status = self._run(*given, *out)
        except ODD:
            status = -1
        if status:
            self._run_odd(status, given, out, ())
        return out

    def new(self, xp: Framework, given: tuple[Any, ...], asked: tuple[Any, ...] = ()) -> R:
        """The call with new results, without checks for gradients and masks."""
        try:
            made = self._outputs(xp, *given, *asked)
            status = self._run(*given, *made)
        except Exception:
            status = -1
        if status:  # retry with plain numbers and arrays; if that fails too, it gives the error
            given = _plain_numbers(given)
            made = self.make(xp, given, asked)
            self.run(given, made)
        return _rebuilt(made, xp.finish) if xp.takes_over else made

    def run(self, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...] = ()) -> None:
        """The call itself, without checks for gradients and masks."""
        try:
            status = self._run(*given, *out, *planes)
        except ODD:
            status = -1
        if status:
            self._run_odd(status, given, out, planes)

    def _run_odd(self, status: int, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...]) -> None:
        """Retries with plain values where the binding failed before the operator; then raises."""
        if status < 0:
            n = len(given)
            self._check_out(n, out)
            read = (*self._read(given, 0), *self._read(out, n), *self._read(planes, n + len(out)))
            status = self._run(*read)
        if status:
            self._reject(status, given, out, planes)

    def _look(self, given: tuple[Any, ...]) -> Framework:
        """The library of the first array, which makes the results."""
        xp = known.get(type(given[self._leader])) or framework(_first(given))
        if xp.tracks:
            xp.reject(self.name, given, self.flows)
        return xp

    def single(self, given: tuple[Any, ...], out: Any = None, *asked: Any) -> Any:
        """The same for an operator with one output: `out` and the result are that array, not a tuple."""
        return self(given, None if out is None else cast("R", (out,)), *asked)[0]

    def make(self, xp: Any, given: tuple[Any, ...], asked: tuple[Any, ...] = ()) -> R:
        """Results of the right shape and type; raises the operator's error if there can be none."""
        try:
            return self._outputs(xp, *given, *asked)
        except Error:
            raise
        except Exception:
            if any(isinstance(value, np.integer) for value in given):  # they overflow in their own width
                return self.make(xp, _plain_numbers(given), asked)
            self.check(given)  # the operator's own error is the better one
            return self._make_by_name(xp, given, asked)

    def _make_by_name(self, xp: Any, given: tuple[Any, ...], asked: tuple[Any, ...]) -> R:
        """Results where arrays have no `shape`, or have element types of another library."""
        try:
            return self._outputs(_arrays.ByName(xp), *self._read(given, 0), *asked)
        except (TypeError, ValueError) as error:
            self._reject_mixed(xp, given)
            raise rejection(
                Status.UNSUPPORTED, f"{self.name}: no result can be made here, want out: {error}"
            ) from error

    def check(self, given: tuple[Any, ...], planes: tuple[Any, ...] = ()) -> None:
        """Rejects inputs and numbers that the operator would reject, by its query."""
        status = self._query(*self._read(given, 0))
        if status:
            self._reject(status, given)

    def _field(self, at: int) -> str:
        fields = _binding.fields(self.name)
        if at < len(fields):
            return fields[at]
        plane, part = divmod(at - len(fields), 4)
        beside = {"kv_scatter": "src", "kv_blocks": "dst"}.get(self.name, "out")
        return f"{('cache', beside, 'format', 'scale')[part]} of plane {plane + 1}"

    def _wanted(self, at: int) -> str:
        fields = _binding.fields(self.name)
        if at < len(fields):
            return _binding.wanted(self.name, at)
        is_format = (at - len(fields)) % 4 == 2 and "format" in fields
        return _binding.wanted(self.name, fields.index("format")) if is_format else "an array"

    def _check_out(self, first: int, out: tuple[Any, ...]) -> None:
        """Rejects arrays that cannot be written to, and an `out` that is no tuple."""
        if not isinstance(out, (tuple, list)):
            self._reject_out(first, f"is {shown(out)}")
        for i, array in enumerate(out):
            if array is not None:
                self.check_written(self._field(first + i), array)

    def look(self, values: tuple[Any, ...]) -> None:
        """Rejects arrays with a gradient or mask, which would be lost, at any position."""
        if PLAIN.issuperset(map(type, values)):
            return
        reject_masks(self.name, values)
        for i, value in enumerate(values):
            if hasattr(value, "__dlpack__"):
                framework(value).reject(self.name, values, (i,))

    def check_written(self, field: str, array: Any) -> None:
        """Rejects an array that cannot be written to."""
        if not framework(array).mutable or (isinstance(array, np.ndarray) and not array.flags.writeable):
            self._reject_write(field, array)

    def _reject_write(self, field: str, array: Any) -> NoReturn:
        text = f"is a read-only {library(array)} array, want one that can be written to"
        raise bad(Status.VALUE, self.name, field, text)

    def _reject_mixed(self, xp: Framework, given: tuple[Any, ...]) -> None:
        """Rejects arrays of several libraries where the library of the results lacks an element type of another."""
        arrays = {f: a for f, a in zip(_binding.fields(self.name), given, strict=False) if hasattr(a, "__dlpack__")}
        ours = next((library(array) for array in arrays.values() if framework(array) is xp), "other")
        for field, array in arrays.items():
            if framework(array) is not xp:
                text = f"is a {library(array)} array beside {ours} ones, want arrays of one library, or out"
                raise bad(Status.DTYPE, self.name, field, text) from None

    def _read(self, values: tuple[Any, ...], first: int) -> list[Any]:
        """The values; those that tvm-ffi does not take directly become tensors or plain numbers."""
        read: list[Any] = []
        for i, value in enumerate(values):
            try:
                read.append(_plain(value))
            except Exception as error:
                why = str(error).partition("\n")[0]  # some messages add a page of addresses
                text = f"cannot be read as a tensor: {why}"
                if "jax" in modules and isinstance(value, modules["jax"].core.Tracer):
                    text = f"is traced by JAX, want jax.pure_callback around {self.name}, or a call outside of jit"
                raise bad(Status.DTYPE, self.name, self._field(first + i), text) from error
        return read

    def _reject(
        self, status: int, given: tuple[Any, ...], out: tuple[Any, ...] = (), planes: tuple[Any, ...] = ()
    ) -> NoReturn:
        if status < 0:  # the binding could not fill the argument struct
            self._reject_kind(-1 - status, given, out, planes)
        numbers = (int(_binding.last(what)) for what in ("batch", "position", "value", "limit"))
        fault = Fault(str(_binding.last("code")), str(_binding.last("argument")), *numbers)
        text = str(_binding.last("error"))
        raise rejection(status, device_named(text) if status == Status.DEVICE else text, fault) from None

    def _reject_kind(self, at: int, given: tuple[Any, ...], out: tuple[Any, ...], planes: tuple[Any, ...]) -> NoReturn:
        if at >= len(given) and len(given) + len(out) != len(_binding.fields(self.name)):
            self._reject_out(len(given), f"has {len(out)} arrays")
        value, want = (*given, *out, *planes)[at], self._wanted(at)
        too_large = isinstance(value, int) and ("integer" in want or "number" in want)
        no_such_name = isinstance(value, str) and "fp8" in want
        status = Status.VALUE if too_large or no_such_name else Status.DTYPE
        raise bad(status, self.name, self._field(at), f"is {shown(value)}, want {want}")

    def _reject_out(self, first: int, text: str) -> NoReturn:
        names = _binding.fields(self.name)[first:]
        want = f"want a tuple of {len(names)}: {', '.join(names)}; None where one is not wanted"
        raise bad(Status.VALUE, self.name, "out", f"{text}, {want}")


def words(literal: Any) -> dict[str, int]:
    """The words of a Literal, numbered as in the C enum."""
    return {word: number for number, word in enumerate(get_args(literal))}


def choose(name: str, field: str, words: Mapping[str, int], word: str) -> int:
    """The number of an enum's word."""
    try:
        return words[word]
    except (KeyError, TypeError):
        *others, last = words
        want = f"{', '.join(others)} or {last}" if others else last
        raise bad(Status.VALUE, name, field, f"is {shown(word)}, want {want}") from None


def _first(given: tuple[Any, ...]) -> Any:
    """The first array."""
    return next((value for value in given if hasattr(value, "__dlpack__")), None)


def _plain_numbers(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.item() if isinstance(value, np.integer) else value for value in given)


def _rebuilt(out: R, finish: Callable[[Any], Any]) -> R:
    made = [finish(array) for array in out]
    return cast("R", type(out)(*made) if hasattr(out, "_fields") else tuple(made))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # no valid name has a character outside UTF-8
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        return _arrays.view(value) if getattr(value, "ndim", 1) or isinstance(value, np.ndarray) else value
    if hasattr(value, "__index__"):
        return _python.index(value)
    return float(value) if hasattr(value, "__float__") else value
