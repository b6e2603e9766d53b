from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, Sequence, _words


class SampleVerify(NamedTuple, Generic[A]):
    """Results of :func:`sample_verify`.

    accepted: [B] int32: accepted drafts.
    count: [B] int32: tokens of each request.
    token: [N] or [B, R] int64: the tokens of each request from its first slot on, then -1.
    next_token: [B] int64: the last of them, -1 of a request without rows.
    path: [N] or [B, R] int32: the row of the request that each token is from, then -1.
    accept_mask: [N] or [B, R] bool: by row: the root and accepted drafts; None unless requested.
    row_flags: [N] or [B, R] uint32: of the row of each token: 1 NaN seen, 2 +inf seen, 4 no token can be picked, added
        up; then 0; None unless requested.
    logprob: [N] or [B, R] float32: log-probability of each token, then 0; None unless requested.
    rank: [N] or [B, R] int32: place of each token in the order, from 1, then 0; None unless requested.
    top_token: [N, top_logprobs] or [B, R, top_logprobs] int64: the most likely tokens, -1 after them; None unless
        requested.
    top_logprob: [N, top_logprobs] or [B, R, top_logprobs] float32: their log-probabilities, -inf after them; None
        unless requested.
    """

    accepted: A
    count: A  # type: ignore[assignment]  # the name of the field in C; tuple.count is of no use here
    token: A
    next_token: A
    path: A
    accept_mask: A | None
    row_flags: A | None
    logprob: A | None
    rank: A | None
    top_token: A | None
    top_logprob: A | None


SLOTS = ("token", "path", "accept_mask", "row_flags", "logprob", "rank")


def _slots(logits: Any) -> Any:
    return tuple(logits.shape[:-1])


def _top(logits: Any, top_logprobs: int) -> Any:
    return (*logits.shape[:-1], top_logprobs)


operator = Operator(
    "sample_verify",
    SampleVerify,
    asks={"accept_mask": "accept_mask", "row_flags": "row_flags", "rank": "rank"},
    extents={"B": lambda logits, cu_lens: logits.shape[0] if cu_lens is None else cu_lens.shape[0] - 1},
    shapes={name: _slots for name in SLOTS} | {"top_token": _top, "top_logprob": _top},
    zeros={name: {"cu_lens": 1} for name in (*SLOTS, "top_token", "top_logprob")},  # which a call without requests
    # does not touch
    when={
        "logprob": lambda logprob: logprob != "none",
        "top_token": lambda top_logprobs: top_logprobs > 0,
        "top_logprob": lambda top_logprobs: top_logprobs > 0,
    },
)


@operator.function
def sample_verify(
    logits: A,
    draft_token: Array,
    cu_lens: Array | None = None,
    parent: Array | None = None,
    temperature: float | Sequence[float] | Array | None = None,
    top_k: int | Sequence[int] | Array | None = None,
    top_p: float | Sequence[float] | Array | None = None,
    min_p: float | Sequence[float] | Array | None = None,
    seed: int | Sequence[int] | Array | None = None,
    offset: int | Sequence[int] | Array | None = None,
    stream: int | Sequence[int] | Array | None = None,
    allow_bits: Array | None = None,
    override_indptr: Array | None = None,
    override_token: Array | None = None,
    override_logit: Array | None = None,
    stop_token: Array | None = None,
    stop_indptr: Array | None = None,
    *,
    mode: _words.SampleVerifyMode = "match",
    noise: _words.SampleVerifyNoise = "auto",
    ties: _words.SampleVerifyTies = "exact",
    logprob: _words.SampleVerifyLogprobMode = "none",
    empty_token: _words.SampleVerifyEmptyToken = -1,
    k_limit: int = 0,
    top_logprobs: int = 0,
    accept_mask: bool = False,
    row_flags: bool = False,
    rank: bool = False,
    out: SampleVerify[Any] | None = None,
) -> SampleVerify[A]:
    """Verify draft tokens of speculative decoding: accept those that :func:`sample` would pick, and pick one more.

    Each request has rows of logits: its root, the output of the model after the last token that is certain, then the
    output after each draft token. Drafts are a chain, or with parent a tree. The tokens are those of calling sample
    step by step, bit for bit, whatever the drafts are, as long as the model returns the same logits for the same
    tokens. The next call has offset + count.

    Parameters of requests are numbers, which apply to all, or arrays of shape [], [1], [B] or [B, 1], or lists.

    Args:
        logits: [N, V] with cu_lens, or [B, R, V]: float32, float16 or bfloat16.
        draft_token: [N], [B, R], or [B, R-1] without roots, int32 or int64: the token before each row; -1: no draft.
            The entry of a root is not read.
        cu_lens: [B+1] int32 or int64: where the rows of each request begin, and the end.
        parent: [N] or [B, R] int32 or int64: the row of the request that a draft continues; without it the one before.
        temperature: divides the logits; below 1e-5 the request takes the most likely tokens.
        top_k: keep the first k tokens; 0 or less, or V and more: all.
        top_p: keep the shortest prefix with a probability of at least p; 1 or more: all.
        min_p: keep tokens with at least this share of the largest probability.
        seed: seeds of draws: an integer from 0 to 2^64 - 1, as offset and stream are; of arrays the bits count.
        offset: step of the first token of the request.
        stream: number of the request. Without it 0 where seed has an entry for each request, else its place.
        allow_bits: [N, ceil(V/32)], [B, R, ceil(V/32)] or [1, ceil(V/32)] int32 or uint32: tokens that may be picked.
        override_indptr: [N+1]: where each row's overrides begin, and the end; see :func:`sample_overrides`.
        override_token: [K] int32 or int64: tokens whose logit is replaced, ascending within a row.
        override_logit: [K] float32: the new logits.
        stop_token: [S] int32 or int64: tokens that end a request.
        stop_indptr: [B+1] int32 or int64: where those of each request begin, and the end; without it all are for all.
        mode: "match": a draft is accepted if it is the token that sample picks.
        noise: "auto": "cdf" if seed is given, else "none".
        ties: of tokens that are equal at a cut, keep the lowest numbers, as many as needed ("exact"), or "all".
        logprob: fill ``logprob``, from the input logits ("raw") or after all filters ("final").
        empty_token: token of a row that has no candidate; it ends the request.
        k_limit: upper limit of top_k; 0: none.
        top_logprobs: how many of the most likely tokens to return, with their log-probabilities.
        accept_mask: fill ``accept_mask``.
        row_flags: fill ``row_flags``.
        rank: fill ``rank``.
        out: arrays to write to, instead of new ones; None in it leaves an output out.

    >>> import numpy as np, switchyard
    >>> logits = np.array([[[2, 1, 0, -1], [0, 1, 2, 1], [1, 1, 1, 0]]], np.float32)
    >>> drawn = switchyard.sample_verify(logits, draft_token=np.array([[2, 1]]), seed=1, offset=5, stream=2)
    >>> drawn.token, drawn.accepted, drawn.next_token
    (array([[ 2,  2, -1]]), array([1], dtype=int32), array([2]))
    """
