"""One operator: what _core needs of Python in a call, and what is text when it is rejected."""

from __future__ import annotations

import operator as _python
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

import numpy as np

from . import _arrays, _binding, _functions
from ._arrays import BFLOAT16, NAMES, NUMPY, Framework, framework, is_array, known, reject_lost
from ._binding import Field, core, last_failure
from ._numbers import count, is_flag
from ._sentences import bad, device_named, library, shown
from ._symbolic import Extents, Special
from .errors import Error, Status, rejection

# Values of each further plane; the second has another name in each operator.
PLANE = ("cache", "", "format", "scale", "global_scale")

R = TypeVar("R", bound=tuple[Any, ...])
F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from ._device import Place

    class Call:
        """The base class of operators, in _core."""

        def prepare(self, *of: Any) -> None: ...

        def run(self, given: Any, out: Any, planes: Any = (), asked: Any = (), xp: Any = None) -> Any:
            """The call itself, without a look at gradients. Without `out` the results are made, as by `make`."""

        def make(self, given: Any, asked: Any = (), xp: Any = None) -> Any:
            """New results for a call that is made later, by a framework, or by that of the arrays."""

        def direct(self, values: Any, out: Any, watched: int) -> Any:
            """The results; None: a value cannot be read as it is. `values` are followed by what is asked.

            `watched` has a bit for each value: tensors that must have no gradient. No tensor may have a lazy sign.
            """

        def check(self, values: Any) -> None:
            """Rejects inputs and scalars, and outputs if they follow, that the operator would reject, by its query."""

else:
    Call = core.Call


class Operator(Call, Generic[R]):
    """An operator as _core calls it.

    `results` is the named tuple they are, or tuple for one array; `flows` names the inputs that a gradient would go
    back to, and a cache that takes them; empty, the first alone. `changes` names the inputs that are written where they
    have a value for each row. `asks` are the parameters of the function that are no fields: flags with the outputs that
    they request, and `dtype` and `rows`. `likes` are outputs with the type of an input that the description does not
    name; `zeros` says which results begin as zeros: always, or where an enum has a certain word or an array a certain
    length. `without` are functions of parameters, called before a call that leaves the named one out. The other
    arguments are for symbolic sizes alone.
    """

    def __init__(
        self,
        name: str,
        results: type[R],
        flows: str = "",
        asks: Mapping[str, str] | None = None,
        changes: str = "",
        likes: Mapping[str, str] | None = None,
        zeros: Mapping[str, bool | Mapping[str, Any]] | None = None,
        dtype: Callable[[Any, str, Any], Any] = lambda xp, name, dtype: dtype,
        without: Mapping[str, Callable[..., None]] | None = None,
        **special: Mapping[str, Any],
    ) -> None:
        self.name, self.results = name, results
        self.flows = tuple(map(self._at, flows.split())) or (0,)
        self.changes = tuple(map(self._at, changes.split()))
        self.table = _binding.table(name)
        self.given = [field for field in self.table if not field.written]
        self.inputs = [field for field in self.given if field.kind == "tensor"]  # which come first
        self.outputs = self.table[len(self.given) :]
        self.asks, self.special, self._dtype = dict(asks or {}), Special(**special), dtype
        self.without = dict(without or {})
        self.leader = self._at(self.outputs[0].like) if self.outputs[0].like else 0  # the input that results are like
        asked = [*self.asks]
        likes, zeros = likes or {}, zeros or {}
        made = tuple(self._how(field, likes, zeros.get(field.name, field.keeps)) for field in self.outputs)
        self._there = [self._presence(field, how[0]) for field, how in zip(self.outputs, made, strict=True)]
        special_asks = (asked.index(ask) if ask in asked else -1 for ask in ("dtype", "rows"))
        bits = (sum(1 << i for i in places) for places in (self.flows, self.changes))
        self.prepare(name, self.leader, *bits, results, len(asked), *special_asks, made)

    if TYPE_CHECKING:

        def __call__(self, given: tuple[Any, ...], out: R | None = None, *asked: Any) -> R:
            """Runs the operator on inputs and scalars, in the order of the description, and its outputs."""

    def function(self, declared: F) -> F:
        """Gives a function without a body, whose parameters are named as fields, the code that calls the operator."""
        _functions.declare(declared)
        return declared

    def _at(self, name: str) -> int:
        return _binding.fields(self.name).index(name)

    def _how(
        self, field: Field, likes: Mapping[str, str], zeros: bool | Mapping[str, Any]
    ) -> tuple[int, int, bool, tuple[tuple[int, int], ...]]:
        """How _core makes a result: which flag requests it, whose type it has, and whether it begins as zeros."""
        asked = next((i for i, of in enumerate(self.asks.values()) if field.name in of.split()), -1)
        like = self._at(likes[field.name]) if field.name in likes else -1
        if isinstance(zeros, bool):
            return asked, like, zeros, ()
        words = {at: self.table[at].words for at in map(self._at, zeros)}
        is_ = zip(words.items(), zeros.values(), strict=True)
        return asked, like, False, tuple((at, listed.index(word) if listed else word) for (at, listed), word in is_)

    # ---- What _core calls ----

    def normal(self, given: tuple[Any, ...], out: Any, planes: Any, watched: bool) -> tuple[Any, ...]:
        """Values that _core does not read as they are as Tensors and plain numbers; and what makes results."""
        n, flows = len(given), self.flows if watched else ()
        reject_lost(self.name, given[: len(self.inputs)], flows)
        if out is not None:
            self._check_out(out)
            reject_lost(self.name, out, [at - n for at in flows], n)
            for at in self.changes:
                if is_array(given[at]) and getattr(given[at], "ndim", 1) > 1:
                    self.check_written(self.table[at].name, given[at])
        xp = self.place(given, out)
        there = xp if xp.device is not None else None
        read = tuple(self._read(given, 0, there))
        written = None if out is None else tuple(self._read(out, n, there))
        return read, written, tuple(self._read(planes or (), len(self.table), there)), xp

    def place(self, given: tuple[Any, ...], out: Any = None) -> Framework:
        """The library of the first array, which makes the results, where that array is."""
        leader = given[self.leader : self.leader + 1]
        return place((*leader, *given, *(out if isinstance(out, (tuple, list)) else ())))

    def type_of(self, xp: Framework, at: int, number: int, given: tuple[Any, ...], asked: Any) -> Any:
        """An element type that a library does not have by the library's number."""
        formats = [given[i] for i, field in enumerate(self.given) if field.kind == "format"]
        if asked is not None and (any(formats) or not formats):
            return self._dtype(xp, self.name, asked)
        found = xp.dtype(NAMES[number]) if number else None
        if found is not None:
            return found
        if number == BFLOAT16 and any(formats):
            return xp.dtype("float32")
        return _arrays.type_like(xp, given[self._at(self.outputs[at].like)])

    def read_made(self, xp: Framework, array: Any) -> Any:
        """A new result of a library whose arrays _core does not read directly."""
        return xp.view(array)

    def flags(self, asked: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """What is asked, complete and with Python's own booleans; rejects what is none."""
        if not asked:
            return tuple(None if ask in ("rows", "dtype") else False for ask in self.asks)
        self.check_asks(asked)
        return tuple(bool(value) if is_flag(value) else value for value in asked)

    def reject(self, status: int, *_: Any) -> NoReturn:
        """Raises the failure of the last call."""
        text, fault = last_failure()
        raise rejection(status, device_named(text) if status == Status.DEVICE else text, fault) from None

    def reject_kind(self, at: int, given: tuple[Any, ...], out: Any, planes: Any = None) -> NoReturn:
        """Rejects a value that is not of its field's kind."""
        value, field = (*given[: len(self.given)], *(out or ()), *(planes or ()))[at], self._described(at)
        numeric = "integer" in field.wanted or "number" in field.wanted
        too_large = isinstance(value, int) and not is_flag(value) and numeric
        no_such_word = field.kind == "enum" or (isinstance(value, str) and field.kind == "format")
        status = Status.VALUE if too_large or no_such_word else Status.DTYPE
        name = ALIAS.get(self._field(at), self._field(at))
        code = "BAD_OPTION" if no_such_word else ""
        raise bad(status, self.name, name, f"is {shown(value)}, want {field.wanted}", code)

    def reject_results(self, error: BaseException, given: tuple[Any, ...], xp: Any) -> NoReturn:
        """Raises the error of a result that could not be made."""
        if isinstance(error, Error) or not isinstance(error, (TypeError, ValueError, AttributeError)):
            raise error
        if xp is not None:
            self._reject_mixed(xp, given)
        raise rejection(Status.UNSUPPORTED, f"{self.name}: no result can be made here, want out: {error}") from error

    # ---- Symbolic sizes ----

    def extents(self, values: Sequence[Any]) -> Extents:
        """The extents of a call with these values and what is asked."""
        names = (*(field.parameter for field in self.given), *self.asks)
        return Extents(self.given, self.special, dict(zip(names, values, strict=True)))

    def _presence(self, field: Field, asked: int) -> tuple[int, int, Any, tuple[int, ...]]:
        """When a call has a result: the values that must not be false and not be None, and a function of some."""
        names = [*(given.parameter for given in self.given), *self.asks]
        when: Any = self.special.when.get(field.name)
        used = () if when is None else when.__code__.co_varnames[: when.__code__.co_argcount]
        like = next((i for i, given in enumerate(self.inputs) if given.name == field.like and given.optional), -1)
        asked = -1 if asked < 0 else len(self.given) + asked
        return asked, -1 if when is not None else like, when, tuple(map(names.index, used))

    def present(self, values: Sequence[Any]) -> tuple[bool, ...]:
        """Which results a call has; torch.compile traces this."""
        return tuple(
            (asked < 0 or bool(values[asked]))
            and (like < 0 or values[like] is not None)
            and (when is None or bool(when(*[values[i] for i in used])))
            for asked, like, when, used in self._there
        )

    def symbolic(self, xp: Any, values: Sequence[Any]) -> tuple[Any, ...]:
        """Results of symbolic sizes."""
        extents = self.extents(values)
        extents["xp"] = xp
        there = zip(self.outputs, self.present(values), strict=True)
        return tuple(xp.empty(extents.shape(f), extents.dtype(f, xp)) if is_ else None for f, is_ in there)

    # ---- Checks ----

    def check_asks(self, asked: Sequence[Any]) -> None:
        """Rejects values that are about results and no fields: a number of rows, and whether there is one."""
        for name, value in zip(self.asks, asked, strict=False):
            if name == "rows" and value is not None:
                count(self.name, name, value)
            elif name == "dtype" and value is not None:
                self._dtype(_ANY, self.name, value)
            elif name not in ("rows", "dtype") and not is_flag(value):
                raise bad(Status.DTYPE, self.name, name, f"is {shown(value)}, want True or False") from None

    def check_kinds(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Rejects flags that are no booleans and booleans that are no flags; returns the values as Python's own."""
        for at, field in enumerate(self.given):
            if (field.kind == "bool") != is_flag(given[at]):
                self.reject_kind(at, given, ())
        self.check_asks(given[len(self.given) :])
        return tuple(value.item() if isinstance(value, np.generic) else value for value in given)

    def look(self, values: tuple[Any, ...]) -> None:
        """Rejects arrays with a gradient, mask or lazy sign, which would be lost, at any position."""
        reject_lost(self.name, values, range(len(values)))

    def check_written(self, field: str, array: Any) -> None:
        """Rejects an array that cannot be written to."""
        if why := _arrays.read_only(array):
            raise bad(Status.VALUE, self.name, field, why)

    def _check_out(self, out: Any) -> None:
        """Rejects arrays that cannot be written to, and an `out` that is no tuple of as many as there are outputs."""
        if not isinstance(out, (tuple, list)):
            self.reject_out(f"is {shown(out)}")
        for i, array in enumerate(out):
            if array is not None and i < len(self.outputs):
                self.check_written(self.outputs[i].name, array)
        if len(out) != len(self.outputs):
            self.reject_out(f"has {len(out)} arrays")

    def reject_out(self, text: str) -> NoReturn:
        names = [field.name for field in self.outputs]
        want = f"want a tuple of {len(names)}: {', '.join(names)}; None where one is not wanted"
        raise bad(Status.VALUE, self.name, "out", f"{text}, {want}")

    def _field(self, at: int) -> str:
        if at < len(self.table):
            return self.table[at].name
        plane, part = divmod(at - len(self.table), len(PLANE))
        beside = {"kv_scatter": "src", "kv_blocks": "dst"}.get(self.name, "out")
        return f"{PLANE[part] or beside} of plane {plane + 1}"

    def _described(self, at: int) -> Field:
        """The description of a value; of those of a plane, that of the first one of its kind."""
        if at < len(self.table):
            return self.table[at]
        is_format = PLANE[(at - len(self.table)) % len(PLANE)] == "format"
        formats = [field for field in self.given if field.name == "format"]
        return formats[0] if is_format and formats else self.table[0]

    def _reject_mixed(self, xp: Framework, given: tuple[Any, ...]) -> None:
        """Rejects arrays of several libraries where the library of the results lacks an element type of another."""
        arrays = {field.name: a for field, a in zip(self.table, given, strict=False) if is_array(a)}
        home = _arrays.framework_of(xp)
        ours = next((library(array) for array in arrays.values() if framework(array) is home), "other")
        for field, array in arrays.items():
            if framework(array) is not home:
                text = f"is a {library(array)} array beside {ours} ones, want arrays of one library, or out"
                raise bad(Status.DTYPE, self.name, field, text) from None

    def _read(self, values: Sequence[Any], first: int, xp: Framework | None) -> list[Any]:
        """The values; those that _core does not read directly become Tensors or plain numbers. `xp`: on a device."""
        read: list[Any] = []
        for i, value in enumerate(values):
            if value is None or type(value) in (bool, int, float, str):
                read.append(value)
                continue
            try:
                here = xp is None or not isinstance(value, np.ndarray) or value.size == 1
                there = value if here or not self._described(i).per_row else cast("Place", xp).put(value)
                read.append(_plain(there, _arrays.view if xp is None else xp.view))
            except Exception as error:
                why = str(error).partition("\n")[0]  # some messages add a page of addresses
                text = f"cannot be read as a tensor: {why}"
                torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
                if torch is not None and isinstance(value, torch.Tensor) and value.is_meta:
                    text = "is on the meta device and has no data"
                    text = f"{text}, want switchyard.torch.{self.name}, or a tensor with data"
                if jax is not None and isinstance(value, jax.core.Tracer):
                    text = f"is traced by JAX, want switchyard.jax.{self.name}, or a call outside of jit"
                raise bad(Status.DTYPE, self.name, self._field(first + i), text) from error
        return read


ALIAS = _binding.ALIASES
_ANY = Framework()  # has every element type


def choose(name: str, field: str, words: Sequence[Any], word: Any) -> int:
    """The number of an enum's word."""
    for number, one in enumerate(words):
        if one is not None and isinstance(word, type(one)) and not isinstance(word, bool) and bool(word == one):
            return number
    raise bad(Status.VALUE, name, field, f"is {shown(word)}, want {_binding.listed(words)}", "BAD_OPTION")


def place(values: Sequence[Any]) -> Framework:
    """The library of the first array, where that array is."""
    array = next((value for value in values if is_array(value)), None)
    if array is None:
        return NUMPY
    xp = known.get(type(array)) or framework(array)
    return xp.at(array) if xp.elsewhere else xp


def _plain(value: Any, view: Callable[[Any], Any]) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # no valid name has a character outside UTF-8
    if value is None or isinstance(value, (bool, int, float, core.Tensor)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) or is_array(value):
        return view(value)
    if hasattr(value, "__index__"):
        return _python.index(value)
    return float(value) if hasattr(value, "__float__") else value
