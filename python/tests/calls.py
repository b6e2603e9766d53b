"""Calls of every operator, as data, from the worked examples: for tests that are the same for all operators."""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from test_worked_examples import CASES, asked, given

import switchyard
from switchyard import _arrays

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # and NumPy knows it by name, like the float8s
PAGED: dict[str, Any] = {"block_table": np.array([[2, 0], [1, 3]], np.int32)}
HOST = ("moe_place",)  # operators that devices do not have


class Case(NamedTuple):
    operator: str
    arrays: dict[str, Any]
    numbers: dict[str, Any]
    changes: tuple[str, ...] = ()  # arrays that are written to


class Producer:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def numbers_of(dtype: str, *shape: int) -> Any:
    draw = np.random.default_rng(sum(shape))
    return (draw.standard_normal(shape) * 3).astype(dtype)


def every() -> Iterator[tuple[str, Case]]:
    """Examples in which an operator has an array, a type of one or a flag that none before it had; with names."""
    seen = set()
    for example, alternative in CASES:
        if example.status is not None or not example.inferred:
            continue
        values = given(example, alternative)
        arrays = {field: value for field, value in values.items() if isinstance(value, np.ndarray)}
        numbers = {field: value for field, value in values.items() if field not in arrays}
        kinds = [(field, array.dtype.name) for field, array in arrays.items()]
        kinds += [(field, "given") for field, value in numbers.items() if value is True]
        new = {(example.op, *kind) for kind in kinds} - seen
        changes = tuple(field.name for field in example.outputs() if field.name in arrays)
        if not new or not (
            arrays and (changes or "out" in inspect.signature(getattr(switchyard, example.op)).parameters)
        ):
            continue
        seen |= new
        numbers |= asked(example, alternative, values)
        numbers |= {"dtype": np.dtype(numbers["dtype"]).name} if "dtype" in numbers else {}
        yield f"{example.op}: {example.name} {alternative}", Case(example.op, arrays, numbers, changes)


def on_device() -> list[tuple[str, Case]]:
    """Those of every() that run on a device."""
    return [(name, case) for name, case in every() if case.operator not in HOST]


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
