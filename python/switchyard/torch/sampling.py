"""The next token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._numbers import low_bits
from .._sentences import bad, shown
from ..errors import Status
from ..ops import sample as _sample_module
from ..ops import sample_noise as _sample_noise
from ..ops import sample_overrides as _sample_overrides
from ..ops import sample_verify as _sample_verify
from ..ops.sample import Sample
from ..ops.sample_overrides import SampleOverrides
from ..ops.sample_verify import SampleVerify
from . import _gradients
from ._library import Given, define, direct, function, shortened

_sample = define(_sample_module.operator, Sample[Tensor])
_verify = define(_sample_verify.operator, SampleVerify[Tensor])
_overrides = define(_sample_overrides.operator, SampleOverrides[Tensor])
_noise = define(_sample_noise.operator, Tensor)
_sample_direct, _verify_direct, _overrides_direct = (
    shortened(module.operator, False, lambda *_: None) for module in (_sample_module, _sample_verify, _sample_overrides)
)
# Parameters of rows in sample_verify, by their place.
_REALS, _INTEGERS = {4: "temperature", 6: "top_p", 7: "min_p"}, {5: "top_k", 8: "seed", 9: "offset", 10: "stream"}


@function(_sample_module.sample)
def sample(given: Given, out: Any) -> Sample[Tensor]:
    """Pick one token per row: :func:`switchyard.sample`.

    Log-probabilities and masked logits have no gradient: a backward pass that reaches them is rejected. In a compiled
    graph a seed or an offset that changes from call to call should be a tensor: a Python number becomes a constant.

    >>> import torch, switchyard.torch
    >>> logits = torch.tensor([[0, 1, 2, 3, 2.5, -1]])
    >>> switchyard.torch.sample(logits).token
    tensor([3])
    >>> switchyard.torch.sample(logits, top_k=4, top_p=0.75, seed=7, candidates=True).kept
    tensor([2], dtype=torch.int32)
    """
    logits, top_k, top_p, min_p, temperature, q, seed, offset, stream = given[:9]
    given_token = given[13]
    nothing_else = q is None and given_token is None and not (given[-3] or given[-2])
    omitted = seed is None and nothing_else and given[16] == "auto"
    if omitted and not torch.compiler.is_compiling():
        _sample_module.warn_of_no_draw(top_k, top_p, min_p, temperature, above=4)
    as_given = (
        (top_k is None or _fits(top_k))
        and (top_p is None or _is_real(top_p))
        and (min_p is None or _is_real(min_p))
        and (temperature is None or _is_real(temperature))
        and (seed is None or _fits(seed))
        and (offset is None or _fits(offset))
        and (stream is None or _fits(stream))
        and (given_token is None or _fits(given_token))
    )
    if as_given and (done := _sample_direct(given, out)) is not None:
        return done  # type: ignore[no-any-return]
    plain = direct(given[:15], out if isinstance(out, (tuple, list)) else ())
    if as_given and plain:
        return _sample(given, out, plain)
    values = (
        logits,
        None if top_k is None else _integer("sample", "top_k", top_k, plain, logits),
        None if top_p is None else _real("sample", "top_p", top_p, plain, logits),
        None if min_p is None else _real("sample", "min_p", min_p, plain, logits),
        None if temperature is None else _real("sample", "temperature", temperature, plain, logits),
        q,
        None if seed is None else _integer("sample", "seed", seed, plain, logits),
        None if offset is None else _integer("sample", "offset", offset, plain, logits),
        None if stream is None else _integer("sample", "stream", stream, plain, logits),
        *given[9:13],
        None if given_token is None else _integer("sample", "given_token", given_token, plain, logits),
        *given[14:],
    )
    return _sample(values, out, plain)


@function(_sample_verify.sample_verify)
def sample_verify(given: Given, out: Any) -> SampleVerify[Tensor]:
    """Verify draft tokens: :func:`switchyard.sample_verify`.

    Log-probabilities have no gradient: a backward pass that reaches them is rejected.

    >>> import torch, switchyard.torch
    >>> logits = torch.tensor([[[2.0, 1, 0, -1], [0, 1, 2, 1], [1, 1, 1, 0]]])
    >>> switchyard.torch.sample_verify(logits, draft_token=torch.tensor([[0, 2]])).token
    tensor([[0, 2, 0]])
    """
    temperature, top_k, top_p, min_p, seed, offset, stream = given[4:11]
    as_given = (
        (temperature is None or _is_real(temperature))
        and (top_k is None or _fits(top_k))
        and (top_p is None or _is_real(top_p))
        and (min_p is None or _is_real(min_p))
        and (seed is None or _fits(seed))
        and (offset is None or _fits(offset))
        and (stream is None or _fits(stream))
    )
    if as_given and (done := _verify_direct(given, out)) is not None:
        return done  # type: ignore[no-any-return]
    name, logits = "sample_verify", given[0]
    plain = direct(given[:17], out if isinstance(out, (tuple, list)) else ())
    values = list(given)
    for i, field in _REALS.items():
        values[i] = None if given[i] is None else _real(name, field, given[i], plain, logits)
    for i, field in _INTEGERS.items():
        values[i] = None if given[i] is None else _integer(name, field, given[i], plain, logits)
    return _verify(tuple(values), out, plain)


@function(_sample_overrides.sample_overrides)
def sample_overrides(given: Given, out: Any) -> SampleOverrides[Tensor]:
    """Build the overrides that sample takes, from penalties and biases: :func:`switchyard.sample_overrides`.

    >>> import torch, switchyard.torch
    >>> rows, tokens = torch.tensor([0, 1]), torch.tensor([2])
    >>> made = switchyard.torch.sample_overrides(torch.ones(1, 4), rows, tokens, repetition_penalty=2.0)
    >>> made.override_token.tolist(), made.override_logit.tolist()
    ([2], [0.5])
    """
    repetition, frequency, presence = given[8:11]
    min_tokens = given[18]
    as_given = (
        (repetition is None or _is_real(repetition))
        and (frequency is None or _is_real(frequency))
        and (presence is None or _is_real(presence))
        and (min_tokens is None or _fits(min_tokens))
    )
    if as_given and (done := _overrides_direct(given, out)) is not None:
        return done  # type: ignore[no-any-return]
    plain = direct(given[:21], out if isinstance(out, (tuple, list)) else ())
    values = (
        *given[:8],
        _real("sample_overrides", "repetition_penalty", repetition, plain, given[0]),
        _real("sample_overrides", "frequency_penalty", frequency, plain, given[0]),
        _real("sample_overrides", "presence_penalty", presence, plain, given[0]),
        *given[11:18],
        None if min_tokens is None else _integer("sample_overrides", "min_tokens", min_tokens, plain, given[0]),
        *given[19:],
    )
    return _overrides(values, out, plain)


@function(_sample_noise.sample_noise)
def sample_noise(given: Given, out: Any) -> Tensor:
    """Make the exponential noise of sample with noise "race": :func:`switchyard.sample_noise`, as a tensor.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.sample_noise(n=1000, seed=7).mean().round(decimals=1)
    tensor(1.)
    """
    seed, offset, stream, n = given
    values = (
        low_bits("sample_noise", "seed", seed, 64),
        low_bits("sample_noise", "offset", offset, 64),
        low_bits("sample_noise", "stream", stream, 32),
        n,
    )
    return _noise(values, out)


def _fits(value: Any) -> bool:
    """Whether integers are passed as they are by a direct call: a number of 64 bits, or a tensor with rows."""
    return (type(value) is int and -(1 << 63) <= value < 1 << 63) or (type(value) is Tensor and value.dim() > 0)


def _is_real(value: Any) -> bool:
    """The same of other numbers."""
    return type(value) is float or (type(value) is Tensor and value.dim() > 0 and value.dtype is not torch.float64)


def _integer(name: str, field: str, value: Any, plain: bool, like: Tensor) -> Any:
    """Integers whose low 64 bits are used: one for all rows, or one per row. A direct call passes a number as is."""
    if isinstance(value, Tensor):
        return value if value.dim() else value.reshape(1)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value) if plain else torch.full((1,), value, dtype=torch.int64, device=_where(like))
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    return torch.tensor([low_bits(name, field, n, 64) for n in numbers], dtype=torch.int64, device=_where(like))


def _real(name: str, field: str, value: Any, plain: bool, like: Tensor) -> Any:
    """A number for all rows, or one per row; numbers beyond float32 become infinities."""
    if value is None or (plain and type(value) is float):
        return value
    if isinstance(value, Tensor):
        narrow = value.to(torch.float32) if value.dtype == torch.float64 else value
        return narrow if narrow.dim() else narrow.reshape(1)
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise bad(Status.DTYPE, name, field, f"is {shown(value)}, want a number, or a tensor")
    if numbers is not value:
        return torch.full((1,), float(value), dtype=torch.float64, device=_where(like)).to(torch.float32)
    return torch.tensor([float(n) for n in numbers], dtype=torch.float64, device=_where(like)).to(torch.float32)


def _where(logits: Any) -> torch.device | None:
    """Where parameters of rows are made; what is no tensor is rejected later."""
    return logits.device if isinstance(logits, Tensor) else None


_gradients.reject("sample", "want logits.detach(), and log-probabilities from torch.log_softmax")
_gradients.reject("sample_verify", "want logits.detach(), and log-probabilities from torch.log_softmax")
_gradients.reject("sample_overrides", "want logits.detach()")
