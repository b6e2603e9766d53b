"""Shapes and types of results where sizes are symbols of torch.compile, which sy_infer does not accept.

The shapes of the library's descriptions are named extents. The inputs bind most of them, scalars of the call others; an
operator adds the rest as functions whose parameters are extents and values of the call, by name, or `xp`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ._arrays import TYPES
from ._binding import Field

Part = Callable[..., Any]


class Special(NamedTuple):
    """What the description of an operator does not contain about its results."""

    extents: Mapping[str, Part] = {}  # of named extents
    shapes: Mapping[str, Part] = {}  # of whole outputs
    types: Mapping[str, Part] = {}
    when: Mapping[str, Part] = {}  # whether there is such an output


class Extents(dict[str, Any]):
    """The values of a call by name, and the extents, which are computed when they are first needed."""

    def __init__(self, given: Sequence[Field], special: Special, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.given, self.special = given, special

    def __missing__(self, name: str) -> Any:
        self[name] = found = self.call(self.special.extents[name]) if name in self.special.extents else self._find(name)
        return found

    def _find(self, name: str) -> Any:
        holders = [f for f in self.given if f.kind == "tensor" and name in f.shape.split() and "|" not in f.shape]
        for field in sorted(holders, key=lambda field: field.optional):
            if self[field.name] is not None:
                return self[field.name].shape[field.shape.split().index(name)]
        for field in self.given:
            if field.range.startswith(f"{name}: "):
                return self[field.parameter]
        if holders:
            return 0  # of an input that is not there
        raise LookupError(f"no rule gives the extent {name} of a result")

    def call(self, part: Part) -> Any:
        code: Any = part.__code__
        return part(*(self[name] for name in code.co_varnames[: code.co_argcount]))

    def size(self, text: str) -> Any:
        """An extent of a description: "H", "K+S", "P/B"."""
        if "+" in text:
            return sum(self.size(term) for term in text.split("+"))
        first, *others = re.split(r"([*/])", text)
        found = int(first) if first.isdigit() else self[first]
        for sign, factor in zip(others[::2], others[1::2], strict=True):
            found = found * self.size(factor) if sign == "*" else found // self.size(factor)
        return found

    def shape(self, output: Field) -> tuple[Any, ...]:
        if output.name in self.special.shapes:
            return tuple(self.call(self.special.shapes[output.name]))
        alike = (field.name for field in self.given if field.kind == "tensor" and field.shape == output.shape)
        same = [name for name in alike if self[name] is not None]
        if output.like in same:
            return tuple(self[output.like].shape)
        if "|" in output.shape or "..." in output.shape:
            return tuple(self[same[0]].shape)
        return tuple(self.size(text) for text in output.shape.split())

    def dtype(self, output: Field, xp: Any) -> Any:
        if output.name in self.special.types:
            return self.call(self.special.types[output.name])
        if output.like and not output.preset:
            return self[output.like].dtype
        return xp.dtype(TYPES[output.preset or output.types[0]])
