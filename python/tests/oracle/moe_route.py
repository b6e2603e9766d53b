"""moe_route: from logits to experts and weights."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .arith import Array, canonical, exp, fixed40, narrow, widen
from .moe_rows import Outputs, reject_unless

ZERO = np.float32(0)


def softmax(x: Array) -> Array:
    """Of canonical numbers: whole numbers of 2**-40 over their exact sum, one f64 division, one rounding to f32."""
    if len(x) == 0 or x.max() == -np.inf:
        return np.zeros(len(x), np.float32)
    with np.errstate(all="ignore"):
        weights = fixed40(exp((x - x.max()).astype(np.float32)))
    total = float(sum(weights))
    return np.array([np.float32(float(w) / total) for w in weights], np.float32)


def sigmoid(x: Array) -> Array:
    e = exp(-np.abs(x))
    one = np.float32(1)
    return np.asarray(np.where(x >= 0, one / (one + e), e / (one + e)), np.float32)


def rounded(exact: Fraction) -> Any:
    """An exact number rounded once to f32, as a fused multiply-add does: the nearest of three, even where two are."""
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    even = {x: int(x.view(np.uint32)) & 1 for x in around}
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), even[x]))


def sqrt_softplus(x: Array) -> Array:
    """With exact rational numbers for what is fused, and a square root in double, rounded once more."""
    words = (0x3E0F6BE1, 0x3E0F5E86, 0x3E4CE904, 0x3EAAAA81, 0x3F800000)
    constants = [Fraction(float(c)) for c in np.array(words, np.uint32).view(np.float32)]
    e = exp(-np.abs(x))
    q = e / (np.float32(2) + e)
    z = q * q
    scores = np.empty(len(x), np.float32)
    for i in range(len(x)):
        g = constants[0]
        for c in constants[1:]:
            g = Fraction(float(rounded(g * Fraction(float(z[i])) + c)))
        log = np.float32(np.float32(q[i] + q[i]) * np.float32(float(g)))
        scores[i] = math.sqrt(np.float32(x[i] + log) if x[i] > 0 else log)
    return scores


def lone_scores(score: str, x: Array) -> Array:
    return x if score == "none" else sigmoid(x) if score == "sigmoid" else sqrt_softplus(x)


def kept_groups(v: list[float], groups: int, top_groups: int, group_score: str, k: int) -> set[int]:
    size = len(v) // groups
    n = {"max": 1, "sum2": 2, "sumk": max(1, k // top_groups)}[group_score]
    worth: list[float] = []
    for g in range(groups):
        best = sorted(v[g * size : (g + 1) * size], reverse=True)
        acc = np.float32(best[0])
        for value in best[1:n]:
            acc = np.float32(acc + np.float32(value))
        worth.append(-math.inf if np.isnan(acc) else float(acc))
    order = sorted(range(groups), key=lambda g: (-worth[g], g))
    return set(order[:top_groups])


def given_experts(row: Array, experts: int, columns: int, allow_missing: bool) -> list[int]:
    """The experts of a row of ids, -1 for an unused slot; rejects all others."""
    unused = {columns, *([-1] if row.dtype.kind == "i" else [])}
    if row.dtype.kind == "u" and np.iinfo(row.dtype).max >= columns:
        unused.add(int(np.iinfo(row.dtype).max))
    chosen: list[int] = []
    for i in row:
        e = int(i)
        if e < 0 or e >= experts:
            reject_unless(allow_missing and e in unused, "INDEX")
            e = -1
        reject_unless(e < 0 or e not in chosen, "ROUTING")
        chosen.append(e)
    return chosen


class Fields(NamedTuple):
    """The numbers of a call."""

    k: int
    score: str = "softmax"
    select: str = "score"
    softmax_after: bool = False
    groups: int = 0
    top_groups: int = 0
    group_score: str = "max"
    slot_order: str = "value"
    allow_missing: bool = False
    renormalize: bool = False
    eps: float = 0.0
    eps_rule: str = "add"
    scale: float = 0.0
    n_shared: int = 0
    shared_weight: float = 0.0
    shared_in_sum: bool = False
    capacity: int = 0
    drop: str = "prob"

    def check(self, experts: int, gated: bool) -> None:
        reject_unless(1 <= self.k <= experts and self.groups >= 0 and self.capacity >= 0, "VALUE")
        reject_unless(math.isfinite(self.eps) and self.eps >= 0 and math.isfinite(self.scale), "VALUE")
        reject_unless(self.n_shared >= 0 and math.isfinite(self.shared_weight), "VALUE")
        reject_unless(not gated or self.n_shared > 0, "VALUE")
        if self.shared_in_sum:
            scored = self.score in ("sigmoid", "sqrtsoftplus") and not self.softmax_after
            reject_unless(self.renormalize and scored, "VALUE")
        if self.groups:
            enough = 1 <= self.top_groups <= self.groups and self.top_groups * (experts // self.groups) >= self.k
            reject_unless(experts % self.groups == 0 and enough, "VALUE")


def ranked(f: Fields, x: Array, s: Array, bias: Array | None, given: list[int] | None) -> list[int]:
    """The experts of a token by descending value, ties to the lower one."""
    base = x if f.select == "logit" else s
    v = [float(i) for i in canonical(base if bias is None else base + bias)]
    rivals = list(range(len(v))) if given is None else [e for e in given if e >= 0]
    if f.groups and given is None:
        keep = kept_groups(v, f.groups, f.top_groups, f.group_score, f.k)
        rivals = [e for e in rivals if e // (len(v) // f.groups) in keep]
    return sorted(rivals, key=lambda e: (-v[e], e))[: f.k]


def weigh(f: Fields, x: Array, s: Array, winners: list[int], expert_scale: Array | None, gates: Array | None) -> Any:
    """Weights of the winners and of the shared experts in f32."""
    weights = list(softmax(x[winners]) if f.softmax_after else s[winners])
    weights = [ZERO if w == -np.inf else w for w in weights]
    factor, shared_factor = np.float32(f.scale or 1), np.float32(f.shared_weight or 1)
    shared = [shared_factor] * f.n_shared
    scores = lone_scores(f.score, gates) if f.shared_in_sum and gates is not None else np.zeros(0, np.float32)
    if gates is not None and not f.shared_in_sum:
        shared = [np.float32(w * shared_factor) for w in sigmoid(gates)]
    if f.renormalize:
        acc = ZERO
        for w in [*weights, *scores]:
            acc = np.float32(acc + w)
        eps = np.float32(f.eps)
        total = max(acc, eps) if f.eps_rule == "max" else np.float32(acc + eps)
        weights = [ZERO if total == 0 else np.float32(w / total) for w in weights]
        scores = np.array([ZERO if total == 0 else np.float32(w / total) for w in scores], np.float32)
    if f.shared_in_sum:
        shared = [np.float32(np.float32(u * factor) * shared_factor) for u in scores]
    if expert_scale is not None:
        weights = [np.float32(w * expert_scale[e]) for e, w in zip(winners, weights, strict=True)]
    return [np.float32(w * factor) for w in weights], shared


def moe_route(
    logits: Array,
    bias: Array | None = None,
    finished: Array | None = None,
    ids_in: Array | None = None,
    ids_rows: Array | None = None,
    expert_scale: Array | None = None,
    shared_logits: Array | None = None,
    **fields: Any,
) -> Outputs:
    """Weights and probs in f32; narrower outputs are these, rounded once."""
    f = Fields(**fields)
    capacity, drop, routed = f.capacity, f.drop, logits.shape[1]
    reject_unless(ids_rows is None or ids_in is not None, "NULL")
    reject_unless(not f.shared_in_sum or shared_logits is not None, "NULL")
    f.check(routed, shared_logits is not None)
    t_all, e_all, slots = len(logits), routed + f.n_shared, f.k + f.n_shared
    ids = np.full((t_all, slots), e_all, np.int64)
    weights = np.zeros((t_all, slots), np.float32)
    scores = np.zeros((t_all, routed), np.float32)
    pairs: dict[int, list[tuple[int, Any]]] = {e: [] for e in range(e_all)}
    with np.errstate(all="ignore"):
        for t in range(t_all):
            x = canonical(widen(logits[t]))
            scores[t] = s = softmax(x) if f.score == "softmax" else lone_scores(f.score, x)
            if finished is not None and finished.view(np.uint8)[t]:
                continue
            given = None
            if ids_in is not None:
                row = t if ids_rows is None else int(ids_rows[t])
                reject_unless(0 <= row < len(ids_in), "INDEX")
                given = given_experts(ids_in[row], routed, e_all, f.allow_missing)
            winners = ranked(f, x, s, bias, given)
            gates = None if shared_logits is None else canonical(widen(shared_logits[t]))
            chosen, shared = weigh(f, x, s, winners, expert_scale, gates)
            weight_of = dict(zip(winners, chosen, strict=True)) | dict(zip(range(routed, e_all), shared, strict=True))
            for e, w in weight_of.items():
                pairs[e].append((t, w))
            in_slots = given or (sorted(winners) if f.slot_order == "expert" else winners)
            ids[t] = [*in_slots, *range(routed, e_all)]
            weights[t] = [weight_of.get(int(e), ZERO) for e in ids[t]]
    routing_map = np.zeros((t_all, e_all), np.bool_)
    probs = np.zeros((t_all, e_all), np.float32)
    for e, tokens in pairs.items():
        stay = tokens
        if e >= routed:
            pass  # shared ones have no capacity
        elif capacity and drop == "prob":
            stay = sorted(tokens, key=lambda pair: (-float(canonical(pair[1])), pair[0]))[:capacity]
        elif capacity:
            stay = tokens[:capacity]
        for t, w in stay:
            routing_map[t, e] = True
            probs[t, e] = w
    return {
        "ids": ids,
        "weights": narrow(weights, np.dtype(np.float32)),
        "routing_map": routing_map,
        "probs": narrow(probs, np.dtype(np.float32)),
        "counts": np.array([len(pairs[e]) for e in range(e_all)], np.int64),
        "scores": scores,
    }
