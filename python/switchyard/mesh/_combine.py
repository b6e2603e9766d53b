"""all_to_all_combine: its values and results."""

from __future__ import annotations

from collections.abc import Collection

from .._sentences import bad
from ..errors import Status
from ._call import Call, Shards
from ._results import AllToAllCombine


class Combine(Call[AllToAllCombine[Shards]]):
    name = "all_to_all_combine"
    returns = AllToAllCombine
    optional = ("written", "output_scales")

    def needed(self, there: Collection[str]) -> Collection[str]:
        return ("output_scales",)

    def shape(self, field: str, d: int, extents: tuple[int, ...]) -> tuple[int, ...]:
        """A sum is [B, 1, S, H] here, as the tokens were."""
        if min(extents) < 0:
            text = f"is missing, and max_tokens is {self.numbers.max_tokens}: want it, weights or out"
            raise bad(Status.NULL, self.name, "routing", f"{text}, which give the number of tokens of this device")
        return (extents[0], 1, *extents[1:]) if self.numbers.sum and len(extents) == 3 else extents

    def results(self, made: AllToAllCombine[Shards], phase: str, new: bool) -> AllToAllCombine[Shards]:
        if phase == "routed":
            return AllToAllCombine(self.nothing, self.nothing, self.nothing)
        return AllToAllCombine(*(self.finish(arrays or self.nothing) for arrays in made)) if new else made
