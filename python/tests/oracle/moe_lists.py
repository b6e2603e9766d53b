"""Maps, ids and index forms of MoE: integers only."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .arith import Array
from .moe_rows import Outputs, experts_of, reject_unless


def moe_map_from_ids(
    ids: Array, weights: Array | None = None, *, num_experts: int, allow_missing: bool = False
) -> Outputs:
    reject_unless(0 <= num_experts < 2**31, "VALUE")
    routing_map = np.zeros((len(ids), num_experts), np.bool_)
    probs = None if weights is None else np.zeros((len(ids), num_experts), weights.dtype)
    for t, row in enumerate(ids.tolist()):
        for j, e in enumerate(row):
            if allow_missing and e in (-1, num_experts):
                continue
            reject_unless(0 <= e < num_experts, "INDEX")
            reject_unless(not routing_map[t, e], "ROUTING")
            routing_map[t, e] = True
            if probs is not None and weights is not None:
                probs[t, e] = weights[t, j]
    return {"routing_map": routing_map, "probs": probs}


def moe_ids_from_map(routing_map: Array, probs: Array | None = None, *, k: int) -> Outputs:
    reject_unless(k >= 0, "VALUE")
    chosen = experts_of(routing_map)
    reject_unless(all(len(row) <= k for row in chosen), "ROUTING")
    ids = np.full((len(chosen), k), -1, np.int64)
    weights = None if probs is None else np.zeros((len(chosen), k), probs.dtype)
    for t, row in enumerate(chosen):
        for j, e in enumerate(row):
            ids[t, j] = e
            if weights is not None and probs is not None:
                weights[t, j] = probs[t, e]
    return {"ids": ids, "weights": weights}


def moe_align_block(
    ids: Array,
    expert_map: Array | None = None,
    *,
    num_experts: int,
    block_size: int,
    allow_missing: bool = False,
    skip_unmapped: bool = False,
) -> Outputs:
    reject_unless(not skip_unmapped or expert_map is not None, "NULL")
    reject_unless(num_experts >= 0 and block_size >= 1, "VALUE")
    flat = [int(i) for i in ids.reshape(-1)]
    names = list(range(num_experts)) if expert_map is None else [int(i) for i in expert_map]
    none = (-1, num_experts) if allow_missing else ()
    reject_unless(all(0 <= e < num_experts or e in none for e in flat), "INDEX")
    reject_unless(all(name >= -1 for name in names), "INDEX")
    n = len(flat)
    most = (n + min(num_experts, n) * (block_size - 1)) // block_size * block_size
    slots: list[int] = []
    blocks: list[int] = []
    counts: list[int] = []
    offsets = [0]
    for e in range(num_experts):
        own = [i for i in range(n) if flat[i] == e]
        if skip_unmapped and names[e] == -1:
            own = []
        slots += own
        while len(slots) % block_size:
            slots.append(n)
        blocks += [names[e]] * ((len(slots) - offsets[-1]) // block_size)
        counts.append(len(own))
        offsets.append(len(slots))
    return {
        "sorted_slots": np.array(slots + [n] * (most - len(slots)), np.int32),
        "block_experts": np.array(blocks + [-1] * (most // block_size - len(blocks)), np.int32),
        "num_padded": np.array([len(slots)], np.int32),
        "expert_counts": np.array(counts, np.int64),
        "expert_offsets": np.array(offsets, np.int64),
    }


def moe_pad_map(routing_map: Array, *, alignment: int) -> Outputs:
    reject_unless(alignment >= 1, "VALUE")
    padded = routing_map.copy()
    view = padded.view(np.uint8)
    counts = []
    for e in range(routing_map.shape[1]):
        free = [t for t in range(len(view)) if view[t, e] == 0]
        count = len(view) - len(free)
        lacking = -count % alignment
        reject_unless(lacking <= len(free), "ROUTING")
        for t in free[:lacking]:
            view[t, e] = 1
        counts.append(count + lacking)
    return {"padded_map": padded, "expert_counts": np.array(counts, np.int64)}


def moe_reorder_chunks(
    rows: Array,
    counts: Array,
    extra: Array | None = None,
    *,
    inverse: bool = False,
    reordered_rows: Array,
    reordered_extra: Array | None = None,
) -> Outputs:
    ranks, experts = counts.shape
    left = len(rows)
    for count in counts.reshape(-1).tolist():
        reject_unless(0 <= count <= left, "INDEX")
        left -= count
    names = [(r, e, i) for r in range(ranks) for e in range(experts) for i in range(int(counts[r, e]))]
    gathered = sorted(names, key=lambda name: (name[1], name[0], name[2]))
    out, out_extra = reordered_rows.copy(), None if reordered_extra is None else reordered_extra.copy()
    for i, name in enumerate(names):
        source, target = (gathered.index(name), i) if inverse else (i, gathered.index(name))
        out[target] = rows[source]
        if out_extra is not None and extra is not None:
            out_extra[target] = extra[source]
    totals = [sum(int(counts[r, e]) for r in range(ranks)) for e in range(experts)]
    return {
        "reordered_rows": out,
        "reordered_extra": out_extra,
        "expert_offsets": np.array([sum(totals[:e]) for e in range(experts + 1)], np.int64),
    }


def moe_convert_indices(
    sorted_indices: Array,
    expert_offsets: Array | None = None,
    *,
    source: str,
    to: str,
    num_tokens: int,
    num_rows: int = 0,
    k: int = 0,
) -> Outputs:
    """`source` is the field `from`, which Python has as a word of its own."""
    t_all, given = num_tokens, sorted_indices.tolist()
    reject_unless(source != to and min(num_tokens, num_rows, k) >= 0, "VALUE")
    reject_unless(to != "te" or expert_offsets is not None, "NULL")
    if source == "te":
        reject_unless(sorted_indices.shape[0] == t_all and sorted_indices.shape[1] % 2 == 1, "SHAPE")
        m = num_rows
    else:
        if source == "slot":
            reject_unless(len(given) % t_all == 0 if t_all else not given, "SHAPE")
        reject_unless(source == "slot" or num_rows in (0, len(given)), "VALUE")
        m = num_rows or len(given)
    owner = owners(given, source, t_all, m)
    experts_end = 0
    if to == "te" and expert_offsets is not None:
        ends = expert_offsets.tolist()
        reject_unless(ends[0] == 0 and all(a <= b for a, b in itertools.pairwise(ends)) and ends[-1] <= m, "INDEX")
        experts_end = ends[-1]
        reject_unless(all(owner[r] == -1 for r in range(experts_end, m)), "ROUTING")
    rows_of = [[r for r in range(m) if owner[r] == t] for t in range(t_all)]
    if to == "row":
        return {"converted_indices": np.array(owner, np.int32)}
    if to == "slot":
        width = k or (m // t_all if t_all else 0)
        reject_unless(all(len(rows) <= width for rows in rows_of), "ROUTING")
        return {
            "converted_indices": np.array([r for rows in rows_of for r in rows + [-1] * (width - len(rows))], np.int32)
        }
    e_all = len(expert_offsets) - 1  # type: ignore[arg-type]
    reject_unless(all(len(rows) <= e_all for rows in rows_of), "ROUTING")
    table = []
    for rows in rows_of:
        down = rows[::-1]
        experts = [max(e for e in range(e_all) if ends[e] <= r) for r in down]
        blank = [-1] * (e_all - len(down))
        table.append(down + blank + experts + blank + [len(down)])
    return {"converted_indices": np.array(table, np.int32).reshape(t_all, 2 * e_all + 1)}


def owners(given: list[Any], source: str, t_all: int, m: int) -> list[int]:
    """The token of each row, -1 for none."""
    if source == "row":
        reject_unless(all(-1 <= t < t_all for t in given), "ROUTING")
        return given
    named: list[tuple[int, int]] = []
    if source == "slot":
        width = len(given) // t_all if t_all else 0
        named = [(r, i // width) for i, r in enumerate(given) if r != -1]
    else:
        for t, row in enumerate(given):
            reject_unless(0 <= row[-1] <= (len(row) - 1) // 2, "ROUTING")
            named += [(r, t) for r in row[: row[-1]]]
    owner = [-1] * m
    for r, t in named:
        reject_unless(0 <= r < m and owner[r] == -1, "ROUTING")
        owner[r] = t
    return owner
