"""all_to_all_dispatch: its values and results."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from .._sentences import bad, shown
from ..errors import Status
from ._call import Call, Shards, sized
from ._results import AllToAllDispatch

MOST_PLANES = 3


class Dispatch(Call[AllToAllDispatch[Shards]]):
    name = "all_to_all_dispatch"
    returns = AllToAllDispatch
    optional = ("metadata", "present", "src", "expert_counts", "expert_offsets", "rows_from", "rows_to", "scale_tokens")

    def prepare(self, given: dict[str, Any]) -> None:
        try:
            planes = tuple(given["planes"])
        except TypeError:
            text = f"is {shown(given['planes'])}, want a sequence of arrays"
            raise bad(Status.DTYPE, self.name, "planes", text) from None
        given["num_planes"] = len(planes)
        given |= {f"planes[{p}]": plane for p, plane in enumerate((*planes, *[None] * MOST_PLANES))}

    def usual(self, there: Collection[str]) -> Collection[str]:
        reused = ("metadata",) if self.numbers.reuse_routing else ()
        return [name for name in super().usual(there) if name not in reused]

    def needed(self, there: Collection[str]) -> Collection[str]:
        """With them what gives the number of rows, to which arrays are cut."""
        counts = "expert_offsets" if "expert_offsets" in there else "rows_from" if "src" in there else ""
        return ("scale_tokens", counts)

    def shape(self, field: str, d: int, extents: tuple[int, ...]) -> tuple[int, ...]:
        """The library does not count the experts of a device by a table that is in memory of a device."""
        if min(extents) >= 0:
            return extents
        table = self.numbers_of(self.arrays["expert_mapping"][0])
        counts = np.count_nonzero(table.reshape(-1, *table.shape[-2:])[0], axis=0)
        return (int(counts[self.handle.device + d]) + (field == "expert_offsets"),)

    def results(self, made: AllToAllDispatch[Shards], phase: str, new: bool) -> AllToAllDispatch[Shards]:
        if self.routing is not None:
            self.routing._filled = True
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
        if self.many:
            table = [self.flight.tokens]
            fields["metadata"], fields["present"] = sized(fields["metadata"], table), sized(fields["present"], table)
        if phase == "routed":
            return AllToAllDispatch(self.nothing, plane_tokens=(), **{**fields, "scale_tokens": self.nothing})
        tokens, planes = self.finish(made.tokens), tuple(self.finish(plane) for plane in made.plane_tokens)
        if "src" in self.there or self.many:  # allocated for any routing; cut to the rows that were sent
            rows = self._sent(made) if "src" in self.there else [self.flight.tokens]
            tokens, planes = sized(tokens, rows), tuple(sized(plane, rows) for plane in planes)
            fields["src"] = sized(fields["src"], rows)
            fields["scale_tokens"] = sized(fields["scale_tokens"], rows)
        return AllToAllDispatch(tokens, plane_tokens=planes, **fields)

    def _sent(self, made: AllToAllDispatch[Shards]) -> list[int]:
        if "expert_offsets" in self.there:
            return [int(self.numbers_of(offsets)[-1]) for offsets in made.expert_offsets or ()]
        return [int(self.numbers_of(rows).sum()) for rows in made.rows_from or ()]
