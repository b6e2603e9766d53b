"""Random exchanges on local meshes against the oracle: all layouts, orders, modes, with and without a routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Rejected, mesh
from reader import BF16, F16, F32, Array, Dtype, Reader

import switchyard
from switchyard.mesh import AllToAllCombine, AllToAllDispatch, LocalMesh, Routing

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1), (2, 3), (1, 4), (2, 4))
TYPES: tuple[Dtype, ...] = (F32, F16, BF16, *map(np.dtype, ("int8", "float64", "uint16")))
INDEX_TYPES = tuple(map(np.dtype, ("uint16", "int32", "int64")))

meshes: dict[tuple[int, int], LocalMesh] = {}  # kept warm: what an exchange leaves behind must not reach the next


@dataclass
class World:
    """The tensors of all devices for a dispatch, with the short shapes [N,H] and [N,K]."""

    shape: tuple[int, int]
    axis: str
    batch: int
    seq: int
    dim: int
    order: str
    fill: str
    layout: str
    align: int
    strict: bool
    long: bool  # tensors of rank 4
    x: list[Array]
    chosen: list[Array]
    hosts: Array
    r: Reader

    @property
    def devices(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def tau(self) -> dict[str, Any]:
        """How the oracle counts tokens. Short shapes have no sequence to concatenate along."""
        order = self.order if self.long else "flat"
        return {"batch": self.batch, "seq": self.seq, "order": order}

    @property
    def told(self) -> dict[str, Any]:
        """What both operators are told."""
        axis = {"all": None, "0": 0, "1": 1}[self.axis]
        return {"cluster_axis": axis, "order": self.order, "layout": self.layout, "align": self.align}

    def group(self, d: int) -> list[int]:
        return mesh.group_of(d, self.shape, self.axis)

    def home(self, x: Array) -> Array:
        """[N,.] in the shape of the call."""
        return x.reshape(self.batch, 1, self.seq, x.shape[-1]) if self.long else x

    def table(self, x: Array, d: int) -> Array:
        """[T,.] of the group in the shape of the call."""
        g = len(self.group(d))
        lead = (self.batch * g, self.seq) if self.dim == 1 else (self.batch, self.seq * g)
        return x.reshape(1, *lead, x.shape[-1]) if self.long else x


def build(data: bytes) -> World:
    r = Reader(data)
    shape = r.pick(*SHAPES)
    devices = shape[0] * shape[1]
    batch, seq, k, experts, h = r.between(1, 3), r.below(4), r.between(1, 3), r.between(1, 6), r.pick(1, 2, 3, 7)
    dtype, index = r.pick(*TYPES), r.pick(*INDEX_TYPES)
    hosts = np.zeros((experts, devices), np.uint16)
    if r.chance(60):  # one device each
        hosts[np.arange(experts), r.ints(0, devices - 1, (experts,))] = 1
    else:
        hosts[:] = r.ints(0, 1, (experts, devices))
    chosen = [r.ints(-1 if r.chance(40) else 0, experts - 1, (batch * seq, k)).astype(index) for _ in range(devices)]
    if r.chance(4):
        r.spoil(chosen[r.below(devices)], 100, (experts, 60000) if index == np.uint16 else (experts, -2, 2**31 - 1))
    if r.chance(2):
        hosts[r.below(experts), r.below(devices)] = r.pick(2, 65535)
    return World(
        shape,
        r.pick("all", "0", "1"),
        batch,
        seq,
        r.pick(1, 2),
        r.pick("concat", "flat"),
        r.pick("zero", "keep"),
        r.pick("padded", "packed", "expert"),
        r.pick(0, 1, 2, 3),
        r.chance(5),
        r.chance(60),
        [r.bits((batch * seq, h), dtype) for _ in range(devices)],
        chosen,
        hosts,
        r,
    )


def same(mine: Any, wanted: Any) -> None:
    assert mine.shape == wanted.shape, (mine, wanted)
    assert mine.dtype == wanted.dtype
    assert mine.tobytes() == np.ascontiguousarray(wanted).tobytes(), (mine, wanted)


def as_given(w: World, arrays: list[Array]) -> Any:
    """One array for all devices, or one for each."""
    return np.stack(arrays) if w.r.chance(50) and len({a.shape for a in arrays}) == 1 else arrays


def call(w: World, here: LocalMesh, name: str, *given: Any, **options: Any) -> Any:
    """The blocking call, or a start and its waits."""
    if w.r.chance(50):
        return getattr(here, f"all_to_all_{name}")(*given, **options)
    request = getattr(here, f"start_{name}")(*given, **options)
    if w.r.chance(50):
        request.wait("routed")
    while w.r.chance(50) and not request.test():
        pass
    return request.wait()


def sent(w: World, d: int, padded: Array) -> tuple[Array, list[tuple[int, ...]]]:
    """Rows of the other layouts and where they are from, of the rows of the padded one."""
    found, src = [], []
    zero = np.zeros_like(padded[0]) if len(padded) else np.zeros(w.x[0].shape[-1], w.x[0].dtype)
    tables = [mesh.choices(w.chosen[q]) for q in w.group(d)]
    places = [(p, n) for p in range(len(tables)) for n in range(w.batch * w.seq)]
    for e in mesh.hosted(w.hosts, d) if w.layout == "expert" else [None]:
        for p, n in places:
            row = tables[p][n]
            if e in row or (e is None and any(c >= 0 and w.hosts[c, d] for c in row)):
                found.append(padded[mesh.tau(p, n, len(tables), dim=w.dim, **w.tau)])
                src.append((p, n) if e is None else (p, n, row.index(e)))
        while w.layout == "expert" and len(found) % (w.align or 1):
            found.append(zero)
            src.append((-1, -1, -1))
    return np.array(found, padded.dtype).reshape(len(found), padded.shape[-1]), src


def check_dispatch(w: World, here: LocalMesh, routing: Routing) -> Any:
    """One dispatch against the oracle; its results, or None when it was rejected as it should be."""
    rows = [len(w.group(d)) * w.batch * w.seq for d in range(w.devices)]
    held = [w.r.bits((n, w.x[0].shape[-1]), w.x[0].dtype) for n in rows]
    out = None
    if w.layout == "padded" and w.r.chance(50):
        out = AllToAllDispatch(tuple(w.table(a.copy(), d) for d, a in enumerate(held)))
    before = held if out is not None else [np.zeros_like(a) for a in held]
    try:
        wanted = mesh.all_to_all_dispatch(
            w.x, w.chosen, w.hosts, mesh=w.shape, cluster_axis=w.axis, output_concat_dim=w.dim, fill=w.fill,
            strict_unique=w.strict, before=before, **w.tau,
        )  # fmt: skip
    except Rejected as rejected:
        wanted, status = None, rejected.status
    options = {**w.told, "output_concat_dim": w.dim, "fill": w.fill, "strict_unique": w.strict, "out": out}
    given = as_given(w, [w.home(a) for a in w.x]), as_given(w, [w.home(c) for c in w.chosen]), w.hosts
    if wanted is None:
        with pytest.raises(switchyard.Error) as raised:
            call(w, here, "dispatch", *given, routing=routing, **options)
        assert raised.value.status.name == status
        assert not routing.filled
        return None
    got = call(w, here, "dispatch", *given, routing=routing, **options)
    for d in range(w.devices):
        check_device(w, d, got, wanted)
    return got


def check_device(w: World, d: int, got: Any, wanted: Any) -> None:
    local = mesh.hosted(w.hosts, d)
    if w.layout == "padded":
        same(got.tokens[d], w.table(wanted["tokens"][d], d))
    else:
        found, src = sent(w, d, wanted["tokens"][d])
        same(got.tokens[d], found)
        same(got.src[d], np.array(src, np.int32).reshape(len(found), 3 if w.layout == "expert" else 2))
    if got.metadata is None:  # out was given
        return
    same(got.metadata[d], w.table(wanted["metadata"][d], d))
    same(got.rows_from[d], wanted["rows_from"][d])
    same(got.rows_to[d], wanted["rows_to"][d])
    table = mesh.choices(wanted["metadata"][d])
    same(got.expert_counts[d], np.array([sum(e in row for row in table) for e in local], np.int64))
    if w.layout == "padded":
        same(got.present[d], wanted["present"][d].astype(bool))
    assert (got.src is None) == (w.layout == "padded")
    assert (got.expert_offsets is None) == (w.layout != "expert")
    if w.layout == "expert":
        assert got.expert_offsets[d][-1] == len(got.tokens[d])
        assert all(n % (w.align or 1) == 0 for n in got.expert_offsets[d])


def check_combine(w: World, here: LocalMesh, got: Any, routing: Routing) -> None:
    """Rows of experts home, through the layout that the dispatch had."""
    local_reduce = w.layout == "packed" or (w.layout == "padded" and w.r.chance(40))
    rows_of = {d: len(w.group(d)) * w.batch * w.seq for d in range(w.devices)}
    adds = w.r.chance(40)
    dtype = w.r.pick(F32, F16, BF16) if adds else w.x[0].dtype
    h, k, n = w.r.pick(1, 2, 5), w.chosen[0].shape[-1], w.batch * w.seq
    experts = [1 if local_reduce else len(mesh.hosted(w.hosts, d)) for d in range(w.devices)]
    kind = w.r.floats if adds else w.r.bits
    padded = [kind((experts[d], rows_of[d], h), dtype) for d in range(w.devices)]
    tables = [np.concatenate([w.chosen[q] for q in w.group(d)]) for d in range(w.devices)]
    for d in range(w.devices):
        for p, q in enumerate(w.group(d)):
            for i in range(n):
                tables[d][mesh.tau(p, i, len(w.group(d)), dim=w.dim, **w.tau)] = w.chosen[q][i]
    weights, weight = None, w.r.pick(F32, F16, BF16)
    if adds and not local_reduce and w.r.chance(60):
        weights = [w.r.floats((n, k), weight) for _ in range(w.devices)]
    shape = (n, h) if adds else (k, n, h)
    modes = {"local_reduce": local_reduce, "sum": adds}
    try:
        wanted = mesh.all_to_all_combine(
            padded, tables, w.hosts, weights, mesh=w.shape, cluster_axis=w.axis, output_shard_dim=w.dim, fill="zero",
            before=[np.zeros(shape, dtype)] * w.devices, **modes, **w.tau,
        )  # fmt: skip
    except Rejected as rejected:
        with pytest.raises(switchyard.Error) as raised:
            here.all_to_all_combine(as_rows(w, padded, local_reduce), routing=routing, **modes)
        assert raised.value.status.name == rejected.status
        return
    given = as_rows(w, padded, local_reduce)
    options = {**modes, "weights": None if weights is None else as_given(w, [w.home(a) for a in weights])}
    if w.r.chance(50) or got.metadata is None:
        home = call(w, here, "combine", given, routing=routing, **options)
    else:
        options |= {**w.told, "output_shard_dim": w.dim}
        home = call(w, here, "combine", given, as_given(w, list(got.metadata)), w.hosts, **options)
    for d in range(w.devices):
        lead = shape[:-1] if not w.long else (w.batch, 1, w.seq) if adds else (k, w.batch, w.seq)
        same(home.output[d], wanted["output"][d].reshape(*lead, h))
        if not adds:
            same(home.written[d], wanted["written"][d].astype(bool))
    if not adds:
        kept = AllToAllCombine(tuple(np.full((k, n, h), 1, dtype) for _ in range(w.devices)))
        here.all_to_all_combine(given, routing=routing, fill="keep", out=kept, **modes)
        for d in range(w.devices):
            came = wanted["written"][d].astype(bool)
            assert (kept.output[d][~came] == np.ones((), dtype)).all()
            same(kept.output[d][came], wanted["output"][d][came])


def as_rows(w: World, padded: list[Array], local_reduce: bool) -> list[Array]:
    """Rows of the experts in the layout of the dispatch."""
    if w.layout == "padded":
        return [
            y.reshape(len(y), *w.table(np.zeros((y.shape[1], 1)), d).shape[1:-1], y.shape[-1]) if w.long else y
            for d, y in enumerate(padded)
        ]
    rows = []
    for d, y in enumerate(padded):
        src = sent(w, d, np.zeros((y.shape[1], y.shape[-1]), y.dtype))[1]
        local = mesh.hosted(w.hosts, d)
        found = np.ones((len(src), y.shape[-1]), y.dtype)  # padding is never read
        for i, (p, n, *slot) in enumerate(src):
            if p >= 0:
                t = mesh.tau(p, n, len(w.group(d)), dim=w.dim, **w.tau)
                e = mesh.choices(w.chosen[w.group(d)[p]])[n][slot[0]] if slot else None
                found[i] = y[0 if e is None else local.index(e), t]
        rows.append(found)
    return rows


def test_exchange() -> None:
    seen = {"answered": 0, "rejected": 0}

    @given(st.binary(min_size=192, max_size=192).map(build))
    def every(w: World) -> None:
        here = meshes.setdefault(w.shape, LocalMesh(*w.shape))
        routing = here.routing()
        got = check_dispatch(w, here, routing)
        seen["rejected" if got is None else "answered"] += 1
        if got is not None:
            check_combine(w, here, got, routing)

    every()
    assert sum(seen.values()) >= settings.default.max_examples  # type: ignore[union-attr]
    assert seen["answered"] > 3 * seen["rejected"] > 0
