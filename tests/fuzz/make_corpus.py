#!/usr/bin/env python3
"""Writes the seed corpus of the fuzz targets.   make_corpus.py FOLDER

FOLDER/safetensors gets one file per idea: good files of every type and rank, and the ways a file can lie. Targets that
take other input need no seeds from here. The files are the same on every run.
"""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
from st import FORMATS, Tensor, encode, raw  # noqa: E402
from test_files import HOSTILE, entry, header, one  # noqa: E402


def good_files():
    yield "empty", encode({})
    yield "scalar", one(4, "F32", (), (0, 4))
    yield "no_elements", one(0, "F32", (0, 7), (0, 0))
    yield "deep", one(1, "U8", (1,) * 16, (0, 1))
    yield "metadata", encode({"x": Tensor("F32", (2, 2), bytes(16))}, {"format": "pt", "switchyard.k": "8"})
    yield "padded_header", raw(header(x=entry()) + b"     ", bytes(4))
    yield "two_reversed", raw(header(a=entry("I64", (1,), (6, 14)), b=entry("BF16", (3,), (0, 6))), bytes(14))
    for name, letter in FORMATS.items():
        yield f"type_{name}", encode({"t": Tensor(name, (3,), bytes(range(3 * struct.calcsize(letter))))})


def bad_files():
    """Those of the tests of the command line that are short."""
    for i, (_, blob, _) in enumerate(HOSTILE):
        if len(blob) <= 1024:
            yield f"bad_{i}", blob


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
