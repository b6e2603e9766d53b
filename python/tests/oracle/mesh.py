"""The mesh: what each device must hold, computed from the arrays of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arith import Array, narrow, widen
from .moe_rows import Outputs, reject_unless

Mesh = tuple[int, int]


def group_of(d: int, mesh: Mesh, axis: str) -> list[int]:
    """The devices that exchange with d, by position."""
    rows, cols = mesh
    if axis == "0":
        return [r * cols + d % cols for r in range(rows)]
    if axis == "1":
        return [d // cols * cols + c for c in range(cols)]
    return list(range(rows * cols))


def tau(p: int, n: int, g: int, batch: int, seq: int, dim: int, order: str) -> int:
    """The group's number of token n of position p."""
    if dim == 2 and order == "concat":
        return n // seq * (g * seq) + p * seq + n % seq
    return p * batch * seq + n


def choices(indices: Array) -> list[list[int]]:
    """Expert numbers as Python integers, -1 where all bits are set."""
    none = (1 << 8 * indices.dtype.itemsize) - 1
    return [[-1 if int(e) & none == none else int(e) for e in row] for row in indices.reshape(-1, indices.shape[-1])]


def live(row: list[int], k: int) -> bool:
    return row[k] >= 0 and row[k] not in row[:k]


class Served:
    """Which devices serve the choices of a group, from the choices of its devices by position."""

    def __init__(
        self, mapping: Array, group: list[int], tables: list[list[list[int]]], replica: str, node: int
    ) -> None:
        self.by: dict[tuple[int, int, int], list[int]] = {}
        rows = [(p, n, row) for p, table in enumerate(tables) for n, row in enumerate(table)]
        named: dict[int, int] = {}
        for i, (p, n, row) in enumerate(rows):
            for e in dict.fromkeys(e for e in row if e >= 0):
                hosts = [q for q, d in enumerate(group) if mapping[e, d]]
                near = [q for q in hosts if q == p] or [q for q in hosts if node and q // node == p // node] or hosts
                turn = {"round_robin": i, "hash": i * 2654435769 % 2**32, "balanced": named.get(e, 0), "local": p}
                named[e] = named.get(e, 0) + 1
                if replica == "local":
                    hosts = near
                if replica != "all" and hosts:
                    hosts = [hosts[turn.get(replica, 0) % len(hosts)]]
                self.by[p, n, e] = [group[q] for q in hosts]

    def __call__(self, p: int, n: int, e: int) -> list[int]:
        return self.by.get((p, n, e), [])


def validate(table: list[list[int]], e_all: int, strict_unique: bool = False) -> None:
    for row in table:
        reject_unless(all(-1 <= e < e_all for e in row), "INDEX")
        named = [e for e in row if e >= 0]
        reject_unless(not strict_unique or len(set(named)) == len(named), "INDEX")


def validate_mapping(mapping: Array) -> None:
    reject_unless(bool(np.isin(mapping, (0, 1)).all()), "ROUTING")


def all_to_all_dispatch(
    input: list[Array],
    expert_indices: list[Array],
    expert_mapping: Array,
    *,
    mesh: Mesh,
    cluster_axis: str = "all",
    batch: int,
    seq: int,
    output_concat_dim: int = 1,
    order: str = "concat",
    fill: str = "zero",
    strict_unique: bool = False,
    replica: str = "all",
    node_size: int = 0,
    before: list[Array],
) -> Outputs:
    """Padded layout on short shapes: [N,H] and [N,K] per device in, [T,H] and [T,K] out. `before`: what tokens held."""
    validate_mapping(expert_mapping)
    tables = [choices(i) for i in expert_indices]
    for table in tables:
        validate(table, len(expert_mapping), strict_unique)
    outputs: Outputs = {"tokens": [], "metadata": [], "present": [], "rows_from": [], "rows_to": []}
    d_all = len(input)
    for d in range(d_all):
        group = group_of(d, mesh, cluster_axis)
        served = Served(expert_mapping, group, [tables[home] for home in group], replica, node_size)
        tokens, present = before[d].copy(), np.zeros(len(before[d]), np.uint8)
        metadata = np.zeros((len(tokens), expert_indices[0].shape[-1]), expert_indices[0].dtype)
        for p, home in enumerate(group):
            for n, row in enumerate(tables[home]):
                t = tau(p, n, len(group), batch, seq, output_concat_dim, order)
                metadata[t] = expert_indices[home][n]
                if any(d in served(p, n, e) for e in row):
                    tokens[t], present[t] = input[home][n], 1
                elif fill == "zero":
                    tokens[t] = np.zeros((), tokens.dtype)
        outputs["tokens"].append(tokens)
        outputs["metadata"].append(metadata)
        outputs["present"].append(present)
        hits = [
            [sum(any(b in served(p, n, e) for e in row) for n, row in enumerate(tables[a])) for b in group]
            for p, a in enumerate(group)
        ]
        me = group.index(d)
        outputs["rows_from"].append(np.array([hits[p][me] for p in range(len(group))], np.int64))
        outputs["rows_to"].append(np.array(hits[me], np.int64))
    return outputs


def dispatched_rows(
    input: list[Array],
    expert_indices: list[Array],
    expert_mapping: Array,
    *,
    mesh: Mesh,
    axis: str,
    align: int,
    layout: str,
    expert_rows: int = 0,
    replica: str = "all",
    node_size: int = 0,
) -> Outputs:
    """The rows of the layouts that hold no others, by device, and where they come from."""
    tables = [choices(i) for i in expert_indices]
    outputs: Outputs = {"tokens": [], "src": [], "expert_counts": []}
    if layout == "expert":
        outputs["expert_offsets"] = []
    for d in range(len(input)):
        group, own = group_of(d, mesh, axis), hosted(expert_mapping, d)
        served = Served(expert_mapping, group, [tables[home] for home in group], replica, node_size)
        everyone = [(p, n, tables[home][n]) for p, home in enumerate(group) for n in range(len(tables[home]))]
        src: list[list[int]] = []
        offsets = [0]
        if layout == "packed":
            src = [[p, n] for p, n, row in everyone if any(d in served(p, n, e) for e in row)]
        for e in own if layout == "expert" else ():
            found = [[p, n, row.index(e)] for p, n, row in everyone if d in served(p, n, e)]
            reject_unless(expert_rows == 0 or len(found) <= expert_rows, "CAPACITY")
            space = expert_rows or -(-len(found) // (align or 1)) * (align or 1)
            src += found + [[-1, -1, -1]] * (space - len(found))
            offsets.append(len(src))
        rows = np.zeros((len(src), input[0].shape[1]), input[0].dtype)
        for i, (p, n, *_) in enumerate(src):
            if p >= 0:
                rows[i] = input[group[p]][n]
        outputs["tokens"].append(rows)
        outputs["src"].append(np.array(src, np.int32))
        counts = [sum(d in served(p, n, e) for p, n, _ in everyone) for e in own]
        outputs["expert_counts"].append(np.array(counts, np.int64))
        if layout == "expert":
            outputs["expert_offsets"].append(np.array(offsets, np.int64))
    return outputs


def hosted(expert_mapping: Array, d: int) -> list[int]:
    return [e for e in range(len(expert_mapping)) if expert_mapping[e, d]]


def all_to_all_combine(
    input: list[Array],
    expert_metadata: list[Array],
    expert_mapping: Array,
    weights: list[Array] | None = None,
    *,
    mesh: Mesh,
    cluster_axis: str = "all",
    batch: int,
    seq: int,
    output_shard_dim: int = 1,
    order: str = "concat",
    fill: str = "zero",
    local_reduce: bool = False,
    sum: bool = False,
    strict_unique: bool = False,
    replica: str = "all",
    node_size: int = 0,
    before: list[Array],
) -> Outputs:
    """Padded layout on short shapes: [L,T,H] per device in, [K,N,H] or, with sum, [N,H] out."""
    validate_mapping(expert_mapping)
    for d in range(len(input) if local_reduce and replica == "all" else 0):
        group = group_of(d, mesh, cluster_axis)
        reject_unless(all(np.sum(expert_mapping[e, group]) <= 1 for e in range(len(expert_mapping))), "ROUTING")
    tables = [choices(m) for m in expert_metadata]
    for table in tables:
        validate(table, len(expert_mapping), strict_unique)
    outputs: Outputs = {"output": [], "written": []}
    for d in range(len(input)):
        group = group_of(d, mesh, cluster_axis)
        out = before[d].copy()
        k_all = expert_metadata[d].shape[-1]
        written = np.zeros((k_all, batch * seq), np.uint8)
        me = group.index(d)
        places = [
            [tau(p, n, len(group), batch, seq, output_shard_dim, order) for n in range(batch * seq)]
            for p in range(len(group))
        ]
        served = Served(expert_mapping, group, [[tables[d][t] for t in own] for own in places], replica, node_size)
        for n, t in enumerate(places[me]):
            holders = [served(me, n, e) for e in tables[d][t]]
            came = arrivals(tables[d][t], input, expert_mapping, group, t, local_reduce, holders)
            for k in range(k_all):
                written[k, n] = k in came
            if sum:
                out[n] = weighted(
                    came, None if weights is None or local_reduce else weights[d][n], out.dtype, out.shape[-1]
                )
                continue
            for k in range(k_all):
                if k in came:
                    out[k, n] = came[k][1]
                elif fill == "zero":
                    out[k, n] = np.zeros((), out.dtype)
        outputs["output"].append(out)
        outputs["written"].append(written)
    if sum:
        outputs["written"] = None
    return outputs


def arrivals(
    row: list[int],
    input: list[Array],
    mapping: Array,
    group: list[int],
    t: int,
    local_reduce: bool,
    holders: list[list[int]],
) -> dict[int, tuple[int, Array]]:
    """Per slot the row that comes home, and its place in the order of a sum."""
    came: dict[int, tuple[int, Array]] = {}
    if local_reduce:
        for p, h in enumerate(group):
            here = [k for k in range(len(row)) if live(row, k) and h in holders[k]]
            if here:
                came[min(here, key=lambda k: row[k])] = (p, input[h][0, t])
        return came
    for k in range(len(row)):
        if live(row, k) and holders[k]:
            h = holders[k][0]
            came[k] = (k, input[h][hosted(mapping, h).index(row[k]), t])
    return came


def weighted(came: dict[int, tuple[int, Array]], weights: Array | None, dtype: Any, h: int) -> Array:
    acc = np.zeros(h, np.float32)
    with np.errstate(all="ignore"):
        for k, (_, row) in sorted(came.items(), key=lambda item: item[1][0]):
            acc = acc + (widen(row) if weights is None else widen(weights)[k] * widen(row))
    return narrow(acc, dtype)


def local_reduce(
    input: Array,
    expert_metadata: Array,
    expert_mapping: Array,
    weights: Array | None = None,
    *,
    device: int,
    fill: str = "zero",
    layout: str = "padded",
    align: int = 0,
    expert_rows: int = 0,
    output: Array,
) -> Outputs:
    """On short shapes; EXPERT with output_concat_dim 1. `output` is what it held before."""
    reject_unless(0 <= device < expert_mapping.shape[1] and align >= 0, "VALUE")
    validate_mapping(expert_mapping)
    table = choices(expert_metadata)
    validate(table, len(expert_mapping))
    own = hosted(expert_mapping, device)
    out = output.copy()
    w = None if weights is None else widen(weights)
    place: dict[tuple[int, int], Array] = {}
    begin = 0
    for at, e in enumerate(own):
        tokens = [t for t, row in enumerate(table) if e in row]
        reject_unless(expert_rows == 0 or len(tokens) <= expert_rows, "CAPACITY")
        end = begin + (expert_rows or -(-len(tokens) // (align or 1)) * (align or 1))
        reject_unless(layout != "expert" or end <= len(input), "CAPACITY")
        for i, t in enumerate(tokens):
            place[e, t] = input[begin + i] if layout == "expert" else input[at, t]
        begin = end
    next_row = 0
    for t, row in enumerate(table):
        mine = [k for k in range(len(row)) if live(row, k) and row[k] in own]
        acc = np.zeros(out.shape[-1], np.float32)
        with np.errstate(all="ignore"):
            for k in mine:
                x = widen(place[row[k], t])
                acc = acc + (x if w is None else w[t, k] * x)
        if layout == "expert":
            if mine:
                reject_unless(next_row < len(out), "CAPACITY")
                out[next_row] = narrow(acc, out.dtype)
                next_row += 1
        elif mine or fill == "zero":
            out[t] = narrow(acc, out.dtype)
    return {"output": out}
