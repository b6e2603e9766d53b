"""Docstrings completed, so that help() shows what is written in one place: the words of enums, and results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

from . import _binding

WIDTH = 120


def complete(function: Callable[..., Any], name: str) -> None:
    """Complete the docstring of an operator's function."""
    add_words(function, name)
    add_results(function, function.__globals__["operator"].results)


def add_results(function: Callable[..., Any], results: type) -> None:
    """Add what the docstring of the class of its results lists, before the examples of a docstring."""
    _, _, listed = (results.__doc__ or "").partition("\n\n")
    text, sign, examples = (function.__doc__ or "").partition("\n    >>> ")
    if text and listed and "Returns:\n" not in text:
        returns = textwrap.indent(textwrap.dedent(listed.rstrip()), "        ")
        function.__doc__ = f"{text.rstrip()}\n\n    Returns:\n{returns}\n{sign or '    '}{examples}"


def add_words(function: Callable[..., Any], name: str) -> None:
    """Add the words of each enum and format of an operator to its entry in a docstring, unless they are there."""
    text = function.__doc__ or ""  # none under python -OO
    for field in _binding.table(name):
        if field.kind not in ("enum", "format") or field.name == "cluster_axis":  # which is None, 0 or 1 in Python
            continue
        words = [f'"{word}"' if isinstance(word, str) else str(word) for word in field.words if word is not None]
        # The line that begins with the parameter's name, and the lines that are indented deeper.
        entry = re.search(rf"^( +)(?:\w+, )*{field.parameter}(?:, \w+)*: .*(?:\n\1 +.*)*", text, re.MULTILINE)
        if entry is None or all(word in entry[0] for word in words):
            continue
        alone = entry[0].strip().startswith(f"{field.parameter}: ")
        line = f"{'One' if alone else field.parameter + ': one'} of {_binding.listed(words)}."
        more = textwrap.indent(textwrap.fill(line, WIDTH - len(entry[1]) - 4), entry[1] + "    ")
        text = f"{text[: entry.end()]}\n{more}{text[entry.end() :]}"
    if text:
        function.__doc__ = text
