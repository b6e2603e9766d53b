"""Gradients: to the bit by formulas in the library's arithmetic, and where there are none. test_layer.py trains."""

from __future__ import annotations

from typing import Any

import pytest
from cases import CHOICES, DIFFERENTIABLE, IDS, MAP, PLACES, floats, i32, rand, st, torch

import switchyard
from switchyard.mesh import AllToAllDispatch, LocalMesh

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def leaf(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_()


def same(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert torch.equal(got, want), f"{got}\n{want}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_differences(case: str, dtype: Any) -> None:
    """Operators are linear in each of their tensors: with small whole numbers a difference is the gradient, to the bit.

    A tensor has zeros among them: weights of 0, which give their rows no gradient.
    """
    name, values, fields = DIFFERENTIABLE[case]
    draw = torch.Generator().manual_seed(len(case))

    def whole(shape: Any, least: int = -2) -> Any:
        return torch.randint(least, 3, shape, generator=draw).to(dtype)

    given = values | {field: whole(values[field].shape).requires_grad_() for field in fields}
    made = floats(getattr(st, name)(**given))
    outer = [whole(x.shape) for x in made]
    found = torch.autograd.grad(made, [given[field] for field in fields], outer, allow_unused=True)

    def loss(**changed: Any) -> float:
        results = floats(
            getattr(st, name)(**{f: x.detach() if f in fields else x for f, x in (given | changed).items()})
        )
        return sum(float((x.double() * grad.double()).sum()) for x, grad in zip(results, outer, strict=True))

    start = loss()
    for field, grad in zip(fields, found, strict=True):
        for at in range(given[field].numel()):
            moved = given[field].detach().clone()
            moved.view(-1)[at] += 1
            want = loss(**{field: moved}) - start
            assert (0 if grad is None else float(grad.reshape(-1)[at])) == want, f"{field} at {at}"
        assert grad is None or (grad.dtype, grad.shape) == (dtype, given[field].shape)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_weight_of_zero_reads_no_row(dtype: Any) -> None:
    """Neither a NaN nor an infinity of a gradient passes it."""
    indices = st.moe_permute_ids(rand(4, 1), IDS).sorted_indices
    probs = rand(4, 2)
    probs[1, 0] = 0
    rows, probs, grad = leaf(rand(8, 19).to(dtype)), leaf(probs), rand(4, 19).to(dtype)
    grad[1] = torch.inf
    st.moe_unpermute_ids(rows, indices, probs).backward(grad)
    assert not rows.grad[indices[2]].any() and rows.grad[indices[3]].isinf().any()


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
    """Rows without a gradient, in calls that are not empty."""
    for call in (
        lambda x: st.moe_permute(x, MAP & False, num_out_tokens=8).permuted_tokens,
        lambda x: st.moe_permute(x, MAP, num_out_tokens=3).permuted_tokens,  # room for no row
        lambda x: st.moe_combine(i32(), i32(), x, num_experts=2, capacity=2),
        lambda x: st.moe_dispatch(i32(-1, 2, -1, 2), i32(0, 0, 1, 1), x, num_experts=2, capacity=2),
    ):
        x = leaf(rand(4, 3))
        call(x).sum().backward()
        same(x.grad, torch.zeros(4, 3))


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


def test_weights_of_integer_tokens_have_a_gradient() -> None:
    probs = leaf(rand(4, 3))
    st.moe_permute(torch.ones(4, 2, dtype=torch.int32), MAP, probs, num_out_tokens=8).permuted_probs.sum().backward()
    assert torch.equal(probs.grad, MAP.float())


# Transformations of torch.func.


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


# Operators without a gradient, and calls that would end one in memory of the caller.
LOST = [
    ("moe_route", lambda x: st.moe_route(x, k=2).weights),
    ("moe_route", lambda x: st.moe_route(x, k=2).probs),
    ("sample", lambda x: st.sample(x, logprob="raw").logprob),
    ("sample", lambda x: st.sample(x, masked_logits=True).masked_logits),
    ("kv_gather", lambda x: st.kv_gather(x, torch.tensor([1, 0]), i32(0, 1), block_size=2)),
    ("kv_ragged", lambda x: st.kv_ragged(x, torch.tensor([0, 2]), i32(0, 1), block_size=2)),
    ("local_reduce", lambda x: st.local_reduce(x.view(1, 4, 3), i32(0, 0, 0, 0).view(4, 1), hosts())),
    ("moe_dispatch_grad_gate", lambda x: st.moe_dispatch_grad_gate(*gate_grad_of(x), num_experts=1, capacity=4)),
]
ENDING = [
    ("kv_scatter", lambda x: st.kv_scatter(torch.zeros(4, 3), x, torch.arange(4))),
    ("kv_scatter", lambda x: st.kv_scatter([torch.zeros(4, 3)], [x], torch.arange(4))),
    ("kv_blocks", lambda x: st.kv_blocks(torch.tensor([[0, 1]]), src=x, dst=torch.zeros(4, 3), block_size=2)),
    ("moe_unpermute", lambda x: st.moe_unpermute(x, i32(0, 1, 2, 3), num_tokens=4, out=torch.zeros(4, 3))),
]
FLOWING = [
    ("moe_permute", lambda x: st.moe_permute(x, MAP, num_out_tokens=8).permuted_tokens),
    ("moe_reorder_chunks", lambda x: st.moe_reorder_chunks(x, torch.tensor([[4]])).reordered_rows),
    ("moe_dispatch", lambda x: st.moe_dispatch(*at_expert(torch.zeros(4, 3)), num_experts=1, capacity=4, out=x)),
]


@pytest.mark.parametrize(("name", "use"), LOST)
def test_no_gradient_is_lost_in_silence(name: str, use: Any) -> None:
    x = leaf(rand(4, 3))
    made = use(x)
    assert made.requires_grad
    with pytest.raises(NotImplementedError, match=f"{name} has no gradient: "):
        made.sum().backward()
    assert x.grad is None
    with pytest.raises(NotImplementedError, match=f"{name} has no gradient: "):
        torch.func.grad(lambda x: use(x).sum())(x.detach())


@pytest.mark.parametrize(("name", "use"), [*LOST, *ENDING, *FLOWING])
def test_forward_mode_is_rejected(name: str, use: Any) -> None:
    """It would give tangents of 0."""
    said = f"{name}: a tensor is a dual tensor of torch.autograd.forward_ad, want reverse mode"
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match=said):
            use(torch.autograd.forward_ad.make_dual(rand(4, 3), rand(4, 3)))
        use(rand(4, 3))  # plain tensors pass
    with pytest.raises(NotImplementedError, match=said):
        torch.func.jvp(use, (rand(4, 3),), (rand(4, 3),))


def at_expert(x: Any) -> Any:
    return i32(0, 0, 0, 0), i32(0, 1, 2, 3), x


def hosts() -> Any:
    return torch.ones(1, 1, dtype=torch.uint16)


def gate_grad_of(x: Any) -> Any:
    return *at_expert(x), torch.ones(4, 3)


def test_choices_of_tensors_that_require_a_gradient() -> None:
    """Numbers of tokens and experts have none, and nothing is in the way of taking them."""
    x = leaf(rand(4, 3))
    routed = st.moe_route(x, k=2)
    assert not routed.ids.requires_grad and not routed.routing_map.requires_grad
    assert not st.sample(x).token.requires_grad
    torch.where(routed.routing_map, x.softmax(-1), 0).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(("name", "use"), ENDING)
def test_gradients_that_would_end_in_place_are_rejected(name: str, use: Any) -> None:
    x = leaf(rand(4, 3))
    with pytest.raises(switchyard.Error, match=f"{name}: .* requires a gradient, which would end in memory"):
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
