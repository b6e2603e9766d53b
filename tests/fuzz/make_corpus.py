#!/usr/bin/env python3
"""Writes the seed corpus of the fuzz targets.   make_corpus.py FOLDER

FOLDER/safetensors gets one file per idea: good files of every type and rank, and the ways a file can lie. Targets that
take other input need no seeds from here. The files are the same on every run.
"""
import json
import os
import struct
import sys

TYPES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
         "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}


def raw(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16), **more):
    return dict({"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}, **more)


def good_files():
    yield "empty", raw({})
    yield "one", raw({"x": entry()}, bytes(16))
    yield "scalar", raw({"x": entry(shape=(), offsets=(0, 4))}, bytes(4))
    yield "no_elements", raw({"x": entry(shape=(0, 7), offsets=(0, 0))})
    yield "metadata", raw({"__metadata__": {"format": "pt", "switchyard.num_out_tokens": "8"}, "x": entry()}, bytes(16))
    yield "padded_header", raw(json.dumps({"x": entry()}).encode() + b"     ", bytes(16))
    yield "two", raw({"a": entry("I64", (1,), (0, 8)), "b": entry("BF16", (3,), (8, 14))}, bytes(14))
    yield "two_reversed", raw({"a": entry("I64", (1,), (6, 14)), "b": entry("BF16", (3,), (0, 6))}, bytes(14))
    yield "deep", raw({"x": entry("U8", (1,) * 16, (0, 1))}, b"\7")
    for name, size in TYPES.items():
        yield f"type_{name}", raw({"t": entry(name, (3,), (0, 3 * size))}, bytes(range(3 * size)))


def bad_files():
    yield "short", b"\1\0\0"
    yield "huge_length", raw({"x": entry()}, bytes(16), 2**63)
    yield "length_past_end", raw({"x": entry()}, b"", 10**6)
    yield "not_json", raw(b"{not json}")
    yield "list", raw(b"[1,2,3]")
    yield "duplicate", raw(b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                           b'"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0")
    yield "overlap", raw({"a": entry(offsets=(0, 16)), "b": entry(offsets=(8, 24))}, bytes(24))
    yield "hole", raw({"a": entry("U8", (1,), (0, 1)), "b": entry("U8", (1,), (2, 3))}, bytes(3))
    yield "trailing", raw({"x": entry()}, bytes(20))
    yield "range_past_end", raw({"x": entry(offsets=(0, 16))}, bytes(8))
    yield "reversed_range", raw({"x": entry(offsets=(16, 0))}, bytes(16))
    yield "product_overflow", raw({"x": entry(shape=(2**32, 2**32, 4), offsets=(0, 16))}, bytes(16))
    yield "big_times_zero", raw({"x": entry(shape=(2**62, 2**62, 0), offsets=(0, 0))})
    yield "negative_extent", raw({"x": entry(shape=(-1, -4), offsets=(0, 16))}, bytes(16))
    yield "real_extent", raw(b'{"x":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}}', bytes(16))
    yield "unknown_type", raw({"x": entry("F4")}, bytes(16))
    yield "unknown_key", raw({"x": entry(extra=1)}, bytes(16))
    yield "missing_keys", raw({"x": {"dtype": "F32"}}, bytes(16))
    yield "bad_metadata", raw({"__metadata__": {"a": 1}})
    yield "rank_17", raw({"x": entry("U8", (1,) * 17, (0, 1))}, b"\0")
    yield "nul_in_name", raw(b'{"a\\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0")
    yield "control_in_name", raw(b'{"a\\nb":{"dtype":"X","shape":[1],"data_offsets":[0,1]}}', b"\0")
    yield "bad_utf8", raw(b'{"\xff\xfe":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0")
    yield "nested", raw(b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = os.path.join(sys.argv[1], "safetensors")
    os.makedirs(folder, exist_ok=True)
    files = list(good_files()) + list(bad_files())
    for name, blob in files:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(blob)
    print(f"{len(files)} seeds in {folder}")


if __name__ == "__main__":
    main()
