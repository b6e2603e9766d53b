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


def test_map_and_ids() -> None:
    weights = np.array([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]], F)
    made = sy.moe_map_from_ids(i32([[2, 0], [1, 2], [3, 0]]), weights, num_experts=4)
    same(made.routing_map, [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    same(made.probs, [[0.25, 0, 0.75, 0], [0, 0.5, 0.5, 0], [0.375, 0, 0, 0.625]])
    missing = sy.moe_map_from_ids(i32([[-1, 2], [3, 3]]), num_experts=3, allow_missing=True)
    same(missing.routing_map, [[0, 0, 1], [0, 0, 0]])
    with pytest.raises(IndexError):
        sy.moe_map_from_ids(i32([[-1, 2], [3, 3]]), num_experts=3)
    with pytest.raises(sy.Error) as twice:
        sy.moe_map_from_ids(i32([[0, 1, 2], [2, 1, 2]]), num_experts=3)
    assert (twice.value.status.name, twice.value.fault.batch, twice.value.fault.position) == ("ROUTING", 1, 2)
    probs = np.array([[0.25, 9, 0.75, 9], [9, 0.5, 9, 9], [9, 9, 0.375, 0.5]], F)
    found = sy.moe_ids_from_map(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]], bool), probs, k=2)
    same(found.ids, [[0, 2], [1, -1], [2, 3]])
    same(found.weights, [[0.25, 0.75], [0.5, 0], [0.375, 0.5]])


def test_blocks_of_slots() -> None:
    ids = i32([[2, 0], [1, 2], [0, 2]])
    made = sy.moe_align_block(ids, num_experts=4, block_size=2)
    same(made.sorted_slots, [1, 4, 2, 6, 0, 3, 5, 6, 6, 6])
    same(made.block_experts, [0, 1, 2, 2, -1])
    same(made.num_padded, [8])
    same(made.expert_counts, [2, 1, 3, 0])
    same(made.expert_offsets, [0, 2, 4, 8, 8])
    here = i32([1, -1, 0, -1])
    same(sy.moe_align_block(ids, here, num_experts=4, block_size=2).block_experts, [1, -1, 0, 0, -1])
    skipped = sy.moe_align_block(ids, here, num_experts=4, block_size=2, skip_unmapped=True)
    same(skipped.sorted_slots, [1, 4, 0, 3, 5, 6, 6, 6, 6, 6])
    same(skipped.block_experts, [1, 0, 0, -1, -1])
    same(skipped.expert_offsets, [0, 2, 2, 6, 6])


def test_padded_maps() -> None:
    routing_map = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    two = sy.moe_pad_map(routing_map, alignment=2)
    same(two.padded_map, [[1, 0, 0], [1, 0, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0]])
    same(two.expert_counts, [4, 0, 2])
    same(sy.moe_pad_map(routing_map, alignment=5).expert_counts, [5, 0, 5])
    with pytest.raises(sy.Error) as refused:
        sy.moe_pad_map(routing_map, alignment=8)
    assert (refused.value.status.name, refused.value.fault.position) == ("ROUTING", 0)


def test_chunks() -> None:
    counts = i32([[2, 0, 1], [1, 2, 1]])
    there = sy.moe_reorder_chunks(np.arange(7), counts)
    same(there.reordered_rows, [0, 1, 3, 4, 5, 2, 6])
    same(there.expert_offsets, [0, 3, 5, 7])
    same(sy.moe_reorder_chunks(np.arange(7), counts, inverse=True).reordered_rows, [0, 1, 5, 2, 3, 4, 6])


def test_index_forms() -> None:
    offsets = np.array([0, 3, 5, 8])
    te = sy.moe_convert_indices(SLOTS, offsets, from_="slot", to="te", num_tokens=4)
    same(te, [[5, 0, -1, 2, 0, -1, 2], [6, 3, -1, 2, 1, -1, 2], [4, 1, -1, 1, 0, -1, 2], [7, 2, -1, 2, 0, -1, 2]])
    rows = sy.moe_convert_indices(te, from_="te", to="row", num_tokens=4, num_rows=8)
    same(rows, [0, 2, 3, 1, 2, 0, 1, 3])
    same(sy.moe_convert_indices(rows, from_="row", to="slot", num_tokens=4), SLOTS)
    short = i32([0, 2, 1, -1, -1, -1])
    same(sy.moe_convert_indices(short, from_="slot", to="row", num_tokens=3), [0, 1, 0, -1, -1, -1])
    wide = sy.moe_convert_indices(short, np.array([0, 2, 3]), from_="slot", to="te", num_tokens=3)
    same(wide, [[2, 0, 1, 0, 2], [1, -1, 0, -1, 1], [-1, -1, -1, -1, 0]])
    capacity = i32([0, 2, 0, 1])
    same(sy.moe_convert_indices(capacity, from_="row", to="slot", num_tokens=3, k=2), [0, 2, 3, -1, 1, -1])
    with pytest.raises(sy.Error):
        sy.moe_convert_indices(capacity, from_="row", to="slot", num_tokens=3)


# ---- Slots of fixed capacity ----

GATES = np.array([1, 2, 4, 0.5, 1], F)
LOCATIONS = i32([1, 1, 0, 1, -1])
SAMPLES = np.array([[1, 2], [3, 4], [5, 6], [8, 10], [7, 7]], F)


def test_dispatch_leaves_rows_nobody_writes() -> None:
    gates = np.array([0.5, 2, 1, -1], F)
    where = {"indices": i32([1, 0, 1, 0]), "locations": i32([0, 0, 1, 2]), "num_experts": 2, "capacity": 3}
    x = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], F)
    buffer = np.full((6, 2), 9, F)
    assert sy.moe_dispatch(input=x, gates=gates, **where, out=buffer) is buffer
    same(buffer, [[6, 8], [9, 9], [-7, -8], [0.5, 1], [5, 6], [9, 9]])
    same(sy.moe_dispatch(input=x, gates=gates, **where), [[6, 8], [0, 0], [-7, -8], [0.5, 1], [5, 6], [0, 0]])
    sy.moe_dispatch(input=x, gates=gates, zero_unwritten=True, **where, out=buffer)
    same(buffer, [[6, 8], [0, 0], [-7, -8], [0.5, 1], [5, 6], [0, 0]])


def test_dispatch_skips_on_all_four_sides() -> None:
    x = np.arange(10, 24, dtype=F).reshape(7, 2)
    gates = np.array([1, 1, 1, 1, 1, 1, 3], F)
    indices, locations = i32([-1, 3, 1, 0, 2, 0, 1]), i32([0, 0, -1, 2, -2, -1, 1])
    found = sy.moe_dispatch(indices, locations, x, gates, num_experts=3, capacity=2)
    same(found, [[0, 0], [0, 0], [0, 0], [66, 69], [0, 0], [0, 0]])


def test_the_last_of_several_samples_wins() -> None:
    buffer = np.full((2, 2), 100, F)
    sy.moe_dispatch(i32([0] * 5), LOCATIONS, SAMPLES, GATES, num_experts=1, capacity=2, out=buffer)
    same(buffer, [[20, 24], [4, 5]])


def test_gradients_of_dispatch() -> None:
    d = np.array([[1, -1], [2, 0.5]], F)
    zeros = i32([0] * 5)
    rows = sy.moe_combine(zeros, LOCATIONS, d, GATES, num_experts=1, capacity=2)
    same(rows, [[2, 0.5], [4, 1], [4, -4], [1, 0.25], [0, 0]])
    same(sy.moe_dispatch_grad_data(zeros, LOCATIONS, d, GATES, num_experts=1, capacity=2), rows)
    gates = np.full(5, np.nan, F)
    sy.moe_dispatch_grad_gate(zeros, LOCATIONS, SAMPLES, d, num_experts=1, capacity=2, out=gates)
    same(gates, [3, 8, -1, 21, 0])


def test_two_choices_there_and_back() -> None:
    indices, wanted = i32([[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]]), i32([[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]])
    made = sy.moe_locations(indices, num_experts=3)
    same(made.locations, wanted)
    same(made.counts, [4, 4, 2])
    for factor, capacity, aligned in ((1, 4, 4), (0.5, 2, 4), (0, 4, 4), (-0.5, 2, 4), (-1, 4, 4)):
        fields = {"samples": 5, "num_experts": 3, "k": 2, "factor": factor}
        assert sy.moe_capacity(made.counts, **fields) == capacity
        assert sy.moe_capacity(made.counts, **fields, alignment=4) == aligned
    x = np.arange(1, 6, dtype=F)[:, None]
    buffer = np.zeros((6, 1), F)
    for t in range(2):
        sy.moe_dispatch(indices[t], wanted[t], x, num_experts=3, capacity=2, out=buffer)
    same(buffer, [1, 2, 4, 1, 3, 2])
    z = np.array([10, 20, 30, 40, 50, 60], F)[:, None]
    gates = np.array([[0.5, 0.75, 0.25, 0.5, 1], [0.5, 0.25, 0.75, 0.5, 0]], F)
    same(sy.moe_combine(indices, wanted, z, gates, num_experts=3, capacity=2), [25, 30, 12.5, 15, 0])
    dz = np.zeros((6, 1), F)
    for t in range(2):
        sy.moe_dispatch(indices[t], wanted[t], np.ones((5, 1), F), gates[t], num_experts=3, capacity=2, out=dz)
    same(dz, [0.5, 0.75, 0.5, 0.5, 0.25, 0.25])
    grad = sy.moe_dispatch_grad_gate(indices, wanted, np.ones((5, 1), F), z, num_experts=3, capacity=2)
    same(grad, [[10, 20, 50, 30, 0], [40, 60, 0, 0, 0]])


def test_capacities_of_two_networks() -> None:
    assert sy.moe_capacity(samples=18432, num_experts=2, factor=1.25) == 11520
    assert sy.moe_capacity(samples=4608, num_experts=2, factor=1.25) == 2880


def test_dispatch_in_place() -> None:
    buffer = np.array([[1], [10], [100]], F)
    apart, gates = buffer.copy(), np.array([2, 3, 1], F)
    where = {"indices": i32([0, 0, 0]), "locations": i32([1, 0, 1]), "num_experts": 1, "capacity": 3}
    sy.moe_dispatch(input=buffer, gates=gates, **where, out=buffer)
    same(buffer, [6, 100, 100])
    into = apart.copy()
    sy.moe_dispatch(input=apart, gates=gates, **where, out=into)
    same(into, [30, 100, 100])


def test_special_products() -> None:
    gates = np.array([0, -0.0, 1, 1, 3e38], F)
    x = np.array([np.inf, 1, np.nan, 1.4e-45, 10], F)[:, None]
    found = sy.moe_dispatch(i32([0] * 5), i32(range(5)), x, gates, num_experts=1, capacity=5)
    words = [0x7FC00000, 0x80000000, 0x7FC00000, 1, 0x7F800000]
    assert found.view(np.uint32)[:, 0].tolist() == words


def test_products_of_16_bits() -> None:
    def product(x: Any) -> int:
        made = sy.moe_dispatch(i32([0]), i32([0]), x, np.array([3], F), num_experts=1, capacity=1)
        return int(made.view(np.uint16)[0, 0])

    assert product(np.array([[0x2E66]], np.uint16).view(np.float16)) == 0x34CC
    assert product(bf16([[0x3DCD]])) == 0x3E9A


def test_sums_round_one_by_one() -> None:
    def combined(values: Any, dtype: Any) -> float:
        rows = np.array(values, dtype)[:, None]
        slots = i32([[i] for i in range(len(values))])
        return float(sy.moe_combine(np.zeros_like(slots), slots, rows, num_experts=1, capacity=len(values))[0, 0])

    assert combined([2.0**24, 1, 1], F) == 2.0**24
    assert combined([2048, 1, 1], np.float16) == 2050
    dot = np.zeros((1, 16), F)
    dot[0, [0, 8]] = 2.0**24, 1
    ones = np.ones((1, 16), F)
    where = {"indices": i32([0]), "locations": i32([0]), "num_experts": 1, "capacity": 1}
    same(sy.moe_dispatch_grad_gate(input=ones, dispatch=dot, **where), [2.0**24])
    dot[0, [4, 12]] = 1
    same(sy.moe_dispatch_grad_gate(input=ones, dispatch=dot, **where), [2.0**24 + 2])


# ---- Routing ----


def test_route_by_softmax() -> None:
    x = np.array([[2, 1, 0, -1]], F)
    routed = sy.moe_route(x, k=2, scores=True)
    same(routed.scores, [[0.643914282, 0.236882821, 0.0871443152, 0.0320586003]])
    same(routed.ids, [[0, 1]])
    same(routed.weights, [[0.643914282, 0.236882821]])
    same(sy.moe_route(x, k=2, renormalize=True).weights, [[0.731058598, 0.268941432]])


def test_route_ties_bias_and_groups() -> None:
    tied = sy.moe_route(np.ones((1, 4), F), k=2)
    same(tied.ids, [[0, 1]])
    same(tied.weights, [[0.25, 0.25]])
    biased = sy.moe_route(np.zeros((1, 3), F), np.array([0, 0.1, 0], F), k=1, score="sigmoid")
    same(biased.ids, [[1]])
    same(biased.weights, [[0.5]])
    x = np.array([[5, 1, 4, 4, 3, 3]], F)
    for worth, ids in (("max", [[0, 1]]), ("sum2", [[2, 3]])):
        same(sy.moe_route(x, k=2, score="none", groups=3, top_groups=1, group_score=worth).ids, ids)


def test_route_scores_that_vanish() -> None:
    x = np.array([[0, -60, -50, -40]], F)
    routed = sy.moe_route(x, k=2)
    same(routed.ids, [[0, 1]])
    same(routed.weights, [[1, 0]])
    same(sy.moe_route(x, k=2, score="none").ids, [[0, 3]])


def test_route_with_a_capacity() -> None:
    x = np.array([[1, 0], [3, 0], [2, 0], [3, 0]], F)
    for drop, stay in (("prob", [0, 1, 0, 1]), ("position", [1, 1, 0, 0])):
        routed = sy.moe_route(x, k=1, score="none", capacity=2, drop=drop)
        same(routed.routing_map[:, 0], stay)
        same(routed.counts, [4, 0])


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
