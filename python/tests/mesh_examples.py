"""Worked examples of docs/ops/all_to_all_dispatch.md and all_to_all_combine.md, with results written by hand: one for
each option that Python passes on. All of them are in tests/mesh_examples.c.

A row is shown as one number v and stands for (v, -v); 0 is a row of zeros, ANY one that nobody may read, `__` no
expert. E10 is E8 with row_format int8_token: a row v is (127, -127) with the scale v / 127.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Rows = Any  # nested lists of such numbers
Array = np.ndarray[Any, Any]
ANY, __ = None, -1


@dataclass(frozen=True)
class Example:
    mesh: tuple[int, int]
    options: dict[str, Any]  # cluster_axis, dimension, order
    hosts: list[list[int]]  # devices of each expert
    chosen: list[Any]  # [B,S,K] of each device
    input: list[Rows]  # [B,S]
    tokens: list[Rows]  # the group's table, as are:
    metadata: list[Any]
    results: list[Rows]  # [L, ...] of the experts, or [1, ...]
    output: list[Rows]  # [K,B,S]
    local_reduce: bool = False
    present: list[list[int]] | None = None
    rows_to: list[list[int]] | None = None

    @property
    def devices(self) -> int:
        return self.mesh[0] * self.mesh[1]

    @property
    def mapping(self) -> Array:
        table = np.zeros((len(self.hosts), self.devices), np.uint16)
        for expert, devices in enumerate(self.hosts):
            table[expert, devices] = 1
        return table

    @property
    def dispatch_options(self) -> dict[str, Any]:
        return {"output_concat_dim" if name == "dim" else name: value for name, value in self.options.items()}

    @property
    def combine_options(self) -> dict[str, Any]:
        named = {"output_shard_dim" if name == "dim" else name: value for name, value in self.options.items()}
        return {**named, "local_reduce": self.local_reduce}

    def indices(self, d: int, dtype: Any = np.uint16) -> Array:
        """Choices, [B,1,S,K]."""
        return np.array(self.chosen[d], np.int64).astype(dtype)[:, None]

    def given(self, d: int, dtype: Any = np.float32) -> Array:
        """Rows, [B,1,S,2]."""
        return rows(self.input[d], dtype)[:, None]


def codes(values: Rows) -> tuple[Array, Array]:
    """Codes of int8_token, and scales, of such rows."""
    table = np.array(values, dtype=np.float32)
    ones = np.where(table == 0, 0, 127).astype(np.int8)
    return np.stack([ones, -ones], axis=-1), (table / np.float32(127))[..., None]


def rows(values: Rows, dtype: Any = np.float32) -> Array:
    """(v, -v) for each number; NaN for rows that nobody may read."""
    table = np.array(values, dtype=np.float32)  # None is NaN
    return np.stack([table, np.where(table == 0, 0, -table)], axis=-1).astype(dtype)


TWO = {"mesh": (1, 2), "options": {}, "hosts": [[0], [0], [1], [1]]}
E1 = Example(
    **TWO,
    chosen=[[[[0, 2], [1, 0]]], [[[3, 2], [2, 0]]]],
    input=[[[11, 12]], [[21, 22]]],
    metadata=[[[[[0, 2], [1, 0]], [[3, 2], [2, 0]]]]] * 2,
    tokens=[[[[11, 12], [0, 22]]], [[[11, 0], [21, 22]]]],
    present=[[1, 1, 0, 1], [1, 0, 1, 1]],
    rows_to=[[2, 1], [1, 2]],
    results=[[[[11, 12], [ANY, 22]], [[ANY, 24], [ANY, ANY]]], [[[33, ANY], [63, 66]], [[ANY, ANY], [84, ANY]]]],
    output=[[[[11, 24]], [[33, 12]]], [[[84, 66]], [[63, 22]]]],
)
E3 = replace(
    E1,
    local_reduce=True,
    results=[[[[11, 36], [ANY, 22]]], [[[33, ANY], [147, 66]]]],
    output=[[[[11, 0]], [[33, 36]]], [[[0, 66]], [[147, 22]]]],
)
COLUMNS = [[[0, 1]], [[3, 2]]]
E4 = Example(
    mesh=(2, 2),
    options={"cluster_axis": 0},
    hosts=[[3], [0], [1], [2]],
    chosen=[[COLUMNS[0]], [COLUMNS[0]], [COLUMNS[1]], [COLUMNS[1]]],
    input=[[[10]], [[10]], [[20]], [[20]]],
    metadata=[[COLUMNS]] * 4,
    tokens=[[[[10], [0]]], [[[0], [20]]], [[[0], [20]]], [[[10], [0]]]],
    results=[[[[20], [ANY]]], [[[ANY], [60]]], [[[ANY], [80]]], [[[10], [ANY]]]],
    output=[[[[0]], [[20]]], [[[10]], [[0]]], [[[80]], [[0]]], [[[0]], [[60]]]],
)
E6 = Example(
    mesh=(2, 2),
    options={"cluster_axis": 1, "dim": 2},
    hosts=[[0], [0], [1], [1], [2], [2], [3], [3]],
    chosen=[[[[1, 0, 6]]], [[[3, 5, 2]]]] * 2,
    input=[[[10]], [[20]]] * 2,
    metadata=[[[[[1, 0, 6], [3, 5, 2]]]]] * 4,
    tokens=[[[[10, 0]]], [[[0, 20]]], [[[0, 20]]], [[[10, 0]]]],
    results=[
        [[[10, ANY]], [[20, ANY]]],
        [[[ANY, 60]], [[ANY, 80]]],
        [[[ANY] * 2], [[ANY, 120]]],
        [[[70, ANY]], [[ANY] * 2]],
    ],
    output=[
        [[[20]], [[10]], [[0]]],
        [[[80]], [[0]], [[60]]],
        [[[0]], [[0]], [[70]]],
        [[[0]], [[120]], [[0]]],
    ],
)
E7_FLAT = Example(
    mesh=(1, 2),
    options={"cluster_axis": 1, "dim": 2, "order": "flat"},
    hosts=[[0], [1]],
    chosen=[[[[0]], [[1]]], [[[0]], [[0]]]],
    input=[[[11], [12]], [[21], [22]]],
    metadata=[[[[[0], [1]], [[0], [0]]]]] * 2,
    tokens=[[[[11, 0], [21, 22]]], [[[0, 12], [0, 0]]]],
    results=[[[[11, ANY], [21, 22]]], [[[ANY, 24], [ANY, ANY]]]],
    output=[[[[11], [24]]], [[[21], [22]]]],
)
E8 = replace(
    E1,
    hosts=[[0, 1], [1], [], [0]],
    chosen=[[[[0, 0], [2, __]]], [[[1, 2], [3, 0]]]],
    metadata=[[[[[0, 0], [2, __]], [[1, 2], [3, 0]]]]] * 2,
    tokens=[[[[11, 0], [0, 22]]], [[[11, 0], [21, 22]]]],
    present=[[1, 0, 0, 1], [1, 0, 1, 1]],
    rows_to=[[1, 1], [1, 2]],
    results=[[[[11, ANY], [ANY, 22]], [[ANY, ANY], [ANY, 88]]], [[[11, ANY], [ANY, 22]], [[ANY, ANY], [42, ANY]]]],
    output=[[[[11, 0]], [[0, 0]]], [[[42, 88]], [[0, 22]]]],
)
E9 = replace(
    E8,
    options={"replica": "round_robin"},
    tokens=[[[[11, 0], [0, 22]]], [[[0, 0], [21, 22]]]],
    present=[[1, 0, 0, 1], [0, 0, 1, 1]],
    rows_to=[[1, 0], [1, 2]],
    results=[[[[11, ANY], [ANY, ANY]], [[ANY, ANY], [ANY, 88]]], [[[ANY, ANY], [ANY, 22]], [[ANY, ANY], [42, ANY]]]],
)
EXAMPLES = {
    "E1 and E2": E1,
    "E3": E3,
    "E4": E4,
    "E6": E6,
    "E7 flat": E7_FLAT,
    "E8": E8,
    "E9 in turn": E9,
    "E9 local": replace(E9, options={"replica": "local", "node_size": 1}),
}
