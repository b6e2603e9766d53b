"""A call or several of every operator, with inputs that opcheck may change, trace and differentiate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_worked_examples import CASES as EXAMPLES
from test_worked_examples import given

torch = pytest.importorskip("torch.library", reason="torch is not installed") and __import__("torch")
import switchyard.torch as st  # noqa: E402
from switchyard import _without_gradient  # noqa: E402

Tensor = Any

MAP = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
IDS = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 0]])
MISSING = torch.tensor([[2, 3], [-1, 2], [0, 1], [3, -1]])
CHOICES = torch.tensor([[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]], dtype=torch.int32)
PLACES = torch.tensor([[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]], dtype=torch.int32)


def rand(*shape: int, grad: bool = False, dtype: Any = None) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype or torch.float32)
    return numbers.requires_grad_(grad)


def i32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def permuted(**kwargs: Any) -> Any:
    return st.moe_permute(rand(4, 3), MAP, num_out_tokens=kwargs.pop("rows", 8), **kwargs)


def empties(made: Any) -> Any:
    """Room for results like these."""
    if isinstance(made, torch.Tensor):
        return torch.zeros_like(made)
    return type(made)(*[None if tensor is None else torch.zeros_like(tensor) for tensor in made])


def with_out(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs, out=empties(function(*args, **kwargs)))


CASES: dict[str, Callable[[], Any]] = {
    "route": lambda: st.moe_route(rand(5, 4), k=2),
    "route_scores": lambda: st.moe_route(
        rand(5, 6).half(), rand(6), i32(0, 1, 0, 0, 0).bool(), k=2, score="sigmoid", groups=3, top_groups=2, scores=True
    ),
    "route_given": lambda: st.moe_route(
        rand(4, 3).bfloat16(), ids_in=IDS, shared_logits=rand(4, 1), k=2, n_shared=1, renormalize=True
    ),
    "route_out": lambda: with_out(st.moe_route, rand(5, 4), k=2, scores=True),
    "map_from_ids": lambda: st.moe_map_from_ids(IDS, num_experts=3),
    "map_from_ids_weights": lambda: st.moe_map_from_ids(IDS, rand(4, 2, grad=True), num_experts=3),
    "map_from_ids_out": lambda: with_out(st.moe_map_from_ids, IDS, rand(4, 2), num_experts=3),
    "ids_from_map": lambda: st.moe_ids_from_map(MAP, k=2),
    "ids_from_map_probs": lambda: st.moe_ids_from_map(MAP, rand(4, 3, grad=True), k=3),
    "ids_from_map_out": lambda: with_out(st.moe_ids_from_map, MAP, rand(4, 3), k=2),
    "pad_map": lambda: st.moe_pad_map(MAP, alignment=2),
    "pad_map_out": lambda: with_out(st.moe_pad_map, MAP, alignment=4),
    "align_block": lambda: st.moe_align_block(IDS, i32(1, -1, 0), num_experts=3, block_size=4, skip_unmapped=True),
    "align_block_out": lambda: with_out(st.moe_align_block, IDS, num_experts=3, block_size=4),
    "convert_to_row": lambda: st.moe_convert_indices(permuted().sorted_indices, to="row", num_tokens=4),
    "convert_to_te": lambda: st.moe_convert_indices(
        permuted().sorted_indices, permuted().expert_offsets, to="te", num_tokens=4
    ),
    "convert_out": lambda: with_out(st.moe_convert_indices, permuted().sorted_indices, to="row", num_tokens=4),
    "permute": lambda: st.moe_permute(rand(4, 3, grad=True), MAP, num_out_tokens=8),
    "permute_probs": lambda: st.moe_permute(rand(4, 3, grad=True), MAP, rand(4, 3, grad=True), num_out_tokens=12),
    "permute_capacity": lambda: st.moe_permute(
        rand(4, 3, grad=True), MAP, rand(4, 3, grad=True), num_out_tokens=9, drop_and_pad=True
    ),
    "permute_zero_pad": lambda: st.moe_permute(
        rand(4, 3, grad=True), MAP, rand(4, 3, grad=True), num_out_tokens=12, drop_and_pad=True, zero_pad=True
    ),
    "permute_bf16": lambda: st.moe_permute(rand(4, 3, grad=True, dtype=torch.bfloat16), MAP, num_out_tokens=8),
    "permute_out": lambda: with_out(st.moe_permute, rand(4, 3), MAP, rand(4, 3), num_out_tokens=8),
    "permute_out_none": lambda: with_out(st.moe_permute, rand(4, 3), MAP, num_out_tokens=8),
    "unpermute": lambda: st.moe_unpermute(rand(8, 3, grad=True), permuted().sorted_indices, num_tokens=4),
    "unpermute_probs": lambda: st.moe_unpermute(
        rand(8, 3, grad=True), permuted().sorted_indices, MAP, rand(4, 3, grad=True)
    ),
    "unpermute_capacity": lambda: st.moe_unpermute(
        rand(9, 3, grad=True),
        permuted(rows=9, drop_and_pad=True).sorted_indices,
        None,
        rand(4, 3, grad=True),
        drop_and_pad=True,
    ),
    "unpermute_out": lambda: with_out(st.moe_unpermute, rand(8, 3), permuted().sorted_indices, num_tokens=4),
    "permute_grad": lambda: st.moe_permute_grad(
        rand(8, 3), permuted().sorted_indices, rand(8), MAP, num_experts=3, num_tokens=4
    ),
    "permute_grad_out": lambda: with_out(
        st.moe_permute_grad, rand(8, 3), permuted().sorted_indices, num_experts=3, num_tokens=4
    ),
    "unpermute_grad": lambda: st.moe_unpermute_grad(rand(4, 3), permuted().sorted_indices, rand(8, 3), MAP, rand(4, 3)),
    "unpermute_grad_out": lambda: with_out(st.moe_unpermute_grad, rand(4, 3), permuted().sorted_indices),
    "permute_ids": lambda: st.moe_permute_ids(rand(4, 3, grad=True), IDS, rand(4, 2, grad=True), num_experts=3),
    "permute_ids_window": lambda: st.moe_permute_ids(
        rand(4, 3, grad=True), IDS, rand(4, 2, grad=True), window=True, row_begin=2, row_end=7
    ),
    "permute_ids_kept": lambda: st.moe_permute_ids(rand(4, 3, grad=True), IDS, num_out_tokens=-3),
    "permute_ids_missing": lambda: st.moe_permute_ids(
        rand(4, 3, grad=True), MISSING, rand(4, 2, grad=True), num_experts=3, allow_missing=True
    ),
    "permute_ids_out": lambda: with_out(st.moe_permute_ids, rand(4, 3), IDS, num_experts=3),
    "unpermute_ids": lambda: st.moe_unpermute_ids(
        rand(8, 3, grad=True), st.moe_permute_ids(rand(4, 3), IDS).sorted_indices, rand(4, 2, grad=True)
    ),
    "unpermute_ids_window": lambda: st.moe_unpermute_ids(
        rand(5, 3, grad=True), st.moe_permute_ids(rand(4, 3), IDS).sorted_indices, num_tokens=4, row_begin=2
    ),
    "unpermute_ids_added": lambda: st.moe_unpermute_ids(
        rand(5, 3, grad=True),
        i32(3, 1, 7, 2, 6, -1, 9, 4),
        rand(4, 2, grad=True),
        rand(3, 3, grad=True),
        i32(0, 2, 1, -1, 1, 1, 2, 0).reshape(4, 2),
        rand(4, 3, grad=True),
        rand(4, 3, grad=True),
        row_begin=2,
        num_rows=10,
        by_choice=True,
    ),
    "unpermute_ids_out": lambda: with_out(st.moe_unpermute_ids, rand(8, 3), i32(7, 6, 5, 4, 3, 2, 1, 0), num_tokens=4),
    "dispatch": lambda: st.moe_dispatch(
        CHOICES[0], PLACES[0], rand(5, 4, grad=True), rand(5, grad=True), num_experts=3, capacity=2
    ),
    "dispatch_shared": lambda: st.moe_dispatch(
        i32(1, 0, 1, 1), i32(0, 0, 0, 5), rand(4, 3, grad=True), num_experts=2, capacity=2
    ),
    "dispatch_unique": lambda: st.moe_dispatch(
        CHOICES[0], PLACES[0], rand(5, 4, grad=True), num_experts=3, capacity=2, unique_slots=True
    ),
    "dispatch_out": lambda: st.moe_dispatch(
        CHOICES[0], PLACES[0], rand(5, 4), num_experts=3, capacity=2, out=torch.ones(6, 4)
    ),
    "combine": lambda: st.moe_combine(
        CHOICES, PLACES, rand(6, 4, grad=True), rand(2, 5, grad=True), num_experts=3, capacity=2
    ),
    "combine_shared": lambda: st.moe_combine(
        torch.zeros(2, 5, dtype=torch.int32), PLACES, rand(4, 3, grad=True), num_experts=1, capacity=4
    ),
    "combine_out": lambda: with_out(st.moe_combine, CHOICES, PLACES, rand(6, 4), num_experts=3, capacity=2),
    "combine_grad": lambda: torch.ops.switchyard.moe_combine_grad(rand(5, 4), rand(2, 5), CHOICES, PLACES, 3, 2),
    "dispatch_grad_gate": lambda: st.moe_dispatch_grad_gate(
        CHOICES, PLACES, rand(5, 4), rand(6, 4), num_experts=3, capacity=2
    ),
    "dispatch_grad_gate_out": lambda: st.moe_dispatch_grad_gate(
        CHOICES, PLACES, rand(5, 4).half(), rand(6, 4).half(), num_experts=3, capacity=2, out=torch.empty(2, 5)
    ),
    "locations": lambda: st.moe_locations(CHOICES, rand(5), num_experts=3),
    "locations_out": lambda: with_out(st.moe_locations, CHOICES, num_experts=3),
    "capacity": lambda: st.moe_capacity(torch.tensor([4, 4, 2]), num_experts=3),
    "capacity_numbers": lambda: st.moe_capacity(samples=10, num_experts=3, factor=1.5, k=2),
    "reorder_chunks": lambda: st.moe_reorder_chunks(
        rand(6, 2, grad=True), torch.tensor([[1, 2], [0, 2]]), rand(6, grad=True)
    ),
    "reorder_chunks_back": lambda: st.moe_reorder_chunks(
        rand(6, 2, grad=True), torch.tensor([[1, 2], [0, 2]]), inverse=True
    ),
    "reorder_chunks_out": lambda: with_out(st.moe_reorder_chunks, rand(5, 2), torch.tensor([[1, 2], [0, 2]])),
    "local_reduce": lambda: st.local_reduce(
        rand(2, 4, 3), i32(0, 1, 1, -1, 0, -1, 1, 0).view(4, 2), torch.ones(2, 1, dtype=torch.uint16), rand(4, 2)
    ),
    "local_reduce_out": lambda: with_out(
        st.local_reduce, rand(2, 4, 3), i32(0, 1, 1, 0).view(4, 1), torch.ones(2, 1, dtype=torch.uint16)
    ),
    "kv_gather": lambda: st.kv_gather(rand(6, 4), IDS, i32(0, 2, 1).repeat(4, 1), block_size=2),
    "kv_gather_planes": lambda: st.kv_gather(
        (rand(3, 2, 2, 4).half(), rand(6, 1)), torch.tensor([4, -1]), i32(0, 2, 1), block_size=2, pad="zero"
    ),
    "kv_gather_format": lambda: st.kv_gather(
        torch.arange(24, dtype=torch.int8).view(6, 4),
        torch.tensor([0, 4, 3]),
        i32(0, 2, 1),
        scale=torch.tensor([0.5]),
        block_size=2,
        format="int8",
        dtype="float32",
    ),
    "kv_gather_out": lambda: st.kv_gather(
        rand(6, 4), torch.tensor([4, -1]), i32(0, 2, 1), block_size=2, pad="skip", out=torch.ones(2, 4)
    ),
    "kv_ragged": lambda: st.kv_ragged(rand(6, 1), torch.tensor([0, 3, 4]), i32(2, 0, 1, 0).view(2, 2), block_size=2),
    "kv_ragged_rows": lambda: st.kv_ragged(
        [rand(6, 1), rand(6, 3)], torch.tensor([0, 3, 4]), i32(2, 0, 1, 0).view(2, 2), block_size=2, rows=7
    ),
    "kv_ragged_out": lambda: st.kv_ragged(
        rand(6, 1), torch.tensor([0, 3, 4]), i32(2, 0, 1, 0).view(2, 2), block_size=2, out=torch.zeros(4, 1)
    ),
    "kv_translate": lambda: st.kv_translate(IDS, i32(0, 2, 1).repeat(4, 1), block_size=2),
    "kv_translate_out": lambda: with_out(st.kv_translate, IDS, i32(0, 2, 1).repeat(4, 1), block_size=2),
    "kv_slots": lambda: st.kv_slots(torch.tensor([0, 4, 3]), block_table=i32(0, 2, 1), block_size=2),
    "kv_slots_out": lambda: with_out(st.kv_slots, torch.tensor([0, 4]), block_table=i32(0, 2, 1), block_size=2),
    "kv_scatter": lambda: st.kv_scatter(rand(6, 4), rand(3, 4), torch.tensor([5, 0, 2])),
    "kv_scatter_planes": lambda: st.kv_scatter(
        [rand(3, 2, 2, 4), torch.zeros(6, 4, dtype=torch.int8)],
        [rand(2, 2, 4), rand(2, 4)],
        torch.tensor([5, -1]),
        [None, torch.ones(6, 1)],
        pad="skip",
        format=[None, "int8"],
    ),
    "kv_scatter_format": lambda: st.kv_scatter(
        torch.zeros(6, 4, dtype=torch.int8), rand(3, 4), torch.tensor([5, 0, 2]), torch.ones(6, 1), format="int8"
    ),
    "kv_blocks": lambda: st.kv_blocks(i32(0, 2).view(1, 2), rand(6, 4), block_size=2),
    "kv_blocks_planes": lambda: st.kv_blocks(
        i32(0, 2, 1, 0).view(2, 2), src=(rand(3, 2, 4), rand(3, 2, 1)), dst=(rand(3, 2, 4), rand(3, 2, 1))
    ),
    "sample": lambda: st.sample(rand(3, 10)),
    "sample_all": lambda: st.sample(
        rand(3, 10), 5, 0.9, 0.01, torch.tensor([0.5, 1, 0]), seed=7, masked_logits=True, candidates=True, logprob="raw"
    ),
    "sample_overridden": lambda: st.sample(rand(3, 10), **st.sample_overrides(*penalised())._asdict(), seed=1 << 63),
    "sample_out": lambda: with_out(st.sample, rand(3, 10), seed=7, offset=torch.tensor([1]), noise="race"),
    "sample_verify": lambda: st.sample_verify(
        rand(2, 3, 10), draft_token=i32(1, 2, 3, 4).view(2, 2), seed=7, top_p=0.9
    ),
    "sample_verify_all": lambda: st.sample_verify(
        rand(6, 10),
        i32(0, 1, 0, 2, 3, 4),
        i32(0, 2, 6),
        i32(0, 0, 0, 0, 0, 1),
        torch.tensor([0.5, 0]),
        5,
        seed=[1, 2],
        logprob="raw",
        top_logprobs=2,
        accept_mask=True,
        row_flags=True,
        rank=True,
    ),
    "sample_verify_out": lambda: with_out(st.sample_verify, rand(2, 3, 10), draft_token=i32(1, 2, 3, 4).view(2, 2)),
    "sample_overrides_drafts": lambda: st.sample_overrides(
        rand(2, 3, 10),
        output_indptr=i32(0, 1, 2),
        output_token=i32(3, 4),
        presence_penalty=0.25,
        draft_token=i32(1, 2, 3, 4).view(2, 2),
        min_tokens=3,
        stop_token=i32(0),
    ),
    "sample_overrides": lambda: st.sample_overrides(*penalised(), repetition_penalty=1.5, presence_penalty=0.25),
    "sample_overrides_out": lambda: with_out(st.sample_overrides, *penalised(), repetition_penalty=1.5),
    "sample_noise": lambda: st.sample_noise(n=9, seed=(1 << 64) - 1, offset=3),
    "sample_noise_out": lambda: with_out(st.sample_noise, n=9, stream=5),
}


def first_example(name: str) -> dict[str, Any]:
    """The arguments of the first worked example."""
    example = next(case for case, _ in EXAMPLES if case.op == name)
    return {f: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for f, x in given(example, 0).items()}


for _name in _without_gradient.__all__:
    if _name.islower():
        CASES[f"{_name}_example"] = lambda name=_name: getattr(st, name)(**first_example(name))
        CASES[f"{_name}_example_out"] = lambda name=_name: with_out(getattr(st, name), **first_example(name))


def penalised() -> tuple[Tensor, ...]:
    return rand(3, 10), torch.tensor([0, 2, 2, 3]), i32(1, 4, 9), torch.tensor([0, 0, 1, 2]), i32(3, 9)
