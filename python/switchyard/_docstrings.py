"""Docstrings completed, so that help() shows what is written in one place: the library's description of every value.

A docstring lists what is to be said beyond that; its entries for other parameters and results are made here.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from . import _binding
from ._arrays import TYPES
from ._binding import Field, listed

WIDTH = 116  # of lines that are indented by four


def complete(function: Callable[..., Any], name: str, results: type | None = None) -> None:
    """Complete the docstring of an operator's function, and that of the class of its results."""
    if not function.__doc__:  # under python -OO
        return
    told, sign, examples = inspect.cleandoc(function.__doc__).partition("\n\n>>> ")
    told, _, returned = told.partition("\n\nReturns:\n")
    told, _, given = told.partition("\n\nArgs:\n")
    operator: Any = function.__globals__.get("operator")
    fields = {field.parameter: field for field in reversed(_binding.table(name))}  # of one name the input counts
    asks = getattr(operator, "asks", {})
    parameters = [one for one in inspect.signature(function).parameters if one != "self"]
    arguments = _entries(given, parameters, lambda one: _argument(one, fields, asks, results or operator.results))
    arguments = [_with_words(entry, fields) for entry in arguments]
    outputs = _outputs(name, results or operator.results, " ".join(asks.values()).split())
    sections = [told, "Args:\n" + textwrap.indent("\n".join(arguments), "    ")]
    sections.append("Returns:\n" + (returned or textwrap.indent("\n".join(outputs), "    ")))
    function.__doc__ = "\n\n".join(sections) + sign + examples


def _entries(text: str, names: Iterable[str], made: Callable[[str], str]) -> list[str]:
    """The entries of a section in the order of the names: those of the text, and others as they are made."""
    written = re.split(r"\n(?=\w)", textwrap.dedent(text))
    found = {name: entry for entry in written for name in entry.partition(": ")[0].split(", ")}
    return [entry for entry in dict.fromkeys(found.get(name) or made(name) for name in names) if entry]


def _argument(name: str, fields: dict[str, Field], asks: dict[str, str], results: type) -> str:
    """What the description says of a parameter; of one that is none of its fields what holds for all operators."""
    if name == "out" and results is tuple:
        return "out: an array to write to, instead of a new one."
    if name == "out":
        return "out: arrays to write to, instead of new ones; None in it leaves an optional output out."
    if asks.get(name):
        return f"{name}: fill {listed(f'``{output}``' for output in asks[name].split()).replace(' or ', ' and ')}."
    return _fill(_described(fields[name])) if name in fields else ""


def _outputs(name: str, results: type, requested: list[str]) -> list[str]:
    """The results, of which those of a named tuple are added to the docstring of its class too."""
    outputs = {field.name: field for field in _binding.table(name) if field.written}
    if results is tuple:
        return [_fill(_described(field).partition(": ")[2]) for field in outputs.values()]

    def made(one: str) -> str:
        left_out = "; None unless requested" if one in requested else ""
        return _fill(f"{_described(outputs[one]).removesuffix('.')}{left_out}.")

    about, _, written = inspect.cleandoc(results.__doc__ or "").partition("\n\n")
    entries = _entries(written, results._fields, made)  # type: ignore[attr-defined]
    results.__doc__ = f"{about}\n\n" + "\n".join(entries)
    return entries


def _described(field: Field) -> str:
    """A value by the library's description: shape and types of an array, and a line about it."""
    about = field.help + ("; changed" if field.flags & 128 else "")  # SY_FIELD_INOUT
    if field.kind == "tensor":
        shapes = listed(f"[{', '.join(shape.split())}]" for shape in field.shape.split(" | "))
        about = f"{'a number, or ' if field.per_row else ''}{shapes} {_types(field)}: {about}"
    low, dots, high = field.range.rpartition(": ")[2].partition("..")
    if low:
        end = f" to {high}" if high not in ("", "finite", "i32") else " or more" if dots else ""
        about = f"{about}; {low}{end}"
    return f"{field.parameter}: {about}."


def _types(field: Field) -> str:
    """The types of an array; of a result those that a new one has come first."""
    types = [TYPES[one] for one in field.types]
    if field.written and (field.preset or field.like):
        new = TYPES.get(field.preset) or f"of the type of {field.like}"
        others = [one for one in types if one != new]
        return f"{new} (in ``out`` also {listed(others)})" if others else new
    if field.like:
        return f"{', '.join(types)}, or the type of {field.like}" if types else f"of the type of {field.like}"
    return listed(types) if types else "any type of 1, 2, 4 or 8 bytes" if field.flags & 16 else "any type"


def _with_words(entry: str, fields: dict[str, Field]) -> str:
    """An entry with the words of its enums and formats, unless they are there."""
    names = entry.partition(": ")[0].split(", ")
    for name in names:
        if name not in fields or name == "cluster_axis":  # which is None, 0 or 1 in Python
            continue
        field = fields[name]
        words = [f'"{word}"' if isinstance(word, str) else str(word) for word in field.words if word is not None]
        if field.kind in ("enum", "format") and not all(word in entry for word in words):
            line = f"{'One' if len(names) == 1 else field.parameter + ': one'} of {listed(words)}."
            entry = f"{entry}\n{textwrap.indent(textwrap.fill(line, WIDTH - 4), '    ')}"
    return entry


def _fill(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
