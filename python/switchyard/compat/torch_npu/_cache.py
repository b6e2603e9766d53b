"""Paged key and value caches, in the layouts "Norm" and "PA_NZ"."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

import switchyard.torch as ours

from ._rejections import P, none, only, own_words

# Names of the arguments of operators here.
SCATTER = {"cache": "key_cache", "src": "key", "slots": "slot_mapping"}
SCATTER |= {"cache of plane 1": "value_cache", "src of plane 1": "value"}
GATHER = {
    "cache": "key_cache",
    "out": "key",
    "block_table": "block_tables",
    "cu_lens": "seq_lens",
    "starts": "seq_offset",
}
GATHER |= {"cache of plane 1": "value_cache", "out of plane 1": "value"}


def _functional(
    write: Callable[P, None], copied: Callable[[Tensor], Tensor], *fields: str
) -> Callable[P, tuple[Tensor, Tensor]]:
    """A function that writes into copies of two arguments, and returns them."""
    signature = inspect.signature(write)

    def call(*args: P.args, **kwargs: P.kwargs) -> tuple[Tensor, Tensor]:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{call.__name__}() {error}") from None
        first, second = (copied(given.arguments[field]) for field in fields)
        given.arguments.update(zip(fields, (first, second), strict=True))
        write(*given.args, **given.kwargs)
        return first, second

    call.__name__ = call.__qualname__ = f"{write.__name__}_functional"
    call.__doc__, call.__module__ = f"The same in copies of {' and '.join(fields)}.", __name__
    call.__annotations__ = {**write.__annotations__, "return": "tuple[Tensor, Tensor]"}
    call.__signature__ = signature.replace(return_annotation="tuple[Tensor, Tensor]")  # type: ignore[attr-defined]
    return call


@own_words(SCATTER)
def npu_scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    compress_lens: Tensor | None = None,
    compress_seq_offsets: Tensor | None = None,
    seq_lens: Tensor | None = None,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Write the keys and values of tokens to their slots, in place; slot -1 is left out: see kv_scatter."""
    name = "npu_scatter_pa_kv_cache"
    none(name, "", compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    only(name, "cache_mode", cache_mode, None, "Norm", "PA_NZ")
    rows = [_row_view(a.contiguous(), b, cache_mode) for a, b in ((key, key_cache), (value, value_cache))]
    ours.kv_scatter((key_cache, value_cache), rows, slot_mapping, pad="skip", layout=_layout(cache_mode))


npu_scatter_pa_kv_cache_functional = own_words(SCATTER)(
    _functional(npu_scatter_pa_kv_cache, lambda cache: cache.contiguous().clone(), "key_cache", "value_cache")
)


@own_words(GATHER)
def npu_gather_pa_kv_cache(
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    seq_offset: Tensor | None = None,
    is_seq_lens_cumsum: bool = False,
    cache_mode: str = "Norm",
) -> None:
    """Copy the keys and values of whole sequences to consecutive rows of key and value: see kv_ragged.

    A sequence begins with the block of its seq_offset. cache_mode is an addition: the vendor's tensors have a format.
    """
    only("npu_gather_pa_kv_cache", "cache_mode", cache_mode, "Norm", "PA_NZ")
    block_size = key_cache.shape[2 if cache_mode == "PA_NZ" else 1]
    ends = seq_lens if is_seq_lens_cumsum else torch.cat((seq_lens.new_zeros(1), seq_lens.cumsum(0)))
    starts = None if seq_offset is None or not block_size else seq_offset // block_size * block_size
    ours.kv_ragged(
        (key_cache, value_cache),
        ends.to(seq_lens.dtype),
        block_tables,
        starts,
        block_size=block_size,
        layout=_layout(cache_mode),
        out=(_row_view(key, key_cache, cache_mode), _row_view(value, value_cache, cache_mode)),
    )


npu_gather_pa_kv_cache_functional = own_words(GATHER)(_functional(npu_gather_pa_kv_cache, torch.clone, "key", "value"))


def _layout(cache_mode: str | None) -> Literal["nhd", "hnd"]:
    """PA_NZ is [blocks, pieces, S, 16]: the order of a cache with heads before tokens, and pieces for heads."""
    return "hnd" if cache_mode == "PA_NZ" else "nhd"


def _row_view(rows: Tensor, cache: Tensor, cache_mode: str | None) -> Tensor:
    """Rows in the pieces of a PA_NZ cache, in the same memory; others as they are, for the operator to reject."""
    if cache_mode != "PA_NZ" or cache.dim() != 4 or rows.dim() != 3 or not rows.is_contiguous():
        return rows
    pieces, left = divmod(rows.shape[1] * rows.shape[2], max(cache.shape[3], 1))
    return rows if left else rows.view(rows.shape[0], pieces, cache.shape[3])
