from __future__ import annotations

import warnings

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, Sequence, _words


class Sample(NamedTuple, Generic[A]):
    """Results of :func:`sample`.

    rank: [B] int32: place of the token in the order, from 1; V + 1: it is not in the distribution, 0: an empty row;
        None unless requested.
    """

    token: A
    kept: A
    row_flags: A
    masked_logits: A | None
    list_token: A | None
    list_prob: A | None
    logprob: A | None
    rank: A | None = None
    top_token: A | None = None
    top_logprob: A | None = None
    score_logprob: A | None = None


def warn_of_no_draw(
    q: Any,
    given_token: Any,
    noise: str,
    masked_logits: Any,
    candidates: Any,
    top_k: Any,
    top_p: Any,
    min_p: Any,
    temperature: Any,
) -> None:
    """Warns of parameters of a draw in a call without seed and noise, unless they request the first token anyway."""
    if top_k is None and top_p is None and min_p is None and temperature is None:
        return
    if q is not None or given_token is not None or noise != "auto" or masked_logits or candidates:
        return
    named = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "temperature": temperature}
    there = [name for name, value in named.items() if value is not None]
    first_alone = (type(top_k) is int and top_k == 1) or (type(temperature) in (int, float) and temperature < 1e-5)
    if not first_alone:
        text = (
            f"sample: seed is None, want a seed: without one {there[-1]} picks nothing, "
            "every row takes the most likely token"
        )
        warnings.warn(f'{text}; noise="none" if that is meant', UserWarning, stacklevel=3)


operator = Operator(
    "sample",
    Sample,
    asks={"masked_logits": "masked_logits", "candidates": "list_token list_prob", "rank": "rank"},
    without={"seed": warn_of_no_draw},
    extents={"M": lambda top_logprobs: top_logprobs},
    when={
        "logprob": lambda logprob: logprob != "none",
        "top_token": lambda top_logprobs: top_logprobs > 0,
        "top_logprob": lambda top_logprobs: top_logprobs > 0,
        "score_logprob": lambda score_token: score_token is not None,
    },
)


@operator.function
def sample(
    logits: A,
    top_k: int | Sequence[int] | Array | None = None,
    top_p: float | Sequence[float] | Array | None = None,
    min_p: float | Sequence[float] | Array | None = None,
    temperature: float | Sequence[float] | Array | None = None,
    q: Array | None = None,
    seed: int | Sequence[int] | Array | None = None,
    offset: int | Sequence[int] | Array | None = None,
    stream: int | Sequence[int] | Array | None = None,
    allow_bits: Array | None = None,
    override_indptr: Array | None = None,
    override_token: Array | None = None,
    override_logit: Array | None = None,
    given_token: int | Sequence[int] | Array | None = None,
    score_token: Array | None = None,
    top_n_sigma: float | Sequence[float] | Array | None = None,
    typical_p: float | Sequence[float] | Array | None = None,
    xtc_probability: float | Sequence[float] | Array | None = None,
    xtc_threshold: float | Sequence[float] | Array | None = None,
    dynatemp_range: float | Sequence[float] | Array | None = None,
    dynatemp_exponent: float | Sequence[float] | Array | None = None,
    *,
    eps: float = 1e-8,
    noise: _words.SampleNoise = "auto",
    q_order: _words.SampleQOrder = "list",
    ties: _words.SampleTies = "exact",
    logprob: _words.SampleLogprobMode = "none",
    empty_token: _words.SampleEmptyToken = -1,
    k_limit: int = 0,
    probs_in: bool = False,
    top_k_guess: int = 0,
    top_logprobs: int = 0,
    stages: _words.SampleStages = "default",
    masked_logits: bool = False,
    candidates: bool = False,
    rank: bool = False,
    out: Sample[Any] | None = None,
) -> Sample[A]:
    """Pick one token per row: temperature, top-k, top-p, min-p, then the largest logit or a draw.

    Tokens are ordered by logit, larger first, then by number; every filter keeps a prefix of that order. Without
    noise the most likely token is picked; a filter or temperature without seed, q or noise has no effect and gives a
    warning. The same logits, parameters and seeds pick the same tokens on every machine.

    Parameters of rows are numbers, which apply to all rows, or arrays of shape [], [1], [B] or [B, 1], or lists of B
    numbers; float64 is rounded to float32.

    Args:
        seed: seeds of draws: an integer from 0 to 2^64 - 1, as offset and stream are; of arrays the bits count.
        stream: number of the sequence. Without it 0 where seed has an entry for each row, so that a sequence draws the
            same token alone and in a batch; with one seed for all rows the number of the row, and a sequence that may
            change its row between calls must be given one.
        allow_bits: [B, ceil(V/32)] or [1, ...] int32 or uint32: bit i % 32 of word i / 32 is 1 where token i may be
            picked.
        noise: "auto": "q" if q is given, else "cdf" if seed is given, else "none". "race" works as q, with noise
            made from the seed; "cdf" draws one number per row.
        stages: order of the stages: "llama" has the temperature at the end, "vllm" min-p before top-k and top-p, "hf"
            typical_p at the end.
        logprob: fill ``logprob``, from the input logits ("raw") or after all filters ("final"); the rank, the most
            likely tokens and the scores are of the same distribution.

    >>> import numpy as np, switchyard
    >>> logits = np.array([[0, 1, 2, 3, 2.5, -1]], np.float32)
    >>> switchyard.sample(logits).token
    array([3])
    >>> drawn = switchyard.sample(logits, top_k=4, top_p=0.75, seed=7, candidates=True)
    >>> drawn.list_token, drawn.list_prob.round(4)
    (array([[3, 4, 0, 0, 0, 0]]), array([[0.474 , 0.2875, 0.    , 0.    , 0.    , 0.    ]], dtype=float32))
    >>> drawn.kept
    array([2], dtype=int32)
    >>> switchyard.sample(logits, temperature=0.8, seed=7, logprob="final").logprob.dtype
    dtype('float32')
    >>> best = switchyard.sample(logits, logprob="raw", top_logprobs=3, rank=True, given_token=4)
    >>> best.top_token, best.top_logprob.round(3), best.rank
    (array([[3, 4, 2]]), array([[-0.778, -1.278, -1.778]], dtype=float32), array([2], dtype=int32))
    """
