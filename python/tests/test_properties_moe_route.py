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
        "group_score": r.pick("max", "sum2", "sumk"),
    }
    if r.chance(8):
        fields[r.pick("groups", "top_groups")] = r.pick(-1, 0, experts + 1, 1, groups + 1)
    return fields


def given_ids(r: Reader, tokens: int, e: int, k: int, columns: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Experts of each token, or of each row of a table; now and then unused, twice or outside."""
    table, missing = r.chance(50), r.chance(50)
    rows = r.between(0, 4) if table else tokens
    kind = r.pick(np.int32, np.int64, np.int16, np.uint16, np.uint8)
    ids = np.array([[(r.below(e) + j) % e if j == 0 else 0 for j in range(k)] for _ in range(rows)], np.int64)
    ids = ids.reshape(rows, k)
    for j in range(1, k):
        ids[:, j] = (ids[:, 0] + j * r.pick(1, 1, 1, e - 1)) % e
    if missing:
        for i in range(ids.size):
            if r.chance(25):
                ids.flat[i] = r.pick(columns, -1) if np.dtype(kind).kind == "i" else r.pick(columns, np.iinfo(kind).max)
    if ids.size and r.chance(6):
        ids.flat[r.below(ids.size)] = r.pick(e, e + 1, columns + 1, 0)
    given: dict[str, Any] = {"ids_in": ids.astype(kind)}
    if table:
        given["ids_rows"] = r.ints(0, max(rows - 1, 0), (tokens,)).astype(r.pick(np.int32, np.int64))
    return given, {"allow_missing": missing}


def route(r: Reader) -> Case:
    t, e = r.below(6), r.pick(1, 2, 3, 4, 6, 8, 9, 33)
    k = r.between(1, min(e, 8))
    fields: dict[str, Any] = {
        "k": r.pick(0, -1, e + 1) if r.chance(3) else k,
        "score": r.pick("softmax", "sigmoid", "none", "sqrtsoftplus"),
        "select": r.pick("score", "score", "logit"),
        "softmax_after": r.chance(25),
        "slot_order": r.pick("value", "expert"),
        "renormalize": r.chance(50),
        "eps": r.pick(0.0, 0.0, float(np.float32(1e-20)), 1.0),
        "eps_rule": r.pick("add", "max"),
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
    if r.chance(30):
        fields |= {"n_shared": -1 if r.chance(3) else r.between(1, 3), "shared_weight": r.pick(0.0, 0.5, -2.0)}
    shared = max(fields.get("n_shared", 0), 0)
    given: dict[str, Any] = {}
    if r.chance(35):
        given, more = given_ids(r, t, e, max(fields["k"], 1), e + shared)
        fields |= more
    if r.chance(20):
        given["expert_scale"] = r.floats((e,), F32)
    if shared and r.chance(60):
        given["shared_logits"] = r.floats((t, shared), r.pick(*FLOATS))
        fields["shared_in_sum"] = r.chance(40)
    finished = r.maybe(r.ints(0, 1, (t,)).astype(r.pick(*MAP_TYPES)))
    k_out = max(fields["k"], 0)
    types = (r.pick(I32, I64), r.pick(*FLOATS), r.pick(*MAP_TYPES), r.pick(*FLOATS)) if r.chance(60) else None
    logits = r.floats((t, e), r.pick(*FLOATS))
    ids, weights, routing_map, probs = types or (I32, logits.dtype, np.dtype(np.bool_), logits.dtype)
    scores = types is not None or r.chance(50)
    outs: dict[str, Spec] = {
        "ids": ((t, k_out + shared), ids),
        "weights": ((t, k_out + shared), weights),
        "routing_map": ((t, e + shared), routing_map),
        "probs": ((t, e + shared), probs),
        "counts": ((e + shared,), I64),
        "scores": ((t, e), F32) if scores else None,
    }
    if types is not None:
        for name in list(outs):
            if r.chance(20) and sum(spec is not None for spec in outs.values()) > 1:
                outs[name] = None
    bias = r.maybe(r.floats((e,), F32))
    return Case(
        {"logits": logits, "bias": bias, "finished": finished, **given},
        fields,
        outs,
        only_out=types is not None,
        asked={"scores": scores},
    )


def test_moe_route() -> None:
    run_property("moe_route", moe_route.moe_route, route)
