"""The moe_dispatch family: expert slots of fixed capacity, and where they come from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arith import Array, Rejected, dot, narrow, widen
from .moe_rows import Outputs, reject_unless


def slot_of(index: Any, location: Any, num_experts: int, capacity: int) -> int | None:
    if 0 <= int(index) < num_experts and 0 <= int(location) < capacity:
        return int(index) * capacity + int(location)
    return None


def moe_dispatch(
    gates: Array | None,
    indices: Array,
    locations: Array,
    input: Array,
    dispatch: Array,
    *,
    num_experts: int,
    capacity: int,
    zero_unwritten: bool = False,
    unique_slots: bool = False,
) -> Outputs:
    """`dispatch` is what the buffer held. `input` may be the same array: then rows change while they are read."""
    reject_unless(num_experts >= 0 and capacity >= 0, "VALUE")
    out = dispatch.copy()
    source = out if input is dispatch else input
    g = np.ones(len(indices), np.float32) if gates is None else widen(gates)
    written = set()
    with np.errstate(all="ignore"):
        for i in range(len(indices)):
            slot = slot_of(indices[i], locations[i], num_experts, capacity)
            if slot is not None:
                out[slot] = narrow(g[i] * widen(source[i]), out.dtype)
                written.add(slot)
    if zero_unwritten:
        for slot in range(len(out)):
            if slot not in written:
                out[slot] = 0
    return {"dispatch": out}


def moe_combine(
    gates: Array | None, indices: Array, locations: Array, expert_out: Array, *, num_experts: int, capacity: int
) -> Outputs:
    reject_unless(num_experts >= 0 and capacity >= 0, "VALUE")
    index, location = np.atleast_2d(indices), np.atleast_2d(locations)
    k, s = index.shape
    g = np.ones((k, s), np.float32) if gates is None else np.atleast_2d(widen(gates))
    rows = widen(expert_out)
    out = np.zeros((s, expert_out.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for i in range(s):
            for t in range(k):
                slot = slot_of(index[t, i], location[t, i], num_experts, capacity)
                if slot is not None:
                    product = g[t, i] * rows[slot]
                    out[i] = product if k == 1 else out[i] + product
    return {"output": narrow(out, expert_out.dtype)}


def moe_dispatch_grad_gate(
    indices: Array, locations: Array, input: Array, dispatch: Array, *, num_experts: int, capacity: int
) -> Outputs:
    """In f32; a narrower output is this, rounded once."""
    reject_unless(num_experts >= 0 and capacity >= 0, "VALUE")
    index, location = np.atleast_2d(indices), np.atleast_2d(locations)
    x, rows = widen(input), widen(dispatch)
    grad = np.zeros(index.shape, np.float32)
    for t in range(index.shape[0]):
        for i in range(index.shape[1]):
            slot = slot_of(index[t, i], location[t, i], num_experts, capacity)
            if slot is not None:
                grad[t, i] = dot(rows[slot], x[i])
    return {"grad_gates": narrow(grad.reshape(indices.shape), np.dtype(np.float32))}


def moe_locations(indices: Array, importance: Array | None = None, *, num_experts: int) -> Outputs:
    reject_unless(num_experts >= 0, "VALUE")
    index = np.atleast_2d(indices)
    order = list(range(index.shape[1]))
    if importance is not None:
        value = [float(v) for v in widen(importance)]
        order.sort(key=lambda i: (math.isnan(value[i]), 0.0 if math.isnan(value[i]) else -value[i], i))
    counts = [0] * num_experts
    locations = np.full(index.shape, -1, np.int32)
    for t in range(index.shape[0]):
        for i in order:
            e = int(index[t, i])
            if 0 <= e < num_experts:
                locations[t, i] = counts[e]
                counts[e] += 1
    return {"locations": locations.reshape(indices.shape), "counts": np.array(counts, np.int64)}


def moe_capacity(
    counts: Array | None = None, *, samples: int, num_experts: int, k: int = 0, factor: float = 0.0, alignment: int = 0
) -> Outputs:
    reject_unless(counts is not None or not factor <= 0, "NULL")
    reject_unless(samples >= 0 and k >= 0 and alignment >= 0 and num_experts >= 1 and math.isfinite(factor), "VALUE")
    k, alignment = k or 1, alignment or 1
    share = k * math.trunc(abs(factor) * -(-samples // num_experts))
    most = 0
    if factor <= 0 and counts is not None:
        reject_unless(all(c >= 0 for c in counts.tolist()), "INDEX")
        most = max(counts.tolist())
    capacity = share if factor > 0 else most if factor == 0 else min(most, share)
    capacity = -(-capacity // alignment) * alignment
    if capacity >= 2**63:
        raise Rejected("OVERFLOW")
    return {"capacity": np.array([capacity], np.int64)}
