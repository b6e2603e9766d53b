"""Gradients: to the bit by formulas in the library's arithmetic, and beside the same layers in plain torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from cases import CHOICES, IDS, MAP, PLACES, i32, rand, st, torch

import switchyard
from switchyard.mesh import AllToAllDispatch, LocalMesh

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def leaf(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_()


def same(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert torch.equal(got, want), f"{got}\n{want}"


def total(rows: Any, dtype: Any) -> Any:
    """Rows added up as the library does: float32, one by one, rounded once to the row type."""
    acc = torch.zeros(rows[0].shape)
    for row in rows:
        acc = acc + row.float()
    return acc.to(dtype)


def dot(a: Any, b: Any) -> Any:
    """A dot product as the library does it: sixteen lanes, folded by halves."""
    products = a.float() * b.float()
    lanes = torch.zeros(16)
    for start in range(0, products.numel(), 16):
        part = products[start : start + 16]
        lanes[: part.numel()] = lanes[: part.numel()] + part
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half : 2 * half]
    return lanes[0]


def routed(tokens: int, experts: int, k: int) -> Any:
    """A map that sends every token to up to k experts, and one token nowhere."""
    scores = torch.rand((tokens, experts), generator=torch.Generator().manual_seed(tokens))
    routing_map = torch.zeros((tokens, experts), dtype=torch.bool).scatter_(1, scores.topk(k).indices, True)
    routing_map[tokens // 2] = False
    routing_map[tokens // 3, routing_map[tokens // 3].nonzero()[0]] = False
    return routing_map


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["packed", "capacity", "zero_pad"])
def test_permute(mode: str, dtype: Any) -> None:
    routing_map = routed(11, 5, 3)
    tokens, probs = leaf(rand(11, 37).to(dtype)), leaf(rand(11, 5))
    settings = {"drop_and_pad": mode != "packed", "zero_pad": mode == "zero_pad"}
    rows = st.moe_permute(tokens, routing_map, probs, num_out_tokens=33 if mode == "packed" else 30, **settings)
    grad_rows, grad_probs = rand(*rows.permuted_tokens.shape).to(dtype), rand(*rows.permuted_probs.shape)
    torch.autograd.backward((rows.permuted_tokens, rows.permuted_probs), (grad_rows, grad_probs))
    indices, slots, capacity = rows.sorted_indices.tolist(), 3, 6
    want_probs = torch.zeros(11, 5)
    for t in range(11):
        if mode == "packed":
            mine = [i for i in indices[t * slots : (t + 1) * slots] if i >= 0]
            experts = routing_map[t].nonzero()[:, 0].tolist()
        else:
            mine = [i for i, token in enumerate(indices) if token == t]
            experts = [i // capacity for i in mine]
        want = total([grad_rows[i] for i in mine], dtype) if mine else torch.zeros(37, dtype=dtype)
        same(tokens.grad[t], want)
        for expert, i in zip(experts, mine, strict=True):
            want_probs[t, expert] = grad_probs[i]
    same(probs.grad, want_probs)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["packed", "capacity", "zero_pad"])
def test_unpermute(mode: str, dtype: Any) -> None:
    routing_map = routed(11, 5, 3)
    settings = {"drop_and_pad": mode != "packed", "zero_pad": mode == "zero_pad"}
    made = st.moe_permute(rand(11, 37), routing_map, num_out_tokens=33 if mode == "packed" else 30, **settings)
    rows, probs = leaf(rand(*made.permuted_tokens.shape).to(dtype)), rand(11, 5)
    probs[routing_map.nonzero()[0, 0], routing_map.nonzero()[0, 1]] = 0.0
    probs = leaf(probs)
    tokens = st.moe_unpermute(rows, made.sorted_indices, routing_map, probs, **settings)
    grad = rand(11, 37).to(dtype)
    grad[0, 0] = torch.inf  # a weight of 0 keeps even this away from its row
    tokens.backward(grad)
    indices, capacity = made.sorted_indices.tolist(), 6
    want_rows, want_probs = torch.zeros_like(rows), torch.zeros(11, 5)
    for t in range(11):
        if mode == "packed":
            mine = [i for i in indices[t * 3 : t * 3 + 3] if i >= 0]
            experts = routing_map[t].nonzero()[:, 0].tolist()
        else:
            mine = [i for i, token in enumerate(indices) if token == t]
            experts = [i // capacity for i in mine]
        for expert, i in zip(experts, mine, strict=True):
            if probs[t, expert] != 0:
                want_rows[i] = (probs.detach()[t, expert] * grad[t].float()).to(dtype)
            want_probs[t, expert] = dot(grad[t], rows.detach()[i])
    same(rows.grad, want_rows)
    same(probs.grad, want_probs)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("window", [False, True])
def test_permute_ids(window: bool, dtype: Any) -> None:
    settings = {"window": True, "row_begin": 2, "row_end": 7} if window else {}
    first, last = (2, 7) if window else (0, 8)
    tokens, probs = leaf(rand(4, 19).to(dtype)), leaf(rand(4, 2))
    rows = st.moe_permute_ids(tokens, IDS, probs, **settings)
    grad_rows, grad_probs = rand(*rows.permuted_tokens.shape).to(dtype), rand(*rows.permuted_probs.shape)
    torch.autograd.backward((rows.permuted_tokens, rows.permuted_probs), (grad_rows, grad_probs))
    want_probs = torch.zeros(4, 2)
    for t in range(4):
        places = rows.sorted_indices[2 * t : 2 * t + 2].tolist()
        mine = [place - first for place in places if first <= place < last]
        same(tokens.grad[t], total([grad_rows[i] for i in mine], dtype) if mine else torch.zeros(19, dtype=dtype))
        for j, place in enumerate(places):
            want_probs[t, j] = grad_probs[place - first] if first <= place < last else 0
    same(probs.grad, want_probs)


def test_missing_experts() -> None:
    """A choice of no expert adds nothing there and back, as a weight of 0 does, and its gradients are 0."""
    ids, full = torch.tensor([[2, 3], [-1, 0], [3, -1], [1, 1]]), torch.tensor([[2, 0], [0, 0], [0, 0], [1, 1]])
    found = []
    for named, settings in ((ids, {"num_experts": 3, "allow_missing": True}), (full, {"num_experts": 3})):
        tokens, weights = leaf(rand(4, 19)), rand(4, 2)
        probs = leaf(torch.where((ids < 0) | (ids == 3), 0, weights))
        rows = st.moe_permute_ids(tokens, named, probs, **settings)
        back = st.moe_unpermute_ids(rows.permuted_tokens, rows.sorted_indices, probs)
        (back.sum() + (rows.permuted_probs * rows.permuted_probs).sum()).backward()
        found.append((back.detach(), tokens.grad, probs.grad))
    (back, grad_tokens, grad_probs), (want, want_tokens, want_probs) = found
    same(back, want)
    same(grad_tokens, want_tokens)
    live = (ids >= 0) & (ids < 3)
    same(grad_probs[live], want_probs[live])
    assert not grad_probs[~live].any()


@pytest.mark.parametrize("by_choice", [False, True])
def test_unpermute_ids_with_all_that_is_added(by_choice: bool) -> None:
    """Whole numbers and powers of two, so that plain torch has the same bits in any order."""
    generator = torch.Generator().manual_seed(3)

    def whole(*shape: int) -> Any:
        return leaf(torch.randint(-8, 9, shape, generator=generator).float())

    rows, bias, residual, shared, grad = whole(5, 3), whole(3, 3), whole(4, 3), whole(4, 3), whole(4, 3).detach()
    probs = leaf(torch.tensor([[0.5, 2], [0, 1], [-1, 0.25], [4, 0]]))
    index = torch.tensor([[3, 1], [-1, 5], [-1, 2], [9, 6]])  # rows 2 to 6 are here
    ids = torch.tensor([[0, 2], [1, -1], [1, 0], [2, 2]])
    leaves = (rows, probs, bias, residual, shared)
    given = (index.t() if by_choice else index).reshape(-1).int()
    made = st.moe_unpermute_ids(
        rows, given, probs, bias, ids.int(), residual, shared, row_begin=2, num_rows=10, by_choice=by_choice
    )
    got = torch.autograd.grad(made, leaves, grad)
    want = residual + shared
    for t, j in itertools.product(range(4), range(2)):
        row, expert = int(index[t, j]) - 2, int(ids[t, j])
        if row in range(5) or index[t, j] == -1:
            x = (rows[row] if row in range(5) else 0) + (bias[expert] if expert >= 0 else torch.zeros(3))
            want = want + torch.eye(4)[t][:, None] * (probs[t, j] * (x if probs[t, j] != 0 else x.detach()))
    assert torch.equal(made, want)
    for one, other in zip(got, torch.autograd.grad(want, leaves, grad), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("first", [0, 2])
def test_unpermute_ids(first: int, dtype: Any) -> None:
    indices = st.moe_permute_ids(rand(4, 1), IDS).sorted_indices
    rows, probs = leaf(rand(6, 19).to(dtype)), rand(4, 2)
    probs[1, 0] = 0
    probs = leaf(probs)
    grad = rand(4, 19).to(dtype)
    grad[1, 3] = torch.nan
    st.moe_unpermute_ids(rows, indices, probs, row_begin=first).backward(grad)
    want_rows, want_probs = torch.zeros_like(rows), torch.zeros(4, 2)
    for t, j in itertools.product(range(4), range(2)):
        i = int(indices[2 * t + j]) - first
        if 0 <= i < 6:
            if probs[t, j] != 0:
                want_rows[i] = (probs.detach()[t, j] * grad[t].float()).to(dtype)
            want_probs[t, j] = dot(grad[t], rows.detach()[i])
    assert torch.equal(rows.grad.nan_to_num(7), want_rows.nan_to_num(7))
    assert torch.equal(probs.grad.nan_to_num(7), want_probs.nan_to_num(7))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("gates_like_rows", [False, True])
def test_dispatch(gates_like_rows: bool, dtype: Any) -> None:
    indices, locations = i32(0, 1, 0, 1, 2, -1, 0), i32(1, 0, 1, 2, 0, 0, 0)  # samples 0 and 2 share a slot
    rows, gates = leaf(rand(7, 21).to(dtype)), leaf(rand(7).to(dtype if gates_like_rows else torch.float32))
    buffer = st.moe_dispatch(indices, locations, rows, gates, num_experts=3, capacity=2)
    grad = rand(6, 21).to(dtype)
    buffer.backward(grad)
    want_rows, want_gates = torch.zeros_like(rows), torch.zeros_like(gates)
    for i, slot in {1: 2, 2: 1, 4: 4, 6: 0}.items():  # the last on each slot
        want_rows[i] = (gates.detach()[i].float() * grad[slot].float()).to(dtype)
        want_gates[i] = dot(grad[slot], rows.detach()[i])
    same(rows.grad, want_rows)
    same(gates.grad, want_gates)


def test_dispatch_promised_unique() -> None:
    rows = leaf(rand(5, 4))
    st.moe_dispatch(CHOICES[0], PLACES[0], rows, num_experts=3, capacity=3, unique_slots=True).sum().backward()
    same(rows.grad, torch.ones(5, 4))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("choices", [1, 2])
def test_combine(choices: int, dtype: Any) -> None:
    indices, locations = i32(0, 0, 2, 1, 0, 1, 0, 1, -1, 0).view(2, 5), i32(0, 1, 0, 0, 2, 0, 0, 0, 0, 1).view(2, 5)
    shape = (2, 5) if choices == 2 else (5,)  # several choices share the slots 0 and 2
    indices, locations = indices[:choices].reshape(shape), locations[:choices].reshape(shape)
    rows, gates = leaf(rand(6, 21).to(dtype)), leaf(rand(*shape))
    st.moe_combine(indices, locations, rows, gates, num_experts=3, capacity=2).backward(grad := rand(5, 21).to(dtype))
    want_gates = torch.zeros(shape)
    named: dict[int, list[Any]] = {slot: [] for slot in range(6)}
    for at in itertools.product(*map(range, shape)):
        if indices[at] >= 0 and locations[at] < 2:
            slot = int(indices[at]) * 2 + int(locations[at])
            named[slot].append(gates.detach()[at] * grad[at[-1]].float())
            want_gates[at] = dot(grad[at[-1]], rows.detach()[slot])
    for slot, products in named.items():
        same(rows.grad[slot], total(products, dtype) if products else torch.zeros(21, dtype=dtype))
    same(gates.grad, want_gates)


def test_maps_and_ids() -> None:
    weights, probs = leaf(rand(4, 2)), leaf(rand(4, 3))
    ids = torch.tensor([[2, 0], [1, -1], [3, 1], [2, 0]])
    st.moe_map_from_ids(ids, weights, num_experts=3, allow_missing=True).probs.backward(grad := rand(4, 3))
    want = [[grad[t, e] if 0 <= e < 3 else 0 for e in row] for t, row in enumerate(ids.tolist())]
    same(weights.grad, torch.tensor(want))
    listed = st.moe_ids_from_map(MAP, probs, k=3)
    listed.weights.backward(grad := rand(4, 3))
    want_probs = torch.zeros(4, 3)
    for t, j in itertools.product(range(4), range(3)):
        if listed.ids[t, j] >= 0:
            want_probs[t, listed.ids[t, j]] = grad[t, j]
    same(probs.grad, want_probs)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("used", ["rows", "extra", "both"])
def test_reorder_chunks(used: str, inverse: bool) -> None:
    rows, extra, counts = leaf(rand(7, 3)), leaf(rand(7)), torch.tensor([[1, 2], [0, 3]])
    made = st.moe_reorder_chunks(rows, counts, extra, inverse=inverse)
    order = st.moe_reorder_chunks(torch.arange(7), counts, inverse=inverse).reordered_rows[:6]
    grad_rows, grad_extra = rand(7, 3), rand(7)
    loss = [(made.reordered_rows * grad_rows).sum(), (made.reordered_extra * grad_extra).sum()]
    {"rows": loss[0], "extra": loss[1], "both": loss[0] + loss[1]}[used].backward()
    for tensor, grad in ((rows, grad_rows), (extra, grad_extra)):
        if tensor.grad is not None:
            want = torch.zeros_like(tensor)
            want[order] = grad[:6]  # what lies behind the counts goes nowhere
            same(tensor.grad, want)
    assert (rows.grad is not None, extra.grad is not None) == (used != "extra", used != "rows")


# What users of autograd do.


def test_only_one_result_is_used() -> None:
    tokens, probs = leaf(rand(4, 3)), leaf(rand(4, 3))
    rows = st.moe_permute(tokens, MAP, probs, num_out_tokens=8)
    rows.permuted_probs.sum().backward()
    assert tokens.grad is None
    same(probs.grad, MAP.float())
    st.moe_permute(tokens, MAP, probs.detach(), num_out_tokens=8).permuted_tokens.sum().backward()
    same(tokens.grad, torch.full((4, 3), 2.0))
    rows = st.moe_permute(tokens.detach(), MAP, probs, num_out_tokens=8)
    assert not rows.sorted_indices.requires_grad and not rows.expert_counts.requires_grad


def test_gradients_that_are_not_contiguous() -> None:
    """Those of sum() are expanded, those of a transposed product are transposed."""
    weights = rand(3, 4)
    for use in (
        lambda rows: rows.sum(),
        lambda rows: (rows.t() * weights[:, :1]).sum(),
        lambda rows: rows[:, ::2].sum(),
    ):
        tokens, plain = leaf(rand(4, 3)), leaf(rand(4, 3))
        made = st.moe_permute(tokens, MAP, num_out_tokens=8)
        back = st.moe_unpermute(made.permuted_tokens, made.sorted_indices, num_tokens=4)
        use(back).backward()
        use(plain * 2).backward()
        same(tokens.grad, plain.grad)


def test_inputs_that_are_not_contiguous() -> None:
    tokens = rand(3, 4)
    want = st.moe_permute(tokens.t().contiguous(), MAP, num_out_tokens=8).permuted_tokens
    same(st.moe_permute(tokens.t(), MAP, num_out_tokens=8).permuted_tokens, want)
    with pytest.raises(switchyard.Error, match="strides"):  # what is written to is never copied
        st.moe_unpermute(want, i32(0, 5, 3, 6, 1, 4, 2, 7), num_tokens=4, out=torch.empty(3, 4).t())


def test_nothing_to_route() -> None:
    tokens, probs = leaf(rand(0, 3)), leaf(rand(0, 3))
    rows = st.moe_permute(tokens, MAP[:0], probs, num_out_tokens=0)
    back = st.moe_unpermute(rows.permuted_tokens, rows.sorted_indices, MAP[:0], probs)
    (back.sum() + rows.permuted_probs.sum()).backward()
    assert tokens.grad.shape == (0, 3) and probs.grad.shape == (0, 3)
    tokens = leaf(rand(4, 3))
    st.moe_permute(tokens, MAP & False, num_out_tokens=8).permuted_tokens.sum().backward()
    same(tokens.grad, torch.zeros(4, 3))
    tokens = leaf(rand(4, 3))
    st.moe_permute(tokens, MAP, num_out_tokens=3).permuted_tokens.sum().backward()  # room for no row
    same(tokens.grad, torch.zeros(4, 3))
    empty = leaf(rand(0, 3))
    made = st.moe_permute_ids(empty, IDS[:0])
    st.moe_unpermute_ids(made.permuted_tokens, made.sorted_indices).sum().backward()
    assert empty.grad.shape == (0, 3)
    none = leaf(rand(0, 4))
    st.moe_dispatch(i32(), i32(), none, num_experts=2, capacity=0).sum().backward()
    assert none.grad.shape == (0, 4)
    rows = leaf(rand(4, 3))
    st.moe_combine(i32(), i32(), rows, num_experts=2, capacity=2).sum().backward()
    same(rows.grad, torch.zeros(4, 3))


def empty_calls(t: int, h: int, k: int) -> dict[str, Any]:
    """Calls of all operators that have a gradient, with no tokens, no columns or no choices where a size is 0."""
    x, w, ids, e = rand(t, h), rand(t, k), torch.arange(k).repeat(t, 1), max(k, 1)
    routing_map = torch.zeros(t, e, dtype=torch.bool)
    routing_map[:, :k] = True
    rows, probs, slots = rand(t * k, h), rand(t, e), i32(*range(t * k))
    choices, places = ids.t().contiguous().int(), torch.arange(t).repeat(k, 1).int()
    cut = {"num_out_tokens": t * k}
    gates = rand(k, t)
    slot_sizes = {"num_experts": e, "capacity": t}
    return {
        "permute": ([x, probs], lambda x, p: st.moe_permute(x, routing_map, p, **cut)),
        "permute_capacity": ([x, probs], lambda x, p: st.moe_permute(x, routing_map, p, **cut, drop_and_pad=True)),
        "permute_plain": ([x], lambda x: st.moe_permute(x, routing_map, **cut)),
        "unpermute": ([rows, probs], lambda r, p: st.moe_unpermute(r, slots, routing_map, p)),
        "unpermute_plain": ([rows], lambda r: st.moe_unpermute(r, slots, num_tokens=t)),
        "permute_ids": ([x, w], lambda x, w: st.moe_permute_ids(x, ids, w)),
        "permute_ids_plain": ([x], lambda x: st.moe_permute_ids(x, ids)),
        "unpermute_ids": ([rows, w], lambda r, w: st.moe_unpermute_ids(r, slots, w)),
        "unpermute_ids_plain": ([rows], lambda r: st.moe_unpermute_ids(r, slots, num_tokens=t)),
        "unpermute_ids_added": (
            [rows, w, x, x],
            lambda r, w, b, s: st.moe_unpermute_ids(r, slots, w, b, ids.new_full(ids.shape, -1, dtype=torch.int32), s),
        ),
        "unpermute_ids_slots": ([rows], lambda r: st.moe_unpermute_ids(r, slots)),
        "dispatch": (
            [x, rand(t)],
            lambda x, g: st.moe_dispatch(places.new_zeros(t), i32(*range(t)), x, g, **slot_sizes),
        ),
        "combine": ([rand(e * t, h), gates], lambda r, g: st.moe_combine(choices, places, r, g, **slot_sizes)),
        "combine_plain": ([rand(e * t, h)], lambda r: st.moe_combine(choices, places, r, **slot_sizes)),
        "map_from_ids": ([w], lambda w: st.moe_map_from_ids(ids, w, num_experts=e)),
        "ids_from_map": ([probs], lambda p: st.moe_ids_from_map(routing_map, p, k=k)),
        "reorder": ([x, rand(t)], lambda x, n: st.moe_reorder_chunks(x, torch.tensor([[t]]), n)),
    }


@pytest.mark.parametrize("sizes", [(0, 4, 2), (3, 0, 2), (3, 4, 0), (0, 0, 2), (0, 4, 0), (0, 0, 0), (1, 1, 1)])
@pytest.mark.parametrize("name", empty_calls(1, 1, 1))
def test_empty_batches(name: str, sizes: tuple[int, int, int]) -> None:
    """Gradients have the shapes of their tensors."""
    tensors, call = empty_calls(*sizes)[name]
    leaves = [leaf(tensor) for tensor in tensors]
    made = call(*leaves)
    outputs = [t for t in (made if isinstance(made, tuple) else (made,)) if t is not None and t.requires_grad]
    sum(output.sum() for output in outputs).backward()
    for tensor in leaves:
        assert tensor.grad is None or tensor.grad.shape == tensor.shape
    assert any(tensor.grad is not None for tensor in leaves)


@pytest.mark.parametrize("probs_type", TYPES)
@pytest.mark.parametrize("rows_type", TYPES)
def test_gradients_have_the_types_of_their_tensors(rows_type: Any, probs_type: Any) -> None:
    tokens, probs, slots = leaf(rand(4, 3).to(rows_type)), leaf(rand(4, 3).to(probs_type)), rand(4, 2).to(probs_type)
    made = st.moe_permute(tokens, MAP, probs, num_out_tokens=8)
    st.moe_unpermute(made.permuted_tokens, made.sorted_indices, MAP, probs).sum().backward()
    assert (tokens.grad.dtype, probs.grad.dtype) == (rows_type, probs_type)
    rows, weights = leaf(rand(8, 3).to(rows_type)), leaf(slots)
    st.moe_unpermute_ids(rows, st.moe_permute_ids(tokens, IDS).sorted_indices, weights).sum().backward()
    assert (rows.grad.dtype, weights.grad.dtype) == (rows_type, probs_type)


# The same operators in plain torch, with autograd of its own.


def torch_permute(tokens: Any, probs: Any, routing_map: Any) -> Any:
    experts, token = routing_map.t().nonzero(as_tuple=True)
    return tokens[token], probs[token, experts], experts, token


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_beside_plain_torch(seed: int) -> None:
    """Route, permute, experts, unpermute.

    float32 in both, but torch multiplies and adds in orders of its own, so the last bits differ: sums of up to 16
    products of numbers around 1, of which a relative error of 2**-20 is more than every rounding together.
    """
    torch.manual_seed(seed)
    count, width, experts, k = 13, 16, 5, 2
    x, router, weight = (torch.randn(s) for s in ((count, width), (width, experts), (experts, width, width)))
    routing_map = st.moe_route(x @ router, k=k).routing_map
    results = []
    for ours in (True, False):
        leaves = [leaf(t) for t in (x, router, weight)]
        tokens, gate, matrices = leaves
        probs = torch.where(routing_map, (tokens @ gate).softmax(-1), 0)
        if ours:
            made = st.moe_permute(tokens, routing_map, num_out_tokens=count * k)
            parts = made.permuted_tokens.split(made.expert_counts.tolist())
            rows = torch.cat([part @ matrix for part, matrix in zip(parts, matrices, strict=True)])
            out = st.moe_unpermute(rows.tanh(), made.sorted_indices, routing_map, probs)
        else:
            rows, weights, owner, token = torch_permute(tokens, probs, routing_map)
            rows = torch.bmm(rows.unsqueeze(1), matrices[owner]).squeeze(1).tanh() * weights.unsqueeze(1)
            out = torch.zeros_like(tokens).index_add(0, token, rows)
        (out * out.detach().roll(1, 0)).sum().backward()
        results.append([out.detach(), *(t.grad for t in leaves)])
    for got, want in zip(*results, strict=True):
        assert (got - want).abs().max() <= 2**-20 * want.abs().max() * 4


def through_map(x: Any, p: Any) -> Any:
    made = st.moe_permute(x, MAP, p, num_out_tokens=8)
    return st.moe_unpermute(made.permuted_tokens**2, made.sorted_indices, MAP, p)


def through_ids(x: Any, p: Any) -> Any:
    made = st.moe_permute_ids(x, IDS, num_experts=3)
    maps = st.moe_map_from_ids(IDS, p[:, :2], num_experts=3)
    weights = st.moe_ids_from_map(maps.routing_map, maps.probs, k=2).weights
    return st.moe_unpermute_ids(made.permuted_tokens**2, made.sorted_indices, weights)


def through_slots(x: Any, p: Any) -> Any:
    at = (CHOICES[:, :4], PLACES[:, :4])
    buffer = st.moe_dispatch(at[0][0], at[1][0], x, p[:, 0], num_experts=3, capacity=4)
    return st.moe_combine(*at, buffer**2, p[:, 1:].t().contiguous(), num_experts=3, capacity=4)


def through_chunks(x: Any, p: Any) -> Any:
    made = st.moe_reorder_chunks(x, torch.tensor([[1, 2], [1, 0]]), p[:, 0].contiguous())
    return made.reordered_rows * made.reordered_extra[:, None]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("layer", [through_map, through_ids, through_slots, through_chunks])
def test_transformations_of_torch_func(layer: Any) -> None:
    """The bits of autograd, by grad, vjp, jacrev and vmap of them."""
    x, p, scale = rand(4, 3), rand(4, 3).abs() + 0.5, rand(4, 3)

    def loss(x: Any, p: Any) -> Any:
        return (layer(x, p) * scale).sum()

    def wanted(x: Any, p: Any) -> Any:
        leaves = leaf(x), leaf(p)
        return torch.autograd.grad(loss(*leaves), leaves)

    both = [torch.stack(pair) for pair in ((x, x.roll(1, 0)), (p, p + 1))]
    many = torch.func.vmap(torch.func.grad(loss, (0, 1)))(*both)
    rows = torch.autograd.functional.jacobian(lambda x: layer(x, p), x)
    for at, want in enumerate(wanted(x, p)):
        same(torch.func.grad(loss, at)(x, p), want)
        same(torch.func.vjp(layer, x, p)[1](scale)[at], want)
        same(many[at], torch.stack([wanted(*pair)[at] for pair in zip(*both, strict=True)]))
    same(torch.func.jacrev(layer)(x, p), rows)
    mean = torch.func.grad(lambda x: torch.func.vmap(loss, (0, None))(x, p).sum())(both[0])
    same(mean, torch.stack([wanted(one, p)[0] for one in both[0]]))


# Where there is no gradient, somebody says so.


def test_second_derivatives_are_rejected() -> None:
    tokens = leaf(rand(4, 3))
    (first,) = torch.autograd.grad(
        (st.moe_permute(tokens, MAP, num_out_tokens=8).permuted_tokens ** 2).sum(), tokens, create_graph=True
    )
    same(first, 4 * tokens.detach())  # first derivatives are fine with create_graph
    with pytest.raises(NotImplementedError, match="moe_permute_grad has no gradient: want first derivatives only"):
        torch.autograd.grad(first.sum(), tokens)
    once = torch.func.grad(lambda x: (st.moe_permute(x, MAP, num_out_tokens=8).permuted_tokens ** 2).sum())
    with pytest.raises(NotImplementedError, match="moe_permute_grad has no gradient: want first derivatives only"):
        torch.func.grad(lambda x: once(x).sum())(rand(4, 3))


def test_the_second_derivative_of_a_combine_is_named() -> None:
    rows = leaf(rand(12, 4))
    made = st.moe_combine(CHOICES, PLACES, rows, num_experts=3, capacity=4)
    (first,) = torch.autograd.grad((made**2).sum(), rows, create_graph=True)
    with pytest.raises(NotImplementedError, match="the gradient of moe_combine or moe_unpermute_ids has no gradient: "):
        torch.autograd.grad(first.sum(), rows)


def test_double_backward_that_has_a_formula_is_right() -> None:
    rows, gates = leaf(rand(5, 4)), leaf(rand(5))
    buffer = st.moe_dispatch(CHOICES[0], PLACES[0], rows, gates, num_experts=3, capacity=3)
    (first,) = torch.autograd.grad((buffer**2).sum(), rows, create_graph=True)  # 2 * gate**2 * row
    (second,) = torch.autograd.grad(first.sum(), rows)
    torch.testing.assert_close(second, (2 * gates.detach() ** 2).unsqueeze(1).expand(5, 4), rtol=2**-20, atol=0)


@pytest.mark.parametrize(
    "name, use",
    [
        ("moe_route", lambda x: st.moe_route(x, k=2).weights),
        ("moe_route", lambda x: st.moe_route(x, k=2).probs),
        ("sample", lambda x: st.sample(x, logprob="raw").logprob),
        ("sample", lambda x: st.sample(x, masked_logits=True).masked_logits),
        ("kv_gather", lambda x: st.kv_gather(x, torch.tensor([1, 0]), i32(0, 1), block_size=2)),
        ("kv_ragged", lambda x: st.kv_ragged(x, torch.tensor([0, 2]), i32(0, 1), block_size=2)),
        ("local_reduce", lambda x: st.local_reduce(x.view(1, 4, 3), i32(0, 0, 0, 0).view(4, 1), hosts())),
        ("moe_dispatch_grad_gate", lambda x: st.moe_dispatch_grad_gate(*gate_grad_of(x), num_experts=1, capacity=4)),
    ],
)
def test_no_gradient_is_lost_in_silence(name: str, use: Any) -> None:
    x = leaf(rand(4, 3))
    made = use(x)
    assert made.requires_grad
    with pytest.raises(NotImplementedError, match=f"{name} has no gradient: "):
        made.sum().backward()
    assert x.grad is None
    with pytest.raises(NotImplementedError, match=f"{name} has no gradient: "):
        torch.func.grad(lambda x: use(x).sum())(x.detach())


def hosts() -> Any:
    return torch.ones(1, 1, dtype=torch.uint16)


def gate_grad_of(x: Any) -> Any:
    return i32(0, 0, 0, 0), i32(0, 1, 2, 3), x, torch.ones(4, 3)


def test_choices_of_tensors_that_require_a_gradient() -> None:
    """Numbers of tokens and experts have none, and nothing is in the way of taking them."""
    x = leaf(rand(4, 3))
    routed = st.moe_route(x, k=2)
    assert not routed.ids.requires_grad and not routed.routing_map.requires_grad
    assert not st.sample(x).token.requires_grad
    torch.where(routed.routing_map, x.softmax(-1), 0).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    "use",
    [
        lambda x: st.kv_scatter(torch.zeros(4, 3), x, torch.arange(4)),
        lambda x: st.kv_scatter([torch.zeros(4, 3)], [x], torch.arange(4)),
        lambda x: st.kv_blocks(torch.tensor([[0, 1]]), src=x, dst=torch.zeros(4, 3), block_size=2),
        lambda x: st.moe_unpermute(x, i32(0, 1, 2, 3), num_tokens=4, out=torch.zeros(4, 3)),
    ],
)
def test_gradients_that_would_end_in_place_are_rejected(use: Any) -> None:
    x = leaf(rand(4, 3))
    with pytest.raises(switchyard.Error, match="requires a gradient, which would end in memory"):
        use(x)
    with torch.no_grad():
        use(x)
    use(x.detach())


PAIRS, SLOTS, ROWS = torch.tensor([[0, 1]]), torch.arange(4), torch.ones(4, 3)
WRITES = {  # each writes to the tensor, in the module's way
    "scatter": lambda m, t: m.kv_scatter(t, ROWS, SLOTS),
    "scatter_planes": lambda m, t: m.kv_scatter((torch.zeros(4, 3), t), (ROWS, ROWS), SLOTS),
    "scatter_scale": lambda m, t: m.kv_scatter(i8(), ROWS, SLOTS, t, format="int8"),
    "scatter_scale_planes": lambda m, t: m.kv_scatter((i8(), i8()), (ROWS, ROWS), SLOTS, (t.clone(), t), format="int8"),
    "blocks": lambda m, t: m.kv_blocks(PAIRS, t, block_size=2),
    "blocks_dst": lambda m, t: m.kv_blocks(PAIRS, src=ROWS, dst=t, block_size=2),
    "blocks_planes": lambda m, t: m.kv_blocks(PAIRS, src=(ROWS, ROWS), dst=(ROWS.clone(), t), block_size=2),
    "gather": lambda m, t: m.kv_gather(ROWS, SLOTS, i32(0, 1), block_size=2, out=t),
    "gather_planes": lambda m, t: m.kv_gather((ROWS, ROWS), SLOTS, i32(0, 1), block_size=2, out=(ROWS.clone(), t)),
    "unpermute": lambda m, t: m.moe_unpermute(ROWS, i32(0, 1, 2, 3), num_tokens=4, out=t),
    "mesh": lambda _, t: LocalMesh(1, 1).all_to_all_dispatch(
        [ROWS], [SLOTS[:, None] * 0], hosts(), out=AllToAllDispatch([t])
    ),
}


def i8() -> Any:
    return torch.zeros(4, 3, dtype=torch.int8)


@pytest.mark.parametrize("way", ["direct", "general", "traced"])
@pytest.mark.parametrize("module", [switchyard, st])
@pytest.mark.parametrize("name", WRITES)
def test_what_autograd_saved_is_not_changed_in_silence(name: str, module: Any, way: str) -> None:
    """As after torch's own functions that write in place; nothing is counted for a call that is rejected."""
    t, x = torch.ones(4, 3), leaf(torch.ones(4, 3))
    used, saved = (x * t).sum(), t._version
    if way == "direct":
        WRITES[name](module, t)
    elif way == "general":  # an array of another library, or a subclass, is not read directly
        WRITES[name](module, t.as_subclass(Kind))
    else:
        with torch.autograd.forward_ad.dual_level():  # by the dispatcher
            WRITES[name](module, t)
    assert t._version > saved
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        used.backward()


class Kind(torch.Tensor):
    pass


def test_what_is_only_read_or_rejected_counts_as_unchanged() -> None:
    cache, scale = torch.zeros(4, 3), torch.ones(3)
    for module in (switchyard, st):
        with pytest.raises(IndexError):
            module.kv_scatter(cache, ROWS, SLOTS + 1)
        module.kv_scatter(i8(), ROWS, SLOTS, scale, format="int8")
        assert (cache._version, scale._version, ROWS._version, SLOTS._version) == (0, 0, 0, 0)
        with torch.inference_mode():
            module.kv_scatter(torch.zeros(4, 3), ROWS, SLOTS)


def test_types_whose_gradient_cannot_be_added_up() -> None:
    with pytest.raises(TypeError, match="moe_permute: tokens is float64 and requires a gradient, want float32"):
        st.moe_permute(leaf(rand(4, 3).double()), MAP, num_out_tokens=8)
    st.moe_permute(rand(4, 3).double(), MAP, num_out_tokens=8)


def test_float64() -> None:
    """What only moves rows takes it, with gradients; sums are float32, and operators with one reject it by name."""
    rows, extra, counts = leaf(rand(6, 2).double()), leaf(rand(6).double()), torch.tensor([[1, 2], [0, 3]])
    assert torch.autograd.gradcheck(lambda r, e: st.moe_reorder_chunks(r, counts, e)[:2], (rows, extra))
    with pytest.raises(TypeError, match="moe_unpermute: permuted_tokens is f64, want f16, f32 or bf16"):
        st.moe_unpermute(rand(8, 3).double(), permuted_rows(), num_tokens=4)


def permuted_rows() -> Any:
    return st.moe_permute(rand(4, 3), MAP, num_out_tokens=8).sorted_indices
