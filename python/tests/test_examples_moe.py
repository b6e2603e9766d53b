"""The moe operators: a model's routing, calls in place, and the function whose arguments are those of moe_combine."""

from __future__ import annotations

from typing import Any

import numpy as np

import switchyard

sy: Any = switchyard  # calls by dictionaries of arguments, which types cannot follow

F = np.float32


def i32(*values: Any) -> Any:
    return np.array(values, np.int32)


def f32(*values: Any) -> Any:
    return np.array(values, F)


def same(found: Any, wanted: Any) -> None:
    """Equal numbers, and equal signs of zeros."""
    wanted = np.array(wanted, found.dtype).reshape(found.shape)
    assert found.tobytes() == wanted.tobytes(), f"{found!r}, want {wanted!r}"


def test_route_of_deepseek_v3() -> None:
    rng = np.random.RandomState(5)
    logits, bias = rng.standard_normal((16, 256)).astype(F), rng.standard_normal(256).astype(F)
    fields = {"k": 8, "score": "sigmoid", "groups": 8, "top_groups": 4, "group_score": "sum2", "scores": True}
    routed = sy.moe_route(logits, bias, **fields, renormalize=True, eps=1e-20, scale=2.5)
    for t in range(16):
        v = routed.scores[t] + bias
        worth = np.sort(v.reshape(8, 32), axis=1)[:, -2:].sum(axis=1, dtype=F)
        kept = np.argsort(-worth, kind="stable")[:4]
        v[~np.isin(np.arange(256) // 32, kept)] = -np.inf
        same(routed.ids[t], np.argsort(-v, kind="stable")[:8])
    np.testing.assert_allclose(routed.weights.sum(axis=1), 2.5, rtol=1e-6)  # eight roundings


def test_gradient_of_dispatch() -> None:
    where = {"indices": i32(0, 0, 0, 0, 0), "locations": i32(1, 1, 0, 1, -1), "num_experts": 1, "capacity": 2}
    made = sy.moe_dispatch_grad_data(**where, gates=f32(1, 2, 4, 0.5, 1), expert_out=f32([1, -1], [2, 0.5]))
    assert made.dtype == F
    assert made.shape == (5, 2)
    same(made, [[2, 0.5], [4, 1], [4, -4], [1, 0.25], [0, 0]])


def test_in_place() -> None:
    padded = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    sy.moe_pad_map(padded, alignment=4, out=sy.MoePadMap(padded, None))
    same(padded, [[1, 0, 1], [1, 0, 1], [1, 0, 1], [1, 0, 1], [0, 0, 0]])

    rows = f32([1], [10], [100])
    where = {"indices": i32(0, 0, 0), "locations": i32(1, 0, 1), "gates": f32(2, 3, 1), "num_experts": 1, "capacity": 3}
    assert sy.moe_dispatch(**where, input=rows, out=rows) is rows
    same(rows, [6, 100, 100])
