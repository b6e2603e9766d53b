from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, Sequence, _words


class SampleOverrides(NamedTuple, Generic[A]):
    """Results of :func:`sample_overrides`: arguments of :func:`sample`, by name.

    override_indptr: [rows+1] int64: where each row's overrides begin, and the end.
    override_token: [most] int32: tokens, ascending within a row; 0 past the end.
    override_logit: [most] float32: their logits; 0 past the end.
    """

    override_indptr: A
    override_token: A
    override_logit: A


def _rows(logits: Any) -> Any:
    return logits.shape[0] * logits.shape[1] if len(logits.shape) > 2 else logits.shape[0]


def _most(
    rows: int,
    logits: Any,
    draft_token: Any,
    cu_lens: Any,
    max_rows: int,
    prompt_token: Any,
    output_token: Any,
    bias_token: Any,
    stop_token: Any,
    seq_indptr: Any,
) -> Any:
    """How many overrides there can be."""
    of_request = 1 if draft_token is None else logits.shape[1] if cu_lens is None else max_rows
    lists = sum(0 if x is None else x.shape[0] for x in (prompt_token, output_token, bias_token))
    more = (0 if stop_token is None else stop_token.shape[0]) + (0 if seq_indptr is None else seq_indptr.shape[0] - 1)
    return of_request * lists + rows * (more if draft_token is None else more + of_request)


operator = Operator(
    "sample_overrides",
    SampleOverrides,
    extents={"rows": _rows, "most": _most},
    zeros={"override_token": True, "override_logit": True},
)


@operator.function
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
    cu_lens: Array | None = None,
    draft_token: Array | None = None,
    parent: Array | None = None,
    seq_indptr: Array | None = None,
    seq_token: Array | None = None,
    seq_row_indptr: Array | None = None,
    seq_bias: Array | None = None,
    min_tokens: int | Sequence[int] | Array | None = None,
    stop_token: Array | None = None,
    stop_indptr: Array | None = None,
    *,
    history_scope: _words.SampleOverridesHistoryScope = "all",
    max_rows: int = 0,
    out: SampleOverrides[Any] | None = None,
) -> SampleOverrides[A]:
    """Build the overrides of :func:`sample`: the logits of the few tokens that penalties, biases and bans change.

    A list holds tokens row after row: elements ``indptr[b]`` up to ``indptr[b+1]`` belong to row b, in any order,
    tokens as often as they occur. Tokens whose logit is unchanged are left out. Penalties are numbers, which apply
    to all rows, or arrays of shape [1], [B] or [B, 1].

    With draft_token the rows are those of :func:`sample_verify`, while lists and parameters are of requests: a row's
    output continues with the draft tokens before it.

    Args:
        logits: [B, V] float32, float16 or bfloat16; the same as for sample. With draft_token [N, V] or [B, R, V].
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
        cu_lens: [B+1] int32 or int64: where the rows of each request begin, and the end; with logits of [N, V].
        draft_token: [N], [B, R], or [B, R-1] without roots, int32 or int64: the token before each row; -1: no draft.
        parent: [N] or [B, R] int32 or int64: the row that a draft continues; without it the one before.
        seq_indptr: [S+1] int32 or int64: where each sequence begins, and the end, with seq_token.
        seq_token: [Q] int32 or int64: sequences of tokens: the last is biased where the others end the history.
        seq_row_indptr: [B+1] int32 or int64: the sequences of each row; without it all.
        seq_bias: [S] float32: what is added; without it -inf, which bans.
        min_tokens: the stop tokens are banned while the output is shorter.
        stop_token: [K] int32 or int64: tokens that end a sequence.
        stop_indptr: [B+1] int32 or int64: those of each row; without it all are for all.
        history_scope: sequences continue prompt and output ("all"), or the output alone ("output").
        max_rows: with cu_lens: the most rows of a request.
        out: arrays to write to, instead of new ones.

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
