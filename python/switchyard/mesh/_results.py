"""Results of the two operators of a mesh."""

from __future__ import annotations

from typing import Generic, TypeVar

from typing_extensions import NamedTuple

T = TypeVar("T")  # an array, or a tuple with one for each device


class AllToAllDispatch(NamedTuple, Generic[T]):
    """Results of ``all_to_all_dispatch``: arrays, or on a local mesh tuples with one array for each device."""

    tokens: T
    """[1, B*G, S, H], [1, B, S*G, H] or [T, H]: a row for every token of the group; packed and expert: rows sent."""
    metadata: T | None = None
    """The same with K: the choices of every token of the group."""
    plane_tokens: tuple[T, ...] = ()
    """For each plane what `tokens` is for the input."""
    present: T | None = None
    """[T] bool: where a row was sent; padded."""
    src: T | None = None
    """[R, 2] int32 (position, token), packed; [R, 3] (position, token, slot), expert; -1 for padding."""
    expert_counts: T | None = None
    """[L] int64: tokens of each expert of the device."""
    expert_offsets: T | None = None
    """[L+1] int64: first row of each expert, and the end; expert."""
    rows_from: T | None = None
    """[G] int64: rows that came from each position."""
    rows_to: T | None = None
    """[G] int64: rows that went to each position."""
    scale_tokens: T | None = None
    """For the scales what `tokens` is for the codes, with row_format."""


class AllToAllCombine(NamedTuple, Generic[T]):
    """Results of ``all_to_all_combine``: arrays, or on a local mesh tuples with one array for each device."""

    output: T
    """[K, B, S, H] or [K, N, H]: a row for every slot; with sum [B, 1, S, H] or [N, H]."""
    written: T | None = None
    """[K, N] bool: where a row came; not with sum."""
    output_scales: T | None = None
    """For the scales what `output` is for the codes, with row_format; not with sum."""
