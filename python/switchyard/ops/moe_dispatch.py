from __future__ import annotations

from typing import overload

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words
from .._row_formats import groups, has_scales, input_type, moved_scale_type


class MoeDispatch(NamedTuple, Generic[A]):
    """Results of :func:`moe_dispatch` with a row_format."""

    dispatch: A
    dispatch_scales: A | None = None


operator = Operator(
    "moe_dispatch",
    MoeDispatch,
    flows="gates input",
    extents={"G": groups},
    types={"dispatch": input_type, "dispatch_scales": moved_scale_type},
    when={"dispatch_scales": has_scales},
)


@overload
def moe_dispatch(
    indices: Array,
    locations: Array,
    input: A,
    gates: Array | None = None,
    *,
    num_experts: int,
    capacity: int,
    zero_unwritten: bool = False,
    unique_slots: bool = False,
    row_format: None = None,
    out: A | None = None,
) -> A: ...


@overload
def moe_dispatch(
    indices: Array,
    locations: Array,
    input: A,
    gates: Array | None = None,
    *,
    num_experts: int,
    capacity: int,
    zero_unwritten: bool = False,
    unique_slots: bool = False,
    row_format: _words.MoeDispatchRowFormat,
    out: MoeDispatch[Any] | None = None,
) -> MoeDispatch[A]: ...


def moe_dispatch(
    indices: Array,
    locations: Array,
    input: A,
    gates: Array | None = None,
    *,
    num_experts: int,
    capacity: int,
    zero_unwritten: bool = False,
    unique_slots: bool = False,
    row_format: _words.MoeDispatchRowFormat | None = None,
    out: Any = None,
) -> Any:
    """Write each sample's row, times its gate, into the slot the router chose for it.

    Slot ``locations[i]`` of expert ``indices[i]`` is row ``indices[i] * capacity + locations[i]``. A sample whose
    expert or slot does not exist is skipped; of several samples on one slot the last wins. Rows that are not
    written are zero in a new array and keep their values in ``out``. :func:`moe_locations` makes the locations.

    Args:
        unique_slots: a promise that no two samples share a slot, which saves a table. If two do, their row is
            unspecified.
        out: [E*C, H], an array to write to, instead of a new one; ``input`` itself is possible. With row_format both
            arrays.

    Returns:
        [E*C, H], of the type of ``input``. With row_format a :class:`MoeDispatch`:
        dispatch: [E*C, H] uint8 or int8: codes of the rows.
        dispatch_scales: [E*C, G] float32 or uint8: their scales.

    >>> import numpy as np, switchyard
    >>> indices, locations = np.array([[1, 0, 1, 0], [0, 0, 1, 2]], np.int32)
    >>> rows = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    >>> gates = np.array([0.5, 2, 1, -1], np.float32)
    >>> switchyard.moe_dispatch(indices, locations, rows, gates, num_experts=2, capacity=3)
    array([[ 6. ,  8. ],
           [ 0. ,  0. ],
           [-7. , -8. ],
           [ 0.5,  1. ],
           [ 5. ,  6. ],
           [ 0. ,  0. ]], dtype=float32)
    """
    given = (gates, indices, locations, input, num_experts, capacity, zero_unwritten, unique_slots, row_format)
    if row_format is not None:
        return operator(given, out)
    return operator(given, None if out is None else MoeDispatch(out))[0]
