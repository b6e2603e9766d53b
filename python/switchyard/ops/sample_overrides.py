from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, Sequence, _words


class SampleOverrides(NamedTuple, Generic[A]):
    """Results of :func:`sample_overrides`: arguments of :func:`sample`, by name.

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
    bias_first: bool = False,
    out: SampleOverrides[Any] | None = None,
) -> SampleOverrides[A]:
    """Build the overrides of :func:`sample`: the logits of the few tokens that penalties, biases and bans change.

    A list holds tokens row after row: elements ``indptr[b]`` up to ``indptr[b+1]`` belong to row b, in any order,
    tokens as often as they occur. Tokens whose logit is unchanged are left out. Penalties are numbers, which apply
    to all rows, or arrays of shape [1], [B] or [B, 1].

    With draft_token the rows are those of :func:`sample_verify`, while lists and parameters are of requests: a row's
    output continues with the draft tokens before it.

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
