from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, Sequence, _words


class SampleVerify(NamedTuple, Generic[A]):
    """Results of :func:`sample_verify`."""

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
    top_n_sigma: float | Sequence[float] | Array | None = None,
    typical_p: float | Sequence[float] | Array | None = None,
    xtc_probability: float | Sequence[float] | Array | None = None,
    xtc_threshold: float | Sequence[float] | Array | None = None,
    dynatemp_range: float | Sequence[float] | Array | None = None,
    dynatemp_exponent: float | Sequence[float] | Array | None = None,
    *,
    mode: _words.SampleVerifyMode = "match",
    noise: _words.SampleVerifyNoise = "auto",
    ties: _words.SampleVerifyTies = "exact",
    logprob: _words.SampleVerifyLogprobMode = "none",
    empty_token: _words.SampleVerifyEmptyToken = -1,
    k_limit: int = 0,
    top_logprobs: int = 0,
    stages: _words.SampleVerifyStages = "default",
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
        draft_token: [N], [B, R], or [B, R-1] without roots, int32 or int64: the token before each row; -1: no draft.
            The entry of a root is not read.
        seed: seeds of draws: an integer from 0 to 2^64 - 1, as offset and stream are; of arrays the bits count.
        stream: number of the request. Without it 0 where seed has an entry for each request, else its place.
        allow_bits: [N, ceil(V/32)], [B, R, ceil(V/32)] or [1, ceil(V/32)] int32 or uint32: tokens that may be picked.
        stages: order of the stages, as in sample: "default", "llama", "vllm" or "hf".
        logprob: fill ``logprob``, from the input logits ("raw") or after all filters ("final").
        empty_token: token of a row that has no candidate; it ends the request.

    >>> import numpy as np, switchyard
    >>> logits = np.array([[[2, 1, 0, -1], [0, 1, 2, 1], [1, 1, 1, 0]]], np.float32)
    >>> drawn = switchyard.sample_verify(logits, draft_token=np.array([[2, 1]]), seed=1, offset=5, stream=2)
    >>> drawn.token, drawn.accepted, drawn.next_token
    (array([[ 2,  2, -1]]), array([1], dtype=int32), array([2]))
    """
