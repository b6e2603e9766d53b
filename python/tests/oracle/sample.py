"""sample and sample_noise: every row sorted completely, every sum an integer of any size."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from .arith import Array, Rejected, canonical, exp, fixed40, philox, race_noise, race_words, widen
from .moe_rows import Outputs, reject_unless

INF = np.float32(np.inf)


@dataclass
class Row:
    """One row: what came in, and its tokens by rank as far as they were followed."""

    raw: Array  # the caller's logits in f32
    x: Array  # overrides and allowed tokens in place
    barred: Array
    k: int | None
    p: float
    min_p: float
    temperature: float
    noise: str
    q: Array | None
    seed: int
    offset: int
    stream: int
    t: Array = field(init=False)
    e: Array = field(init=False)
    w: list[int] = field(init=False)


def weigh(z: Array, temperature: float, probs_in: bool) -> tuple[Array, Array, list[int]]:
    """t, e and the whole-number weight of canonical logits."""
    if probs_in:
        e = np.maximum(z, np.float32(0))
        return np.zeros_like(z), e, fixed40(np.minimum(e, np.float32(1)))
    if z.max() == -np.inf:
        return np.full_like(z, -INF), np.zeros_like(z), [0] * len(z)
    bounded = (
        np.float32(1)
        if math.isnan(temperature)
        else np.float32(min(max(np.float32(temperature), np.float32(1e-5)), 2.0**100))
    )
    with np.errstate(all="ignore"):
        t = ((z - z.max()).astype(np.float32) * (np.float32(1) / bounded)).astype(np.float32)
    e = exp(t)
    return t, e, fixed40(e)


def extend(order: list[int], z: Array, n: int, limit: int, ties: str) -> int:
    """The prefix of length n; with ties ALL up to the end of the tie at its last element."""
    while ties == "all" and n < limit and z[order[n]] == z[order[n - 1]]:
        n += 1
    return n


def threshold(p: float, total: int) -> int:
    product = Fraction(p) * total
    return max(1, -(-product.numerator // product.denominator))


def filtered(
    row: Row, z: Array, order: list[int], *, ties: str, k_limit: int, probs_in: bool
) -> tuple[list[int], bool, int]:
    """The candidates in list order, whether the list is by rank, and the weight that probabilities refer to."""
    v = len(z)
    empty = z.max() == -np.inf
    n, ranked = v, False
    most = min(v, k_limit) if k_limit > 0 else v - 1
    if row.k is not None and 1 <= row.k <= most:
        n, ranked = extend(order, z, row.k, v, ties), True
    if not empty and row.p <= 0:
        n, ranked = extend(order, z, 1, v, ties), True
    total = sum(row.w[i] for i in order[:n])
    if not empty and 0 < row.p < 1:
        ranked = True
        wanted = threshold(row.p, 2**40 if probs_in else total)
        mass = 0
        for m in range(n):
            mass += row.w[order[m]]
            if mass >= wanted:
                n = extend(order, z, m + 1, n, ties)
                break
    kept = order[:n]
    if not empty and row.min_p >= 1:
        kept = order[:1]
    elif not empty and row.min_p > 0:
        floor = np.float32(row.min_p) * row.e[order[0]]
        kept = [i for i in kept if row.e[i] >= floor]
    return (kept if ranked else sorted(kept)), ranked, total


def score(e: Any, q: Any, eps: Any) -> Any:
    a = np.abs(q)
    if not a < np.float32(2.0**100):
        a = np.float32(2.0**100)
    d = np.float32(a + eps)
    if not d > np.float32(2.0**-100):
        d = np.float32(2.0**-100)
    return np.float32(e / d)


def choose(row: Row, listed: list[int], order: list[int], q_order: str, eps: float) -> int:
    if row.noise == "none" or row.temperature < np.float32(1e-5):
        return order[0]
    if row.noise == "cdf":
        words = philox(row.seed, (0xFFFFFFFF, row.offset & 0xFFFFFFFF, row.offset >> 32, row.stream & 0xFFFFFFFF))
        target = (words[0] + (words[1] << 32)) * sum(row.w[i] for i in listed) >> 64
        mass = 0
        for i in sorted(listed):
            mass += row.w[i]
            if mass > target:
                return i
        return order[0]
    if row.noise == "race":
        noise = race_noise(race_words(row.seed, row.offset, row.stream, len(row.x)))
        q_order, eps = "vocab", 0.0
    else:
        assert row.q is not None
        noise = row.q
    best, best_score = order[0], np.float32(-1)
    for j, i in enumerate(listed):
        if row.e[i] > 0:
            s = score(row.e[i], noise[i if q_order == "vocab" else j], np.float32(eps))
            if s > best_score:
                best, best_score = i, s
    return best


def fma64(a: float, b: float, c: float) -> float:
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def ln_fixed40(total: int) -> float:
    """ln(total * 2**-40) as an exact sequence of f64 operations."""
    k = total.bit_length() - 1
    mant = math.ldexp(total >> (k - 52) if k > 52 else total << (52 - k), -52)
    if mant > 1.4142135623730951:
        mant /= 2
        k += 1
    s = (mant - 1) / (mant + 1)
    z = s * s
    g = 1.0 / 21
    for d in range(19, 0, -2):
        g = fma64(g, z, 1.0 / d)
    return fma64(k - 40, 0.6931471805599453, (2 * s) * g)


def share(t: Any, w: int, total: int, probs_in: bool) -> Any:
    if not probs_in:
        return np.float32(float(t) - ln_fixed40(total))
    return -INF if w == 0 else np.float32(ln_fixed40(w) - ln_fixed40(total))


def distribution(
    row: Row, listed: list[int], order: list[int], empty: bool, mode: str, probs_in: bool
) -> dict[int, Any]:
    """Log-probabilities by token, in the order."""
    z, t, w = canonical(row.x), row.t, row.w
    if mode == "raw":
        z = canonical(row.raw)
        order = sorted(range(len(z)), key=lambda i: (-float(z[i]), i))
        listed, empty = order, bool(z.max() == -np.inf)
        t, _, w = weigh(z, 1.0, probs_in)
    elif row.temperature < np.float32(1e-5) and not empty:
        return {order[0]: np.float32(0)}
    kept = {i for i in listed if z[i] > -np.inf and not empty}
    total = sum(w[i] for i in kept)
    return {i: share(t[i], w[i], total, probs_in) for i in order if i in kept}


def sample_row(
    row: Row,
    *,
    given: int,
    score: list[int],
    top: int,
    eps: float,
    q_order: str,
    ties: str,
    logprob_mode: str,
    empty_token: str,
    k_limit: int,
    probs_in: bool,
) -> Outputs:
    v = len(row.x)
    z = canonical(row.x)
    empty = bool(z.max() == -np.inf)
    row.t, row.e, row.w = weigh(z, row.temperature, probs_in)
    if empty:
        row.e, row.w = np.zeros_like(z), [0] * v
    order = sorted(range(v), key=lambda i: (-float(z[i]), i))
    listed, _, total = filtered(row, z, order, ties=ties, k_limit=k_limit, probs_in=probs_in)
    fill = np.float32(0) if probs_in else -INF
    masked = np.full(v, fill, np.float32)
    list_token, list_prob = np.zeros(v, np.int64), np.zeros(v, np.float32)
    divisor = np.float32(np.float32(total) * np.float32(2.0**-40))
    for j, i in enumerate(listed):
        if not (empty or row.barred[i] or np.isnan(row.x[i])):
            masked[i] = row.x[i]
        list_token[j] = i
        if probs_in:
            list_prob[j] = 0 if empty or row.barred[i] or z[i] == -np.inf else row.x[i]
        elif not empty:
            list_prob[j] = row.e[i] / divisor
    token = choose(row, listed, order, q_order, eps) if not empty else 0 if empty_token == "zero" else -1
    flags = int(np.isnan(row.x).any()) + 2 * int((row.x == np.inf).any()) + 4 * int(empty)
    if given >= 0:
        token = given
    found = {} if logprob_mode == "none" else distribution(row, listed, order, empty, logprob_mode, probs_in)
    lp = -INF if empty and given < 0 else found.get(token, -INF)
    first = [*found.items(), *[(-1, -INF)] * top][:top]
    kept = sum(1 for i in listed if z[i] > -np.inf)
    return {
        "token": token,
        "kept": kept,
        "row_flags": flags,
        "masked_logits": masked,
        "list_token": list_token,
        "list_prob": list_prob,
        "logprob": lp,
        "rank": 0 if empty else list(found).index(token) + 1 if token in found else v + 1,
        "top_token": [token for token, _ in first],
        "top_logprob": [value for _, value in first],
        "score_logprob": [found.get(token, -INF) for token in score],
    }


def per_row(values: Array | None, b: int, default: Any) -> Any:
    if values is None:
        return default
    flat = values.reshape(-1)
    if values.dtype.kind in "iu":
        return int(flat[b if len(flat) > 1 else 0])
    return float(widen(flat)[b if len(flat) > 1 else 0])


def allowed(allow_bits: Array | None, b: int, v: int) -> Array:
    if allow_bits is None:
        return np.ones(v, bool)
    words = [int(w) & 0xFFFFFFFF for w in allow_bits[b if len(allow_bits) > 1 else 0]]
    return np.array([words[i // 32] >> i % 32 & 1 for i in range(v)], bool)


def check_lists(indptr: Array, length: int) -> None:
    ends = indptr.tolist()
    reject_unless(all(0 <= e <= length for e in ends) and all(a <= b for a, b in itertools.pairwise(ends)), "INDEX")


def check_overrides(indptr: Array | None, token: Array | None, rows: int, v: int) -> None:
    if indptr is None or token is None or rows == 0:
        return
    check_lists(indptr, len(token))
    for a, b in itertools.pairwise(indptr.tolist()):
        tokens = token[a:b].tolist()
        reject_unless(all(0 <= i < v for i in tokens) and all(i < j for i, j in itertools.pairwise(tokens)), "INDEX")


def sample(
    logits: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
    min_p: Array | None = None,
    temperature: Array | None = None,
    q: Array | None = None,
    seed: Array | None = None,
    offset: Array | None = None,
    stream: Array | None = None,
    allow_bits: Array | None = None,
    override_indptr: Array | None = None,
    override_token: Array | None = None,
    override_logit: Array | None = None,
    given_token: Array | None = None,
    score_token: Array | None = None,
    *,
    eps: float = 0.0,
    noise: str = "auto",
    q_order: str = "list",
    ties: str = "exact",
    logprob_mode: str = "none",
    empty_token: str = "minus_one",
    k_limit: int = 0,
    top_k_guess: int = 0,
    probs_in: bool = False,
    top_logprobs: int = 0,
) -> Outputs:
    b_all, v = logits.shape
    reject_unless(v > 0, "SHAPE")
    reject_unless(math.isfinite(eps) and eps >= 0 and k_limit >= 0, "VALUE")
    if noise == "auto":
        noise = "q" if q is not None else "cdf" if seed is not None else "none"
    reject_unless(0 <= top_logprobs <= v, "VALUE")
    reject_unless(logprob_mode != "none" or (top_logprobs == 0 and score_token is None), "VALUE")
    reject_unless(not (noise == "q" and q is None) and not (noise in ("race", "cdf") and seed is None), "VALUE")
    for named in (given_token, score_token):
        reject_unless(named is None or b_all == 0 or all(-1 <= i < v for i in named.reshape(-1).tolist()), "INDEX")
    check_overrides(override_indptr, override_token, b_all, v)
    rows: list[Outputs] = []
    for b in range(b_all):
        raw = widen(logits[b])
        x = raw.copy()
        if override_indptr is not None and override_token is not None and override_logit is not None:
            for j in range(int(override_indptr[b]), int(override_indptr[b + 1])):
                x[int(override_token[j])] = override_logit[j]
        barred = ~allowed(allow_bits, b, v)
        x[barred] = -INF
        row = Row(
            raw=raw,
            x=x,
            barred=barred,
            k=per_row(top_k, b, None),
            p=per_row(top_p, b, 1.0),
            min_p=per_row(min_p, b, 0.0),
            temperature=per_row(temperature, b, 1.0),
            noise=noise,
            q=None if q is None else q[b],
            seed=per_row(seed, b, 0) % 2**64,
            offset=per_row(offset, b, 0) % 2**64,
            stream=per_row(stream, b, 0 if seed is not None and len(seed) == b_all else b),
        )
        with np.errstate(all="ignore"):
            rows.append(
                sample_row(
                    row,
                    given=per_row(given_token, b, -1),
                    score=[] if score_token is None else score_token[b].tolist(),
                    top=top_logprobs,
                    eps=eps,
                    q_order=q_order,
                    ties=ties,
                    logprob_mode=logprob_mode,
                    empty_token=empty_token,
                    k_limit=k_limit,
                    probs_in=probs_in,
                )
            )
    types = {
        "token": np.int64,
        "kept": np.int32,
        "row_flags": np.uint32,
        "masked_logits": np.float32,
        "list_token": np.int64,
        "list_prob": np.float32,
        "logprob": np.float32,
        "rank": np.int32,
        "top_token": np.int64,
        "top_logprob": np.float32,
        "score_logprob": np.float32,
    }
    wide = {"masked_logits": v, "list_token": v, "list_prob": v, "top_token": top_logprobs, "top_logprob": top_logprobs}
    wide["score_logprob"] = 0 if score_token is None else score_token.shape[1]
    outputs: Outputs = {
        name: np.array([row[name] for row in rows], kind).reshape((b_all, wide[name]) if name in wide else (b_all,))
        for name, kind in types.items()
    }
    if logprob_mode == "none":
        outputs["logprob"] = outputs["rank"] = None
    if top_logprobs == 0:
        outputs["top_token"] = outputs["top_logprob"] = None
    if score_token is None:
        outputs["score_logprob"] = None
    return outputs


def sample_noise(*, seed: int = 0, offset: int = 0, stream: int = 0, n: int) -> Outputs:
    if not 0 <= n <= 2**34 - 4:
        raise Rejected("VALUE")
    return {"q": race_noise(race_words(seed, offset, stream, n)).reshape(n)}
