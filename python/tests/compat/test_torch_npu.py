"""compat.torch_npu: the calls of torch_npu give what plain loops give, gradients included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import switchyard  # noqa: E402
from switchyard.compat import torch_npu  # noqa: E402

MAP = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]


def of(*numbers: int) -> Any:
    return torch.tensor(numbers, dtype=torch.int32)


def rejected(match: str, call: Any, *arguments: Any, **options: Any) -> None:
    with pytest.raises(switchyard.Error, match=match):
        call(*arguments, **options)


def test_errors_name_the_call_and_its_arguments() -> None:
    x, ids, cache = torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.int64), torch.zeros(2, 2, 1, 3)
    npu = torch_npu
    rejected("^npu_moe_gating_top_k: x is i32, want f", npu.npu_moe_gating_top_k, x.int(), 2)
    rejected("^npu_moe_gating_top_k: k is 9", npu.npu_moe_gating_top_k, x, 9)
    rejected("^npu_moe_gating_top_k_softmax: x is i32", npu.npu_moe_gating_top_k_softmax, x.int(), k=2)
    rejected("^npu_moe_token_permute: indices is f32", npu.npu_moe_token_permute, x, ids.float())
    rejected("^npu_moe_re_routing: expert_token_num_per_rank is f32", npu.npu_moe_re_routing, x, torch.ones(2, 2))
    rejected("^npu_top_k_top_p_sample: logits is i32", npu.npu_top_k_top_p_sample, x.int(), of(1, 1, 1, 1), x[:, 0])
    scatter = npu.npu_scatter_pa_kv_cache
    rejected(
        "^npu_scatter_pa_kv_cache: slot_mapping ",
        scatter,
        x[:, None],
        x[:, None],
        cache,
        cache.clone(),
        x[:, 0],
        cache_mode="Norm",
    )


# ---- By routing maps ---------------------------------------------------------------------------------------------


def test_permute_and_back() -> None:
    tokens = torch.tensor([[10.0, 11], [20, 21], [30, 31], [40, 41]], requires_grad=True)
    routing_map = torch.tensor(MAP, dtype=torch.int8)
    probs = torch.tensor(MAP).float().mul(0.25).requires_grad_()
    rows, weights, slots = torch_npu.npu_moe_token_permute_with_routing_map(
        tokens, routing_map, probs=probs, num_out_tokens=8, drop_and_pad=False
    )
    assert rows[:, 0].tolist() == [10, 30, 40, 20, 30, 10, 20, 40]
    assert slots.tolist() == [0, 5, 3, 6, 1, 4, 2, 7]
    assert weights.tolist() == [0.25] * 8
    back = torch_npu.npu_moe_token_unpermute_with_routing_map(
        rows, slots, tokens.shape, probs=probs, routing_map=routing_map
    )
    assert back.tolist() == [[5, 5.5], [10, 10.5], [15, 15.5], [20, 20.5]]
    back.sum().backward()
    assert tokens.grad.tolist() == [[0.5, 0.5]] * 4
    assert probs.grad[0].tolist() == [21, 0, 21]


def test_rows_default_to_the_tokens() -> None:
    tokens = torch.eye(3)
    rows, weights, slots = torch_npu.npu_moe_token_permute_with_routing_map(tokens, torch.eye(3, dtype=torch.bool))
    assert weights is None
    assert torch.equal(rows, tokens)
    assert slots.tolist() == [0, 1, 2]


def test_permute_grad() -> None:
    grad, slots = torch.tensor([[1.0], [2], [4], [8]]), of(0, 2, 1, 3)
    routing_map = torch.ones(2, 2, dtype=torch.bool)
    tokens, probs = torch_npu.npu_moe_token_permute_with_routing_map_grad(
        grad, grad[:, 0].clone(), slots, routing_map, 2, 2, False
    )
    assert tokens.tolist() == [[5], [10]]
    assert probs.tolist() == [[1, 4], [2, 8]]


class Unpermute(torch.autograd.Function):  # type: ignore[misc]
    """A layer with a backward pass of its own, over the two calls that torch_npu has for it."""

    @staticmethod
    def forward(ctx: Any, rows: Any, slots: Any, shape: Any, probs: Any, routing_map: Any, padded: bool) -> Any:
        tokens, out_index, token_id, _ = torch_npu._npu_moe_token_unpermute_with_routing_map(
            rows, slots, shape, probs=probs, routing_map=routing_map, drop_and_pad=padded
        )
        ctx.save_for_backward(out_index, token_id, routing_map, rows, probs)
        ctx.shape, ctx.padded = shape, padded
        return tokens

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        out_index, token_id, routing_map, rows, probs = ctx.saved_tensors
        of_rows, of_probs = torch_npu.npu_moe_token_unpermute_with_routing_map_grad(
            grad, out_index, token_id, routing_map, rows, probs, ctx.padded, ctx.shape
        )
        return of_rows, None, None, of_probs, None, None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_unpermute_of_a_layer(padded: bool, weighted: bool) -> None:
    draw = torch.Generator().manual_seed(5)
    routing_map = torch.tensor(MAP, dtype=torch.bool)
    x = torch.randn((4, 6), generator=draw)
    _, _, slots = torch_npu.npu_moe_token_permute_with_routing_map(
        x, routing_map, num_out_tokens=6 if padded else 8, drop_and_pad=padded
    )
    rows = torch.randn((slots.shape[0], 6), generator=draw).requires_grad_()
    probs = torch.rand((4, 3), generator=draw).requires_grad_() if weighted else None
    given = (probs, routing_map if weighted else None, padded)
    grad = torch.randn((4, 6), generator=draw)
    want = torch_npu.npu_moe_token_unpermute_with_routing_map(
        rows, slots, [4, 6], probs=probs, routing_map=given[1], drop_and_pad=padded
    )
    both = (rows, probs) if weighted else (rows,)
    of_want = torch.autograd.grad(want, both, grad)
    got = Unpermute.apply(rows, slots, [4, 6], *given)
    of_got = torch.autograd.grad(got, both, grad)
    assert torch.equal(got, want)
    assert all(torch.equal(a, b) for a, b in zip(of_got, of_want, strict=True))
    own, *kept = torch_npu._npu_moe_token_unpermute_with_routing_map(
        rows, slots, [4, 6], probs=probs, routing_map=given[1], drop_and_pad=padded
    )
    assert torch.equal(own, want)
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(own, both, grad), of_want, strict=True))
    assert not any(made is not None and made.requires_grad for made in kept)
    assert (kept[2] is not None) == weighted


def test_what_a_backward_pass_takes() -> None:
    routing_map, probs = torch.tensor(MAP, dtype=torch.bool), torch.arange(12.0).reshape(4, 3)
    call = torch_npu._npu_moe_token_unpermute_with_routing_map
    _, order, ids, weights = call(
        torch.zeros(8, 1), of(0, 5, 3, 6, 1, 4, 2, 7), [4, 1], probs=probs, routing_map=routing_map
    )
    assert order.tolist() == [0, 5, 3, 6, 1, 4, 2, 7]
    assert ids.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert weights.tolist() == [0, 2, 4, 5, 6, 7, 9, 11]
    padded = of(2, 0, 1, 0, 0, 3)  # two rows for each of three experts
    _, order, ids, weights = call(torch.zeros(6, 1), padded, [4, 1], probs=probs, drop_and_pad=True)
    assert order.tolist() == [1, 3, 4, 2, 0, 5]
    assert ids.tolist() == [0, 0, 0, 1, 2, 3]
    assert weights.tolist() == [6, 0, 4, 1, 2, 11]
    assert order.dtype == ids.dtype == torch.int32
    nothing = call(torch.zeros(0, 1), of(), [0, 1], probs=probs[:0], routing_map=routing_map[:0])
    assert [tuple(made.shape) for made in nothing] == [(0, 1), (0,), (0,), (0,)]


def test_no_row_for_no_weight() -> None:
    rows = torch.tensor([[2.0], [4], [8], [100]], requires_grad=True)
    probs = torch.tensor([[0.5, 0], [0.25, 0.75]], requires_grad=True)
    routing_map = torch.ones(2, 2, dtype=torch.int8)
    slots = of(0, -1, 1, 2)
    tokens, _, _, weights = torch_npu._npu_moe_token_unpermute_with_routing_map(
        rows, slots, [2, 1], probs=probs, routing_map=routing_map
    )
    assert tokens.flatten().tolist() == [1, 7]
    assert weights.tolist() == [0.5, 0, 0.25, 0.75]
    tokens.sum().backward()
    assert rows.grad.flatten().tolist() == [0.5, 0.25, 0.75, 0]
    assert probs.grad.tolist() == [[2, 0], [4, 8]]
    of_rows, of_probs = torch_npu.npu_moe_token_unpermute_with_routing_map_grad(
        torch.ones(2, 1), slots, slots, routing_map, rows.detach(), probs.detach(), False, [2, 1]
    )
    assert torch.equal(of_rows, rows.grad)
    assert torch.equal(of_probs, probs.grad)


# ---- By expert numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("kept", [None, 0, 7, -2, 1000])
def test_permute_by_experts(choices: int, kept: int | None) -> None:
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randn((9, 4), generator=draw).requires_grad_()
    indices = torch.randint(0, 5, (9, choices), generator=draw)
    rows, slots = torch_npu.npu_moe_token_permute(tokens, indices if choices > 1 else indices[:, 0], kept)
    order = indices.flatten().argsort(stable=True)
    count = 9 * choices
    count = min(kept, count) if kept is not None and kept > 0 else count + (kept or 0)
    assert torch.equal(rows, tokens[order[:count] // choices])
    assert torch.equal(slots, order.argsort().to(torch.int32))
    grad = torch.randn(rows.shape, generator=draw)
    rows.backward(grad)
    want = torch.zeros(9, 4).index_add(0, order[:count] // choices, grad)
    np.testing.assert_allclose(tokens.grad, want, rtol=1e-6, atol=1e-6)  # another order of additions
    plain = torch_npu.npu_moe_token_permute_grad(tokens.detach(), grad, indices, slots)
    assert torch.equal(plain, tokens.grad)


@pytest.mark.parametrize("types", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
def test_unpermute_by_experts(types: Any) -> None:
    draw = torch.Generator().manual_seed(2)
    indices = torch.randint(0, 5, (6, 2), generator=draw)
    tokens = torch.randn((6, 4), generator=draw).to(types[0])
    probs = torch.full((6, 2), 0.5, dtype=types[1], requires_grad=True)
    rows, slots = torch_npu.npu_moe_token_permute(tokens, indices)
    rows.requires_grad_()
    back = torch_npu.npu_moe_token_unpermute(rows, slots, probs=probs)
    assert torch.equal(back, tokens)
    grad = torch.ones_like(back)
    back.backward(grad)
    assert torch.equal(rows.grad, torch.full_like(rows, 0.5))
    assert probs.grad.dtype == types[1]
    made = torch_npu.npu_moe_token_unpermute_grad(rows.detach(), grad, slots, probs.detach())
    assert torch.equal(made[0], rows.grad)
    assert torch.equal(made[1], probs.grad)
    alone, nothing = torch_npu.npu_moe_token_unpermute_grad(rows.detach(), rows.detach(), slots)
    assert nothing is None
    assert torch.equal(alone, rows.detach()[slots.argsort()])
    rejected("padded_mode is True, want False", torch_npu.npu_moe_token_unpermute, rows, slots, padded_mode=True)
    rejected("padded_mode is True, want False", torch_npu.npu_moe_token_permute, tokens, indices, padded_mode=True)


# ---- Routing -----------------------------------------------------------------------------------------------------


def init_loops(x: Any, ids: Any, first: int, end: int) -> tuple[list[int], list[int]]:
    """The choice of each row, and the row of each choice."""
    flat = ids.flatten().tolist()
    choices = [i for e in range(first, end) for i, found in enumerate(flat) if found == e]
    rows = [-1] * len(flat)
    for row, i in enumerate(choices):
        rows[i] = row
    return choices, rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("span", [[], [0, 6], [2, 5], [4, 4]])
@pytest.mark.parametrize("active", [-1, 0, 4, 100])
def test_init_routing(dtype: Any, span: list[int], active: int) -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randint(-100, 100, (7, 3), generator=draw).to(dtype)
    ids = torch.randint(0, 6, (7, 2), generator=draw).to(torch.int32)
    scale = torch.rand(7, generator=draw)
    first, end = span or (0, 6)
    choices, rows = init_loops(x, ids, first, end)
    length = min(active, 14) if active > 0 else 14
    filled = [choices[i] // 2 if i < len(choices) else None for i in range(length)]
    want = torch.stack([x[t] if t is not None else torch.zeros_like(x[0]) for t in filled])
    want_scale = [float(scale[t]) if t is not None else 0.0 for t in filled]
    counts = [ids.flatten().tolist().count(e) for e in range(first, end)]
    pairs = [[first + i, n] for i, n in enumerate(counts) if n]
    listed = [np.cumsum(counts).tolist(), counts, pairs + [[0, 0]] * (6 - len(pairs))]
    for kind in range(3):
        made, at, counted, scales = torch_npu.npu_moe_init_routing_v2(
            x,
            ids,
            scale=scale,
            active_num=active,
            expert_num=6,
            expert_tokens_num_type=kind,
            expert_tokens_num_flag=True,
            active_expert_range=span,
        )
        assert torch.equal(made, want)
        assert at.tolist() == rows
        assert counted.tolist() == listed[kind]
        assert counted.dtype == torch.int64
        assert scales.tolist() == want_scale
    _, at, counted, scales = torch_npu.npu_moe_init_routing_v2(
        x, ids, expert_num=6, active_expert_range=span, row_idx_type=1
    )
    assert at.tolist()[: len(choices)] == choices
    assert counted.numel() == scales.numel() == 0


def test_init_routing_with_capacity() -> None:
    x, ids = torch.tensor([[10.0], [20], [30]]), torch.tensor([[1, 0], [1, 2], [1, 0]], dtype=torch.int32)
    made, rows, counts, scales = torch_npu.npu_moe_init_routing_v2(
        x,
        ids,
        scale=torch.tensor([0.1, 0.2, 0.3]),
        expert_num=4,
        expert_capacity=2,
        drop_pad_mode=1,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
    )
    assert made.tolist() == [[[10], [30]], [[10], [20]], [[20], [0]], [[0], [0]]]
    assert rows.tolist() == [2, 0, 3, 4, -1, 1]
    assert counts.tolist() == [2, 3, 1, 0]
    np.testing.assert_array_equal(scales, np.float32([0.1, 0.3, 0.1, 0.2, 0.2, 0, 0, 0]))


def test_init_routing_of_nothing() -> None:
    for capacity in (0, 3):
        rows, at, counts, _ = torch_npu.npu_moe_init_routing_v2(
            torch.zeros(0, 5, dtype=torch.uint8),
            torch.zeros(0, 2, dtype=torch.int32),
            expert_num=4,
            expert_capacity=capacity,
            drop_pad_mode=int(capacity > 0),
            expert_tokens_num_type=1,
            expert_tokens_num_flag=True,
            x_dtype=290,
        )
        assert rows.shape == ((4, 3, 5) if capacity else (0, 5))
        assert not rows.any()
        assert at.shape == (0,)
        assert counts.tolist() == [0] * 4


def test_init_routing_rejects() -> None:
    x, ids, call = torch.eye(2), of(0, 1).reshape(2, 1), torch_npu.npu_moe_init_routing_v2
    rejected("quant_mode is 1, want -1", call, x, ids, expert_num=2, quant_mode=1)
    rejected("offset is a Tensor", call, x, ids, expert_num=2, offset=x[0])
    rejected("expert_num is -1, want the number of experts", call, x, ids)
    rejected("expert_idx has 1 at position 1, want 0 to 0", call, x, ids, expert_num=1)
    for span in ([1, 3], [0, 1, 2], [1]):
        rejected(f"active_expert_range is \\{str(span)[:-1]}", call, x, ids, expert_num=2, active_expert_range=span)
    for scale in (torch.ones(1), torch.ones(2, 2)):
        rejected("scale has shape", call, x, ids, expert_num=2, scale=scale)
    padded = {"expert_num": 2, "drop_pad_mode": 1, "expert_tokens_num_type": 1}
    rejected("expert_capacity is -1, want 1 or more", call, x, ids, **padded)
    rejected("row_idx_type is 1, want 0", call, x, ids, **padded, row_idx_type=1)
    rejected("active_expert_range is \\[0, 1\\], want all", call, x, ids, **padded, active_expert_range=[0, 1])


def finalize_loops(rows: Any, skips: Any, bias: Any, scales: Any, places: Any, experts: Any, by_column: bool) -> Any:
    """In float32, one operation after the other."""
    count, choices = experts.shape
    rows = rows.reshape(-1, rows.shape[-1])
    out = np.zeros((count, rows.shape[1]), np.float32)
    for t in range(count):
        for skip in skips:
            out[t] += skip[t]
        for k in range(choices):
            at = places[k * count + t if by_column else t * choices + k]
            row = rows[at] if at >= 0 else np.zeros_like(rows[0])
            if bias is not None:
                row = row + bias[experts[t, k]]
            elif at < 0:
                continue
            out[t] += row * (scales[t, k] if scales is not None else np.float32(1))
    return out


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("skips", [0, 1, 2])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("choices", [1, 3])
def test_finalize_routing(mode: int, skips: int, biased: bool, choices: int) -> None:
    draw = np.random.default_rng(mode)
    count, experts, width = 5, 4, 6
    length = count * choices if mode in (0, 2) else experts * 9
    rows = draw.standard_normal((length, width)).astype(np.float32)
    places = draw.permutation(length)[: count * choices].astype(np.int32)
    if mode in (1, 3):
        places[draw.integers(0, places.size, 2)] = -1
        assert (places < 0).any()
        rows = rows.reshape(experts, 9, width)
    skip = [draw.standard_normal((count, width)).astype(np.float32) for _ in range(skips)]
    bias = draw.standard_normal((experts, width)).astype(np.float32) if biased else None
    scales = draw.standard_normal((count, choices)).astype(np.float32) if choices > 1 else None
    chosen = draw.integers(0, experts, (count, choices)).astype(np.int32)
    want = finalize_loops(rows, skip, bias, scales, places, chosen, mode < 2)
    given = [
        None if array is None else torch.from_numpy(array) for array in (*skip, *[None] * (2 - skips), bias, scales)
    ]
    got = torch_npu.npu_moe_finalize_routing(
        torch.from_numpy(rows), *given, torch.from_numpy(places), torch.from_numpy(chosen), mode
    )
    np.testing.assert_array_equal(got, want)
    if choices > 1:  # 16 bits: the same sums, rounded once
        narrow = [None if one is None else one.bfloat16() for one in (torch.from_numpy(rows), *given)]
        wide = [None if one is None else one.float().numpy() for one in narrow]
        want = finalize_loops(
            wide[0], [one for one in wide[1:3] if one is not None], *wide[3:], places, chosen, mode < 2
        )
        got = torch_npu.npu_moe_finalize_routing(*narrow, torch.from_numpy(places), torch.from_numpy(chosen), mode)
        assert torch.equal(got, torch.from_numpy(want).bfloat16())


def test_gradients_of_a_layer() -> None:
    """Through init, re-routing of one rank, and finalize with every input."""
    x, skip = torch.rand((4, 3)).requires_grad_(), torch.rand((4, 3)).requires_grad_()
    scales, bias = torch.rand((4, 2)).requires_grad_(), torch.rand((3, 3)).requires_grad_()
    ids = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1]], dtype=torch.int32)
    rows, at, counts, _ = torch_npu.npu_moe_init_routing_v2(
        x, ids, expert_num=3, expert_tokens_num_type=1, expert_tokens_num_flag=True
    )
    rows, _, _, _ = torch_npu.npu_moe_re_routing(rows, counts[None])
    out = torch_npu.npu_moe_finalize_routing(rows, skip, None, bias, scales, at, ids, 2)
    want = skip + (scales[..., None] * (x[:, None] + bias[ids.long()])).sum(1)
    grad = torch.rand((4, 3))
    inputs = (x, skip, scales, bias)
    for got, wanted in zip(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(want, inputs, grad), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)  # torch adds in another order


def test_finalize_routing_rejects() -> None:
    call, rows = torch_npu.npu_moe_finalize_routing, torch.eye(2)
    rejected("expanded_src_to_dst_row has 2 at position 1, want -1 to 1", call, rows, *[None] * 4, of(0, 2), None)
    rejected("drop_pad_mode is 4", call, rows, *[None] * 4, of(0, 1), None, 4)
    rejected("export_for_source_row is None beside bias", call, rows, None, None, rows, None, of(0, 1), None)
    wrong = of(0, 2).reshape(2, 1)
    rejected("export_for_source_row has 2 at position 1", call, rows, None, None, rows, None, of(0, 1), wrong)
    rejected("skip1 is torch.float16", call, rows, rows.half(), None, None, None, of(0, 1), None)
    rejected("has 2 entries, want a multiple of the 3", call, rows, *[None] * 4, of(0, 1), None, 0, 3)


def gating_loops(x: Any, bias: Any, k: int, groups: int, kept: int, sum2: bool, sigmoid: bool) -> Any:
    """In float64: the experts of each row, and their scores."""
    scores = 1 / (1 + np.exp(-x)) if sigmoid else np.exp(x) / np.exp(x).sum(1, keepdims=True)
    values = scores + (0 if bias is None else bias)
    size = x.shape[1] // groups
    for row in values:
        of_group = [np.sort(row[g * size : (g + 1) * size])[-2 if sum2 else -1 :].sum() for g in range(groups)]
        for g in np.argsort(-np.array(of_group), kind="stable")[kept:]:
            row[g * size : (g + 1) * size] = -np.inf
    ids = np.argsort(-values, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(scores, ids, 1)
    return ids, weights / weights.sum(1, keepdims=True) if sigmoid else weights, scores


@pytest.mark.parametrize("norm_type", [0, 1])
@pytest.mark.parametrize("group_select_mode", [0, 1])
@pytest.mark.parametrize(("group_count", "k_group"), [(1, 1), (4, 2)])
@pytest.mark.parametrize("biased", [False, True])
def test_gating(norm_type: int, group_select_mode: int, group_count: int, k_group: int, biased: bool) -> None:
    draw = np.random.default_rng(11)
    x = draw.uniform(-2, 2, (20, 32)).astype(np.float32)
    bias = draw.uniform(-2, 2, 32).astype(np.float32) if biased else None
    ids, weights, scores = gating_loops(
        x.astype(np.float64), bias, 6, group_count, k_group, group_select_mode == 1, norm_type == 1
    )
    options = {
        "bias": None if bias is None else torch.from_numpy(bias),
        "k_group": k_group,
        "group_count": group_count,
        "group_select_mode": group_select_mode,
        "norm_type": norm_type,
    }
    y, experts, norm = torch_npu.npu_moe_gating_top_k(
        torch.from_numpy(x), 6, **options, out_flag=True, routed_scaling_factor=2.5
    )
    np.testing.assert_array_equal(experts, ids)
    np.testing.assert_allclose(y, 2.5 * weights, rtol=1e-5)  # the reference is float64
    np.testing.assert_allclose(norm, scores, rtol=1e-5)
    for factor in (0.0, 1e-60):  # which is 0 as a float of 32 bits
        y, _, norm = torch_npu.npu_moe_gating_top_k(torch.from_numpy(x), 6, **options, routed_scaling_factor=factor)
        assert not y.any()
        assert norm.numel() == 0


def test_gating_rejects() -> None:
    x, call = torch.eye(4), torch_npu.npu_moe_gating_top_k
    rejected("renorm is 1, want 0", call, x, 2, renorm=1)
    rejected("norm_type is 2, want 0 or 1", call, x, 2, norm_type=2)
    rejected("input_ids is a Tensor, want None", call, x, 2, input_ids=x, tid2eid=x)


@pytest.mark.parametrize("shape", [(10, 12), (2, 5, 12)])
def test_gating_by_softmax(shape: tuple[int, ...]) -> None:
    x = torch.from_numpy(np.random.default_rng(4).standard_normal(shape).astype(np.float32))
    finished = torch.arange(10).reshape(shape[:-1]) % 3 == 0
    flat = x.reshape(10, 12)
    scores = flat.softmax(1)
    order = (-flat).argsort(dim=1, stable=True)[:, :3]
    want = torch.where(finished.reshape(10, 1), 12, order).reshape(*shape[:-1], 3)
    y, ids, columns = torch_npu.npu_moe_gating_top_k_softmax(x, finished, 3)
    assert torch.equal(ids, want.int())
    assert columns.reshape(10, 3).tolist() == [[t, 10 + t, 20 + t] for t in range(10)]
    assert columns.shape == ids.shape
    chosen = scores.gather(1, order).reshape(y.shape)
    np.testing.assert_allclose(y, chosen, rtol=1e-6)  # torch's exponential is another
    after, ids, nothing = torch_npu.npu_moe_gating_top_k_softmax_v2(x, k=3, renorm=1, output_softmax=True)
    np.testing.assert_allclose(after, flat.gather(1, order).softmax(1).reshape(y.shape), rtol=1e-6)
    assert torch.equal(ids, order.reshape(ids.shape).int())
    assert nothing.numel() == 0
    *_, all_of = torch_npu.npu_moe_gating_top_k_softmax_v2(x, k=3, finished=finished, output_softmax=True)
    np.testing.assert_allclose(all_of, scores.reshape(shape), rtol=1e-6)
    rejected("renorm is 2", torch_npu.npu_moe_gating_top_k_softmax_v2, x, renorm=2)
    rejected("finished has shape", torch_npu.npu_moe_gating_top_k_softmax, x, finished.flatten()[:1], 3)


def test_re_routing() -> None:
    counts = torch.tensor([[2, 0, 1], [1, 2, 1]], dtype=torch.int32)
    tokens, scales = torch.arange(14, dtype=torch.int8).reshape(7, 2), torch.arange(7.0)
    rows, moved, source, experts = torch_npu.npu_moe_re_routing(tokens, counts, per_token_scales=scales)
    order = [0, 1, 3, 4, 5, 2, 6]
    assert torch.equal(rows, tokens[order])
    assert moved.tolist() == order
    assert source.tolist() == order
    assert experts.tolist() == [3, 2, 2]
    assert (source.dtype, experts.dtype) == (torch.int32, torch.int32)
    _, nothing, _, _ = torch_npu.npu_moe_re_routing(tokens, counts, tokens_dtype=290)
    assert nothing.numel() == 0
    few = counts - torch.tensor([[1, 0, 0], [0, 0, 0]], dtype=torch.int32)
    rejected("adds up to 6, want the 7 rows of tokens", torch_npu.npu_moe_re_routing, tokens, few)
    rejected("idx_type is 1, want 0", torch_npu.npu_moe_re_routing, tokens, counts, idx_type=1)
    rejected("expert_token_num_type is 0", torch_npu.npu_moe_re_routing, tokens, counts, expert_token_num_type=0)


# ---- Sampling ----------------------------------------------------------------------------------------------------


def drawn() -> Any:
    draw = np.random.default_rng(3)
    logits = torch.from_numpy(draw.standard_normal((5, 40)).astype(np.float32)).half()
    top_k, top_p = of(3, 0, 40, 7, 1), torch.tensor([0.9, 0.5, 1, 0.2, 0.9]).half()
    return logits, top_k, top_p, torch.from_numpy(draw.exponential(size=(5, 40)).astype(np.float32))


def test_sample() -> None:
    logits, top_k, top_p, q = drawn()
    token, kept = torch_npu.npu_top_k_top_p_sample(logits, top_k, top_p, q, is_need_logits=True)
    want = switchyard.sample(logits, top_k, top_p, q=q, k_limit=1024, empty_token=0, masked_logits=True)
    assert torch.equal(token, want.token)
    assert torch.equal(kept, want.masked_logits)
    token, nothing = torch_npu.npu_top_k_top_p_sample(logits, top_k, top_p)
    assert nothing.numel() == 0
    assert torch.equal(token, logits.argmax(dim=1))


def test_sample_the_most_likely() -> None:
    logits, top_k, top_p, q = drawn()
    token, kept = torch_npu.npu_top_k_top_p_sample(logits, top_k, top_p, is_need_logits=True, post_sample="None")
    want = switchyard.sample(logits, top_k, top_p, noise="none", k_limit=1024, empty_token=0, masked_logits=True)
    assert torch.equal(token, logits.argmax(dim=1))
    assert torch.equal(kept, want.masked_logits)
    call = torch_npu.npu_top_k_top_p_sample
    rejected("q is a Tensor beside post_sample 'None', want None", call, logits, top_k, top_p, q, post_sample="None")
    rejected("post_sample is 'max', want 'None', 'qSample'", call, logits, top_k, top_p, post_sample="max")


def test_sample_by_a_generator() -> None:
    logits, top_k, top_p, q = drawn()
    logits[4] = -float("inf")
    min_ps = torch.full((5,), 0.05).half()
    call, options = torch_npu.npu_top_k_top_p_sample, {"min_ps": min_ps, "post_sample": "multiNomial"}
    listed = switchyard.sample(logits, top_k, top_p, min_ps, k_limit=1024, empty_token=0, candidates=True)
    assert not listed.list_prob[4].any()
    seen = set()
    for seed in range(30):
        token, _ = call(logits, top_k, top_p, **options, generator=torch.Generator().manual_seed(seed))
        again, _ = call(logits, top_k, top_p, **options, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(token, again)
        weights = listed.list_prob.clone()
        weights[4, 0] = 1
        picked = torch.multinomial(weights, 1, True, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(token, listed.list_token.gather(1, picked)[:, 0])
        assert token[4] == 0
        seen.add(tuple(token.tolist()))
    assert len(seen) > 5
    rejected("q is a Tensor beside post_sample 'multiNomial'", call, logits, top_k, top_p, q, post_sample="multiNomial")


# ---- Caches ------------------------------------------------------------------------------------------------------


def caches(mode: str) -> Any:
    """Keys of 2 heads of 16, values of 2 heads of 32; 3 blocks of 4 tokens."""
    draw = torch.Generator().manual_seed(9)
    shapes = [(3, 4, 2, 16), (3, 4, 2, 32)] if mode == "Norm" else [(3, 2, 4, 16), (3, 4, 4, 16)]
    return [torch.randn(shape, generator=draw).half() for shape in shapes]


def cache_row(cache: Any, slot: int, mode: str) -> Any:
    block, place = slot // 4, slot % 4
    return (cache[block, place] if mode == "Norm" else cache[block, :, place]).flatten()


@pytest.mark.parametrize("mode", ["Norm", "PA_NZ"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_scatter(mode: str, dtype: Any) -> None:
    draw = torch.Generator().manual_seed(8)
    rows = [torch.randn((4, 2, width), generator=draw).half() for width in (16, 32)]
    slots = torch.tensor([7, -1, 0, 10], dtype=dtype)
    made, before = caches(mode), caches(mode)
    copies = torch_npu.npu_scatter_pa_kv_cache_functional(*rows, *made, slots, cache_mode=mode)
    assert all(torch.equal(a, b) for a, b in zip(made, before, strict=True))
    assert torch_npu.npu_scatter_pa_kv_cache(*rows, *made, slots, cache_mode=None if mode == "Norm" else mode) is None
    assert all(torch.equal(a, b) for a, b in zip(made, copies, strict=True))
    for source, cache, old in zip(rows, made, before, strict=True):
        for slot in range(12):
            at = [7, -1, 0, 10].index(slot) if slot in (7, 0, 10) else None
            want = cache_row(old, slot, mode) if at is None else source[at].flatten()
            assert torch.equal(cache_row(cache, slot, mode), want)
    turned = [source.transpose(1, 2).contiguous().transpose(1, 2) for source in rows]
    torch_npu.npu_scatter_pa_kv_cache(*turned, *before, slots, cache_mode=mode)
    assert all(torch.equal(a, b) for a, b in zip(before, copies, strict=True))
    nothing = [source[:0] for source in rows]
    assert torch_npu.npu_scatter_pa_kv_cache(*nothing, *made, slots[:0], cache_mode=mode) is None
    assert all(torch.equal(a, b) for a, b in zip(made, copies, strict=True))


def test_scatter_rejects() -> None:
    call, made = torch_npu.npu_scatter_pa_kv_cache, caches("Norm")
    rows = torch.zeros(1, 2, 16).half(), torch.zeros(1, 2, 32).half()
    rejected("cache_mode is 'NZ'", call, *rows, *made, of(0), cache_mode="NZ")
    rejected("seq_lens is a Tensor, want None", call, *rows, *made, of(0), seq_lens=of(1), cache_mode="Norm")
    rejected("slot_mapping at position 0 is 12", call, *rows, *made, of(12), cache_mode="Norm")
    rejected("key has shape", call, torch.zeros(1, 1, 15).half(), rows[1], *caches("PA_NZ"), of(0))


@pytest.mark.parametrize("mode", ["Norm", "PA_NZ"])
@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("offset", [False, True])
def test_gather(mode: str, cumulative: bool, offset: bool) -> None:
    stored = caches(mode)
    table = torch.tensor([[2, 0, 1], [1, 2, 0]], dtype=torch.int32)
    lengths, offsets = [6, 3], [5, 0]
    given = of(0, 6, 9) if cumulative else of(*lengths)
    out = [torch.full((10, 2, width), 7.0).half() for width in (16, 32)]
    options = {"seq_offset": of(*offsets) if offset else None, "is_seq_lens_cumsum": cumulative, "cache_mode": mode}
    copies = torch_npu.npu_gather_pa_kv_cache_functional(*stored, table, given, *out, **options)
    assert all((made == 7).all() for made in out)
    torch_npu.npu_gather_pa_kv_cache(*stored, table, given, *out, **options)
    for made, cache, copy in zip(out, stored, copies, strict=True):
        assert torch.equal(made, copy)
        row = 0
        for b, length in enumerate(lengths):
            for u in range(length):
                token = (offsets[b] // 4 * 4 if offset else 0) + u
                slot = int(table[b, token // 4]) * 4 + token % 4
                assert torch.equal(made[row].flatten(), cache_row(cache, slot, mode))
                row += 1
        assert (made[row:] == 7).all()
