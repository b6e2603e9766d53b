"""Random calls of moe_route against its oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, Spec, run_property
from oracle import moe_route
from reader import BF16, F16, F32, I32, I64, MAP_TYPES, Reader

FLOATS = (F32, F16, BF16)


def group_fields(r: Reader, experts: int, k: int) -> dict[str, Any]:
    """Groups that divide the experts, and enough of them, mostly."""
    groups = r.pick(*(g for g in range(1, experts + 1) if experts % g == 0))
    least = -(-k * groups // experts)
    fields = {
        "groups": groups,
        "top_groups": r.between(min(least, groups), groups),
        "group_score": r.pick("max", "sum2"),
    }
    if r.chance(8):
        fields[r.pick("groups", "top_groups")] = r.pick(-1, 0, experts + 1, 1, groups + 1)
    return fields


def route(r: Reader) -> Case:
    t, e = r.below(6), r.pick(1, 2, 3, 4, 6, 8, 9, 33)
    k = r.between(1, min(e, 8))
    fields: dict[str, Any] = {
        "k": r.pick(0, -1, e + 1) if r.chance(3) else k,
        "score": r.pick("softmax", "sigmoid", "none"),
        "softmax_after": r.chance(25),
        "slot_order": r.pick("value", "expert"),
        "renormalize": r.chance(50),
        "eps": r.pick(0.0, 0.0, float(np.float32(1e-20)), 1.0),
        "scale": r.pick(0.0, 0.0, 2.5, -1.0, float(np.float32(0.1))),
    }
    if r.chance(3):
        fields[r.pick("eps", "scale")] = r.pick(-1.0, float("inf"), float("nan"))
        if fields["scale"] == -1.0:
            fields["eps"] = -1.0
    if r.chance(40):
        fields |= group_fields(r, e, k)
    if r.chance(40):
        fields |= {"capacity": -1 if r.chance(3) else r.between(0, 4), "drop": r.pick("prob", "position")}
    finished = r.maybe(r.ints(0, 1, (t,)).astype(r.pick(*MAP_TYPES)))
    k_out = max(fields["k"], 0)
    types = (r.pick(I32, I64), r.pick(*FLOATS), r.pick(*MAP_TYPES), r.pick(*FLOATS)) if r.chance(60) else None
    logits = r.floats((t, e), r.pick(*FLOATS))
    ids, weights, routing_map, probs = types or (I32, logits.dtype, np.dtype(np.bool_), logits.dtype)
    scores = types is not None or r.chance(50)
    outs: dict[str, Spec] = {
        "ids": ((t, k_out), ids),
        "weights": ((t, k_out), weights),
        "routing_map": ((t, e), routing_map),
        "probs": ((t, e), probs),
        "counts": ((e,), I64),
        "scores": ((t, e), F32) if scores else None,
    }
    if types is not None:
        for name in list(outs):
            if r.chance(20) and sum(spec is not None for spec in outs.values()) > 1:
                outs[name] = None
    bias = r.maybe(r.floats((e,), F32))
    return Case(
        {"logits": logits, "bias": bias, "finished": finished},
        fields,
        outs,
        only_out=types is not None,
        asked={"scores": scores},
    )


def test_moe_route() -> None:
    run_property("moe_route", moe_route.moe_route, route)
