"""Random calls of the moe_dispatch family against its oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, Spec, run_property
from oracle import moe_slots
from oracle.arith import narrow
from reader import BF16, F16, F32, I32, I64, Array, Reader

FLOATS = (F32, F16, BF16)
ODD = (-1, 2**31 - 1, -(2**31), 100)


def choices(r: Reader, shape: tuple[int, ...], experts: int, capacity: int) -> tuple[Array, Array]:
    """Experts and places, mostly inside, as often shared as not; every int32 is legal."""
    indices = r.ints(-1 if r.chance(30) else 0, max(experts - 1, 0), shape, I32)
    locations = r.ints(-1 if r.chance(30) else 0, max(capacity - 1, 0), shape, I32)
    return r.spoil(indices, 15, (*ODD, experts)), r.spoil(locations, 15, (*ODD, capacity))


def sizes(r: Reader) -> tuple[int, int, int, int]:
    """Samples, experts, capacity, width."""
    return r.below(9), r.below(5), r.below(5), r.pick(1, 2, 3, 8, 9, 0, 17, 33) if r.chance(60) else r.below(10)


def gates_of(r: Reader, shape: tuple[int, ...], dtype: Any) -> Array | None:
    return r.floats(shape, r.pick(F32, dtype)) if r.chance(75) else None


def fields_of(r: Reader, experts: int, capacity: int) -> dict[str, Any]:
    fields = {"num_experts": experts, "capacity": capacity}
    if r.chance(3):
        fields[r.pick("num_experts", "capacity")] = r.pick(-1, -(2**63))
    return fields


def dispatch(r: Reader) -> Case:
    s, e, c, h = sizes(r)
    dtype = r.pick(*FLOATS)
    indices, locations = choices(r, (s,), e, c)
    gates = gates_of(r, (s,), dtype)
    fields = fields_of(r, e, c) | {"zero_unwritten": r.chance(40)}
    slots = indices.astype(np.int64) * c + locations
    valid = (indices >= 0) & (indices < e) & (locations >= 0) & (locations < c)
    fields["unique_slots"] = len(set(slots[valid])) == int(valid.sum()) and r.chance(50)
    held = r.floats((e * c, h), dtype, "bits")
    return Case(
        {"gates": gates, "indices": indices, "locations": locations, "input": r.floats((s, h), dtype)},
        fields,
        {"dispatch": ((e * c, h), dtype)},
        held={"dispatch": held},
        hints={"dispatch": held},
        fresh={"dispatch": np.zeros_like(held)},
    )


def test_moe_dispatch() -> None:
    run_property("moe_dispatch", moe_slots.moe_dispatch, dispatch)


def combine(r: Reader) -> Case:
    s, e, c, h = sizes(r)
    shape = r.pick((s,), (2, s), (1, s), (3, s), (0, s))
    dtype = r.pick(*FLOATS)
    indices, locations = choices(r, shape, e, c)
    return Case(
        {
            "gates": gates_of(r, shape, dtype),
            "indices": indices,
            "locations": locations,
            "expert_out": r.floats((e * c, h), dtype),
        },
        fields_of(r, e, c),
        {"output": ((s, h), dtype)},
    )


def test_moe_combine() -> None:
    run_property("moe_combine", moe_slots.moe_combine, combine)


def grad_gate(r: Reader) -> Case:
    s, e, c, h = sizes(r)
    shape = r.pick((s,), (2, s), (1, s), (3, s), (0, s))
    dtype = r.pick(*FLOATS)
    if r.chance(1):
        h = 8192 + r.below(20)  # beyond one block of the sum
        s, shape = min(s, 1), (min(s, 1),)
    indices, locations = choices(r, shape, e, c)
    kind = r.pick(dtype, F32)
    return Case(
        {
            "indices": indices,
            "locations": locations,
            "input": r.floats((s, h), dtype),
            "dispatch": r.floats((e * c, h), dtype),
        },
        fields_of(r, e, c),
        {"grad_gates": (shape, kind)},
        only_out=kind != dtype,
    )


def test_moe_dispatch_grad_gate() -> None:
    run_property("moe_dispatch_grad_gate", moe_slots.moe_dispatch_grad_gate, grad_gate)


def locations(r: Reader) -> Case:
    s, e = r.below(13), r.below(6)
    shape = r.pick((s,), (2, s), (1, s), (3, s), (0, s))
    indices = r.spoil(r.ints(-1 if r.chance(30) else 0, max(e - 1, 0), shape, I32), 15, (*ODD, e))
    importance = r.maybe(r.floats((s,), r.pick(*FLOATS)))
    outs: dict[str, Spec] = {"locations": (shape, I32), "counts": ((e,), I64)}
    return Case(
        {"indices": indices, "importance": importance}, {"num_experts": r.pick(-1, -7) if r.chance(2) else e}, outs
    )


def test_moe_locations() -> None:
    def oracle(num_experts: int, **arrays: Any) -> dict[str, Any]:
        return moe_slots.moe_locations(**arrays, num_experts=num_experts)

    run_property("moe_locations", oracle, locations)


def capacity(r: Reader) -> Case:
    e = r.between(1, 6)
    counts = r.spoil(r.ints(0, r.pick(9, 1000), (e,), r.pick(I32, I64)), 6, (-1, 2**31 - 1, 2**62))
    factor = r.pick(0.0, 1.0, 1.25, -1.0, -0.5, 0.7, 2.0, -1.3, 1e-9, 1 / 3) * r.pick(1.0, 1.0, 1.1, 0.9)
    if r.chance(5):
        factor = r.pick(float("nan"), float("inf"), -float("inf"), 1e30, -1e30)
    fields: dict[str, Any] = {
        "samples": r.pick(0, 5, 100, 18432, r.below(2000), 2**40),
        "num_experts": e,
        "k": r.below(4),
        "factor": factor,
        "alignment": r.pick(0, 1, 2, 4, 8, 7),
    }
    if r.chance(4):
        fields[r.pick("samples", "k", "alignment")] = -1
    given = counts if not factor > 0 or r.chance(60) else None
    return Case({"counts": None if r.chance(2) else given}, fields, {"capacity": ((1,), I64)}, no_out=True)


def test_moe_capacity() -> None:
    run_property("moe_capacity", moe_slots.moe_capacity, capacity)


def test_narrow_gradients_are_rounded_once() -> None:
    """What the harness relies on when an output is narrower than its oracle."""
    x = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 3e38, np.nan, -0.0], np.float32)
    assert narrow(x, BF16).view(np.uint16).tolist() == [0x3F80, 0x3F81, 0x7F62, 0x7FC0, 0x8000]
