"""The next token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .._numbers import low_bits
from .._sentences import bad, shown
from ..errors import Status
from ..ops import sample as _sample_module
from ..ops import sample_noise as _sample_noise
from ..ops import sample_overrides as _sample_overrides
from ..ops.sample import Logprob, Noise, QOrder, Sample, Ties
from ..ops.sample_overrides import SampleOverrides
from . import _gradients
from ._library import define, direct

_sample = define(
    _sample_module.operator,
    _sample_module.outputs,
    "Tensor logits, Tensor? top_k, Tensor? top_p, Tensor? min_p, Tensor? temperature, Tensor? q, Tensor? seed, "
    "Tensor? offset, Tensor? stream, Tensor? allow_bits, Tensor? override_indptr, Tensor? override_token, "
    "Tensor? override_logit, float eps, int noise, int q_order, int ties, int logprob_mode, int empty_token, "
    "SymInt k_limit, SymInt top_k_guess, bool probs_in, bool masked_logits, bool candidates",
    Sample,
    when={3: 22, 4: 23, 5: 23, 6: 17},
    extra=2,
)
_overrides = define(
    _sample_overrides.operator,
    _sample_overrides.outputs,
    "Tensor logits, Tensor? prompt_indptr, Tensor? prompt_token, Tensor? output_indptr, Tensor? output_token, "
    "Tensor? bias_indptr, Tensor? bias_token, Tensor? bias, Tensor? repetition_penalty, Tensor? frequency_penalty, "
    "Tensor? presence_penalty",
    SampleOverrides,
)
_noise = define(_sample_noise.operator, _sample_noise.outputs, "SymInt seed, SymInt offset, SymInt stream, SymInt n")


def sample(
    logits: Tensor,
    top_k: int | Sequence[int] | Tensor | None = None,
    top_p: float | Sequence[float] | Tensor | None = None,
    min_p: float | Sequence[float] | Tensor | None = None,
    temperature: float | Sequence[float] | Tensor | None = None,
    q: Tensor | None = None,
    seed: int | Sequence[int] | Tensor | None = None,
    offset: int | Sequence[int] | Tensor | None = None,
    stream: int | Sequence[int] | Tensor | None = None,
    allow_bits: Tensor | None = None,
    override_indptr: Tensor | None = None,
    override_token: Tensor | None = None,
    override_logit: Tensor | None = None,
    *,
    eps: float = 1e-8,
    noise: Noise = "auto",
    q_order: QOrder = "list",
    ties: Ties = "exact",
    logprob: Logprob = "none",
    empty_token: Literal[-1, 0] = -1,
    k_limit: int = 0,
    top_k_guess: int = 0,
    probs_in: bool = False,
    masked_logits: bool = False,
    candidates: bool = False,
    out: Sample[Tensor] | None = None,
) -> Sample[Tensor]:
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
    omitted = seed is None and q is None and noise == "auto" and not (masked_logits or candidates)
    if omitted and not torch.compiler.is_compiling():
        _sample_module.warn_of_no_draw(top_k, top_p, min_p, temperature)
    overrides = (override_indptr, override_token, override_logit)
    rows = (top_k, top_p, min_p, temperature, q, seed, offset, stream)
    plain = direct((logits, *rows, allow_bits, *overrides), () if out is None else out)
    given = (
        logits,
        None if top_k is None else _integer("sample", "top_k", top_k, plain),
        None if top_p is None else _real("sample", "top_p", top_p, plain),
        None if min_p is None else _real("sample", "min_p", min_p, plain),
        None if temperature is None else _real("sample", "temperature", temperature, plain),
        q,
        None if seed is None else _integer("sample", "seed", seed, plain),
        None if offset is None else _integer("sample", "offset", offset, plain),
        None if stream is None else _integer("sample", "stream", stream, plain),
        allow_bits,
        *overrides,
        eps,
        *_sample_module.numbered(noise, q_order, ties, logprob, empty_token),
        k_limit,
        top_k_guess,
        probs_in,
        masked_logits,
        candidates,
    )
    made: Sample[Tensor] = _sample(given, out, plain)
    return made


def sample_overrides(
    logits: Tensor,
    prompt_indptr: Tensor | None = None,
    prompt_token: Tensor | None = None,
    output_indptr: Tensor | None = None,
    output_token: Tensor | None = None,
    bias_indptr: Tensor | None = None,
    bias_token: Tensor | None = None,
    bias: Tensor | None = None,
    repetition_penalty: float | Tensor | None = None,
    frequency_penalty: float | Tensor | None = None,
    presence_penalty: float | Tensor | None = None,
    *,
    out: SampleOverrides[Tensor] | None = None,
) -> SampleOverrides[Tensor]:
    """Build the overrides that sample takes, from penalties and biases: :func:`switchyard.sample_overrides`.

    >>> import torch, switchyard.torch
    >>> rows, tokens = torch.tensor([0, 1]), torch.tensor([2])
    >>> made = switchyard.torch.sample_overrides(torch.ones(1, 4), rows, tokens, repetition_penalty=2.0)
    >>> made.override_token.tolist(), made.override_logit.tolist()
    ([2], [0.5])
    """
    lists = (prompt_indptr, prompt_token, output_indptr, output_token, bias_indptr, bias_token, bias)
    given = (logits, *lists, repetition_penalty, frequency_penalty, presence_penalty)
    plain = direct(given, () if out is None else out)
    penalties = (
        _real("sample_overrides", "repetition_penalty", repetition_penalty, plain),
        _real("sample_overrides", "frequency_penalty", frequency_penalty, plain),
        _real("sample_overrides", "presence_penalty", presence_penalty, plain),
    )
    made: SampleOverrides[Tensor] = _overrides((logits, *lists, *penalties), out, plain)
    return made


def sample_noise(*, n: int, seed: int = 0, offset: int = 0, stream: int = 0, out: Tensor | None = None) -> Tensor:
    """Make the exponential noise of sample with noise "race": :func:`switchyard.sample_noise`, as a tensor.

    >>> import torch, switchyard.torch
    >>> switchyard.torch.sample_noise(n=1000, seed=7).mean().round(decimals=1)
    tensor(1.)
    """
    given = (
        low_bits("sample_noise", "seed", seed, 64),
        low_bits("sample_noise", "offset", offset, 64),
        low_bits("sample_noise", "stream", stream, 32),
        n,
    )
    made: Tensor = _noise(given, out)
    return made


def _integer(name: str, field: str, value: Any, plain: bool) -> Any:
    """Integers whose low 64 bits are used: one for all rows, or one per row. A direct call passes a number as is."""
    if isinstance(value, Tensor):
        return value if value.dim() else value.reshape(1)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value) if plain else torch.full((1,), value, dtype=torch.int64)
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    return torch.tensor([low_bits(name, field, number, 64) for number in numbers], dtype=torch.int64)


def _real(name: str, field: str, value: Any, plain: bool) -> Any:
    """A number for all rows, or one per row; numbers beyond float32 become infinities."""
    if value is None or (plain and type(value) is float):
        return value
    if isinstance(value, Tensor):
        narrow = value.to(torch.float32) if value.dtype == torch.float64 else value
        return narrow if narrow.dim() else narrow.reshape(1)
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise bad(Status.DTYPE, name, field, f"is {shown(value)}, want a number, or a tensor")
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64).to(torch.float32)


_gradients.reject("sample", "want logits.detach(), and log-probabilities from torch.log_softmax")
_gradients.reject("sample_overrides", "want logits.detach()")
