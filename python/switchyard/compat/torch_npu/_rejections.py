"""Calls that are rejected here: what the vendor's operator computes and ours do not, by name."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..._sentences import bad, shown
from ...errors import Status


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
