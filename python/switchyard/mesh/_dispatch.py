"""all_to_all_dispatch: its values, and the arrays for its results."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from .._row_formats import code_type, groups, scale_type
from .._sentences import bad, shown
from ..errors import Status
from ._call import EXPERT, KEEP, PACKED, PADDED, Call, Shards, group_of, group_size, sized
from ._handle import Routed
from ._results import AllToAllDispatch

MOST_PLANES = 3


class Dispatch(Call[AllToAllDispatch[Shards]]):
    name = "all_to_all_dispatch"
    returns = AllToAllDispatch
    optional = ("metadata", "present", "src", "expert_counts", "expert_offsets", "rows_from", "rows_to", "scale_tokens")

    def take(self, given: dict[str, Any]) -> None:
        shards = self.reader.shards
        self.indices = shards("expert_indices", given["expert_indices"])
        self.mapping = self.reader.tensor("expert_mapping", given["expert_mapping"])
        try:
            planes = tuple(given["planes"])
        except TypeError:
            text = f"is {shown(given['planes'])}, want a sequence of arrays"
            raise bad(Status.DTYPE, self.name, "planes", text) from None
        self.planes: list[Shards] = [shards(f"planes[{p}]", plane) for p, plane in enumerate(planes)]
        given["num_planes"] = len(planes)

    def tensors(self) -> list[Any]:
        read = self.reader.tensors
        values = [*read("input", self.input), *read("expert_indices", self.indices), self.mapping]
        return values + [one for field, plane in self._three("planes", self.planes) for one in read(field, plane)]

    def _three(self, field: str, planes: Any) -> Iterable[tuple[str, Shards]]:
        for p in range(MOST_PLANES):
            yield f"{field}[{p}]", planes[p] if p < len(planes) else self.nothing

    def learn(self) -> Routed:
        """The facts about the tokens that shapes depend on."""
        own_shapes = tuple(own_shape(tuple(x.shape)) for x in self.input)
        if self.numbers.reuse_routing:
            known = self.routing._routed if self.routing is not None else None
            if known is None:
                raise bad(Status.STATE, self.name, "routing", "is empty, want one that a dispatch has filled")
            return known._replace(own_shapes=own_shapes)
        return Routed(
            self.numbers.cluster_axis,
            self.numbers.output_concat_dim or 1,
            self.numbers.layout,
            self.numbers.max_tokens,
            self.indices[0].shape[-1],
            self._local_experts(),
            own_shapes,
            self.numbers.expert_rows,
        )

    def _local_experts(self) -> tuple[int, ...]:
        """How many experts each device of this process hosts."""
        table = self.numbers_of(self.mapping)
        counts = np.count_nonzero(table.reshape(-1, *table.shape[-2:])[0], axis=0)
        first = self.handle.device
        return tuple(int(n) for n in counts[first : first + self.handle.shards])

    @property
    def _many(self) -> bool:
        """Whether tables are made for as many tokens as there may be: those of other processes are not known before."""
        return self.known.max_tokens > 0 and self.handle.collective

    def table(self, known: Routed, d: int) -> tuple[int, ...]:
        """The shape of what has a row for each token of a device's group, without its last extent."""
        size, own = group_size(self.handle, known.axis), known.own_shapes[d]
        if len(own) == 2:
            b, s = own
            return (1, b * size, s) if known.dim == 1 else (1, b, s * size)
        if known.max_tokens == 0:
            return (size * own[0],)
        if self._many:
            return (size * known.max_tokens,)
        return (sum(known.own_shapes[q][0] for q in group_of(self.handle, known.axis, d)),)

    def make(self, wanted: Collection[str] | None) -> AllToAllDispatch[Shards]:
        self.known = known = self.learn()
        self.wanted = _everything(known, self.numbers) if wanted is None else wanted
        # These results give the number of rows, to which the others are cut.
        names = {*self.wanted, *{PACKED: ("rows_from",), EXPERT: ("expert_offsets",)}.get(known.layout, ())}
        xp, devices = self.xp, range(self.handle.shards)
        tables = [self.table(known, d) for d in devices]
        rows = tables
        if known.layout != PADDED:
            rows = [(self.handle.query(self.name, self.values, self.xp),)] * len(tables)
        if known.expert_rows > 0:  # the query has no local experts
            rows = [(n * known.expert_rows,) for n in known.experts]
        clear = self._many or self.numbers.fill == KEEP
        size = (group_size(self.handle, known.axis),)

        format = self.numbers.row_format

        def new_rows(arrays: Shards, width: Any, kind: Any) -> Shards:
            new = xp.zeros if clear else xp.empty
            return tuple(new((*rows[d], width(arrays[d].shape[-1])), kind(arrays[d])) for d in devices)

        def each(name: str, dtype: Any, shapes: Iterable[tuple[int, ...]]) -> Shards:
            new, kind = xp.zeros if self._many else xp.empty, xp.dtype(dtype) if isinstance(dtype, str) else dtype
            return tuple(new(shape, kind) for shape in shapes) if name in names else self.nothing

        def moved(array: Any) -> Any:
            return self.type_like(array) if format is None else code_type(xp, format)

        return AllToAllDispatch(
            new_rows(self.input, int, moved),
            each(
                "metadata",
                None if self.indices[0] is None else self.type_like(self.indices[0]),
                ((*t, known.slots) for t in tables),
            ),
            tuple(new_rows(plane, int, self.type_like) for plane in self.planes),
            each("present", "bool", ((math.prod(t),) for t in tables)),
            each("src", "int32", ((math.prod(r), 3 if known.layout == EXPERT else 2) for r in rows)),
            each("expert_counts", "int64", ((n,) for n in known.experts)),
            each("expert_offsets", "int64", ((n + 1,) for n in known.experts)),
            each("rows_from", "int64", [size] * len(tables)),
            each("rows_to", "int64", [size] * len(tables)),
            self.nothing
            if format is None
            else new_rows(self.input, lambda H: groups(H, format), lambda _: scale_type(xp, format)),
        )

    def fields(self, results: AllToAllDispatch[Shards]) -> Iterable[tuple[str, Shards]]:
        yield "tokens", results.tokens
        yield "metadata", results.metadata or self.nothing
        yield from self._three("plane_tokens", results.plane_tokens)
        for name in self.optional[1:]:
            yield name, getattr(results, name)

    def results(self, made: AllToAllDispatch[Shards], phase: str, new: bool) -> AllToAllDispatch[Shards]:
        if self.routing is not None and not self.numbers.reuse_routing:
            self.routing._fill(self.flight.number, self.known if new else self.learn())
        if new:
            made = self._shown(made, phase)
        if phase == "routed":
            nothing = dict.fromkeys(("tokens", "present", "src", "scale_tokens"), self.nothing)
            made = made._replace(plane_tokens=(), **nothing)
        return made

    def _shown(self, made: AllToAllDispatch[Shards], phase: str) -> AllToAllDispatch[Shards]:
        """New arrays as the caller gets them."""
        fields = {name: self.finish(getattr(made, name)) for name in self.optional if name in self.wanted}
        fields = {**dict.fromkeys(self.optional, self.nothing), **fields}
        if self._many:
            table = [self.flight.tokens]
            fields["metadata"], fields["present"] = sized(fields["metadata"], table), sized(fields["present"], table)
        if phase == "routed":
            return AllToAllDispatch(self.nothing, plane_tokens=(), **{**fields, "scale_tokens": self.nothing})
        tokens, planes = self.finish(made.tokens), tuple(self.finish(plane) for plane in made.plane_tokens)
        if self.known.layout != PADDED or self._many:  # allocated for any routing; cut to the rows that were sent
            rows = self._sent(made) if self.known.layout != PADDED else [self.flight.tokens]
            tokens, planes = sized(tokens, rows), tuple(sized(plane, rows) for plane in planes)
            fields["src"] = sized(fields["src"], rows)
            fields["scale_tokens"] = sized(fields["scale_tokens"], rows)
        return AllToAllDispatch(tokens, plane_tokens=planes, **fields)

    def _sent(self, made: AllToAllDispatch[Shards]) -> list[int]:
        if self.known.layout == EXPERT:
            return [int(self.numbers_of(offsets)[-1]) for offsets in made.expert_offsets or ()]
        return [int(self.numbers_of(rows).sum()) for rows in made.rows_from or ()]


def own_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[B,1,S,·] or [B,S,1,·] as (B, S), [N,·] as (N,)."""
    if len(shape) == 4:
        return shape[0], shape[1] * shape[2]
    (n, _) = shape
    return (n,)


def _everything(known: Routed, numbers: Any) -> set[str]:
    """The results of a call without `want`."""
    names = {"expert_counts", "rows_from", "rows_to", "present" if known.layout == PADDED else "src"}
    if known.layout == EXPERT:
        names.add("expert_offsets")
    if not numbers.reuse_routing:
        names.add("metadata")
    if numbers.row_format is not None:
        names.add("scale_tokens")
    return names
