"""Functions that allocate the results of a call, generated for each operator from the library's description of it.

Shapes in the description are named extents. The inputs bind most of them, numbers of the call the others. An operator
adds the rest as functions of extents and of values of the call, by name. These rules also accept symbolic sizes, which
sy_infer does not: the same function allocates the results of a plain call and the fake results of torch.compile.
"""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, cast

from . import _binding
from ._binding import Field

# A function whose parameters are extents, values of the call, or xp; or an expression of these, which costs no call.
Part = Callable[..., Any] | str

# Extents that a number of the call may give.
NUMBERS = {"B": "block_size", "C": "capacity", "E": "num_experts", "K": "k", "T": "num_tokens"}
# A word of Python's own; and an output that is asked for by how it is meant.
ALIASES = {"from": "from_", "logprob_mode": "logprob"}
TYPES = {"i32": "int32", "i64": "int64", "u16": "uint16", "u32": "uint32", "f32": "float32", "bool": "bool"}


class Special(NamedTuple):
    """What the description of an operator does not contain about its results."""

    extents: Mapping[str, Part] = {}  # of named extents
    shapes: Mapping[str, Part] = {}  # of whole outputs
    types: Mapping[str, Part] = {}
    zeros: Mapping[str, Part | bool] = {}  # whether outputs begin as zeros
    when: Mapping[str, Part] = {}  # whether there is such an output


def parameter(field: str) -> str:
    """The name of a field in Python."""
    return ALIASES.get(field, field)


def is_word(word: Any, value: Any) -> bool:
    """Whether a value is this word of an enum."""
    return word is not None and isinstance(value, type(word)) and not isinstance(value, bool) and bool(value == word)


def build(text: str, title: str, names: dict[str, Any]) -> None:
    """Runs generated code. Its lines are kept, for tracebacks and inspect.getsource."""
    file = f"{__file__}: {title}"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)


class Strides(dict[tuple[int, ...], tuple[int, ...]]):
    """The strides of compact arrays by shape."""

    def __missing__(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(self) > 1000:
            self.clear()
        strides = self[shape] = tuple(prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))
        return strides


STRIDES = Strides()


def look_up_once(lines: list[str]) -> list[str]:
    """The same lines, with attributes of xp that are used more than once in variables."""
    text = "\n".join(lines)
    often = [name for name, count in Counter(re.findall(r"xp\.(\w+)", text)).items() if count > 1]
    for name in often:
        text = re.sub(rf"\bxp\.{name}\b", f"xp_{name}", text)
    return [*(f"xp_{name} = xp.{name}" for name in often), *text.split("\n")]


class Writer:
    """Writes the functions of one operator.

    `run` is the binding's function of the operator, which takes the numbers of an enum's words; `results` is the class
    of the results and `pack` makes one.
    """

    def __init__(self, name: str, asks: Sequence[str], special: Special) -> None:
        table = _binding.table(name)
        self.name, self.asks, self.special = name, asks, special
        self.given = [field for field in table if not field.written]
        self.inputs = [field for field in self.given if field.kind == "tensor"]
        self.results = [field for field in table if field.written]
        self.values = [parameter(field.name) for field in self.given] + [*asks]
        self.names: dict[str, Any] = {}  # what the functions use
        self.lines: list[str] = []  # those that compute extents
        self.known = {"xp", *self.values}
        self.enums = {field.name: field.words for field in self.given if field.kind == "enum"}
        for of, words in self.enums.items():
            self.names[f"words_{of}"] = {w: i for i, w in enumerate(words) if w is not None}

    def write(
        self, results: type[Any], pack: Callable[..., Any], check_asked: Callable[[str, Any], None]
    ) -> tuple[Any, Any, Any, Any, Any]:
        """The functions outputs(xp, *values), new results; new(run, xp, *values), the status of a call and its new
        results; strided(run, xp, *values), the same where xp makes arrays of given strides; into(run, out, *given), the
        status of a call that writes into `out`; planned(xp, *values), in place of each result the arguments of xp's
        strided, or the two of its zeros. `check_asked` rejects what is no flag.
        """
        self.names |= {"pack": pack, "results": results, "strides": STRIDES, "check_asked": check_asked}
        makers = [self._result(field) for field in self.results]
        asked = [name for name in self.asks if name not in ("rows", "dtype")]
        flags = [f"if {name} is not True and {name} is not False: check_asked({name!r}, {name})" for name in asked]
        lines, strided, planned = (
            look_up_once([*flags, *self.lines, *(f"out{i} = {maker(*ways)}" for i, maker in enumerate(makers))])
            for ways in (
                ("xp.empty({0}, {1})", "xp.zeros({0}, {1})"),
                ("xp.strided({2}, {1})", "xp.zeros({0}, {1})"),
                ("({2}, {1})", "({0}, {1})"),
            )
        )
        made = "".join(f"out{i}, " for i in range(len(self.results)))
        numbers = [f"words_{f.name}[{parameter(f.name)}]" if f.kind == "enum" else f.name for f in self.given]
        run = f"run({', '.join((*numbers, made))})"
        packed = f"({made})" if results is tuple else f"pack(results, ({made}))"
        given = self.values[: len(self.given)]
        return (
            self._function(["xp", *self.values], [*lines, f"return {packed}"]),
            self._function(["run", "xp", *self.values], [*lines, f"return {run}, {packed}"]),
            self._function(["run", "xp", *self.values], [*strided, f"return {run}, {packed}"]),
            self._function(["run", "out", *given], [f"{made} = out", f"return {run}"]),
            self._function(["xp", *self.values], [*planned, f"return ({made})"]),
        )

    def present(self) -> Callable[..., tuple[bool, ...]]:
        """The function that returns for the values of a call which results it has."""
        conditions = "".join(f"{self._condition(field) or True}, " for field in self.results)
        return cast("Callable[..., Any]", self._function(self.values, [f"return ({conditions})"]))

    def numbers(self, given: Sequence[Any]) -> list[Any]:
        """The values of a call with numbers for the words of enums; "" for what is no word, which no field takes."""

        def number(field: Field, value: Any) -> Any:
            return next((i for i, word in enumerate(self.enums[field.name]) if is_word(word, value)), "")

        if not self.enums:
            return list(given)
        return [number(f, v) if f.kind == "enum" else v for f, v in zip(self.given, given, strict=True)]

    def numbered(self) -> tuple[dict[Any, int] | None, ...]:
        """For each value that is given the numbers of its words; None: it has none."""
        return tuple(self.names.get(f"words_{field.name}") for field in self.given)

    def _function(self, parameters: Sequence[str], body: Sequence[str]) -> Any:
        head = f"def {self.name}({', '.join(parameters)}):"
        build("\n    ".join((head, *body)), f"{self.name}({', '.join(parameters[:2])}, ...)", self.names)
        return self.names[self.name]

    def _result(self, field: Field) -> Callable[[str, str], str]:
        """How a result is made, given how an empty array and one of zeros of shape {0} (with strides: {2}) and type {1}
        are.
        """
        if field.changed:
            return lambda make, zero: "None"  # what is changed in place is always given
        zeros, shape, kind = self.special.zeros.get(field.name, field.keeps), self._shape(field), self._type(field)
        cleared = "" if isinstance(zeros, bool) else self._call(zeros)
        condition = self._condition(field)
        extents = field.shape.replace("/", "//").split() if shape.startswith("(") else []
        written = {1: "(1,)", 2: f"({''.join(extents[1:])} or 1, 1)"}
        strided = f"{shape}, {written[len(extents)]}" if len(extents) in written else f"at := {shape}, strides[at]"

        def made(make: str, zero: str) -> str:
            empty, clear = make.format(shape, kind, strided), zero.format(shape, kind)
            array = f"{clear} if {cleared} else {empty}" if cleared else clear if zeros else empty
            return f"({array}) if {condition} else None" if condition else array

        return made

    def _condition(self, field: Field) -> str:
        """When there is such a result: "" for always. One that has the type of an optional input, with that."""
        if field.name in self.special.when:
            return self._call(self.special.when[field.name])
        like = next((i for i in self.inputs if i.name == field.like and i.optional), None)
        return f"{like.name} is not None" if like is not None else ""

    def _type(self, field: Field) -> str:
        if field.name in self.special.types:
            return self._call(self.special.types[field.name])
        if field.like and not field.preset:
            return f"{field.like}.dtype"
        return f"xp.{TYPES[field.preset or field.types[0]]}"

    def _shape(self, field: Field) -> str:
        if field.name in self.special.shapes:
            return self._call(self.special.shapes[field.name])
        same = [i.name for i in self.inputs if i.shape == field.shape]
        if field.like in same:
            return f"tuple({field.like}.shape)"
        if "|" in field.shape or "..." in field.shape:
            return f"tuple({same[0]}.shape)"
        code = compile(field.shape.replace(" ", ","), field.name, "eval")
        for extent in code.co_names:
            self._need(extent)
        return f"({field.shape.replace(' ', ', ').replace('/', '//')},)"

    def _call(self, part: Part) -> str:
        """What an operator adds: an expression, or the call of a function."""
        if isinstance(part, str):
            for name in compile(part, part, "eval").co_names:
                if name.isupper():
                    self._need(name)
            return f"({part})"
        code = cast("Any", part).__code__
        names = code.co_varnames[: code.co_argcount]
        for name in names:
            self._need(name)
        function = f"part{len(self.names)}"
        self.names[function] = part
        return f"{function}({', '.join(names)})"

    def _need(self, extent: str) -> None:
        """Adds the line that computes an extent."""
        if extent in self.known:
            return
        self.known.add(extent)
        if extent in self.special.extents:
            self.lines.append(f"{extent} = {self._call(self.special.extents[extent])}")
            return
        holders = [field for field in self.inputs if extent in field.shape.split() and "|" not in field.shape]
        certain = next((field for field in holders if not field.optional), None)
        if certain is not None:
            axes = [axis if axis not in self.known or axis == extent else "_" for axis in certain.shape.split()]
            axes = [axis if axis.isidentifier() else "_" for axis in axes]
            self.known.update(axes)
            self.lines.append(f"{', '.join(axes)}{',' * (len(axes) == 1)} = {certain.name}.shape")
        elif NUMBERS.get(extent) in self.values:
            self.lines.append(f"{extent} = {NUMBERS[extent]}")
        else:
            (field, *_), at = holders, holders[0].shape.split().index(extent)
            self.lines.append(f"{extent} = 0 if {field.name} is None else {field.name}.shape[{at}]")
