"""Random calls of local_reduce against its oracle, and of the exchange on local meshes."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, run_property
from oracle import mesh
from reader import BF16, F16, F32, I32, I64, Array, Dtype, Reader

FLOATS = (F32, F16, BF16)
U16: Dtype = np.dtype(np.uint16)


def table(r: Reader, rows: int, slots: int, experts: int) -> Array:
    """Choices of tokens: experts, repeated ones, none, now and then a wrong one."""
    dtype = r.pick(U16, I32, I64)
    chosen = r.ints(-1 if r.chance(40) else 0, experts - 1, (rows, slots))
    if r.chance(4):
        chosen = r.spoil(chosen, 100, (experts, -2, 2**31 - 1) if dtype != U16 else (experts, 65534))
    return chosen.astype(dtype)


def mapping_of(r: Reader, experts: int, devices: int, once: bool = False) -> Array:
    """Who hosts what: each expert somewhere, or anywhere, nowhere and in several places."""
    found = np.zeros((experts, devices), U16)
    if once or r.chance(50):
        found[np.arange(experts), r.ints(0, devices - 1, (experts,))] = 1
    else:
        found[:] = r.ints(0, 1, (experts, devices))
    if r.chance(2):
        found[r.below(experts), r.below(devices)] = r.pick(2, 65535)
    return found


def reduce(r: Reader) -> Case:
    t, k, e, d, h = r.below(7), r.between(1, 4), r.between(1, 6), r.between(1, 3), r.pick(1, 2, 3, 9, 17)
    device = r.below(d)
    mapping = mapping_of(r, e, d)
    chosen = table(r, t, k, e)
    own = np.flatnonzero(mapping[:, device] == 1)
    layout = r.pick("padded", "expert")
    align = r.pick(0, 1, 2, 4)
    fixed = max(align, 1) * r.between(1, 4) if layout == "expert" and r.chance(40) else 0
    dtype = r.pick(*FLOATS)
    rows: list[Array] = [r.floats((len(own), t, h), dtype)]
    out_rows = t
    if layout == "expert":
        step = max(align, 1)
        need = sum(fixed or -(-int((chosen == e_).any(axis=1).sum()) // step) * step for e_ in own)
        rows = [r.floats((max(need + r.pick(0, 0, 1) - (1 if r.chance(5) else 0), 0), h), dtype)]
        out_rows = int(np.isin(chosen, own).any(axis=1).sum()) + r.pick(0, 1)
        out_rows = max(out_rows - (2 if r.chance(5) else 0), 0)
    held = r.floats((out_rows, h), dtype, "bits")
    fields: dict[str, Any] = {
        "device": r.pick(-1, d) if r.chance(2) else device,
        "fill": r.pick("zero", "keep"),
        "layout": layout,
        "align": -1 if r.chance(2) else align,
        "expert_rows": fixed,
    }
    inputs = {
        "input": rows[0],
        "expert_metadata": chosen,
        "expert_mapping": mapping,
        "weights": r.maybe(r.floats((t, k), r.pick(*FLOATS))),
    }
    return Case(
        inputs,
        fields,
        {"output": ((out_rows, h), dtype)},
        held={"output": held},
        hints={"output": held},
        fresh={"output": np.zeros_like(held)},
        longer=("output",) if layout == "expert" else (),
        only_out=out_rows != t,  # the call makes room for all tokens
    )


def test_local_reduce() -> None:
    run_property("local_reduce", mesh.local_reduce, reduce)
