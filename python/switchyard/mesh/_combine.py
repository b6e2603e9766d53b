"""all_to_all_combine: its values, and the arrays for its results."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from .._caches import row_type
from .._sentences import bad
from ..errors import Status
from ._call import KEEP, Call, Shards, group_size
from ._dispatch import own_shape
from ._results import AllToAllCombine


class Combine(Call[AllToAllCombine[Shards]]):
    name = "all_to_all_combine"
    returns = AllToAllCombine
    optional = ("written", "output_scales")

    def take(self, given: dict[str, Any]) -> None:
        shards = self.reader.shards
        self.metadata = shards("expert_metadata", given["expert_metadata"])
        self.mapping = self.reader.tensor("expert_mapping", given["expert_mapping"])
        self.weights = shards("weights", given["weights"])
        self.scales = shards("input_scales", given["input_scales"])

    def tensors(self) -> list[Any]:
        read = self.reader.tensors
        values = [*read("input", self.input), *read("expert_metadata", self.metadata), self.mapping]
        return [*values, *read("weights", self.weights), *read("input_scales", self.scales)]

    def own_tokens(self, d: int) -> tuple[int, tuple[int, ...]]:
        """Slots per token, and a device's own tokens as (B, S) or (N,)."""
        if self.routing is not None:
            if self.routing._routed is None:
                raise bad(Status.STATE, self.name, "routing", "is empty, want one that a dispatch has filled")
            return self.routing._routed.slots, self.routing._routed.own_shapes[d]
        *lead, slots = self.metadata[d].shape
        size = group_size(self.handle, self.numbers.cluster_axis)
        if self.numbers.max_tokens > 0:
            if self.weights[d] is None:
                text = f"is missing, and max_tokens is {self.numbers.max_tokens}: want it, weights or out"
                raise bad(Status.NULL, self.name, "routing", f"{text}, which give the number of tokens of this device")
            return slots, own_shape(tuple(self.weights[d].shape))
        if len(lead) == 1:
            return slots, (lead[0] // size,)
        b, s = lead[-2:]
        return slots, (b, s // size) if self.numbers.output_shard_dim == 2 else (b // size, s)

    def make(self, wanted: Collection[str] | None) -> AllToAllCombine[Shards]:
        xp, devices = self.xp, range(self.handle.shards)
        new = xp.zeros if self.numbers.fill == KEEP else xp.empty
        own_shapes = [self.own_tokens(d) for d in devices]
        total, format = self.numbers.sum, self.numbers.row_format

        def rows(like: Shards, kind: Any) -> Shards:
            made = []
            for d, (slots, own) in enumerate(own_shapes):
                lead = (slots, *own) if not total else (own[0], 1, own[1]) if len(own) == 2 else own
                made.append(new((*lead, like[d].shape[-1]), kind(like[d])))
            return tuple(made)

        output = rows(self.input, lambda x: row_type(xp, self.name, x, format if total else None, None))
        masks = scales = self.nothing
        if "written" in (wanted if wanted is not None else () if total else self.optional):
            masks = tuple(xp.empty((slots, math.prod(own)), xp.dtype("bool")) for slots, own in own_shapes)
        if format is not None and not total:
            scales = rows(self.scales, lambda x: x.dtype)
        return AllToAllCombine(output, masks, scales)

    def fields(self, results: AllToAllCombine[Shards]) -> Iterable[tuple[str, Shards]]:
        yield "output", results.output
        yield "written", results.written or self.nothing
        yield "output_scales", results.output_scales or self.nothing

    def results(self, made: AllToAllCombine[Shards], phase: str, new: bool) -> AllToAllCombine[Shards]:
        if phase == "routed":
            return AllToAllCombine(self.nothing, self.nothing, self.nothing)
        return AllToAllCombine(*(self.finish(arrays or self.nothing) for arrays in made)) if new else made
