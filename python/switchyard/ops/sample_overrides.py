"""Penalties and biases, as the overrides that sample takes."""

from __future__ import annotations

from typing import Any, Generic

from typing_extensions import NamedTuple

from .._arrays import A, Array
from .._numbers import real
from .._operator import Operator


class SampleOverrides(NamedTuple, Generic[A]):
    """Results of :func:`sample_overrides`: arguments of :func:`sample`, by name."""

    override_indptr: A
    """[B+1] int64: where each row's overrides begin, and the end."""
    override_token: A
    """[P+O+N] int32: tokens, ascending within a row; 0 past the end."""
    override_logit: A
    """[P+O+N] float32: their logits; 0 past the end."""


operator = Operator("sample_overrides", SampleOverrides, zeros={"override_token": True, "override_logit": True})


def sample_overrides(
    logits: A,
    prompt_indptr: Array | None = None,
    prompt_token: Array | None = None,
    output_indptr: Array | None = None,
    output_token: Array | None = None,
    bias_indptr: Array | None = None,
    bias_token: Array | None = None,
    bias: Array | None = None,
    repetition_penalty: float | Array | None = None,
    frequency_penalty: float | Array | None = None,
    presence_penalty: float | Array | None = None,
    *,
    out: SampleOverrides[Any] | None = None,
) -> SampleOverrides[A]:
    """Build the overrides of :func:`sample`: the logits of the few tokens that penalties, biases and bans change.

    A list holds tokens row after row: elements ``indptr[b]`` up to ``indptr[b+1]`` belong to row b, in any order,
    tokens as often as they occur. Tokens whose logit is unchanged are left out. Penalties are numbers, which apply
    to all rows, or arrays of shape [1], [B] or [B, 1].

    Args:
        logits: [B, V] float32, float16 or bfloat16; the same as for sample.
        prompt_indptr: [B+1] int64 or int32, with prompt_token.
        prompt_token: [P] int32 or int64: tokens of the prompts.
        output_indptr: [B+1], with output_token.
        output_token: [O]: tokens generated so far.
        bias_indptr: [B+1], with bias_token and bias.
        bias_token: [N]: tokens whose logits are biased.
        bias: [N] float32: what is added; -inf bans a token.
        repetition_penalty: divides positive logits of tokens of prompt and output, and multiplies others.
        frequency_penalty: subtracted as often as the output has the token.
        presence_penalty: subtracted once if the output has it.
        out: arrays to write to, instead of new ones.

    Returns:
        override_indptr: [B+1] int64: where each row's overrides begin, and the end.
        override_token: [P+O+N] int32: tokens, ascending within a row; 0 past the end.
        override_logit: [P+O+N] float32: their logits; 0 past the end.

    >>> import numpy as np, switchyard
    >>> logits = np.array([[0, 1, 2, 3, 2.5, -1]], np.float32)
    >>> lists = {"prompt_indptr": np.array([0, 2]), "prompt_token": np.array([5, 3])}
    >>> lists |= {"output_indptr": np.array([0, 3]), "output_token": np.array([3, 4, 3])}
    >>> changed = switchyard.sample_overrides(
    ...     logits, **lists, repetition_penalty=2, frequency_penalty=0.5, presence_penalty=0.25
    ... )
    >>> end = changed.override_indptr[-1]
    >>> changed.override_token[:end].tolist(), changed.override_logit[:end].tolist()
    ([3, 4, 5], [0.25, 0.5, -2.0])
    >>> switchyard.sample(logits, **changed._asdict()).token
    array([2])
    """
    penalties: tuple[Any, ...] = (
        real("sample_overrides", "repetition_penalty", repetition_penalty),
        real("sample_overrides", "frequency_penalty", frequency_penalty),
        real("sample_overrides", "presence_penalty", presence_penalty),
    )
    lists: tuple[Any, ...] = (prompt_indptr, prompt_token, output_indptr, output_token, bias_indptr, bias_token, bias)
    return operator((logits, *lists, *penalties), out)
