"""The paged cache: every position translated by itself, in Python's integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .arith import Array, widen
from .kv_format import FORMATS, Format, group_scale, pack_row, quantise, unpack_codes, unpack_row
from .moe_rows import Outputs, reject_unless


class Pages:
    """A block table, or lists of pages: which block holds block q of sequence r."""

    def __init__(
        self,
        block_size: int,
        block_table: Array | None = None,
        page_indices: Array | None = None,
        indptr: Array | None = None,
        last_page_len: Array | None = None,
    ) -> None:
        self.s = block_size
        if block_table is not None:
            self.blocks = np.atleast_2d(block_table).tolist()
            self.tokens = [len(row) * block_size for row in self.blocks]
            return
        assert page_indices is not None and indptr is not None
        ends = indptr.tolist()
        reject_unless(all(0 <= e <= len(page_indices) for e in ends), "INDEX")
        reject_unless(all(a <= b for a, b in itertools.pairwise(ends)), "INDEX")
        self.blocks = [page_indices[a:b].tolist() for a, b in itertools.pairwise(ends)]
        self.tokens = [len(row) * block_size for row in self.blocks]
        if last_page_len is not None:
            for r, row in enumerate(self.blocks):
                if row:
                    last = int(last_page_len[r])
                    reject_unless(1 <= last <= block_size, "INDEX")
                    self.tokens[r] += last - block_size

    def row(self, r: int, t: int, length: int, n_rows: int) -> int:
        """The cache row of token t of sequence r, which has `length` tokens; everything is validated."""
        reject_unless(0 <= t < length and t // self.s < len(self.blocks[r]), "INDEX")
        block: int = self.blocks[r][t // self.s]
        slot = block * self.s + t % self.s
        reject_unless(block >= 0 and slot < n_rows, "INDEX")
        return slot


def translate(
    indices: Array,
    pages: Pages,
    n_rows: int,
    pad: str,
    req_id: Array | None,
    counts: Array | None,
    seq_lens: Array | None,
    share: tuple[int, int, int] = (1, 0, 1),
) -> list[list[int]]:
    """Per index row the cache rows, -1 for padding."""
    k = indices.shape[-1]
    rows = indices.reshape(-1, k).tolist() if k else [[]] * int(np.prod(indices.shape[:-1]))
    if k == 0:
        return rows
    for b in range(len(rows)):
        reject_unless(counts is None or 0 <= int(counts[b]) <= k, "INDEX")
        reject_unless(seq_lens is None or int(seq_lens[b]) >= 0, "INDEX")
        reject_unless(req_id is None or 0 <= int(req_id[b]) < len(pages.blocks), "INDEX")
    slots = []
    for b, row in enumerate(rows):
        r = b if req_id is None else int(req_id[b])
        length = pages.tokens[r] if seq_lens is None else int(seq_lens[b])
        live = k if counts is None else int(counts[b])
        found = []
        for j, t in enumerate(row):
            if j >= live or (t == -1 and pad != "error"):
                found.append(-1)
                continue
            world, rank, run = share
            owner, own = t // run % world, t // (world * run) * run + t % run
            reject_unless(t >= 0 and (world == 1 or seq_lens is None or t < length), "INDEX")
            bound = length if world == 1 or seq_lens is None else own + 1
            found.append(pages.row(r, own, bound, n_rows) if owner == rank else -1)
        slots.append(found)
    return slots


# ---- Caches ----


def rows_of(cache: Array, layout: str, fmt: Format | None, block_size: int) -> int:
    if fmt is not None and fmt.scales == "block":
        return int(cache.shape[0]) * block_size
    if cache.ndim == 2:
        return int(cache.shape[0])
    return int(cache.shape[0] * cache.shape[2 if layout == "hnd" else 1])


def view_row(cache: Array, slot: int, layout: str) -> Array:
    s = 1 if cache.ndim == 2 else cache.shape[2 if layout == "hnd" else 1]
    block: Array = cache[slot // s]
    row: Array = block if cache.ndim == 2 else block[:, slot % s] if layout == "hnd" else block[slot % s]
    return row


def scale_row(scale: Array, slot: int) -> Array:
    row: Array = scale if scale.ndim == 1 else scale.reshape(-1, scale.shape[-1])[slot]
    return row


def packed_parts(cache: Array, slot: int, fmt: Format, block_size: int) -> tuple[Array, Array | None]:
    """Views of the bytes of a packed row, and of its scale record."""
    if fmt.scales == "row":
        return view_row(cache, slot, "nhd").view(np.uint8)[: fmt.row_bytes], None
    block = cache[slot // block_size].reshape(-1).view(np.uint8)
    i = slot % block_size
    records = block_size * fmt.row_bytes
    return block[i * fmt.row_bytes : (i + 1) * fmt.row_bytes], block[
        records + i * fmt.scale_bytes : records + (i + 1) * fmt.scale_bytes
    ]


def read_row(
    cache: Array, slot: int, layout: str, fmt: Format | None, scale: Array | None, block_size: int, dtype: Any
) -> Array:
    if fmt is None:
        return view_row(cache, slot, layout)
    if fmt.scales == "tensor":
        row = view_row(cache, slot, layout)
        assert scale is not None
        codes = np.ascontiguousarray(row).reshape(-1)
        numbers: Array = unpack_codes(codes, scale_row(scale, slot), fmt.q_type, dtype)
        return np.asarray(numbers.reshape(row.shape))
    row, record = packed_parts(cache, slot, fmt, block_size)
    return unpack_row(row, record, fmt, dtype)


def kv_gather(
    cache: Array,
    indices: Array,
    block_table: Array | None = None,
    req_id: Array | None = None,
    counts: Array | None = None,
    seq_lens: Array | None = None,
    *,
    block_size: int,
    pad: str = "error",
    layout: str = "nhd",
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    format: str | None = None,
    scale: Array | None = None,
    out: Array,
) -> Outputs:
    """`out` is what the output held before."""
    reject_unless(block_size >= 1, "VALUE")
    result = out.copy()
    if indices.size == 0:
        return {"out": result}
    fmt = None if format is None else FORMATS[format]
    pages = Pages(block_size, block_table, page_indices, indptr, last_page_len)
    slots = translate(indices, pages, rows_of(cache, layout, fmt, block_size), pad, req_id, counts, seq_lens)
    flat = result.reshape(-1, *out.shape[indices.ndim :])
    for i, slot in enumerate(slot for row in slots for slot in row):
        if slot >= 0:
            flat[i] = read_row(cache, slot, layout, fmt, scale, block_size, out.dtype)
        elif pad != "skip":
            flat[i] = np.zeros((), out.dtype)
    return {"out": flat.reshape(out.shape)}


def slot_limit(num_rows: int, dtype: Any, block_size: int) -> int:
    if num_rows:
        return num_rows
    return 2**31 if dtype == np.int32 else 2**63 // block_size * block_size


def kv_translate(
    indices: Array,
    block_table: Array | None = None,
    req_id: Array | None = None,
    counts: Array | None = None,
    seq_lens: Array | None = None,
    *,
    block_size: int,
    num_rows: int = 0,
    pad: str = "error",
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    world: int = 0,
    rank: int = 0,
    interleave: int = 0,
    dtype: Any,
) -> Outputs:
    """`dtype` is the type of slots, and valid."""
    reject_unless(world >= 0 and 0 <= rank < max(world, 1) and interleave >= 0, "VALUE")
    share = (max(world, 1), rank, max(interleave, 1))
    reject_unless(block_size >= 1 and 0 <= num_rows <= (2**31 if dtype == np.int32 else 2**63), "VALUE")
    rows = int(np.prod(indices.shape[:-1]))
    slots: list[list[int]] = [[] for _ in range(rows)]
    if indices.size:
        pages = Pages(block_size, block_table, page_indices, indptr, last_page_len)
        limit = slot_limit(num_rows, dtype, block_size)
        slots = translate(indices, pages, limit, pad, req_id, counts, seq_lens, share)
    valid = [sum(slot >= 0 for slot in row) for row in slots]
    return {
        "slots": np.array([slot for row in slots for slot in row], dtype).reshape(indices.shape),
        "valid": np.array(valid, dtype),
    }


def kv_slots(
    batch: Array | None,
    position: Array,
    block_table: Array | None = None,
    *,
    block_size: int,
    num_rows: int = 0,
    pad: str = "error",
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    dtype: Any,
) -> Outputs:
    reject_unless(block_size >= 1 and 0 <= num_rows <= (2**31 if dtype == np.int32 else 2**63), "VALUE")
    slots = []
    if position.size:
        pages = Pages(block_size, block_table, page_indices, indptr, last_page_len)
        limit = slot_limit(num_rows, dtype, block_size)
        sequence = [0] * position.size if batch is None else batch.reshape(-1).tolist()
        for r, t in zip(sequence, position.reshape(-1).tolist(), strict=True):
            reject_unless(0 <= r < len(pages.blocks), "INDEX")
            slots.append(-1 if t == -1 and pad != "error" else pages.row(r, t, pages.tokens[r], limit))
    return {"slots": np.array(slots, dtype).reshape(position.shape)}


def kv_scatter(
    cache: Array,
    src: Array,
    slots: Array,
    *,
    pad: str = "error",
    check_unique: bool = False,
    layout: str = "nhd",
    format: str | None = None,
    scale: Array | None = None,
    block_size: int = 0,
) -> Outputs:
    reject_unless(pad != "zero" and block_size >= 0, "VALUE")
    fmt = None if format is None else FORMATS[format]
    result, scales = cache.copy(), None if scale is None else scale.copy()
    n_rows = rows_of(cache, layout, fmt, block_size)
    named = slots.reshape(-1).tolist()
    for i, slot in enumerate(named):
        reject_unless(0 <= slot < n_rows or (slot == -1 and pad == "skip"), "INDEX")
        reject_unless(not check_unique or slot == -1 or slot not in named[:i], "INDEX")
    flat = src.reshape(len(named), *src.shape[slots.ndim :]) if named else src
    for i, slot in enumerate(named):
        if slot >= 0:
            write_row(result, slot, flat[i], layout, fmt, scales, block_size)
    return {"cache": result, "scale": scales}


def write_row(
    cache: Array, slot: int, src: Array, layout: str, fmt: Format | None, scale: Array | None, block_size: int
) -> None:
    if fmt is None:
        view_row(cache, slot, layout)[...] = src
    elif fmt.scales == "tensor":
        assert scale is not None
        x = widen(src).reshape(-1)
        groups = np.split(x, scale.shape[-1])
        codes = []
        for g, part in enumerate(groups):
            if scale.ndim > 1:
                scale_row(scale, slot)[g] = group_scale(part, fmt)[0]
            codes.append(quantise(part, scale_row(scale, slot)[g], fmt.q_type))
        view_row(cache, slot, layout)[...] = np.concatenate(codes).view(cache.dtype).reshape(src.shape)
    else:
        row, record = packed_parts(cache, slot, fmt, block_size)
        packed, packed_record = pack_row(src, fmt)
        row[...] = packed
        if record is not None:
            record[...] = packed_record


def kv_ragged(
    cache: Array,
    block_table: Array | None,
    cu_lens: Array,
    starts: Array | None = None,
    req_id: Array | None = None,
    seq_lens: Array | None = None,
    *,
    block_size: int,
    layout: str = "nhd",
    page_indices: Array | None = None,
    indptr: Array | None = None,
    last_page_len: Array | None = None,
    format: str | None = None,
    scale: Array | None = None,
    out: Array,
) -> Outputs:
    """`out` is what the output held before."""
    reject_unless(block_size >= 1, "VALUE")
    fmt = None if format is None else FORMATS[format]
    ends = cu_lens.tolist()
    reject_unless(ends[0] == 0 and all(a <= b for a, b in itertools.pairwise(ends)) and ends[-1] <= len(out), "INDEX")
    pages = Pages(block_size, block_table, page_indices, indptr, last_page_len)
    reject_unless(req_id is None or all(0 <= r < len(pages.blocks) for r in req_id.tolist()), "INDEX")
    reject_unless(seq_lens is None or all(n >= 0 for n in seq_lens.tolist()), "INDEX")
    n_rows = rows_of(cache, layout, fmt, block_size)
    result = out.copy()
    for b, (begin, end) in enumerate(itertools.pairwise(ends)):
        r = b if req_id is None else int(req_id[b])
        for i in range(begin, end):
            t = (0 if starts is None else int(starts[b])) + i - begin
            slot = pages.row(r, t, pages.tokens[r] if seq_lens is None else int(seq_lens[b]), n_rows)
            result[i] = read_row(cache, slot, layout, fmt, scale, block_size, out.dtype)
    return {"out": result}


def kv_blocks(
    cache: Array | None = None,
    src: Array | None = None,
    dst: Array | None = None,
    pairs: Array | None = None,
    *,
    block_size: int = 0,
) -> Outputs:
    assert pairs is not None
    reject_unless(cache is not None or (src is not None and dst is not None), "NULL")
    reject_unless(cache is None or (src is None and dst is None), "VALUE")

    def blocks(x: Array) -> Array:
        if x.ndim > 2:
            return x.reshape(x.shape[0], -1)
        reject_unless(block_size >= 1, "VALUE")
        reject_unless(len(x) % block_size == 0, "SHAPE")
        return x.reshape(len(x) // block_size, -1)

    target = (cache if cache is not None else dst).copy()  # type: ignore[union-attr]
    source = cache if cache is not None else src
    assert source is not None
    from_blocks, to_blocks = blocks(source), blocks(target)
    reads: set[int] = set()
    writes: set[int] = set()
    for s, d in pairs.tolist():
        reject_unless(0 <= s < len(from_blocks) and 0 <= d < len(to_blocks), "INDEX")
        if cache is not None and s == d:
            continue
        reject_unless(d not in writes, "INDEX")
        reject_unless(cache is None or (s not in writes and d not in reads), "INDEX")
        reads.add(s)
        writes.add(d)
        to_blocks[d] = from_blocks[s]
    return {"cache" if cache is not None else "dst": to_blocks.reshape(target.shape)}
