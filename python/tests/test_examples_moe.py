"""Worked examples of the moe operators, their numbers typed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import switchyard

sy: Any = switchyard  # calls by dictionaries of arguments, which types cannot follow

ml_dtypes = pytest.importorskip("ml_dtypes")

F = np.float32
X4 = np.array([[10, 11], [20, 21], [30, 31], [40, 41]], F)
MAP = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
PROBS = np.array([[0.5, 0, 0.5], [0, 0.25, 0.75], [0.125, 0.875, 0], [0.625, 0, 0.375]], F)
SLOTS = np.array([0, 5, 3, 6, 1, 4, 2, 7], np.int32)
Y = np.array([[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]], F)


def i32(values: Any) -> Any:
    return np.array(values, np.int32)


def bf16(words: Any) -> Any:
    return np.array(words, np.uint16).view(ml_dtypes.bfloat16)


def same(found: Any, wanted: Any) -> None:
    """Equal numbers, and equal signs of zeros."""
    wanted = np.array(wanted, found.dtype).reshape(found.shape)
    assert found.tobytes() == wanted.tobytes(), f"{found!r}, want {wanted!r}"


# ---- Permutation by a routing map ----


def test_one_expert_per_token() -> None:
    routing_map = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]], np.int8)
    rows = sy.moe_permute(X4, routing_map, num_out_tokens=4)
    same(rows.sorted_indices, [2, 0, 3, 1])
    same(rows.permuted_tokens, [[20, 21], [40, 41], [10, 11], [30, 31]])


def test_two_experts_per_token_and_back() -> None:
    rows = sy.moe_permute(X4, MAP, PROBS, num_out_tokens=8)
    same(rows.sorted_indices, SLOTS)
    same(rows.permuted_tokens, [[10, 11], [30, 31], [40, 41], [20, 21], [30, 31], [10, 11], [20, 21], [40, 41]])
    same(rows.permuted_probs, [0.5, 0.125, 0.625, 0.25, 0.875, 0.5, 0.75, 0.375])
    same(rows.expert_counts, [3, 2, 3])
    same(rows.expert_offsets, [0, 3, 5, 8])
    same(sy.moe_unpermute(Y, SLOTS, num_tokens=4), [[7, -8], [11, -16], [7, -8], [11, -16]])
    weighted = [[3.5, -4], [6.25, -9.5], [4.625, -6.25], [4.875, -6.75]]
    same(sy.moe_unpermute(Y, SLOTS, MAP, PROBS), weighted)


def test_gradients_of_both() -> None:
    forward = sy.moe_permute_grad(Y, SLOTS, np.arange(1, 9, dtype=F), MAP, num_experts=3, num_tokens=4)
    same(forward.grad_tokens, [[7, -8], [11, -16], [7, -8], [11, -16]])
    same(forward.grad_probs, [[1, 0, 6], [0, 4, 7], [2, 5, 0], [3, 0, 8]])
    gradient = np.array([[1, 0], [0, 1], [1, 1], [2, -1]], F)
    backward = sy.moe_unpermute_grad(gradient, SLOTS, Y, MAP, PROBS)
    wanted = [[0.5, 0], [0.125, 0.125], [1.25, -0.625], [0, 0.25], [0.875, 0.875], [0.5, 0], [0, 0.75], [0.75, -0.375]]
    same(backward.grad_permuted_tokens, wanted)
    same(backward.grad_probs, [[1, 0, 6], [0, -5, -11], [1, -2, 0], [9, 0, 29]])


def test_bits_survive_and_the_remainder_is_ignored() -> None:
    tokens = bf16([[0x3F80, 0xC000], [0x3F00, 0x4040], [0x8000, 0x42C8]])
    routing_map = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0]], bool)
    rows = sy.moe_permute(tokens, routing_map, num_out_tokens=7)
    same(rows.sorted_indices, [0, 5, 2, 3, 1, 4])
    assert rows.permuted_tokens.view(np.uint16).tolist() == [
        [0x3F80, 0xC000],
        [0x8000, 0x42C8],
        [0x3F00, 0x4040],
        [0x3F00, 0x4040],
        [0x8000, 0x42C8],
        [0x3F80, 0xC000],
    ]


def test_fewer_experts_than_slots() -> None:
    probs = np.array([[0.5, 0.9], [0.8, 0.7], [0.25, 0.1]], F)
    tokens = np.array([[1, 2], [3, 4], [5, 6]], F)
    rows = sy.moe_permute(tokens, np.array([[1, 0], [0, 0], [1, 0]], bool), probs, num_out_tokens=6)
    same(rows.sorted_indices, [0, -1, -1, -1, 1, -1])
    same(rows.permuted_tokens, [[1, 2], [5, 6], [0, 0], [0, 0], [0, 0], [0, 0]])
    same(rows.permuted_probs, [0.5, 0.25, 0, 0, 0, 0])
    same(sy.moe_unpermute(rows.permuted_tokens, rows.sorted_indices, num_tokens=3), [[1, 2], [0, 0], [5, 6]])


def test_capacity_with_overflow_and_an_empty_expert() -> None:
    tokens = np.array([[10], [20], [30], [40], [50]], F)
    routing_map = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1], [1, 0, 1]], bool)
    probs = np.array([[0.9, 0.1, 0.01], [0.8, 0.2, 0.02], [0.7, 0.3, 0.03], [0.6, 0.4, 0.04], [0.5, 0.5, 0.05]], F)
    rows = sy.moe_permute(tokens, routing_map, probs, num_out_tokens=8, drop_and_pad=True)
    same(rows.sorted_indices, [0, 1, 0, 1, 3, 4])
    same(rows.permuted_tokens, [[10], [20], [10], [20], [40], [50]])
    same(rows.permuted_probs, np.array([0.9, 0.8, 0.1, 0.2, 0.04, 0.05], F))
    same(rows.expert_counts, [4, 0, 2])
    same(rows.expert_offsets, [0, 2, 4, 6])
    inert = sy.moe_permute(tokens, routing_map, probs, num_out_tokens=8, drop_and_pad=True, zero_pad=True)
    same(inert.sorted_indices, [0, 1, -1, -1, 3, 4])
    same(inert.permuted_tokens, [[10], [20], [0], [0], [40], [50]])
    y = np.arange(1, 7, dtype=F)[:, None]
    indices = rows.sorted_indices
    same(sy.moe_unpermute(y, indices, num_tokens=5, drop_and_pad=True), [[4], [6], [0], [5], [6]])
    weighted = sy.moe_unpermute(y, indices, probs=probs, drop_and_pad=True)
    same(
        weighted,
        np.array(
            [[F(0.9) + F(0.1) * F(3)], [F(0.8) * F(2) + F(0.2) * F(4)], [0], [F(0.04) * F(5)], [F(0.05) * F(6)]], F
        ),
    )
    np.testing.assert_allclose(weighted[:, 0], [1.2, 2.4, 0, 0.2, 0.3], rtol=1e-6)  # the numbers as people read them
    grad = sy.moe_permute_grad(y, indices, np.arange(1, 7, dtype=F), num_experts=3, num_tokens=5, drop_and_pad=True)
    same(grad.grad_probs, [[1, 3, 0], [2, 4, 0], [0, 0, 0], [0, 0, 5], [0, 0, 6]])


def test_capacity_with_shortage() -> None:
    routing_map = np.array([[0, 0], [0, 0], [1, 0], [0, 0]], bool)
    rows = sy.moe_permute(X4, routing_map, routing_map.astype(F), num_out_tokens=6, drop_and_pad=True)
    same(rows.sorted_indices, [2, 0, 1, 0, 1, 2])
    same(rows.permuted_tokens, [[30, 31], [10, 11], [20, 21], [10, 11], [20, 21], [30, 31]])
    same(rows.permuted_probs, [1, 0, 0, 0, 0, 0])


def test_every_expert() -> None:
    tokens = np.array([[0.1], [0.2], [0.3]], F)
    rows = sy.moe_permute(tokens, np.ones((3, 2), bool), num_out_tokens=6)
    same(rows.sorted_indices, [0, 3, 1, 4, 2, 5])
    same(rows.permuted_tokens, np.array([[0.1], [0.2], [0.3], [0.1], [0.2], [0.3]], F))


def test_three_of_four_in_half_precision() -> None:
    tokens = np.array([[1.5, 2.5], [3.5, 4.5]], np.float16)
    probs = np.array([[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.125, 0.0625]], np.float16)
    rows = sy.moe_permute(tokens, np.array([[1, 1, 0, 1], [0, 1, 1, 1]], bool), probs, num_out_tokens=6)
    same(rows.sorted_indices, [0, 1, 4, 2, 3, 5])
    same(rows.permuted_tokens, tokens[[0, 0, 1, 1, 0, 1]])
    same(rows.permuted_probs, [0.5, 0.25, 0.25, 0.125, 0.125, 0.0625])


def test_samples_of_the_vendor() -> None:
    ones = np.ones((2, 2), F)
    same(sy.moe_unpermute(ones, i32([1, 1]), probs=ones, drop_and_pad=True), [[0, 0], [2, 2]])
    grad = sy.moe_unpermute_grad(np.ones((1, 2), F), i32([0, 1]), ones, np.ones((1, 2), bool), np.ones((1, 2), F))
    same(grad.grad_permuted_tokens, ones)
    same(grad.grad_probs, [[2, 2]])


def test_a_token_with_too_many_experts_is_told() -> None:
    with pytest.raises(sy.Error) as refused:
        sy.moe_permute(X4, np.array([[1, 0, 1], [1, 1, 1], [1, 1, 0], [1, 0, 1]], bool), num_out_tokens=8)
    assert refused.value.status.name == "ROUTING"
    fault = refused.value.fault
    assert (fault.code, fault.position, fault.value, fault.limit) == ("ROW_OVERFULL", 1, 3, 2)


# ---- By ids, and lists ----


def test_permutation_by_ids() -> None:
    tokens = np.array([[10], [20], [30]], F)
    ids = i32([[2, 0], [1, 2], [0, 2]])
    rows = sy.moe_permute_ids(tokens, ids, num_experts=3)
    same(rows.sorted_indices, [3, 0, 2, 4, 1, 5])
    same(rows.permuted_tokens, [[10], [30], [20], [10], [20], [30]])
    same(rows.expert_counts, [2, 1, 3])
    same(rows.expert_offsets, [0, 2, 3, 6])
    same(sy.moe_permute_ids(tokens, ids, num_out_tokens=4).permuted_tokens, [[10], [30], [20], [10]])
    same(sy.moe_permute_ids(tokens, ids, num_out_tokens=-2).permuted_tokens, [[10], [30], [20], [10]])
    window = sy.moe_permute_ids(tokens, ids, window=True, row_begin=2, row_end=5)
    same(window.permuted_tokens, [[20], [10], [20]])
    anything = np.array([[2**62, -1], [0, -(2**63)], [0, 7]])
    same(sy.moe_permute_ids(tokens, anything).sorted_indices, [5, 1, 2, 0, 3, 4])
    back = rows.permuted_tokens, rows.sorted_indices
    probs = np.array([[0.75, 0.25], [0.5, 0.5], [1, 2]], F)
    same(sy.moe_unpermute_ids(*back, probs), [[10], [20], [90]])
    same(sy.moe_unpermute_ids(*back, num_tokens=3), [[20], [40], [60]])
    same(sy.moe_unpermute_ids(*back), [[10], [10], [20], [20], [30], [30]])
    same(
        sy.moe_unpermute_ids(window.permuted_tokens, rows.sorted_indices, num_tokens=3, row_begin=2), [[10], [40], [0]]
    )


# ---- Routing ----


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
