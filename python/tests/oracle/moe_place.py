"""Replicas of experts: which there are and where they are, and which of them serves a slot."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .arith import Array, Rejected
from .moe_rows import Outputs, reject_unless

Slot = tuple[int, int]  # expert and replica


def repeated(experts: list[int], items: list[int]) -> int:
    return len(items) - len({experts[i] for i in items})


def pack(loads: list[int], packs: int, experts: list[int] | None) -> list[list[int]]:
    """The items of each pack. With experts, those of a pack are different."""
    size = len(loads) // packs
    if size == 1:
        return [[i] for i in range(packs)]
    held: list[list[int]] = [[] for _ in range(packs)]
    for i in sorted(range(len(loads)), key=lambda i: (-loads[i], i)):
        room = [p for p in range(packs) if len(held[p]) < size]
        if experts is not None:
            room = [p for p in room if experts[i] not in [experts[j] for j in held[p]]] or room
        held[min(room, key=lambda p: (sum(loads[j] for j in held[p]), p))].append(i)
    return held if experts is None else separated(held, loads, experts)


def separated(held: list[list[int]], loads: list[int], experts: list[int]) -> list[list[int]]:
    """First by exchanges that leave no repetition on both packs, then by those that leave fewer."""
    for clean in True, False:
        for p, mine in enumerate(held):
            for r in range(len(mine)):
                while experts[mine[r]] in [experts[j] for j in mine[:r]]:
                    found = exchanges(held, loads, experts, p, r, clean)
                    if not found:
                        break
                    _, q, s = min(found)
                    mine[r], held[q][s] = held[q][s], mine[r]
    return held


def exchanges(
    held: list[list[int]], loads: list[int], experts: list[int], p: int, r: int, clean: bool
) -> list[tuple[int, int, int]]:
    """Difference of loads, pack and rank of each item that the one at rank r of pack p can be exchanged with."""
    found = []
    for q, s in ((q, s) for q, other in enumerate(held) for s in range(len(other)) if q != p):
        a, b = [*held[p]], [*held[q]]
        before = repeated(experts, a) + repeated(experts, b)
        a[r], b[s] = b[s], a[r]
        after = repeated(experts, a) + repeated(experts, b)
        if after == 0 if clean else after < before:
            found.append((abs(loads[held[p][r]] - loads[held[q][s]]), q, s))
    return found


def place_node(loads: list[int], experts: list[int], places: int, devices: int, distinct: bool) -> list[list[Slot]]:
    """The slots of each device of a node."""
    slots = [(e, 0) for e in experts]
    while len(slots) < places:
        count = {e: sum(e == other for other, _ in slots) for e in experts}
        free = [e for e in experts if not distinct or count[e] < devices]
        most = max(free, key=lambda e: (Fraction(loads[e], count[e]), -experts.index(e)))
        slots.append((most, count[most]))
    count = {e: sum(e == other for other, _ in slots) for e in experts}
    held = pack([loads[e] * 2**24 // count[e] for e, _ in slots], devices, [e for e, _ in slots] if distinct else None)
    return [[slots[i] for i in items] for items in held]


def kept(slots: list[Slot], previous: list[int]) -> list[Slot]:
    """The slots of a device, those of experts that were there in their old places."""
    left = [*slots]
    result: list[Slot | None] = [None] * len(previous)
    for i, e in enumerate(previous):
        found = next((slot for slot in left if slot[0] == e), None)
        if found is not None:
            left.remove(found)
            result[i] = found
    return [left.pop(0) if slot is None else slot for slot in result]


def place_layer(
    loads: list[int], previous: list[int] | None, places: int, devices: int, nodes: int, groups: int, distinct: bool
) -> list[list[Slot]]:
    e = len(loads)
    if groups == 0 or groups % nodes:
        nodes, groups = 1, 0
    of_nodes = [list(range(e))]
    if groups:
        each = e // groups
        held = pack([sum(loads[g * each : (g + 1) * each]) for g in range(groups)], nodes, None)
        of_nodes = [[g * each + i for g in mine for i in range(each)] for mine in held]
    found = [
        slots for mine in of_nodes for slots in place_node(loads, mine, places // nodes, devices // nodes, distinct)
    ]
    if previous is not None:
        size = places // devices
        found = [kept(slots, previous[d * size : (d + 1) * size]) for d, slots in enumerate(found)]
    return found


def moe_place(
    loads: Array,
    previous: Array | None = None,
    *,
    num_physical: int,
    devices: int,
    nodes: int = 1,
    groups: int = 0,
    distinct: bool = False,
    replicas: int,
) -> Outputs:
    """`replicas` is how many the table of the caller can hold."""
    layers, e = loads.shape
    nodes = nodes or 1
    reject_unless(e > 0, "SHAPE")
    reject_unless(devices >= 1 and num_physical >= e and num_physical % devices == 0, "VALUE")
    reject_unless(nodes >= 1 and devices % nodes == 0 and groups >= 0, "VALUE")
    reject_unless(groups == 0 or e % groups == 0, "VALUE")
    by_node = nodes if groups and groups % nodes == 0 else 1
    reject_unless(not distinct or num_physical <= e * (devices // by_node), "VALUE")
    for layer, row in enumerate(loads.tolist()):
        total = 0
        for load in row:
            reject_unless(load >= 0, "INDEX")
            total += load
            reject_unless(total < 2**38, "OVERFLOW")
        reject_unless(previous is None or all(0 <= x < e for x in previous[layer].tolist()), "INDEX")
    size = num_physical // devices
    logical = np.zeros((layers, num_physical), np.int64)
    physical = np.full((layers, e, replicas), -1, np.int64)
    count = np.zeros((layers, e), np.int64)
    load_of = np.zeros((layers, devices), np.int64)
    for layer in range(layers):
        old = None if previous is None else previous[layer].tolist()
        found = place_layer(loads[layer].tolist(), old, num_physical, devices, nodes, groups, distinct)
        flat = [slot for slots in found for slot in slots]
        for x, _ in flat:
            count[layer, x] += 1
        if count[layer].max() > replicas:
            raise Rejected("CAPACITY")
        for i, (x, rank) in enumerate(flat):
            logical[layer, i] = x
            physical[layer, x, rank] = i
            load_of[layer, i // size] += int(loads[layer, x]) * 2**24 // int(count[layer, x])
    mapping = (np.arange(num_physical)[:, None] // size == np.arange(devices)).astype(np.uint16)
    return {
        "physical_to_logical": logical,
        "logical_to_physical": physical,
        "replica_count": count,
        "device_load": load_of,
        "expert_mapping": mapping,
    }


def moe_map_physical(
    ids: Array,
    logical_to_physical: Array,
    replica_count: Array | None = None,
    counts_before: Array | None = None,
    *,
    load: Array,
    logical_load: Array,
    num_physical: int,
    rule: str = "first",
    token_base: int = 0,
    device: int = 0,
    devices: int = 0,
    node_size: int = 0,
    allow_missing: bool = False,
) -> Outputs:
    """`load` and `logical_load` are what the arrays held."""
    experts, most = logical_to_physical.shape
    none = 2**16 - 1 if ids.dtype == np.uint16 else -1
    reject_unless(num_physical >= 0 and token_base >= 0 and node_size >= 0, "VALUE")
    reject_unless(counts_before is None or rule == "balanced", "VALUE")
    if rule == "local":
        reject_unless(devices >= 1 and 0 <= device < devices and num_physical % devices == 0, "VALUE")
    missing = (ids == none) | (ids == experts) if allow_missing else np.zeros(ids.shape, bool)
    reject_unless(bool(np.all(missing | ((ids >= 0) & (ids < experts)))), "INDEX")
    table: list[list[int]] = []
    for e in range(experts):
        row = logical_to_physical[e].tolist()
        n = next((r for r, x in enumerate(row) if x < 0), most) if replica_count is None else int(replica_count[e])
        named = bool(np.any(~missing & (ids == e)))
        reject_unless(not named or 1 <= n <= most, "INDEX")
        table.append(row[: max(0, min(n, most))])
        reject_unless(all(0 <= x < num_physical for x in table[e]), "INDEX")
        reject_unless(counts_before is None or counts_before[e] >= 0, "INDEX")
    turn = [0] * experts if counts_before is None else [int(x) for x in counts_before]
    chosen, load, logical_load = np.full(ids.shape, none, np.int64), load.copy(), logical_load.copy()
    for t, k in np.ndindex(*ids.shape):
        if missing[t, k]:
            continue
        e, i = int(ids[t, k]), token_base + t
        found = table[e]
        if rule == "local":
            of = [x // (num_physical // devices) for x in found]
            near = [x for x, d in zip(found, of, strict=True) if d == device]
            if not near and node_size > 0:
                near = [x for x, d in zip(found, of, strict=True) if d // node_size == device // node_size]
            found, number = near or found, device
        else:
            number = {"round_robin": i, "hash": i * 2654435769 % 2**32, "balanced": turn[e]}.get(rule, 0)
        chosen[t, k] = found[number % len(found)]
        turn[e] += 1
        load[chosen[t, k]] += 1
        logical_load[e] += 1
    return {"physical_ids": chosen, "load": load, "logical_load": logical_load}
