"""Random exchanges on local meshes against their oracles: what every device must hold, from the arrays of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import Tally, run_examples
from oracle import Rejected, mesh
from reader import ANY_TYPES, BF16, F16, F32, I32, I64, Array, Dtype, Reader
from test_properties_mesh import U16, mapping_of

import switchyard
from switchyard.mesh import AllToAllCombine, AllToAllDispatch, LocalMesh

FLOATS = (F32, F16, BF16)
REPLICAS = ("first", "round_robin", "hash", "balanced", "local")
MESHES = ((1, 2), (2, 2), (1, 1), (2, 1), (1, 3), (3, 2))
_open: dict[tuple[int, int], LocalMesh] = {}


def local_mesh(shape: tuple[int, int]) -> LocalMesh:
    """One of each shape serves all examples, rejected ones included."""
    if shape not in _open:
        _open[shape] = LocalMesh(*shape)
    return _open[shape]


@dataclass
class Exchange:
    """Sizes, choices and options that dispatch and combine share."""

    shape: tuple[int, int]
    axis: int | None
    batch: int
    seq: int
    slots: int
    experts: int
    dim: int
    order: str
    full: bool  # shapes of rank 4, or the short ones
    index: Dtype
    strict_unique: bool
    replica: str
    node: int

    @property
    def devices(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def group(self) -> int:
        return {None: self.devices, 0: self.shape[0], 1: self.shape[1]}[self.axis]

    @property
    def home(self) -> tuple[int, ...]:
        return (self.batch, 1, self.seq) if self.full else (self.batch * self.seq,)

    @property
    def table(self) -> tuple[int, ...]:
        """All tokens of a group."""
        if not self.full:
            return (self.group * self.batch * self.seq,)
        b, s = self.batch, self.seq
        return (1, b * self.group, s) if self.dim == 1 else (1, b, s * self.group)

    def common(self) -> dict[str, Any]:
        whole = self.node if self.node and self.group % self.node == 0 else 0
        fields = {"cluster_axis": self.axis, "order": self.order, "strict_unique": self.strict_unique}
        return fields | {"replica": self.replica, "node_size": whole}

    def oracle(self) -> dict[str, Any]:
        sizes = {"mesh": self.shape, "batch": self.batch, "seq": self.seq}
        return sizes | self.common() | {"cluster_axis": "all" if self.axis is None else str(self.axis)}


def exchange(r: Reader) -> Exchange:
    full = r.chance(70)
    return Exchange(
        shape=r.pick(*MESHES),
        axis=r.pick(None, 0, 1),
        batch=r.between(1, 2) if full else 1,
        seq=r.below(4),
        slots=r.between(1, 3),
        experts=r.between(1, 6),
        dim=r.pick(1, 2) if full else 1,
        order=r.pick("concat", "flat"),
        full=full,
        index=r.pick(U16, I32, I64),
        strict_unique=r.chance(10),
        replica=r.pick(*REPLICAS) if r.chance(50) else "all",
        node=r.below(4),
    )


def choices(r: Reader, x: Exchange, rows: int) -> Array:
    chosen = r.ints(-1 if r.chance(40) else 0, x.experts - 1, (rows, x.slots))
    if r.chance(2):
        chosen = r.spoil(chosen, 100, (x.experts, 60000) if x.index == U16 else (x.experts, -2, 2**31 - 1))
    return chosen.astype(x.index)


def same(found: Any, wanted: list[Array], name: str) -> None:
    assert len(found) == len(wanted)
    for d, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert got.dtype == want.dtype, f"{name} of device {d} is {got.dtype}"
        assert got.size == want.size and got.tobytes() == want.tobytes(), (
            f"{name} of device {d}: {got!r}, want {want!r}"
        )


def unchanged(arrays: list[Array], before: list[bytes]) -> None:
    assert [x.tobytes() for x in arrays] == before


def rejected(call: Any, status: str, tally: Tally) -> None:
    tally.rejected += 1
    try:
        call()
    except switchyard.Error as error:
        assert error.status.name == status, f"{error.status.name}, want {status}: {error}"
    else:
        raise AssertionError(f"not rejected, want {status}")


def dispatch(r: Reader, tally: Tally) -> None:
    x = exchange(r)
    dtype, h, n = r.pick(*ANY_TYPES), r.between(1, 4), x.batch * x.seq
    rows = [r.bits((n, h), dtype) for _ in range(x.devices)]
    chosen = [choices(r, x, n) for _ in range(x.devices)]
    mapping = mapping_of(r, x.experts, x.devices)
    layout, align, fill = r.pick("padded", "packed", "expert"), r.pick(0, 2, 3), r.pick("zero", "keep")
    fixed = (align or 1) * r.between(1, 6) if layout == "expert" and r.chance(50) else 0
    into = r.chance(50) and layout == "padded"
    held = [r.bits((x.group * n, h), dtype) if into else np.zeros((x.group * n, h), dtype) for _ in range(x.devices)]
    out = [a.reshape(*x.table, h).copy() for a in held]
    fields = x.common() | {"output_concat_dim": x.dim, "fill": fill, "layout": layout, "align": align}
    fields["expert_rows"] = fixed

    def call() -> AllToAllDispatch[Any]:
        return local_mesh(x.shape).all_to_all_dispatch(
            [a.reshape(*x.home, h) for a in rows],
            [a.reshape(*x.home, x.slots) for a in chosen],
            mapping,
            **fields,
            out=AllToAllDispatch(tuple(out)) if into else None,
        )

    try:
        wanted = mesh.all_to_all_dispatch(
            rows, chosen, mapping, **x.oracle(), output_concat_dim=x.dim, fill=fill, before=held
        )
        listed = mesh.dispatched_rows(
            rows,
            chosen,
            mapping,
            mesh=x.shape,
            axis=x.oracle()["cluster_axis"],
            align=align,
            layout=layout,
            expert_rows=fixed,
            replica=x.replica,
            node_size=x.common()["node_size"],
        )
    except Rejected as rejection:
        rejected(call, rejection.status, tally)
        unchanged(out, [a.tobytes() for a in held])
        return
    tally.answered += 1
    found = call()
    if into:
        same(out, wanted["tokens"], "tokens")
        return
    for name in ("metadata", "rows_from", "rows_to"):
        same(getattr(found, name), wanted[name], name)
    if layout == "padded":
        same(found.tokens, wanted["tokens"], "tokens")
        same(found.present, [a.astype(bool) for a in wanted["present"]], "present")
        return
    for name, arrays in listed.items():
        same(getattr(found, name), arrays, name)


def test_all_to_all_dispatch() -> None:
    run_examples("all_to_all_dispatch", dispatch, lambda reader: reader)


def combine(r: Reader, tally: Tally) -> None:
    x = exchange(r)
    local_reduce, adds, n = r.chance(35), r.chance(40), x.batch * x.seq
    dtype, h = r.pick(*(FLOATS if adds else ANY_TYPES)), r.between(1, 4)
    mapping = mapping_of(r, x.experts, x.devices, once=local_reduce and x.replica == "all" and r.chance(95))
    axis = x.oracle()["cluster_axis"]
    tables: dict[tuple[int, ...], Array] = {}
    for d in range(x.devices):  # a group has one table
        members = tuple(mesh.group_of(d, x.shape, axis))
        if members not in tables:
            tables[members] = choices(r, x, x.group * n)
    metadata = [tables[tuple(mesh.group_of(d, x.shape, axis))] for d in range(x.devices)]
    hosted = [1 if local_reduce else int((mapping[:, d] == 1).sum()) for d in range(x.devices)]

    def contents(*shape: int) -> Array:
        return r.floats(shape, dtype) if adds else r.bits(shape, dtype)

    rows = [contents(hosted[d], x.group * n, h) for d in range(x.devices)]
    weights = (
        [r.floats((n, x.slots), F32) for _ in range(x.devices)] if adds and not local_reduce and r.chance(60) else None
    )
    fill, into = r.pick("zero", "keep"), r.chance(50)
    flat = (n, h) if adds else (x.slots, n, h)
    held = [r.bits(flat, dtype) if into else np.zeros(flat, dtype) for _ in range(x.devices)]
    home = (x.batch, x.seq) if x.full else (n,)
    out = [a.reshape(*flat[:-2], *home, h).copy() for a in held]
    fields = x.common() | {"output_shard_dim": x.dim, "fill": fill, "local_reduce": local_reduce, "sum": adds}

    def call() -> AllToAllCombine[Any]:
        return local_mesh(x.shape).all_to_all_combine(
            [a.reshape(len(a), *x.table[-2:] if x.full else x.table, h) for a in rows],
            [a.reshape(*x.table, x.slots) for a in metadata],
            mapping,
            None if weights is None else [a.reshape(*x.home, x.slots) for a in weights],
            **fields,
            out=AllToAllCombine(tuple(out)) if into else None,
        )

    try:
        wanted = mesh.all_to_all_combine(
            rows,
            metadata,
            mapping,
            weights,
            **x.oracle(),
            output_shard_dim=x.dim,
            fill=fill,
            local_reduce=local_reduce,
            sum=adds,
            before=held,
        )
    except Rejected as rejection:
        rejected(call, rejection.status, tally)
        unchanged(out, [a.tobytes() for a in held])
        return
    tally.answered += 1
    found = call()
    same(out if into else found.output, wanted["output"], "output")
    if not into and not adds:
        same(found.written, [a.astype(bool) for a in wanted["written"]], "written")


def test_all_to_all_combine() -> None:
    run_examples("all_to_all_combine", combine, lambda reader: reader)
