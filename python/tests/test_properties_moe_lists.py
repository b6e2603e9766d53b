"""Random calls of the operators on maps, ids and index forms against their oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, Spec, run_property
from oracle import moe_lists, moe_place, moe_rows
from reader import ANY_TYPES, BF16, F16, F32, I32, I64, MAP_TYPES, Array, Reader

FLOATS = (F32, F16, BF16)


def distinct_ids(r: Reader, t: int, k: int, experts: int) -> Array:
    """Different experts for all slots of a token, where there are as many."""
    order = np.argsort(r.ints(0, 255, (t, experts)), axis=1, kind="stable")
    return order[:, :k] if k <= experts else r.ints(0, max(experts - 1, 0), (t, k))


def map_from_ids(r: Reader) -> Case:
    t, k, e = r.below(9), r.below(5), r.below(7)
    ids = distinct_ids(r, t, k, e) if r.chance(80) else r.ints(-1, e, (t, k))
    ids = r.spoil(ids.astype(r.pick(I32, I64)), 25, (-1, -1, e, e, e + 1, 0, 2**32, -(2**63)))
    weights = r.maybe(r.floats((t, k), r.pick(*FLOATS), "bits"))
    kind = r.pick(*MAP_TYPES)
    outs: dict[str, Spec] = {
        "routing_map": ((t, e), kind),
        "probs": None if weights is None else ((t, e), weights.dtype),
    }
    fields = {"num_experts": r.pick(-1, 2**31, -(2**63)) if r.chance(3) else e, "allow_missing": r.chance(50)}
    return Case({"ids": ids, "weights": weights}, fields, outs, only_out=kind != np.bool_)


def test_moe_map_from_ids() -> None:
    run_property("moe_map_from_ids", moe_lists.moe_map_from_ids, map_from_ids)


def ids_from_map(r: Reader) -> Case:
    t, e = r.below(9), r.below(7)
    routing_map = r.routing_map(t, e)
    k = int((routing_map != 0).sum(axis=1).max(initial=0)) + r.pick(0, 1, 2, 3, -1)
    if r.chance(2):
        k = -5
    probs = r.maybe(r.floats((t, e), r.pick(*FLOATS), "bits"))
    kind = r.pick(I32, I64)
    outs: dict[str, Spec] = {
        "ids": ((t, max(k, 0)), kind),
        "weights": None if probs is None else ((t, max(k, 0)), probs.dtype),
    }
    return Case({"routing_map": routing_map, "probs": probs}, {"k": k}, outs, only_out=kind != I32)


def test_moe_ids_from_map() -> None:
    run_property("moe_ids_from_map", moe_lists.moe_ids_from_map, ids_from_map)


def align_block(r: Reader) -> Case:
    t, k, e, b = r.below(9), r.below(5), r.below(7), r.pick(1, 2, 3, 4, 8, 16)
    n = t * k
    ids = r.ints(0, max(e - 1, 0), (t, k), r.pick(I32, I64)) if e else r.ints(-1, -1, (t, k), I32)
    ids = r.spoil(ids, 25, (-1, e, -1, e, e + 1, 2**32, -2))
    expert_map = r.maybe(r.ints(-1, 5, (e,), I32))
    if expert_map is not None:
        expert_map = r.spoil(expert_map, 5, (-2, -(2**31)))
    fields = {
        "num_experts": -1 if r.chance(2) else e,
        "block_size": r.pick(0, -1) if r.chance(2) else b,
        "allow_missing": r.chance(60),
        "skip_unmapped": expert_map is not None and r.chance(50),
    }
    most = (n + min(e, n) * (b - 1)) // b * b
    outs: dict[str, Spec] = {
        "sorted_slots": ((most,), I32),
        "block_experts": ((most // b,), I32),
        "num_padded": ((1,), I32),
        "expert_counts": ((e,), I64),
        "expert_offsets": ((e + 1,), I64),
    }
    return Case({"ids": ids, "expert_map": expert_map}, fields, outs, longer=("sorted_slots", "block_experts"))


def test_moe_align_block() -> None:
    run_property("moe_align_block", moe_lists.moe_align_block, align_block)


def pad_map(r: Reader) -> Case:
    t, e = r.below(9), r.below(7)
    routing_map = r.routing_map(t, e)
    alignment = r.pick(0, -1, -(2**63)) if r.chance(3) else r.pick(1, 2, 3, 4, 8, 16, 2**40)
    outs: dict[str, Spec] = {"padded_map": ((t, e), routing_map.dtype), "expert_counts": ((e,), I64)}
    return Case({"routing_map": routing_map}, {"alignment": alignment}, outs)


def test_moe_pad_map() -> None:
    run_property("moe_pad_map", moe_lists.moe_pad_map, pad_map)


def reorder_chunks(r: Reader) -> Case:
    ranks, experts, row = r.below(4), r.below(5), r.pick((), (3,), (1,), (2, 2), (0,), (9,))
    counts = r.ints(0, 3, (ranks, experts), r.pick(I32, I64))
    n = int(counts.sum()) + r.pick(0, 0, 1, 2)
    counts = r.spoil(counts, 10)
    dtype = r.pick(*ANY_TYPES)
    extra = r.maybe(r.bits((n, *r.pick((), (1,), (2,))), r.pick(*ANY_TYPES)))
    held = {"reordered_rows": r.bits((n, *row), dtype)}
    if extra is not None:
        held["reordered_extra"] = r.bits(extra.shape, extra.dtype)
    outs: dict[str, Spec] = {
        "reordered_rows": ((n, *row), dtype),
        "reordered_extra": None if extra is None else (extra.shape, extra.dtype),
        "expert_offsets": ((experts + 1,), I64),
    }
    return Case(
        {"rows": r.bits((n, *row), dtype), "counts": counts, "extra": extra},
        {"inverse": r.chance(50)},
        outs,
        held=held,
        hints=dict(held),
        fresh={name: np.zeros_like(x) for name, x in held.items()},
        untyped=("rows", "extra"),
        plain=("rows", "extra", "reordered_rows", "reordered_extra"),
    )


def test_moe_reorder_chunks() -> None:
    run_property("moe_reorder_chunks", moe_lists.moe_reorder_chunks, reorder_chunks)


def convert_indices(r: Reader) -> Case:
    t, e = r.below(6), r.below(5)
    capacity = r.chance(30)
    routing_map = r.routing_map(t, e)
    fullest = int((routing_map != 0).sum(axis=1).max(initial=0))
    n = r.between(0, t * e) if capacity else min(t * (fullest + r.below(2)), t * e)
    made = moe_rows.moe_permute(
        np.zeros((t, 1), np.uint8), routing_map, num_out_tokens=n, drop_and_pad=capacity, zero_pad=r.chance(50)
    )
    given: Array = made["sorted_indices"]
    m, offsets = len(given), made["expert_offsets"]
    source = "row" if capacity else "slot"
    if r.chance(60):  # the same in another form, to begin with
        other = r.pick("row", "slot", "te")
        if other != source and (other != "slot" or not capacity):
            given = moe_lists.moe_convert_indices(given, offsets, source=source, to=other, num_tokens=t)[
                "converted_indices"
            ]
            source = other
    to = r.pick(*(form for form in ("slot", "row", "te") if form != source or r.chance(3)))
    k = r.pick(0, fullest, e, fullest + 1)
    given = r.spoil(given, 12, (-1, -2, 0, 1, m, m - 1, t, 2**31 - 1))
    spoiled = r.spoil(offsets.copy(), 4, (-1, 0, m + 1, 2**40))
    fields: dict[str, Any] = {"to": to, "num_tokens": t, "k": k, "num_rows": m if source == "te" else r.pick(0, m)}
    width = k or (m // t if t else 0)
    shape = {"slot": (t * width,), "row": (m,), "te": (t, 2 * e + 1)}[to]
    return Case(
        {"sorted_indices": given, "expert_offsets": spoiled if to == "te" or r.chance(20) else None},
        {"from_": source, **fields},
        {"converted_indices": (shape, I32)},
        untyped=() if to == "te" else ("expert_offsets",),
    )


def test_moe_convert_indices() -> None:
    def oracle(from_: str, **arguments: Any) -> dict[str, Any]:
        return moe_lists.moe_convert_indices(source=from_, **arguments)

    run_property("moe_convert_indices", oracle, convert_indices)


def place(r: Reader) -> Case:
    nodes, each = r.between(1, 3), r.between(1, 3)
    devices, groups = nodes * each, nodes * r.below(3)
    experts = groups * r.between(1, 3) if groups else r.between(1, 9)
    layers = r.below(3)
    least = -(-experts // devices)
    size = least + (r.below(3) if not r.chance(30) else 0)
    distinct = r.chance(50)
    if distinct:
        size = min(size, max(experts // (nodes if groups else 1), 1))
    loads = r.ints(0, r.pick(2, 90, 2**30), (layers, experts), I64)
    if r.chance(5):
        loads = r.spoil(loads, 100, (-1, 2**38, 2**37, 2**63 - 1))
    physical = size * devices
    previous = r.maybe(r.spoil(r.ints(0, experts - 1, (layers, physical), I32), 4, (-1, experts)))
    fields: dict[str, Any] = {
        "num_physical": physical,
        "devices": devices,
        "nodes": r.pick(nodes, 0) if nodes == 1 else nodes,
        "groups": groups,
        "distinct": distinct,
    }
    if r.chance(4):
        fields[r.pick("devices", "nodes", "groups")] = r.pick(-1, 7, 2**40)
    replicas = physical - experts + 1
    made = replicas > 0 and r.chance(50)
    wide = replicas if made or replicas < 1 else r.between(1, replicas)
    kind = I32 if made else r.pick(I32, I64)
    outs: dict[str, Spec] = {
        "physical_to_logical": ((layers, physical), kind),
        "logical_to_physical": ((layers, experts, wide), kind),
        "replica_count": ((layers, experts), kind),
        "device_load": ((layers, devices), I64),
        "expert_mapping": ((physical, devices), np.dtype(np.uint16)),
    }
    return Case({"loads": loads, "previous": previous}, fields, outs, only_out=not made, hints={"replicas": wide})


def test_moe_place() -> None:
    run_property("moe_place", moe_place.moe_place, place)


def map_physical(r: Reader) -> Case:
    t, k, e, most = r.below(7), r.between(1, 3), r.between(1, 6), r.between(1, 4)
    rule = r.pick("first", "round_robin", "hash", "balanced", "local")
    devices = r.between(1, 4)
    physical = devices * r.between(1, 4)
    kind = r.pick(I32, I64, np.dtype(np.uint16))
    allow = r.chance(60)
    ids = r.ints(0, e if allow else e - 1, (t, k), kind)
    ids = r.spoil(ids, 8, (2**16 - 1,) if kind == np.uint16 else (-1, e, 2**31 - 1))
    count = r.ints(1, most, (e,), I32)
    table = r.ints(0, physical - 1, (e, most), I32)
    table[np.arange(most) >= count[:, None]] = -1
    before = r.spoil(r.ints(0, 9, (e,), I64), 4, (-1, 2**62)) if rule == "balanced" and r.chance(50) else None
    fields: dict[str, Any] = {
        "num_physical": physical,
        "rule": rule,
        "token_base": r.pick(0, 3, 2**40 + 5),
        "device": r.below(devices),
        "devices": devices,
        "node_size": r.below(4),
        "allow_missing": allow,
    }
    if r.chance(4):
        fields[r.pick("token_base", "node_size", "device")] = -1
    held = {"load": r.ints(0, 99, (physical,), I64), "logical_load": r.ints(0, 99, (e,), I64)}
    outs: dict[str, Spec] = {
        "physical_ids": ((t, k), kind),
        "load": ((physical,), I64),
        "logical_load": ((e,), I64),
    }
    inputs: dict[str, Array | None] = {
        "ids": ids,
        "logical_to_physical": r.spoil(table, 4, (physical, 2**31 - 1)),
        "replica_count": r.spoil(count, 4, (0, -1, most + 1)) if r.chance(50) else None,
        "counts_before": before,
    }
    fresh = {name: np.zeros_like(x) for name, x in held.items()}
    return Case(inputs, fields, outs, held=held, hints=dict(held), fresh=fresh, only_out=kind != I32)


def test_moe_map_physical() -> None:
    run_property("moe_map_physical", moe_place.moe_map_physical, map_physical)
