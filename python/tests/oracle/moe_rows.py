"""moe_permute and its relatives: rows of tokens to rows of experts and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arith import Array, Rejected, dot, narrow, widen

Outputs = dict[str, Any]


def reject_unless(condition: bool, status: str) -> None:
    if not condition:
        raise Rejected(status)


def experts_of(routing_map: Array) -> list[list[int]]:
    """Per token the experts it is routed to, ascending."""
    return [[e for e in range(routing_map.shape[1]) if row[e] != 0] for row in routing_map.view(np.uint8)]


def moe_permute(
    tokens: Array,
    routing_map: Array,
    probs: Array | None = None,
    *,
    num_out_tokens: int,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
) -> Outputs:
    (t_all, _), e_all = tokens.shape, routing_map.shape[1]
    reject_unless(0 <= num_out_tokens <= t_all * e_all, "VALUE")
    chosen = experts_of(routing_map)
    counts = [sum(e in row for row in chosen) for e in range(e_all)]
    if drop_and_pad:
        c = num_out_tokens // e_all if e_all else 0
        rows: list[tuple[int, int] | None] = []
        for e in range(e_all):
            routed = [t for t in range(t_all) if e in chosen[t]]
            others = [t for t in range(t_all) if e not in chosen[t]]
            order: list[tuple[int, int] | None] = [(t, e) for t in routed]
            order += [None if zero_pad else (t, e) for t in others]
            rows += order[:c]
        index = [-1 if row is None else row[0] for row in rows]
        offsets = [e * c for e in range(e_all + 1)]
    else:
        k = num_out_tokens // t_all if t_all else 0
        reject_unless(k == 0 or all(len(row) <= k for row in chosen), "ROUTING")
        pairs = [(t, e) for e in range(e_all) for t in range(t_all) if e in chosen[t]]
        rows = [pairs[i] if i < len(pairs) else None for i in range(k * t_all)]
        index = []
        for t in range(t_all):
            own = [pairs.index((t, e)) for e in chosen[t]][:k]
            index += own + [-1] * (k - len(own))
        offsets = [sum(counts[:e]) for e in range(e_all + 1)]
    out = np.zeros((len(rows), tokens.shape[1]), tokens.dtype)
    out_probs = None if probs is None else np.zeros(len(rows), probs.dtype)
    for i, row in enumerate(rows):
        if row is not None:
            out[i] = tokens[row[0]]
            if probs is not None and out_probs is not None:
                out_probs[i] = probs[row]
    return {
        "permuted_tokens": out,
        "sorted_indices": np.array(index, np.int32),
        "permuted_probs": out_probs,
        "expert_counts": np.array(counts, np.int64),
        "expert_offsets": np.array(offsets, np.int64),
        "permuted_scales": None,
    }


# ---- Which row, token, expert and weight belong together ----

Link = tuple[int, int, int | None]  # row, token, expert where one is known


def links(
    sorted_indices: Array,
    t_all: int,
    e_all: int | None,
    chosen: list[list[int]] | None,
    drop_and_pad: bool,
    zero_pad: bool,
) -> list[Link]:
    """All pairs of row and token, in the order in which they are added; experts where they are asked for."""
    m = len(sorted_indices)
    found: list[Link] = []
    if drop_and_pad:
        lowest = -1 if zero_pad else 0
        reject_unless(all(lowest <= i < t_all for i in sorted_indices.tolist()), "ROUTING")
        c = m // e_all if e_all else 0
        for row, t in enumerate(sorted_indices.tolist()):
            if t >= 0:
                found.append((row, t, row // c if c else None))
        return found
    reject_unless(all(-1 <= i < m for i in sorted_indices.tolist()), "ROUTING")
    k = m // t_all if t_all else 0
    for t in range(t_all):
        live = [i for i in sorted_indices[t * k : (t + 1) * k].tolist() if i >= 0]
        reject_unless(chosen is None or m == 0 or len(chosen[t]) == len(live), "ROUTING")
        for n, row in enumerate(live):
            found.append((row, t, None if chosen is None else chosen[t][n]))
    return found


def add_rows(rows: Array, pairs: list[tuple[int, int, Any]], t_all: int) -> Array:
    """Per token the sum of weight * row, weights of None being 1 and weights of 0 nothing."""
    acc = np.zeros((t_all, rows.shape[1]), np.float32)
    wide = widen(rows)
    with np.errstate(all="ignore"):
        for row, t, weight in pairs:
            if weight is None or weight != 0:
                acc[t] = acc[t] + (wide[row] if weight is None else weight * wide[row])
    return narrow(acc, rows.dtype)


def moe_unpermute(
    permuted_tokens: Array,
    sorted_indices: Array,
    routing_map: Array | None = None,
    probs: Array | None = None,
    *,
    num_tokens: int = 0,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
) -> Outputs:
    told = probs if probs is not None else routing_map
    t_all = num_tokens if told is None else len(told)
    m = len(permuted_tokens)
    reject_unless(probs is None or drop_and_pad or routing_map is not None, "NULL")
    reject_unless(told is not None or num_tokens != 0 or m == 0, "NULL")
    e_all = None if probs is None else probs.shape[1]
    if not drop_and_pad:
        reject_unless(m % t_all == 0 if t_all else m == 0, "SHAPE")
    elif e_all is not None:
        reject_unless(m % e_all == 0 if e_all else m == 0, "SHAPE")
    reject_unless(num_tokens >= 0 and num_tokens in (0, t_all), "VALUE")
    chosen = None if probs is None or routing_map is None else experts_of(routing_map)
    found = links(sorted_indices, t_all, e_all, chosen, drop_and_pad, zero_pad)
    weights = None if probs is None else widen(probs)
    pairs = [(row, t, None if weights is None else weights[t, e]) for row, t, e in found]
    return {"tokens": add_rows(permuted_tokens, pairs, t_all)}


def moe_permute_grad(
    grad_permuted_tokens: Array,
    sorted_indices: Array,
    grad_permuted_probs: Array | None = None,
    routing_map: Array | None = None,
    *,
    num_experts: int,
    num_tokens: int,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
) -> Outputs:
    m = len(grad_permuted_tokens)
    with_probs = grad_permuted_probs is not None
    reject_unless(not with_probs or drop_and_pad or routing_map is not None, "NULL")
    reject_unless(num_experts >= 1 and num_tokens >= 1, "VALUE")
    if not drop_and_pad:
        reject_unless(m % num_tokens == 0, "SHAPE")
    elif with_probs:
        reject_unless(m % num_experts == 0, "SHAPE")
    chosen = experts_of(routing_map) if with_probs and routing_map is not None and not drop_and_pad else None
    found = links(sorted_indices, num_tokens, num_experts if with_probs else None, chosen, drop_and_pad, zero_pad)
    outputs: Outputs = {
        "grad_tokens": add_rows(grad_permuted_tokens, [(row, t, None) for row, t, _ in found], num_tokens),
        "grad_probs": None,
    }
    if grad_permuted_probs is not None:
        grad = np.zeros((num_tokens, num_experts), grad_permuted_probs.dtype)
        for row, t, e in sorted(found) if drop_and_pad else found:
            grad[t, e] = grad_permuted_probs[row]
        outputs["grad_probs"] = grad
    return outputs


def moe_unpermute_grad(
    grad_tokens: Array,
    sorted_indices: Array,
    permuted_tokens: Array | None = None,
    routing_map: Array | None = None,
    probs: Array | None = None,
    *,
    drop_and_pad: bool = False,
    zero_pad: bool = False,
) -> Outputs:
    (t_all, h), m = grad_tokens.shape, len(sorted_indices)
    reject_unless(probs is None or (permuted_tokens is not None and routing_map is not None), "NULL")
    e_all = None if probs is None else probs.shape[1]
    if not drop_and_pad:
        reject_unless(m % t_all == 0 if t_all else m == 0, "SHAPE")
    elif e_all is not None:
        reject_unless(m % e_all == 0 if e_all else m == 0, "SHAPE")
    chosen = None if probs is None or routing_map is None or drop_and_pad else experts_of(routing_map)
    found = links(sorted_indices, t_all, e_all, chosen, drop_and_pad, zero_pad)
    grad_rows = np.zeros((m, h), grad_tokens.dtype)
    if probs is None or permuted_tokens is None:
        for row, t, _ in found:
            grad_rows[row] = grad_tokens[t]
        return {"grad_permuted_tokens": grad_rows, "grad_probs": None}
    weights, gradient, rows = widen(probs), widen(grad_tokens), widen(permuted_tokens)
    grad_probs = np.zeros(probs.shape, np.float32)
    with np.errstate(all="ignore"):
        for row, t, e in found:
            grad_probs[t, e] = dot(gradient[t], rows[row])
            product = weights[t, e] * gradient[t] if weights[t, e] != 0 else np.zeros(h, np.float32)
            grad_rows[row] = narrow(product, grad_tokens.dtype)
    return {"grad_permuted_tokens": grad_rows, "grad_probs": narrow(grad_probs, probs.dtype)}


# ---- By ids ----


def moe_permute_ids(
    tokens: Array,
    ids: Array,
    probs: Array | None = None,
    *,
    num_out_tokens: int = 0,
    num_experts: int = 0,
    window: bool = False,
    row_begin: int = 0,
    row_end: int = 0,
    allow_missing: bool = False,
) -> Outputs:
    t_all, k = ids.shape
    n = t_all * k
    reject_unless(num_out_tokens >= -n and num_experts >= int(allow_missing), "VALUE")
    kept = n if num_out_tokens == 0 else min(num_out_tokens, n) if num_out_tokens > 0 else n + num_out_tokens
    if window:
        reject_unless(0 <= row_begin <= row_end <= kept, "VALUE")
    else:
        reject_unless(row_begin == 0 and row_end == 0, "VALUE")
        row_end = kept
    flat = [int(i) for i in ids.reshape(-1)]
    missing = {i for i in range(n) if allow_missing and flat[i] in (-1, num_experts)}
    reject_unless(num_experts == 0 or all(0 <= flat[i] < num_experts for i in range(n) if i not in missing), "INDEX")
    order = sorted(set(range(n)) - missing, key=lambda i: (flat[i], i))
    written = order[row_begin:row_end]
    place = [-1 if i in missing else order.index(i) for i in range(n)]
    out = np.zeros((row_end - row_begin, tokens.shape[1]), tokens.dtype)
    for row, slot in enumerate(written):
        out[row] = tokens[slot // k]
    out_probs = None
    if probs is not None:
        out_probs = np.zeros(row_end - row_begin, probs.dtype)
        for row, slot in enumerate(written):
            out_probs[row] = probs[slot // k, slot % k]
    counts = [flat.count(e) for e in range(num_experts)]
    return {
        "permuted_tokens": out,
        "sorted_indices": np.array(place, np.int32),
        "permuted_probs": out_probs,
        "expert_counts": np.array(counts, np.int64) if num_experts else None,
        "expert_offsets": np.array([sum(counts[:e]) for e in range(num_experts + 1)], np.int64)
        if num_experts
        else None,
        "permuted_scales": None,
    }


def moe_unpermute_ids(
    permuted_tokens: Array,
    sorted_indices: Array,
    probs: Array | None = None,
    *,
    bias: Array | None = None,
    bias_ids: Array | None = None,
    residual: Array | None = None,
    shared: Array | None = None,
    num_tokens: int = 0,
    row_begin: int = 0,
    num_rows: int = 0,
    by_choice: bool = False,
) -> Outputs:
    n, m = len(sorted_indices), len(permuted_tokens)
    reject_unless(num_tokens >= 0, "VALUE")
    t_all = len(probs) if probs is not None else num_tokens if num_tokens else n
    reject_unless(probs is None or num_tokens in (0, t_all), "VALUE")
    reject_unless(n % t_all == 0 if t_all else n == 0, "SHAPE")
    reject_unless(row_begin >= 0, "VALUE")
    k = n // t_all if t_all else 0
    reject_unless(all(-1 <= i < (num_rows or n) for i in sorted_indices.tolist()), "ROUTING")
    reject_unless(bias is None or all(-1 <= i < len(bias) for i in bias_ids.flat), "ROUTING")
    weights = None if probs is None else widen(probs)
    # Every row that is added, in f32: those of residual and shared, then one for each slot.
    h, f32 = permuted_tokens.shape[1], np.float32
    rows, pairs = [np.zeros(h, f32)], []

    def add(row: Array, t: int, weight: Any) -> None:
        pairs.append((len(rows), t, weight))
        rows.append(row)

    for t in range(t_all):
        for first in (residual, shared):
            if first is not None:
                add(widen(first)[t], t, f32(1))
        for j in range(k):
            index = int(sorted_indices[j * t_all + t if by_choice else t * k + j])
            row, id = index - row_begin, -1 if bias is None else int(bias_ids[t, j])
            there = index >= 0 and 0 <= row < m
            if not there and (index >= 0 or id < 0):
                continue
            value = widen(permuted_tokens)[row] if there else np.zeros(h, f32)
            with np.errstate(all="ignore"):
                value = value if id < 0 else value + widen(bias)[id]
            add(value, t, None if weights is None else weights[t, j])
    made = add_rows(np.stack(rows), pairs, t_all)
    return {"tokens": narrow(made, permuted_tokens.dtype)}
