"""Random calls of moe_permute and its relatives against their oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, Spec, run_property
from oracle import moe_rows
from reader import ANY_TYPES, BF16, F16, F32, I32, I64, Array, Reader

FLOATS = (F32, F16, BF16)


def extents(r: Reader) -> tuple[int, int, int]:
    """Tokens, experts, width; each may be 0."""
    return r.below(9), r.below(7), r.below(10)


def permute(r: Reader) -> Case:
    t, e, h = extents(r)
    drop_and_pad = r.chance(40)
    routing_map = r.routing_map(t, e)
    fullest = int((routing_map != 0).sum(axis=1).max(initial=0))
    n = r.between(0, t * e)
    if not drop_and_pad and r.chance(70):  # room for all, a little more, or one too few
        n = min(max(t * (fullest + r.pick(0, 0, 1, -1)) + r.below(2), 0), t * e)
    if r.chance(4):
        n = r.pick(-1, t * e + 1, 2**62, -(2**63))
    groups = e if drop_and_pad else t
    m = n // groups * groups if groups and 0 <= n <= t * e else 0
    probs = r.maybe(r.floats((t, e), r.pick(*FLOATS), "bits"))
    dtype = r.pick(*ANY_TYPES)
    outs: dict[str, Spec] = {
        "permuted_tokens": ((m, h), dtype),
        "sorted_indices": ((m,), I32),
        "permuted_probs": None if probs is None else ((m,), probs.dtype),
        "expert_counts": ((e,), I64),
        "expert_offsets": ((e + 1,), I64),
        "permuted_scales": None,
    }
    return Case(
        {"tokens": r.bits((t, h), dtype), "routing_map": routing_map, "probs": probs},
        {"num_out_tokens": n, "drop_and_pad": drop_and_pad, "zero_pad": r.chance(50)},
        outs,
        untyped=("tokens",),
    )


def test_moe_permute() -> None:
    run_property("moe_permute", moe_rows.moe_permute, permute)


def permuted(r: Reader, t: int, e: int, drop_and_pad: bool, zero_pad: bool) -> tuple[Array, Array]:
    """A map and sorted_indices that belong together, mostly."""
    routing_map = r.routing_map(t, e)
    fullest = int((routing_map != 0).sum(axis=1).max(initial=0))
    n = r.between(0, t * e) if drop_and_pad else min(t * (fullest + r.pick(0, 1)), t * e)
    tokens = np.zeros((t, 1), np.uint8)
    made = moe_rows.moe_permute(tokens, routing_map, num_out_tokens=n, drop_and_pad=drop_and_pad, zero_pad=zero_pad)
    indices: Array = made["sorted_indices"]
    if r.chance(25):  # made by hand: rows twice, tokens anywhere
        indices = r.ints(
            -1 if r.chance(50) else 0, max((t if drop_and_pad else len(indices)) - 1, 0), indices.shape, I32
        )
    return routing_map, r.spoil(indices, 8, (-1, -2, len(indices), t, 2**31 - 1, -(2**31)))


def with_rows(r: Reader, t: int, e: int, h: int) -> tuple[dict[str, Any], Array, Array]:
    drop_and_pad, zero_pad = r.chance(50), r.chance(50)
    routing_map, indices = permuted(r, t, e, drop_and_pad, zero_pad)
    return {"drop_and_pad": drop_and_pad, "zero_pad": zero_pad}, routing_map, indices


def unpermute(r: Reader) -> Case:
    t, e, h = extents(r)
    fields, routing_map, indices = with_rows(r, t, e, h)
    given_map, given_probs = r.pick((True, True), (True, True), (False, False), (True, False), (False, True))
    told = given_map or given_probs
    fields["num_tokens"] = r.pick(0, t) if told else t
    if r.chance(3):
        fields["num_tokens"] = r.pick(-1, t + 1)
    dtype = r.pick(*FLOATS)
    return Case(
        {
            "permuted_tokens": r.floats((len(indices), h), dtype),
            "sorted_indices": indices,
            "routing_map": routing_map if given_map else None,
            "probs": r.floats((t, e), r.pick(*FLOATS)) if given_probs else None,
        },
        fields,
        {"tokens": ((t if told else max(fields["num_tokens"], 0), h), dtype)},
    )


def test_moe_unpermute() -> None:
    run_property("moe_unpermute", moe_rows.moe_unpermute, unpermute)


def permute_grad(r: Reader) -> Case:
    t, e, h = extents(r)
    t, e = max(t, 1), max(e, 1)
    fields, routing_map, indices = with_rows(r, t, e, h)
    fields |= {"num_experts": e, "num_tokens": t}
    if r.chance(3):
        fields[r.pick("num_experts", "num_tokens")] = r.pick(0, -1)
    dtype, with_probs = r.pick(*FLOATS), r.chance(60)
    grad_probs = r.floats((len(indices),), r.pick(*FLOATS), "bits") if with_probs else None
    return Case(
        {
            "grad_permuted_tokens": r.floats((len(indices), h), dtype),
            "sorted_indices": indices,
            "grad_permuted_probs": grad_probs,
            "routing_map": routing_map if r.chance(90) else None,
        },
        fields,
        {"grad_tokens": ((t, h), dtype), "grad_probs": None if grad_probs is None else ((t, e), grad_probs.dtype)},
    )


def test_moe_permute_grad() -> None:
    run_property("moe_permute_grad", moe_rows.moe_permute_grad, permute_grad)


def unpermute_grad(r: Reader) -> Case:
    t, e, h = extents(r)
    if r.chance(15):
        h = r.between(10, 40)  # more than the sixteen lanes of a dot product
    fields, routing_map, indices = with_rows(r, t, e, h)
    dtype, with_probs = r.pick(*FLOATS), r.chance(70)
    probs = r.floats((t, e), r.pick(*FLOATS)) if with_probs else None
    return Case(
        {
            "grad_tokens": r.floats((t, h), dtype),
            "sorted_indices": indices,
            "permuted_tokens": r.floats((len(indices), h), dtype) if probs is not None else None,
            "routing_map": routing_map if probs is not None and r.chance(95) else None,
            "probs": probs,
        },
        fields,
        {
            "grad_permuted_tokens": ((len(indices), h), dtype),
            "grad_probs": None if probs is None else ((t, e), probs.dtype),
        },
    )


def test_moe_unpermute_grad() -> None:
    run_property("moe_unpermute_grad", moe_rows.moe_unpermute_grad, unpermute_grad)


def permute_ids(r: Reader) -> Case:
    t, e, h = extents(r)
    k = r.below(5)
    n = t * k
    num_experts = e if r.chance(60) else 0
    ids = (
        r.ints(0, max(num_experts - 1, 0), (t, k), r.pick(I32, I64))
        if num_experts
        else r.ints(-3, 4, (t, k), r.pick(I32, I64))
    )
    fields: dict[str, Any] = {"num_out_tokens": r.between(-n, n + 2) if r.chance(50) else 0, "num_experts": num_experts}
    if r.chance(40 if num_experts else 3):
        fields["allow_missing"] = True
        kind = r.ints(0, 5, (t, k))
        ids = np.where(kind == 0, -1, np.where(kind == 1, num_experts, ids)).astype(ids.dtype)
    ids = r.spoil(ids, 10, (num_experts, -1, 2**62, -(2**63), 2**32))
    if r.chance(3):
        fields["num_out_tokens"] = -n - 1
    cut = fields["num_out_tokens"]
    kept = n if cut == 0 else min(cut, n) if cut > 0 else max(n + cut, 0)
    rows = kept
    if r.chance(30):
        begin = r.between(0, kept)
        end = r.between(begin, kept) + (1 if r.chance(6) else 0)
        fields |= {"window": True, "row_begin": begin, "row_end": end}
        rows = end - begin
    probs = r.maybe(r.floats((t, k), r.pick(*FLOATS), "bits"))
    dtype = r.pick(*ANY_TYPES)
    outs: dict[str, Spec] = {
        "permuted_tokens": ((rows, h), dtype),
        "sorted_indices": ((n,), I32),
        "permuted_probs": None if probs is None else ((rows,), probs.dtype),
        "expert_counts": ((num_experts,), I64) if num_experts else None,
        "expert_offsets": ((num_experts + 1,), I64) if num_experts else None,
        "permuted_scales": None,
    }
    return Case({"tokens": r.bits((t, h), dtype), "ids": ids, "probs": probs}, fields, outs, untyped=("tokens",))


def test_moe_permute_ids() -> None:
    run_property("moe_permute_ids", moe_rows.moe_permute_ids, permute_ids)


def unpermute_ids(r: Reader) -> Case:
    t, _, h = extents(r)
    k = r.below(5)
    n = t * k
    begin, m = r.pick(0, 0, r.between(0, n)), r.between(0, n)
    indices = np.argsort(np.argsort(r.ints(0, 255, (n,)), kind="stable"), kind="stable").astype(I32)
    if r.chance(20):
        indices = r.ints(-1, max(n - 1, 0), (n,), I32)
    probs = r.maybe(r.floats((t, k), r.pick(*FLOATS)))
    tokens = r.pick(0, t)
    if r.chance(4):
        tokens = r.pick(-1, t + 1)
    rows = t if probs is not None else tokens if tokens > 0 else n
    dtype = r.pick(*FLOATS)
    added: dict[str, Any] = {}
    fields = {"num_tokens": tokens, "row_begin": -1 if r.chance(2) else begin}
    if r.chance(30):
        experts = r.between(1, 4)
        slots = n // rows if rows else k
        added["bias"] = r.floats((experts, h), dtype)
        added["bias_ids"] = r.spoil(r.ints(-1, experts - 1, (rows, slots), I32), 5, (-2, experts))
    for name in ("residual", "shared"):
        if r.chance(30):
            added[name] = r.floats((rows, h), dtype)
    if r.chance(20):
        fields["by_choice"] = True
    if r.chance(20):
        fields["num_rows"] = n + 5
        indices = r.ints(-1, n + 4, (n,), I32)
    return Case(
        {
            "permuted_tokens": r.floats((m, h), dtype),
            "sorted_indices": r.spoil(indices, 8, (-2, n + 5, 2**31 - 1)),
            "probs": probs,
            **added,
        },
        fields,
        {"tokens": ((rows, h), dtype)},
    )


def test_moe_unpermute_ids() -> None:
    run_property("moe_unpermute_ids", moe_rows.moe_unpermute_ids, unpermute_ids)
