"""A call of every operator, as data: for tests that ask the same of all of them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from test_worked_examples import CASES, given

import switchyard
from switchyard import _arrays

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # and NumPy knows it by name, like the float8s
ROWS = ("float32", "float16", "bfloat16")  # what is calculated with
BYTES = (*ROWS, "float64", "int8", "int32", "float8_e4m3fn", "float8_e5m2", "bool")  # what is only moved


class Case(NamedTuple):
    operator: str
    arrays: dict[str, Any]
    numbers: dict[str, Any]
    changes: tuple[str, ...] = ()  # arrays that are written to


def numbers_of(dtype: str, *shape: int) -> Any:
    draw = np.random.default_rng(sum(shape))
    return (draw.standard_normal(shape) * 3).astype(dtype)


def moe_cases(dtype: str) -> Iterator[Case]:
    logits = numbers_of("float32", 6, 4)
    routed = switchyard.moe_route(logits, k=2)
    tokens, mapped = numbers_of(dtype, 6, 8), {"routing_map": routed.routing_map, "probs": routed.probs}
    rows = switchyard.moe_permute(tokens, **mapped, num_out_tokens=12)
    moved = {"permuted_tokens": rows.permuted_tokens, "sorted_indices": rows.sorted_indices}
    yield Case("moe_route", {"logits": logits.astype(dtype)}, {"k": 2, "scores": True})
    yield Case("moe_permute", {"tokens": tokens, **mapped}, {"num_out_tokens": 12})
    yield Case("moe_permute", {"tokens": tokens, **mapped}, {"num_out_tokens": 12, "drop_and_pad": True})
    yield Case("moe_unpermute", {**moved, **mapped}, {})
    of_rows = {"grad_permuted_tokens": rows.permuted_tokens, "grad_permuted_probs": rows.permuted_probs}
    of_rows |= {"sorted_indices": rows.sorted_indices, "routing_map": routed.routing_map}
    yield Case("moe_permute_grad", of_rows, {"num_experts": 4, "num_tokens": 6})
    gradient = {"grad_tokens": tokens, **moved, **mapped}
    yield Case("moe_unpermute_grad", gradient, {})
    ids = {"ids": routed.ids, "weights": routed.weights}
    yield Case("moe_map_from_ids", ids, {"num_experts": 4})
    yield Case("moe_ids_from_map", mapped, {"k": 2})
    yield Case("moe_permute_ids", {"tokens": tokens, "ids": routed.ids, "probs": routed.weights}, {})
    by_ids = switchyard.moe_permute_ids(tokens, routed.ids)
    found = {"permuted_tokens": by_ids.permuted_tokens, "sorted_indices": by_ids.sorted_indices}
    yield Case("moe_unpermute_ids", {**found, "probs": routed.weights}, {})
    yield Case("moe_align_block", {"ids": routed.ids}, {"num_experts": 4, "block_size": 4})
    yield Case("moe_pad_map", {"routing_map": routed.routing_map}, {"alignment": 2})
    yield Case("moe_reorder_chunks", {"rows": tokens, "counts": np.array([[1, 2], [3, 0]])}, {})
    placed = {"sorted_indices": rows.sorted_indices, "expert_offsets": rows.expert_offsets}
    yield Case("moe_convert_indices", placed, {"to": "te", "num_tokens": 6})
    indices = routed.ids.T.copy()
    located = switchyard.moe_locations(indices, num_experts=4)
    slots = {"indices": indices, "locations": located.locations}
    sizes = {"num_experts": 4, "capacity": 6}
    gates = numbers_of("float32", 2, 6)
    yield Case("moe_locations", {"indices": indices}, {"num_experts": 4})
    first = {field: array[0] for field, array in slots.items()}
    yield Case("moe_dispatch", {**first, "input": tokens, "gates": gates[0].astype(dtype)}, sizes)
    back = {"expert_out": numbers_of(dtype, 24, 8), **slots, "gates": gates.astype(dtype)}
    yield Case("moe_combine", back, sizes)
    yield Case("moe_dispatch_grad_data", back, sizes)
    yield Case("moe_dispatch_grad_gate", {"input": tokens, **slots, "dispatch": back["expert_out"]}, sizes)


PAGED: dict[str, Any] = {"block_table": np.array([[2, 0], [1, 3]], np.int32)}


def kv_cases(dtype: str) -> Iterator[Case]:
    cache, indices = numbers_of(dtype, 4, 2, 3), np.array([[3, 0, 1], [2, 2, -1]], np.int32)
    yield Case("kv_gather", {"cache": cache, "indices": indices, **PAGED}, {"block_size": 2, "pad": "zero"})
    yield Case("kv_translate", {"indices": indices, **PAGED}, {"block_size": 2, "pad": "skip"})
    at = {"position": np.array([3, 0]), "batch": np.array([0, 1])}
    yield Case("kv_slots", {**at, **PAGED}, {"block_size": 2})
    yield Case("kv_ragged", {"cache": cache, "cu_lens": np.array([0, 3, 4]), **PAGED}, {"block_size": 2})
    filled = {"cache": cache, "src": numbers_of(dtype, 3, 3), "slots": np.array([7, 0, 2])}
    yield Case("kv_scatter", filled, {}, ("cache",))
    yield Case("kv_blocks", {"pairs": np.array([[0, 1], [0, 3]]), "cache": cache}, {}, ("cache",))


def packed_cases() -> Iterator[Case]:
    rows, slots = numbers_of("float32", 3, 512), np.array([3, 0, 2])
    cache = np.zeros((2, 2 * 584), np.uint8)
    yield Case(
        "kv_scatter", {"cache": cache, "src": rows, "slots": slots}, {"format": "ds4_fp8", "block_size": 2}, ("cache",)
    )
    switchyard.kv_scatter(cache, rows, slots, format="ds4_fp8", block_size=2)
    found_by = {"indices": np.array([0, 3, 2]), "block_table": np.array([0, 1])}
    for dtype in (None, "float32", "float16", "bfloat16"):
        yield Case("kv_gather", {"cache": cache, **found_by}, {"block_size": 2, "format": "ds4_fp8", "dtype": dtype})
    codes, scale = numbers_of("float8_e4m3fn", 4, 6), np.abs(numbers_of("float32", 4, 2))
    yield Case("kv_gather", {"cache": codes, **found_by, "scale": scale}, {"block_size": 2, "format": "e4m3"})


def sample_cases(dtype: str) -> Iterator[Case]:
    logits = numbers_of(dtype, 5, 40)
    yield Case("sample", {"logits": logits}, {"top_k": 7, "candidates": True, "masked_logits": True, "logprob": "raw"})
    by_row = {"top_p": np.linspace(0.2, 1, 5, dtype=np.float32), "seed": np.arange(5), "q": None}
    yield Case("sample", {"logits": logits, **by_row}, {"temperature": 0.7, "logprob": "final"})
    yield Case("sample", {"logits": logits, "q": np.abs(numbers_of("float32", 5, 40))}, {"min_p": 0.01})
    lists = {"output_indptr": np.arange(6) * 2, "output_token": np.arange(10, dtype=np.int32)}
    yield Case("sample_overrides", {"logits": logits, **lists}, {"repetition_penalty": 1.5, "frequency_penalty": 0.5})


def mesh_cases(dtype: str) -> Iterator[Case]:
    choices = np.array([[0, 2], [1, 0], [3, 2], [2, 0]], np.int32)
    hosts = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.uint16)
    arrays = {"input": numbers_of(dtype, 2, 4, 3), "expert_metadata": choices, "expert_mapping": hosts}
    yield Case("local_reduce", {**arrays, "weights": numbers_of("float32", 4, 2)}, {"device": 1})


def example_cases(seen: set[str]) -> Iterator[Case]:
    """The first worked example of every other operator that makes arrays of arrays."""
    for example, alternative in CASES:
        makes = "out" in inspect.signature(getattr(switchyard, example.op)).parameters
        if example.op not in seen and example.status is None and makes:
            seen.add(example.op)
            values = given(example, alternative)
            arrays = {field: value for field, value in values.items() if isinstance(value, np.ndarray)}
            if arrays:
                yield Case(example.op, arrays, {f: value for f, value in values.items() if f not in arrays})


HOST = ("moe_place",)  # operators that devices do not have


def on_device() -> list[tuple[str, Case]]:
    """Those of every() that run on a device."""
    return [(name, case) for name, case in every() if case.operator not in HOST]


def every() -> Iterator[tuple[str, Case]]:
    """All of them, with names."""
    written = list(written_here())
    yield from written
    others = example_cases({case.operator for _, case in written})
    yield from ((f"{case.operator}-example", case) for case in others)


def written_here() -> Iterator[tuple[str, Case]]:
    for dtype in ROWS:
        for kind in (moe_cases, sample_cases, mesh_cases):
            yield from ((f"{case.operator}-{dtype}", case) for case in kind(dtype))
    for dtype in BYTES:
        yield from ((f"{case.operator}-{dtype}", case) for case in kv_cases(dtype))
    yield from ((f"{case.operator}-packed", case) for case in packed_cases())


def call(case: Case, arrays: dict[str, Any], **more: Any) -> tuple[Any, ...]:
    """The results, and the arrays that were changed, as a tuple."""
    made = getattr(switchyard, case.operator)(**arrays, **case.numbers, **more)
    changed = tuple(arrays[field] for field in case.changes)
    return changed if changed else made if isinstance(made, tuple) else (made,)


def taken(case: Case, take: Callable[[Any], Any]) -> dict[str, Any]:
    return {field: None if array is None else take(array) for field, array in case.arrays.items()}


def same_bits(got: Any, want: Any) -> bool:
    return bool(got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes())


def without_ml_dtypes(patch: pytest.MonkeyPatch) -> None:
    """NumPy has no bfloat16 and no 8-bit floats then."""
    patch.setitem(sys.modules, "ml_dtypes", None)
    types = zip(_arrays.NAMES, _arrays.NumPy.types, strict=True)
    patch.setattr(_arrays.NumPy, "types", tuple(None if name in _arrays.FOREIGN else kind for name, kind in types))
