"""The worked examples of the moe operators' pages, in arrays of every library at hand, new ones and given ones."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import switchyard

F = np.float32


def i32(*values: Any) -> Any:
    return np.array(values, np.int32)


def f32(*values: Any) -> Any:
    return np.array(values, F)


def u8(*values: Any) -> Any:
    return np.array(values, np.uint8)


MAP = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
PROBS = f32([0.5, 0, 0.5], [0, 0.25, 0.75], [0.125, 0.875, 0], [0.625, 0, 0.375])
TOKENS = f32([10, 11], [20, 21], [30, 31], [40, 41])
SORTED = i32(0, 5, 3, 6, 1, 4, 2, 7)
ROWS = f32([1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13])
CAPACITY_INDICES = i32(0, 1, 0, 1, 3, 4)
CAPACITY_PROBS = f32([0.9, 0.1, 0.01], [0.8, 0.2, 0.02], [0.7, 0.3, 0.03], [0.6, 0.4, 0.04], [0.5, 0.5, 0.05])
SHARED = {
    "indices": i32(0, 0, 0, 0, 0),
    "locations": i32(1, 1, 0, 1, -1),
    "num_experts": 1,
    "capacity": 2,
}
TO_PAD = u8([1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0])
PERMUTED = {"permuted_tokens": TOKENS[[0, 2, 3, 1, 2, 0, 1, 3]], "sorted_indices": SORTED, "expert_counts": [3, 2, 3]}

# Operator, call, results: by name, or alone where there is one.
CASES: list[tuple[str, dict[str, Any], Any]] = [
    (
        "moe_permute",
        {"tokens": TOKENS, "routing_map": MAP, "probs": PROBS, "num_out_tokens": 8},
        {
            **PERMUTED,
            "expert_offsets": [0, 3, 5, 8],
            "permuted_probs": f32(0.5, 0.125, 0.625, 0.25, 0.875, 0.5, 0.75, 0.375),
        },
    ),
    ("moe_permute", {"tokens": TOKENS, "routing_map": MAP, "num_out_tokens": 8}, {**PERMUTED, "permuted_probs": None}),
    (
        "moe_unpermute",
        {"permuted_tokens": ROWS, "sorted_indices": SORTED, "routing_map": MAP, "probs": PROBS},
        f32([3.5, -4], [6.25, -9.5], [4.625, -6.25], [4.875, -6.75]),
    ),
    (
        "moe_unpermute",
        {"permuted_tokens": ROWS, "sorted_indices": SORTED, "num_tokens": 4},
        f32([7, -8], [11, -16], [7, -8], [11, -16]),
    ),
    (
        "moe_unpermute",
        {
            "permuted_tokens": f32([1], [2], [3], [4], [5], [6]),
            "sorted_indices": CAPACITY_INDICES,
            "num_tokens": 5,
            "drop_and_pad": True,
        },
        f32([4], [6], [0], [5], [6]),
    ),
    (
        "moe_unpermute",
        {
            "permuted_tokens": f32([1], [2], [3], [4], [5], [6]),
            "sorted_indices": CAPACITY_INDICES,
            "probs": CAPACITY_PROBS,
            "drop_and_pad": True,
        },
        f32([F(0.9) + F(3) * F(0.1)], [F(2) * F(0.8) + F(4) * F(0.2)], [0], [F(5) * F(0.04)], [F(6) * F(0.05)]),
    ),
    (
        "moe_permute_grad",
        {
            "grad_permuted_tokens": ROWS,
            "sorted_indices": SORTED,
            "grad_permuted_probs": f32(1, 2, 3, 4, 5, 6, 7, 8),
            "routing_map": MAP,
            "num_experts": 3,
            "num_tokens": 4,
        },
        {
            "grad_tokens": f32([7, -8], [11, -16], [7, -8], [11, -16]),
            "grad_probs": f32([1, 0, 6], [0, 4, 7], [2, 5, 0], [3, 0, 8]),
        },
    ),
    (
        "moe_permute_grad",
        {
            "grad_permuted_tokens": f32([1], [2], [3], [4], [5], [6]),
            "sorted_indices": CAPACITY_INDICES,
            "grad_permuted_probs": f32(1, 2, 3, 4, 5, 6),
            "num_experts": 3,
            "num_tokens": 5,
            "drop_and_pad": True,
        },
        {"grad_probs": f32([1, 3, 0], [2, 4, 0], [0, 0, 0], [0, 0, 5], [0, 0, 6])},
    ),
    (
        "moe_permute_grad",
        {"grad_permuted_tokens": ROWS, "sorted_indices": SORTED, "num_experts": 3, "num_tokens": 4},
        {"grad_tokens": f32([7, -8], [11, -16], [7, -8], [11, -16]), "grad_probs": None},
    ),
    (
        "moe_unpermute_grad",
        {
            "grad_tokens": f32([1, 0], [0, 1], [1, 1], [2, -1]),
            "sorted_indices": SORTED,
            "permuted_tokens": ROWS,
            "routing_map": MAP,
            "probs": PROBS,
        },
        {
            "grad_permuted_tokens": f32(
                [0.5, 0], [0.125, 0.125], [1.25, -0.625], [0, 0.25], [0.875, 0.875], [0.5, 0], [0, 0.75], [0.75, -0.375]
            ),
            "grad_probs": f32([1, 0, 6], [0, -5, -11], [1, -2, 0], [9, 0, 29]),
        },
    ),
    (
        "moe_unpermute_grad",
        {"grad_tokens": f32([1, 0], [0, 1], [1, 1], [2, -1]), "sorted_indices": SORTED},
        {
            "grad_permuted_tokens": f32([1, 0], [1, 1], [2, -1], [0, 1], [1, 1], [1, 0], [0, 1], [2, -1]),
            "grad_probs": None,
        },
    ),
    (
        "moe_unpermute_ids",
        {
            "permuted_tokens": f32([10], [30], [20], [10], [20], [30]),
            "sorted_indices": i32(3, 0, 2, 4, 1, 5),
            "probs": f32([0.75, 0.25], [0.5, 0.5], [1, 2]),
        },
        f32([10], [20], [90]),
    ),
    (
        "moe_unpermute_ids",
        {"permuted_tokens": f32([10], [30], [20], [10], [20], [30]), "sorted_indices": i32(3, 0, 2, 4, 1, 5)},
        f32([10], [10], [20], [20], [30], [30]),
    ),
    (
        "moe_unpermute_ids",
        {
            "permuted_tokens": f32([20], [10], [20]),
            "sorted_indices": i32(3, 0, 2, 4, 1, 5),
            "num_tokens": 3,
            "row_begin": 2,
        },
        f32([10], [40], [0]),
    ),
    (
        "moe_dispatch_grad_data",
        {**SHARED, "gates": f32(1, 2, 4, 0.5, 1), "expert_out": f32([1, -1], [2, 0.5])},
        f32([2, 0.5], [4, 1], [4, -4], [1, 0.25], [0, 0]),
    ),
]


def libraries() -> list[Any]:
    return [
        "numpy",
        pytest.param("torch", marks=pytest.mark.skipif(not _there("torch"), reason="torch is not installed")),
        pytest.param("jax", marks=pytest.mark.skipif(not _there("jax"), reason="jax is not installed")),
    ]


def _there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def array_of(library: str, array: Any) -> Any:
    """The array in another library; JAX keeps its 64 bits for the test alone."""
    if not isinstance(array, np.ndarray) or library == "numpy":
        return array
    if library == "torch":
        import torch

        return torch.from_numpy(array.copy())
    import jax

    return jax.numpy.asarray(array)


@pytest.fixture(autouse=True)
def sixty_four_bits(request: pytest.FixtureRequest) -> Any:
    if "library" not in request.fixturenames or request.getfixturevalue("library") != "jax":
        yield
        return
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def check(got: Any, want: Any, library: str) -> None:
    if not isinstance(want, dict):
        got, want = {"": got}, {"": want}
    else:
        got = got._asdict()
    for field, value in want.items():
        if value is None or isinstance(value, int):
            assert got[field] == value
            continue
        assert type(got[field]).__module__.partition(".")[0] in {library, f"{library}lib"}
        np.testing.assert_array_equal(np.asarray(got[field]), np.asarray(value), strict=True)


@pytest.mark.parametrize("library", libraries())
@pytest.mark.parametrize(("name", "call", "want"), CASES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(CASES)])
def test_example(name: str, call: dict[str, Any], want: Any, library: str) -> None:
    function = getattr(switchyard, name)
    given = {field: array_of(library, value) for field, value in call.items()}
    got = function(**given)
    check(got, want, library)
    if library == "jax":
        return

    for array in got if isinstance(got, tuple) else (got,):
        if array is not None:
            array[...] = 0
    again = function(**given, out=got)
    assert again is got
    check(again, want, library)


def test_in_place() -> None:
    padded = TO_PAD.copy()
    switchyard.moe_pad_map(padded, alignment=4, out=switchyard.MoePadMap(padded, None))
    np.testing.assert_array_equal(padded, u8([1, 0, 1], [1, 0, 1], [1, 0, 1], [1, 0, 1], [0, 0, 0]))

    rows = f32([1], [10], [100])
    where = {"indices": i32(0, 0, 0), "locations": i32(1, 0, 1), "gates": f32(2, 3, 1), "num_experts": 1, "capacity": 3}
    assert switchyard.moe_dispatch(**where, input=rows, out=rows) is rows
    np.testing.assert_array_equal(rows, f32([6], [100], [100]))
