"""Calls that are rejected here: what the vendor's operator computes and ours do not, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor
from typing_extensions import ParamSpec

from ..._sentences import bad, shown
from ...errors import Error, Status, rejection

P = ParamSpec("P")
R = TypeVar("R")


def own_words(names: dict[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: errors of the operators that a function calls name the function and its arguments.

    `names`: the function's name of an operator's argument, where it has another.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Error as error:
                found = error
            raise _in_words_of(function.__name__, names, found) from found.__cause__

        return call

    return decorate


def _in_words_of(name: str, names: dict[str, str], error: Error) -> Error:
    of, _, text = str(error).partition(": ")
    if of == name or not text:
        return error
    for field in sorted(names, key=len, reverse=True):
        if text.startswith(f"{field} "):
            text = names[field] + text[len(field) :]
            break
    argument = names.get(error.fault.argument, error.fault.argument)
    return rejection(error.status, f"{name}: {text}", replace(error.fault, argument=argument))


def only(name: str, field: str, value: Any, *accepted: Any) -> None:
    """Rejects a value that selects another computation."""
    if value not in accepted:
        wanted = " or ".join(map(repr, accepted))
        raise bad(Status.UNSUPPORTED, name, field, f"is {shown(value)}, want {wanted}")


def none(name: str, beside: str, **fields: Any) -> None:
    """Rejects arguments that this form of the call does not take."""
    for field, value in fields.items():
        if value is not None:
            raise bad(Status.UNSUPPORTED, name, field, f"is {shown(value)}{beside}, want None")


def shaped(name: str, field: str, tensor: Tensor | None, *accepted: tuple[int, ...]) -> None:
    """Rejects another shape, which would be broadcast; None has any."""
    if tensor is not None and tuple(tensor.shape) not in accepted:
        wanted = " or ".join(str(list(shape)) for shape in accepted)
        raise bad(Status.SHAPE, name, field, f"has shape {list(tensor.shape)}, want {wanted}")


def within(name: str, field: str, numbers: Tensor, low: int, end: int) -> None:
    """Rejects the first index that is outside."""
    wrong = ((numbers < low) | (numbers >= end)).flatten()
    if bool(wrong.any()):
        at = int(wrong.int().argmax())
        found = int(numbers.flatten()[at])
        raise bad(Status.INDEX, name, field, f"has {found} at position {at}, want {low} to {end - 1}")
