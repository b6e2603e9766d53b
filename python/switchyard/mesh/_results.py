"""Results of the two operators of a mesh."""

from __future__ import annotations

from typing import Generic, TypeVar

from typing_extensions import NamedTuple

T = TypeVar("T")  # an array, or a tuple with one for each device


class AllToAllDispatch(NamedTuple, Generic[T]):
    """Results of ``all_to_all_dispatch``: arrays, or on a local mesh tuples with one array for each device.

    plane_tokens: for each plane what `tokens` is for the input.
    scale_tokens: for the scales what `tokens` is for the codes, with row_format.
    """

    tokens: T
    metadata: T | None = None
    plane_tokens: tuple[T, ...] = ()
    present: T | None = None
    src: T | None = None
    expert_counts: T | None = None
    expert_offsets: T | None = None
    rows_from: T | None = None
    rows_to: T | None = None
    scale_tokens: T | None = None


class AllToAllCombine(NamedTuple, Generic[T]):
    """Results of ``all_to_all_combine``: arrays, or on a local mesh tuples with one array for each device.

    output_scales: for the scales what `output` is for the codes, with row_format; not with sum.
    """

    output: T
    written: T | None = None
    output_scales: T | None = None
