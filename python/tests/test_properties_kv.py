"""Random calls of the paged cache's operators against their oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, Spec, run_property
from oracle import kv
from oracle.kv_format import FORMATS
from reader import ANY_TYPES, BF16, F16, F32, I32, I64, Array, Reader, ml_dtypes

FLOATS = (BF16, F16, F32)
INDEX = (I32, I64)
BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
CODES = {
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int8": np.dtype(np.int8),
}


class Cache:
    """A cache of some shape, plain or packed, its rows, and what unpacked rows look like."""

    def __init__(self, r: Reader, s: int) -> None:
        self.blocks, self.layout = r.between(1, 5), "nhd"
        self.format: str | None = None
        self.scale: Array | None = None
        self.row: tuple[int, ...]
        self.rows = self.blocks * s
        if r.chance(25):
            self.pack(r, s)
            return
        dtype = r.pick(*ANY_TYPES)
        kind = r.below(4)
        row: tuple[int, ...] = r.pick((3,), (1,), (9,), (2, 3), (2, 1, 2))
        if kind == 0:
            self.rows = max(self.rows - r.below(s), 1)
            row = row[:1]
            shape: tuple[int, ...] = (self.rows, *row)
        elif kind == 1 and len(row) > 1:
            self.layout = "hnd"
            shape = (self.blocks, row[0], s, *row[1:])
        else:
            shape = (self.blocks, s, *row)
        self.array = r.bits(shape, dtype)
        self.row, self.dtype = row, dtype

    def pack(self, r: Reader, s: int) -> None:
        self.format = name = r.pick(*FORMATS)
        fmt = FORMATS[name]
        self.dtype = r.pick(*FLOATS)
        if fmt.scales == "tensor":
            self.row = r.pick((4,), (2, 4), (8,))
            flat = len(self.row) == 1 and r.chance(50)
            self.array = r.bits((self.rows, *self.row) if flat else (self.blocks, s, *self.row), CODES[name])
            groups = r.pick(1, 2)
            own = (self.rows, groups) if flat else (self.blocks, s, groups)
            self.scale = r.floats(r.pick((groups,), own), F32, r.pick("plain", "wild"))
            return
        self.blocks = min(self.blocks, 2)
        self.rows = self.blocks * s
        self.row = (fmt.unpacked,)
        width = (
            fmt.row_bytes + (0 if fmt.scale_type == "f16" else r.below(2))
            if fmt.scales == "row"
            else s * (fmt.row_bytes + fmt.scale_bytes) + r.below(3)
        )
        shape: tuple[int, ...] = (self.blocks, width)
        if fmt.scales == "row":
            shape = r.pick((self.rows, width), (self.blocks, s, width))
        self.array = r.bits(shape, r.pick(*BYTES))

    def inputs(self) -> dict[str, Any]:
        return {"cache": self.array, "scale": self.scale}

    def fields(self) -> dict[str, Any]:
        return {"layout": self.layout, "format": self.format}

    def asked(self, r: Reader) -> dict[str, Any]:
        """The type of unpacked rows, which is bfloat16 unless the call says so."""
        return {"dtype": self.dtype.name} if self.format and (self.dtype != BF16 or r.chance(50)) else {}

    @property
    def plain(self) -> tuple[str, ...]:
        """Blocks of packed rows lie in one piece, and so do the scales here."""
        return ("cache", "scale") if self.format else ("scale",)


def pages(r: Reader, s: int, blocks: int, sequences: int) -> tuple[dict[str, Any], list[int]]:
    """A table, or lists of pages; and how many tokens each sequence has."""
    if r.chance(65):
        n = r.below(5)
        table = r.spoil(r.ints(0, blocks - 1, (sequences, n), r.pick(*INDEX)), 8, (-1, blocks, 1073741825, 2**62))
        return {"block_table": table[0] if sequences == 1 and r.chance(50) else table}, [n * s] * sequences
    lengths = r.ints(0, 3, (sequences,))
    first = r.below(3)
    indptr = np.concatenate([[first], first + np.cumsum(lengths)]).astype(r.pick(*INDEX))
    indices = r.spoil(r.ints(0, blocks - 1, (int(indptr[-1]) + r.below(3),), r.pick(*INDEX)), 5, (-1, blocks))
    found: dict[str, Any] = {"page_indices": indices, "indptr": r.spoil(indptr, 3, (-1, 100, 0, 2**31 - 1))}
    tokens = lengths * s
    if r.chance(50):
        last = r.ints(1, s, (sequences,), r.pick(*INDEX))
        tokens = np.where(lengths > 0, tokens + last - s, 0)
        found["last_page_len"] = r.spoil(last, 3, (0, s + 1, -1))
    return found, tokens.tolist()


def queries(r: Reader, s: int, blocks: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Indices into sequences, and everything that comes with them."""
    lead, k = r.pick((), (2,), (1,), (3,), (2, 2), (0,)), r.below(6)
    b = int(np.prod(lead))
    with_req = r.chance(30)
    sequences = r.between(1, 3) if with_req else b
    found, tokens = pages(r, s, blocks, sequences)
    req_id = r.ints(0, sequences - 1, (b,), r.pick(*INDEX)) if with_req else None
    own = [tokens[int(req_id[i])] if req_id is not None else tokens[i] for i in range(b)]
    pad = r.pick("error", "zero", "skip", "error")
    low = -1 if pad != "error" and r.chance(60) else 0
    rows = [r.ints(low, max(own[i] - 1, 0), (k,)) if own[i] else np.full(k, -1) for i in range(b)]
    indices = np.array(rows, np.int64).reshape((*lead, k)).astype(r.pick(*INDEX))
    inputs = {"indices": r.spoil(indices, 6, (-1, -2, 4294967299, 2**62, 12)), **found}
    inputs["req_id"] = None if req_id is None else r.spoil(req_id, 5, (-1, sequences, 2**32))
    if r.chance(30):
        inputs["counts"] = r.spoil(r.ints(0, k, (b,), r.pick(*INDEX)), 5, (-1, k + 1, 2**32))
    if r.chance(30) and "last_page_len" not in found:
        inputs["seq_lens"] = r.spoil(r.ints(0, 16, (b,), r.pick(*INDEX)), 5, (-1, 2**62))
        if r.chance(50):
            inputs["seq_lens"] = np.maximum(inputs["seq_lens"], np.array(own, np.int64)).astype(
                inputs["seq_lens"].dtype
            )
    return inputs, {"block_size": r.pick(0, -1) if r.chance(2) else s, "pad": pad}


def gather(r: Reader) -> Case:
    s = r.between(1, 4)
    cache = Cache(r, s)
    inputs, fields = queries(r, s, cache.blocks)
    shape = (*inputs["indices"].shape, *cache.row)
    out = r.bits(shape, cache.dtype)
    return Case(
        cache.inputs() | inputs,
        cache.fields() | fields,
        {"out": (shape, cache.dtype)},
        held={"out": out},
        hints={"out": out},
        fresh={"out": np.zeros_like(out)},
        asked=cache.asked(r),
        untyped=("cache",),
        plain=(*cache.plain, "indices", "out"),
    )


def test_kv_gather() -> None:
    run_property("kv_gather", kv.kv_gather, gather)


def translate(r: Reader) -> Case:
    s, blocks = r.between(1, 4), r.between(1, 5)
    inputs, fields = queries(r, s, blocks)
    fields["num_rows"] = r.pick(0, blocks * s, blocks * s - r.below(s), 2**31)
    if r.chance(2):
        fields["num_rows"] = -1
    if r.chance(40):  # tokens of all ranks: as many times those of this one
        world = r.between(0, 3)
        fields |= {"world": world, "rank": r.below(max(world, 1)), "interleave": r.below(4)}
        inputs["indices"] = np.where(inputs["indices"] < 0, inputs["indices"], inputs["indices"] * max(world, 1))
        if r.chance(4):
            fields |= {"world": r.pick(-1, world), "rank": r.pick(-1, world, 3)}
    dtype = r.pick(*INDEX)
    shape = inputs["indices"].shape
    outs: dict[str, Spec] = {"slots": (shape, dtype), "valid": ((int(np.prod(shape[:-1])),), dtype)}
    return Case(
        inputs,
        fields,
        outs,
        plain=("indices", "slots"),
        hints={"dtype": dtype},
        only_out=dtype != inputs["indices"].dtype,
    )


def test_kv_translate() -> None:
    run_property("kv_translate", kv.kv_translate, translate)


def slots(r: Reader) -> Case:
    s, blocks, sequences = r.between(1, 4), r.between(1, 5), r.between(1, 3)
    shape = r.pick((4,), (7,), (0,), (2, 3), (1,), (1, 2, 2))
    found, tokens = pages(r, s, blocks, sequences)
    batch = r.ints(0, sequences - 1, shape, r.pick(*INDEX)) if sequences > 1 or r.chance(50) else None
    pad = r.pick("error", "skip", "zero", "error")
    position = r.ints(-1 if pad != "error" and r.chance(60) else 0, max(min(tokens) - 1, 0), shape, r.pick(*INDEX))
    if min(tokens) == 0:
        position = np.full(shape, -1, I64)
    position = r.spoil(np.asarray(position), 8, (-1, -2, 4294967299, 13))
    inputs = {
        "batch": None if batch is None else r.spoil(batch, 6, (-1, sequences, 2**32)),
        "position": position,
        **found,
    }
    fields = {
        "block_size": r.pick(0, -1) if r.chance(2) else s,
        "num_rows": -1 if r.chance(2) else r.pick(0, blocks * s, blocks * s - r.below(s)),
        "pad": pad,
    }
    dtype = r.pick(*INDEX)
    return Case(
        inputs,
        fields,
        {"slots": (shape, dtype)},
        plain=("batch", "position", "slots"),
        hints={"dtype": dtype},
        only_out=dtype != position.dtype,
    )


def test_kv_slots() -> None:
    run_property("kv_slots", kv.kv_slots, slots)


def scatter(r: Reader) -> Case:
    s = r.between(1, 4)
    cache = Cache(r, s)
    shape = r.pick((3,), (5,), (0,), (2, 2), (1,))
    n = int(np.prod(shape))
    order = np.argsort(r.ints(0, 255, (cache.rows,)), kind="stable")
    named = np.resize(order, n) if n <= cache.rows else order[np.minimum(np.arange(n), cache.rows - 1)]
    pad = r.pick("error", "skip", "skip")
    check_unique = r.chance(40)
    dtype = r.pick(*INDEX)
    wanted = named.astype(dtype)
    if pad == "skip":
        wanted = np.where(r.ints(0, 3, (n,)) == 0, -1, wanted).astype(dtype)
    live = wanted[wanted >= 0]
    if len(set(live.tolist())) < len(live):
        check_unique = True  # without it the row would be anybody's
    wanted = r.spoil(wanted, 8, (-1, -2, cache.rows, 2**32))
    if check_unique and n > 1 and r.chance(8):
        wanted[-1] = wanted[0]
    src = (
        r.bits((*shape, *cache.row), cache.dtype)
        if cache.format is None
        else r.floats((*shape, *cache.row), cache.dtype)
    )
    fields: dict[str, Any] = cache.fields() | {"pad": "zero" if r.chance(2) else pad, "check_unique": check_unique}
    if cache.format and FORMATS[cache.format].scales == "block":
        fields["block_size"] = s
    return Case(
        cache.inputs() | {"src": src, "slots": wanted.reshape(shape)},
        fields,
        {},
        changed=("cache", "scale"),
        untyped=("cache", "src"),
        plain=(*cache.plain, "src", "slots"),
    )


def test_kv_scatter() -> None:
    run_property("kv_scatter", kv.kv_scatter, scatter)


def ragged(r: Reader) -> Case:
    s, b = r.between(1, 4), r.below(4)
    cache = Cache(r, s)
    with_req = r.chance(30)
    sequences = r.between(1, 3) if with_req else b
    found, tokens = pages(r, s, cache.blocks, sequences)
    req_id = r.ints(0, sequences - 1, (b,), r.pick(*INDEX)) if with_req else None
    own = [tokens[int(req_id[i])] if req_id is not None else tokens[i] for i in range(b)]
    with_starts = r.chance(50)
    starts = np.array([r.below(n) if n and with_starts else 0 for n in own], r.pick(*INDEX))
    lengths = [r.below(n - int(starts[i]) + 1) for i, n in enumerate(own)]
    cu_lens = np.concatenate([[0], np.cumsum(lengths)]).astype(r.pick(*INDEX))
    rows = int(cu_lens[-1]) + r.pick(0, 0, 2)
    out = r.bits((rows, *cache.row), cache.dtype)
    cu_lens = r.spoil(cu_lens, 5, (-1, 1, rows + 1, 2**32))
    seq_lens = None
    if "last_page_len" not in found and r.chance(40):  # mostly the token after the last of a run, or a few more
        ends = np.array([int(starts[i]) + n for i, n in enumerate(lengths)], np.int64) + r.ints(0, 2, (b,))
        seq_lens = r.spoil(ends.astype(r.pick(*INDEX)), 8, (-1, 0, 1, 2**62))
    return Case(
        cache.inputs()
        | {
            "cu_lens": cu_lens,
            "starts": r.spoil(starts, 5, (-1, 13, 2**62)) if with_starts else None,
            "req_id": None if req_id is None else r.spoil(req_id, 5, (-1, sequences)),
            "seq_lens": seq_lens,
            "block_table": None,
            **found,
        },
        cache.fields() | {"block_size": r.pick(0, -1) if r.chance(2) else s},
        {"out": ((rows, *cache.row), cache.dtype)},
        held={"out": out},
        hints={"out": out},
        untyped=("cache",),
        longer=("out",),
        plain=(*cache.plain, "out"),
        fresh={"out": np.zeros_like(out)},
        asked=cache.asked(r) | ({"rows": rows} if rows != cu_lens[-1] or r.chance(30) else {}),
    )


def test_kv_ragged() -> None:
    run_property("kv_ragged", kv.kv_ragged, ragged)


def blocks(r: Reader) -> Case:
    s, dtype = r.between(1, 3), r.pick(*ANY_TYPES)
    row = r.pick((3,), (2, 2), (1,))
    one = r.chance(50)

    def pool(n: int) -> Array:
        return r.bits((n * s, *row) if len(row) == 1 and r.chance(50) else (n, s, *row), dtype)

    from_n, to_n = r.between(1, 6), r.between(1, 6)
    to_n = from_n if one else to_n
    n = r.below(5)
    order = np.argsort(r.ints(0, 255, (to_n,)), kind="stable")
    split = r.between(1, to_n)
    targets = order[split:] if one else order
    sources = order[:split] if one else np.arange(from_n)
    n = min(n, len(targets))
    pairs = np.stack([np.resize(sources, n), targets[:n]], 1).reshape(n, 2).astype(r.pick(*INDEX))
    pairs = r.spoil(pairs, 15, (0, 1, 2, -1, 6, 2**32))
    inputs: dict[str, Any] = {"cache": pool(to_n), "src": None, "dst": None} if one else {"cache": None}
    if not one:
        inputs |= {"src": pool(from_n), "dst": pool(to_n)}
        if r.chance(3):
            inputs |= r.pick({"cache": pool(to_n)}, {"src": None}, {"dst": None})
    return Case(
        inputs | {"pairs": pairs},
        {"block_size": r.pick(0, -1) if r.chance(2) else s},
        {},
        changed=("cache", "dst"),
        untyped=("cache", "src", "dst"),
        plain=("cache", "src", "dst"),
    )


def test_kv_blocks() -> None:
    run_property("kv_blocks", kv.kv_blocks, blocks)
