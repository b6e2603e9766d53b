"""The worked examples of the moe operators' pages, in arrays of every library at hand, new ones and given ones."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import switchyard

F = np.float32
NAN, INF = float("nan"), float("inf")


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
IDS = i32([2, 0], [1, 2], [0, 2])
CHOICES = i32([0, 0, 2, 1, 0], [1, 2, 1, 0, 1])
PLACES = i32([0, 1, 0, 0, 2], [1, 1, 2, 3, 3])
GATES = f32([0.5, 0.75, 0.25, 0.5, 1], [0.5, 0.25, 0.75, 0.5, 0])
EXPERT_OUT = f32([10], [20], [30], [40], [50], [60])
DISPATCH = {
    "indices": i32(1, 0, 1, 0),
    "locations": i32(0, 0, 1, 2),
    "input": f32([1, 2], [3, 4], [5, 6], [7, 8]),
    "num_experts": 2,
    "capacity": 3,
}
SHARED = {
    "indices": i32(0, 0, 0, 0, 0),
    "locations": i32(1, 1, 0, 1, -1),
    "num_experts": 1,
    "capacity": 2,
}
TO_PAD = u8([1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0])
FOUR_TO_ONE = f32([1, 0], [3, 0], [2, 0], [3, 0])
PERMUTED = {"permuted_tokens": TOKENS[[0, 2, 3, 1, 2, 0, 1, 3]], "sorted_indices": SORTED, "expert_counts": [3, 2, 3]}
REORDER = {"counts": np.array([[2, 0, 1], [1, 2, 1]])}
TE = i32([5, 0, -1, 2, 0, -1, 2], [6, 3, -1, 2, 1, -1, 2], [4, 1, -1, 1, 0, -1, 2], [7, 2, -1, 2, 0, -1, 2])

# Operator, call, results: by name, or alone where there is one.
CASES: list[tuple[str, dict[str, Any], Any]] = [
    (
        "moe_route",
        {"logits": f32([2, 1, 0, -1]), "k": 2, "scores": True},
        {
            "ids": i32([0, 1]),
            "weights": f32([0.643914282, 0.236882821]),
            "routing_map": [[True, True, False, False]],
            "probs": f32([0.643914282, 0.236882821, 0, 0]),
            "counts": [1, 1, 0, 0],
            "scores": f32([0.643914282, 0.236882821, 0.0871443152, 0.0320586003]),
        },
    ),
    (
        "moe_route",
        {"logits": f32([2, 1, 0, -1]), "k": 2, "renormalize": True},
        {"weights": f32([0.731058598, 0.268941432])},
    ),
    (
        "moe_route",
        {"logits": f32([1, 1, 1, 1]), "k": 2},
        {"ids": i32([0, 1]), "weights": f32([0.25, 0.25]), "scores": None},
    ),
    (
        "moe_route",
        {"logits": f32([0, 0, 0]), "bias": f32(0, 0.1, 0), "k": 1, "score": "sigmoid"},
        {"ids": i32([1]), "weights": f32([0.5])},
    ),
    (
        "moe_route",
        {"logits": f32([5, 1, 4, 4, 3, 3]), "k": 2, "score": "none", "groups": 3, "top_groups": 1},
        {"ids": i32([0, 1])},
    ),
    (
        "moe_route",
        {
            "logits": f32([5, 1, 4, 4, 3, 3]),
            "k": 2,
            "score": "none",
            "groups": 3,
            "top_groups": 1,
            "group_score": "sum2",
        },
        {"ids": i32([2, 3])},
    ),
    ("moe_route", {"logits": f32([0, -60, -50, -40]), "k": 2}, {"ids": i32([0, 1]), "weights": f32([1, 0])}),
    ("moe_route", {"logits": f32([0, -60, -50, -40]), "k": 2, "score": "none"}, {"ids": i32([0, 3])}),
    (
        "moe_route",
        {"logits": FOUR_TO_ONE, "k": 1, "score": "none", "capacity": 2},
        {"routing_map": np.array([[0, 0], [1, 0], [0, 0], [1, 0]], bool), "counts": [4, 0]},
    ),
    (
        "moe_route",
        {"logits": FOUR_TO_ONE, "k": 1, "score": "none", "capacity": 2, "drop": "position"},
        {"routing_map": np.array([[1, 0], [1, 0], [0, 0], [0, 0]], bool), "counts": [4, 0]},
    ),
    (
        "moe_route",
        {"logits": f32([1, 2], [2, 1]), "finished": np.array([True, False]), "k": 1},
        {"ids": i32([2], [0]), "routing_map": np.array([[0, 0], [1, 0]], bool), "counts": [1, 0]},
    ),
    ("moe_route", {"logits": f32([1, 3, 2]), "k": 2, "slot_order": "expert"}, {"ids": i32([1, 2])}),
    ("moe_route", {"logits": f32([3, 1, 2]), "k": 2, "slot_order": "expert"}, {"ids": i32([0, 2])}),
    (
        "moe_map_from_ids",
        {
            "ids": i32([2, 0], [1, 2], [3, 0]),
            "weights": f32([0.75, 0.25], [0.5, 0.5], [0.625, 0.375]),
            "num_experts": 4,
        },
        {
            "routing_map": np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]], bool),
            "probs": f32([0.25, 0, 0.75, 0], [0, 0.5, 0.5, 0], [0.375, 0, 0, 0.625]),
        },
    ),
    (
        "moe_map_from_ids",
        {"ids": i32([-1, 2], [3, 3]), "num_experts": 3, "allow_missing": True},
        {"routing_map": np.array([[0, 0, 1], [0, 0, 0]], bool), "probs": None},
    ),
    (
        "moe_ids_from_map",
        {
            "routing_map": u8([1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]),
            "probs": f32([0.25, 9, 0.75, 9], [9, 0.5, 9, 9], [9, 9, 0.375, 0.5]),
            "k": 2,
        },
        {"ids": i32([0, 2], [1, -1], [2, 3]), "weights": f32([0.25, 0.75], [0.5, 0], [0.375, 0.5])},
    ),
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
        "moe_align_block",
        {"ids": IDS, "num_experts": 4, "block_size": 2},
        {
            "sorted_slots": i32(1, 4, 2, 6, 0, 3, 5, 6, 6, 6),
            "block_experts": i32(0, 1, 2, 2, -1),
            "num_padded": i32(8),
            "expert_counts": [2, 1, 3, 0],
            "expert_offsets": [0, 2, 4, 8, 8],
        },
    ),
    (
        "moe_align_block",
        {
            "ids": IDS,
            "expert_map": i32(1, -1, 0, -1),
            "num_experts": 4,
            "block_size": 2,
            "skip_unmapped": True,
        },
        {
            "sorted_slots": i32(1, 4, 0, 3, 5, 6, 6, 6, 6, 6),
            "block_experts": i32(1, 0, 0, -1, -1),
            "num_padded": i32(6),
            "expert_counts": [2, 0, 3, 0],
            "expert_offsets": [0, 2, 2, 6, 6],
        },
    ),
    (
        "moe_pad_map",
        {"routing_map": TO_PAD, "alignment": 2},
        {"padded_map": u8([1, 0, 0], [1, 0, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0]), "expert_counts": [4, 0, 2]},
    ),
    (
        "moe_pad_map",
        {"routing_map": TO_PAD, "alignment": 5},
        {"padded_map": u8(*[[1, 0, 1]] * 5), "expert_counts": [5, 0, 5]},
    ),
    (
        "moe_reorder_chunks",
        {"rows": np.arange(9, dtype=F), **REORDER, "extra": np.arange(18, dtype=np.int32).reshape(9, 2)},
        {
            "reordered_rows": f32(0, 1, 3, 4, 5, 2, 6, 0, 0),
            "reordered_extra": i32([0, 1], [2, 3], [6, 7], [8, 9], [10, 11], [4, 5], [12, 13], [0, 0], [0, 0]),
            "expert_offsets": [0, 3, 5, 7],
        },
    ),
    (
        "moe_reorder_chunks",
        {"rows": np.arange(7, dtype=F), **REORDER, "inverse": True},
        {"reordered_rows": f32(0, 1, 5, 2, 3, 4, 6), "reordered_extra": None},
    ),
    (
        "moe_convert_indices",
        {"sorted_indices": SORTED, "expert_offsets": np.array([0, 3, 5, 8]), "to": "te", "num_tokens": 4},
        TE,
    ),
    (
        "moe_convert_indices",
        {"sorted_indices": TE, "from_": "te", "to": "slot", "num_tokens": 4, "num_rows": 8},
        SORTED,
    ),
    (
        "moe_convert_indices",
        {"sorted_indices": i32(0, 2, 1, -1, -1, -1), "to": "row", "num_tokens": 3},
        i32(0, 1, 0, -1, -1, -1),
    ),
    (
        "moe_convert_indices",
        {
            "sorted_indices": i32(0, 2, 1, -1, -1, -1),
            "expert_offsets": np.array([0, 2, 3]),
            "to": "te",
            "num_tokens": 3,
        },
        i32([2, 0, 1, 0, 2], [1, -1, 0, -1, 1], [-1, -1, -1, -1, 0]),
    ),
    (
        "moe_convert_indices",
        {"sorted_indices": i32(0, 2, 0, 1), "from_": "row", "to": "slot", "num_tokens": 3, "k": 2},
        i32(0, 2, 3, -1, 1, -1),
    ),
    (
        "moe_dispatch",
        {**DISPATCH, "gates": f32(0.5, 2, 1, -1)},
        f32([6, 8], [0, 0], [-7, -8], [0.5, 1], [5, 6], [0, 0]),
    ),
    ("moe_dispatch", DISPATCH, f32([3, 4], [0, 0], [7, 8], [1, 2], [5, 6], [0, 0])),
    (
        "moe_dispatch",
        {**SHARED, "gates": f32(1, 2, 4, 0.5, 1), "input": f32([1, 2], [3, 4], [5, 6], [8, 10], [7, 7])},
        f32([20, 24], [4, 5]),
    ),
    (
        "moe_combine",
        {
            "indices": CHOICES,
            "locations": PLACES,
            "gates": GATES,
            "expert_out": EXPERT_OUT,
            "num_experts": 3,
            "capacity": 2,
        },
        f32([25], [30], [12.5], [15], [0]),
    ),
    (
        "moe_dispatch_grad_data",
        {**SHARED, "gates": f32(1, 2, 4, 0.5, 1), "expert_out": f32([1, -1], [2, 0.5])},
        f32([2, 0.5], [4, 1], [4, -4], [1, 0.25], [0, 0]),
    ),
    (
        "moe_dispatch_grad_gate",
        {**SHARED, "input": f32([1, 2], [3, 4], [5, 6], [8, 10], [7, 7]), "dispatch": f32([1, -1], [2, 0.5])},
        f32(3, 8, -1, 21, 0),
    ),
    (
        "moe_dispatch_grad_gate",
        {
            "indices": CHOICES,
            "locations": PLACES,
            "input": np.ones((5, 1), F),
            "dispatch": EXPERT_OUT,
            "num_experts": 3,
            "capacity": 2,
        },
        f32([10, 20, 50, 30, 0], [40, 60, 0, 0, 0]),
    ),
    *(
        ("moe_capacity", {"counts": np.array([4, 4, 2]), "samples": 5, "num_experts": 3, "k": 2, "factor": f}, c)
        for f, c in ((1, 4), (0.5, 2), (0, 4), (-0.5, 2), (-1, 4))
    ),
    (
        "moe_capacity",
        {"counts": np.array([4, 4, 2]), "samples": 5, "num_experts": 3, "k": 2, "factor": 0.5, "alignment": 4},
        4,
    ),
    ("moe_capacity", {"samples": 4608, "num_experts": 2, "factor": 1.25}, 2880),
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
    if library == "jax" or name == "moe_capacity":
        return

    asked = {field: value for field, value in given.items() if (name, field) != ("moe_route", "scores")}
    for array in got if isinstance(got, tuple) else (got,):
        if array is not None:
            array[...] = 0
    again = function(**asked, out=got)
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


def test_rows_that_nobody_writes() -> None:
    rows = np.full((6, 2), 9, F)
    switchyard.moe_dispatch(**DISPATCH, out=rows)
    np.testing.assert_array_equal(rows, f32([3, 4], [9, 9], [7, 8], [1, 2], [5, 6], [9, 9]))
    switchyard.moe_dispatch(**DISPATCH, zero_unwritten=True, out=rows)
    np.testing.assert_array_equal(rows, f32([3, 4], [0, 0], [7, 8], [1, 2], [5, 6], [0, 0]))

    out = switchyard.MoeReorderChunks(np.full(9, 9, F), None, None)
    switchyard.moe_reorder_chunks(np.arange(9, dtype=F), **REORDER, out=out)
    np.testing.assert_array_equal(out.reordered_rows, f32(0, 1, 3, 4, 5, 2, 6, 9, 9))


def test_outputs_of_other_types() -> None:
    """What `out` may be besides what is made."""
    out = switchyard.MoeRoute(
        np.empty((1, 2), np.int64), np.empty((1, 2), np.float16), np.empty((1, 4), np.int8), None, None, None
    )
    switchyard.moe_route(f32([2, 1, 0, -1]), k=2, out=out)
    np.testing.assert_array_equal(out.ids, [[0, 1]])
    np.testing.assert_array_equal(out.weights, np.array([[0.643914282, 0.236882821]], np.float16), strict=True)
    np.testing.assert_array_equal(out.routing_map, np.array([[1, 1, 0, 0]], np.int8), strict=True)

    grad = np.empty(5, F)
    half = {"input": np.ones((5, 1), np.float16), "dispatch": np.array([[2049 / 2048], [3]], np.float16)}
    assert switchyard.moe_dispatch_grad_gate(**SHARED, **half, out=grad) is grad
    np.testing.assert_array_equal(grad, f32(3, 3, half["dispatch"][0, 0], 3, 0))
