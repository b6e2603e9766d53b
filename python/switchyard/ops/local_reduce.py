from __future__ import annotations

import math

from .._caches import row_type
from .._declare import A, Any, Array, Operator, _words


def _shape(input: Any, expert_metadata: Any, layout: str) -> tuple[Any, ...]:
    """How many rows there are with layout "expert", the choices tell: room for all tokens."""
    lead = tuple(expert_metadata.shape[:-1])
    return (*lead, input.shape[-1]) if layout == "padded" else (math.prod(lead), input.shape[-1])


def _type(xp: Any, input: Any, row_format: str | None) -> Any:
    return row_type(xp, "local_reduce", input, row_format, None)


operator = Operator(
    "local_reduce",
    tuple,
    flows="input weights",
    shapes={"output": _shape},
    types={"output": _type},
    zeros={"output": {"layout": "expert", "fill": "keep"}},
)


@operator.function
def local_reduce(
    input: A,
    expert_metadata: Array,
    expert_mapping: Array,
    weights: Array | None = None,
    input_scales: Array | None = None,
    *,
    device: int = 0,
    fill: _words.LocalReduceFill = "zero",
    layout: _words.LocalReduceLayout = "padded",
    align: int = 1,
    output_concat_dim: int = 0,
    order: _words.LocalReduceOrder = "concat",
    group_size: int = 0,
    replica: _words.LocalReduceReplica = "all",
    node_size: int = 0,
    group_stride: int = 1,
    row_format: _words.LocalReduceRowFormat | None = None,
    expert_rows: int = 0,
    out: Any = None,
) -> A:
    """Add up each token's rows of the experts of one device, before they are sent back.

    Each token gets the sum of the rows of those of its experts that the device hosts, each times its weight: the input
    of an all-to-all combine with local_reduce.

    Args:
        fill: rows of tokens that choose none of the experts become "zero", or "keep" their contents in ``out`` (zero,
            without ``out``).
        layout: "padded", a row for every token; or "expert", where the result has a row for each token that was
            received, then rows that are not written (zero, without ``out``).
        output_concat_dim: with "expert" or replica: as in the dispatch, 1 or 2. 0: 1, but for expert_metadata of four
            dimensions with "padded" and a replica other than "all" and "first", which need it.
        group_size: with "expert" or replica, output_concat_dim 2 and "concat": positions that share a batch row; with
            any replica: devices of a group; 0: all.
        group_stride: with replica: from device to device of a group: 1 for a row of a mesh, its cols for a column.

    Returns:
        The sums of the tokens, of the type of ``input``; with row_format bfloat16, float32 in libraries without it, or
        the type of ``out``.

    >>> import numpy as np, switchyard
    >>> choices = np.array([[0, 2], [1, 0], [3, 2], [2, 0]])
    >>> hosts = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)
    >>> rows = np.array([[[11], [12], [0], [22]], [[0], [24], [0], [0]]], np.float32)
    >>> switchyard.local_reduce(rows, choices, hosts, device=0).ravel()
    array([11., 36.,  0., 22.], dtype=float32)
    """
