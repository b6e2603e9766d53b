"""The next token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import switchyard

from .._functions import SEEDS, operator_of
from .._numbers import integer, is_flag, low_bits, number, rejected
from ..errors import Error
from . import _gradients
from ._library import Given, T, define, derive, direct, shortened

NUMBERS = (int, float, np.integer, np.floating)


def _of_rows(plain: Any, returns: type[T]) -> Callable[[Given, Any], T]:
    """Runs an operator with parameters of rows: a tensor with rows, a list, or a number for all rows."""
    operator = operator_of(plain)
    name, run, run_direct = operator.name, define(operator, returns), shortened(operator, False, lambda *_: None)
    fields = [(at, field.name, "f32" in field.types) for at, field in enumerate(operator.given) if field.per_row]
    places, arrays = [at for at, *_ in fields], len(operator.inputs)
    seeds = {at for at, field, _ in fields if field in SEEDS}

    def call(given: Given, out: Any) -> Any:
        for at in places:
            if (value := given[at]) is None:
                continue
            kind = type(value)
            if kind is Tensor:
                if not value.dim() or value.dtype is torch.float64:
                    break
            elif kind is int:
                if value < 0 and at in seeds:
                    break
            elif kind is not float:
                break
        else:  # a direct call passes them as they are
            if (done := run_direct(given, out)) is not None:
                return done
        plain, values = direct(given[:arrays], out if isinstance(out, (tuple, list)) else ()), list(given)
        for at, field, is_real in fields:
            if values[at] is not None:
                values[at] = (_real if is_real else _integer)(name, field, values[at], plain, given[0])
        return run(tuple(values), out, plain)

    return call


sample = derive(
    switchyard.sample,
    switchyard.Sample[Tensor],
    """Log-probabilities and masked logits have no gradient: a backward pass that reaches them is rejected. In a
    compiled graph a seed or an offset that changes from call to call should be a tensor: a number becomes a constant.
    """,
    _of_rows,
)

sample_verify = derive(
    switchyard.sample_verify,
    switchyard.SampleVerify[Tensor],
    "Log-probabilities have no gradient: a backward pass that reaches them is rejected.",
    _of_rows,
)


sample_overrides = derive(
    switchyard.sample_overrides,
    switchyard.SampleOverrides[Tensor],
    "There is no gradient.",
    _of_rows,
)


def _integer(name: str, field: str, value: Any, plain: bool, like: Tensor) -> Any:
    """Integers, one for all rows or one per row. A direct call passes a number as is."""
    if isinstance(value, Tensor):
        return value if value.dim() else value.reshape(1)
    least = 0 if field in SEEDS else -(1 << 63)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 63:
        return int(value) if plain else torch.full((1,), value, dtype=torch.int64, device=_where(like))
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    try:
        made = [integer(one) for one in numbers]
        if field in SEEDS:
            made = [low_bits(name, field, one) for one in made]
        return torch.tensor(made, dtype=torch.int64, device=_where(like))
    except Error:
        raise
    except Exception as error:
        want = "an integer, or a tensor" if field in SEEDS else "an integer of 64 bits, or a tensor"
        raise rejected(name, field, value, want, integer) from error


def _real(name: str, field: str, value: Any, plain: bool, like: Tensor) -> Any:
    """A number for all rows, or one per row; numbers beyond float32 become infinities."""
    if plain and type(value) is float:
        return value
    if isinstance(value, Tensor):
        alone = not value.dim() and not value.is_floating_point() and value.dtype != torch.bool
        narrow = value.to(torch.float32) if value.dtype == torch.float64 or alone else value
        return narrow if narrow.dim() else narrow.reshape(1)
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(one, NUMBERS) and not is_flag(one) for one in numbers):
        raise rejected(name, field, value, "a number, or a tensor", number)
    if numbers is not value:
        return torch.full((1,), float(value), dtype=torch.float64, device=_where(like)).to(torch.float32)
    return torch.tensor([float(n) for n in numbers], dtype=torch.float64, device=_where(like)).to(torch.float32)


def _where(logits: Any) -> torch.device | None:
    """Where parameters of rows are made; what is no tensor is rejected later."""
    return logits.device if isinstance(logits, Tensor) else None


_gradients.reject("sample", "want logits.detach(), and log-probabilities from torch.log_softmax")
_gradients.reject("sample_verify", "want logits.detach(), and log-probabilities from torch.log_softmax")
_gradients.reject("sample_overrides", "want logits.detach()")
