"""From router logits to the rows of experts, and back to tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import switchyard.torch as ours

from ..._sentences import bad
from ...errors import Status
from ...ops.moe_permute_ids import MoePermuteIds
from ._rejections import none, only, own_words, shaped, within

# ---- Gating ----


@own_words(
    {
        "logits": "x",
        "groups": "group_count",
        "top_groups": "k_group",
        "scale": "routed_scaling_factor",
        "scores": "out_flag",
    }
)
def npu_moe_gating_top_k(
    x: Tensor,
    k: int,
    *,
    bias: Tensor | None = None,
    input_ids: Tensor | None = None,
    tid2eid: Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and numbers of the k experts of each row, and all scores (empty unless requested): see moe_route."""
    name = "npu_moe_gating_top_k"
    none(name, "", input_ids=input_ids, tid2eid=tid2eid)
    only(name, "renorm", renorm, 0)
    only(name, "norm_type", norm_type, 0, 1)
    only(name, "group_select_mode", group_select_mode, 0, 1)
    made = ours.moe_route(
        x,
        None if bias is None else bias.to(torch.float32),
        k=k,
        score="sigmoid" if norm_type == 1 else "softmax",
        groups=group_count if group_count != 1 else 0,
        top_groups=k_group,
        group_score="sum2" if group_select_mode == 1 else "max",
        renormalize=norm_type == 1,
        eps=eps,
        scale=routed_scaling_factor,
        scores=out_flag,
    )
    scaled = bool(torch.tensor(routed_scaling_factor, dtype=torch.float32))  # the operator takes 0 for 1
    weights = made.weights if scaled else torch.zeros_like(made.weights)
    return weights, made.ids, _or_empty(made.scores, x)


@own_words({"logits": "x"})
def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights and numbers of the k experts of each row, and the number of each choice in column order."""
    weights, ids, _ = npu_moe_gating_top_k_softmax_v2(x, k=k, finished=finished)
    rows = ids.numel() // k if k else 0
    columns = torch.arange(rows * k, dtype=torch.int32).reshape(k, rows).t()
    return weights, ids, columns.reshape(ids.shape)


@own_words({"logits": "x", "scores": "output_softmax"})
def npu_moe_gating_top_k_softmax_v2(
    x: Tensor, *, k: int = 1, finished: Tensor | None = None, renorm: int = 0, output_softmax: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The same with renorm, the softmax of the chosen logits, or with all scores in place of the third result.

    A finished row has expert E at every choice, and the weights it would have without.
    """
    only("npu_moe_gating_top_k_softmax_v2", "renorm", renorm, 0, 1)
    shaped("npu_moe_gating_top_k_softmax_v2", "finished", finished, tuple(x.shape[:-1]))
    rows = x.reshape(-1, x.shape[-1]) if x.dim() == 3 else x
    made = ours.moe_route(rows, k=k, softmax_after=renorm == 1, scores=output_softmax and renorm == 0)
    ids = made.ids
    if finished is not None:
        ids = torch.where(finished.reshape(-1, 1), x.shape[-1], ids).to(torch.int32)
    shape = (*x.shape[:-1], k)
    scores = made.scores if made.scores is None else made.scores.reshape(x.shape)
    return made.weights.reshape(shape), ids.reshape(shape), _or_empty(scores, x)


# ---- Rows of experts ----


@own_words(
    {"tokens": "x", "ids": "expert_idx", "probs": "scale", "num_experts": "expert_num", "num_out_tokens": "active_num"}
)
def npu_moe_init_routing_v2(
    x: Tensor,
    expert_idx: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
    x_dtype: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows grouped by expert, the row of each choice (or the choice of each row), counts, and scales of the rows.

    Without quantisation: see moe_permute_ids. Counts are empty unless requested, scales without ``scale``. Bytes are
    moved, so x_dtype, which names their meaning, has no effect.
    """
    name = "npu_moe_init_routing_v2"
    only(name, "quant_mode", quant_mode, -1)
    none(name, " without quantisation", offset=offset)
    only(name, "drop_pad_mode", drop_pad_mode, 0, 1)
    only(name, "row_idx_type", row_idx_type, *((0, 1) if drop_pad_mode == 0 else (0,)))
    only(name, "expert_tokens_num_type", expert_tokens_num_type, *((0, 1, 2) if drop_pad_mode == 0 else (1,)))
    if expert_num < 1:
        raise bad(Status.VALUE, name, "expert_num", f"is {expert_num}, want the number of experts")
    span = tuple(active_expert_range) or (0, expert_num)
    first, end = span if len(span) == 2 else (-1, -1)
    if not 0 <= first <= end <= expert_num or (drop_pad_mode == 1 and (first, end) != (0, expert_num)):
        text = f"is {list(active_expert_range)}, want {'all' if drop_pad_mode == 1 else 'some'} of 0 to {expert_num}"
        raise bad(Status.VALUE, name, "active_expert_range", text)
    shaped(name, "scale", scale, tuple(x.shape[:1]), (*x.shape[:1], 1))
    within(name, "expert_idx", expert_idx, 0, expert_num)
    ids = torch.where((expert_idx >= first) & (expert_idx < end), expert_idx - first, -1)
    scales = None if scale is None else scale.reshape(-1, 1).expand(ids.shape).contiguous()
    made = ours.moe_permute_ids(
        x if drop_pad_mode == 0 else x[:, :0],
        ids,
        scales,
        num_experts=max(end - first, 1),
        num_out_tokens=max(active_num, 0) if drop_pad_mode == 0 else 0,
        allow_missing=True,
    )
    counts = _present(made.expert_counts)[: end - first]
    listed = _listed(counts, first, expert_num, expert_tokens_num_type)
    counted = listed if expert_tokens_num_flag else counts[:0]
    if drop_pad_mode == 1:
        return _padded(x, expert_idx, scale, expert_capacity, made, counted)
    rows = made.sorted_indices
    if row_idx_type == 1:
        rows = ours.moe_convert_indices(rows, to="row", num_tokens=rows.shape[0])
    return made.permuted_tokens, rows, counted, _or_empty(made.permuted_probs, x)


def _listed(counts: Tensor, first: int, expert_num: int, kind: int) -> Tensor:
    """Counts of experts: their running sum, the counts, or pairs of expert and count without empty experts."""
    if kind == 0:
        return counts.cumsum(0)
    if kind == 1:
        return counts
    pairs = counts.new_zeros((expert_num, 2))
    used = counts.nonzero().flatten()
    pairs[: used.shape[0]] = torch.stack((used + first, counts[used]), dim=1)
    return pairs


def _padded(
    x: Tensor,
    expert_idx: Tensor,
    scale: Tensor | None,
    capacity: int,
    made: MoePermuteIds[Tensor],
    counted: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every expert has ``capacity`` rows: its first choices, then zero rows."""
    if capacity < 1:
        text = f"is {capacity}, want 1 or more with drop_pad_mode 1"
        raise bad(Status.VALUE, "npu_moe_init_routing_v2", "expert_capacity", text)
    expert = expert_idx.flatten().long()
    place = made.sorted_indices - _present(made.expert_offsets)[expert]
    slot = torch.where(place < capacity, expert * capacity + place, -1)
    kept, token = slot >= 0, torch.arange(slot.shape[0]) // max(expert_idx.shape[1], 1)
    experts = _present(made.expert_counts).shape[0]
    rows = x.new_zeros((experts * capacity, x.shape[1]))
    rows[slot[kept]] = x[token[kept]]
    scales = None
    if scale is not None:
        scales = scale.new_zeros(experts * capacity)
        scales[slot[kept]] = scale.flatten()[token[kept]]
    return rows.reshape(experts, capacity, -1), slot.to(torch.int32), counted, _or_empty(scales, x)


@own_words(
    {
        "permuted_tokens": "expanded_permuted_rows",
        "sorted_indices": "expanded_src_to_dst_row",
        "probs": "scales",
        "bias_ids": "export_for_source_row",
        "residual": "skip1",
        "shared": "skip2",
    }
)
def npu_moe_finalize_routing(
    expanded_permuted_rows: Tensor,
    skip1: Tensor | None,
    skip2: Tensor | None,
    bias: Tensor | None,
    scales: Tensor | None,
    expanded_src_to_dst_row: Tensor,
    export_for_source_row: Tensor | None,
    drop_pad_mode: int | None = 0,
    k: int | None = 1,
) -> Tensor:
    """skip1 + skip2 + the sum of scale * (row + bias of its expert), in this order, in f32; rounded once at the end.

    A row of -1 is zero, and a scale of exactly 0 adds nothing. Modes 0 and 1 list the rows of all tokens for the first
    choice, then for the second; 2 and 3 list the rows of the first token, then those of the second.
    """
    name = "npu_moe_finalize_routing"
    mode = drop_pad_mode or 0
    only(name, "drop_pad_mode", mode, 0, 1, 2, 3)
    choices = scales.shape[1] if scales is not None else (k or 1)
    rows = expanded_permuted_rows.reshape(-1, expanded_permuted_rows.shape[-1])
    if choices < 1 or expanded_src_to_dst_row.shape[0] % choices:
        text = f"has {expanded_src_to_dst_row.shape[0]} entries, want a multiple of the {choices} choices of a token"
        raise bad(Status.SHAPE, name, "expanded_src_to_dst_row", text)
    count = expanded_src_to_dst_row.shape[0] // choices
    for field, skip in (("skip1", skip1), ("skip2", skip2)):
        if skip is not None and (skip.dtype != rows.dtype or skip.shape != (count, rows.shape[1])):
            found = f"is {skip.dtype} {list(skip.shape)}"
            text = f"{found}, want {rows.dtype} {[count, rows.shape[1]]} as the tokens"
            raise bad(Status.SHAPE, name, field, text)
    within(name, "expanded_src_to_dst_row", expanded_src_to_dst_row, -1, rows.shape[0])
    experts = None
    if bias is not None:
        experts = export_for_source_row
        if experts is None or experts.shape != (count, choices):
            found = "is None" if experts is None else f"has shape {list(experts.shape)}"
            raise bad(Status.SHAPE, name, "export_for_source_row", f"{found} beside bias, want {[count, choices]}")
        within(name, "export_for_source_row", experts, 0, bias.shape[0])
        experts = experts.to(torch.int32)
    return ours.moe_unpermute_ids(
        rows,
        expanded_src_to_dst_row.to(torch.int32),
        scales,
        bias,
        experts,
        skip1,
        skip2,
        num_tokens=count,
        num_rows=max(rows.shape[0], 1),
        by_choice=mode < 2,
    )


@own_words({"rows": "tokens", "counts": "expert_token_num_per_rank", "extra": "per_token_scales"})
def npu_moe_re_routing(
    tokens: Tensor,
    expert_token_num_per_rank: Tensor,
    *,
    per_token_scales: Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
    tokens_dtype: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows by rank and expert to rows by expert and rank, their scales, where each came from, and counts.

    See moe_reorder_chunks. Bytes are moved, so tokens_dtype, which names their meaning, has no effect.
    """
    name = "npu_moe_re_routing"
    only(name, "expert_token_num_type", expert_token_num_type, 1)
    only(name, "idx_type", idx_type, 0)
    made = ours.moe_reorder_chunks(tokens, expert_token_num_per_rank, per_token_scales)
    total = int(expert_token_num_per_rank.sum())
    if total != tokens.shape[0]:  # the operator leaves the other rows
        text = f"adds up to {total}, want the {tokens.shape[0]} rows of tokens"
        raise bad(Status.VALUE, name, "expert_token_num_per_rank", text)
    numbers = torch.arange(tokens.shape[0], dtype=torch.int32)
    moved = ours.moe_reorder_chunks(numbers, expert_token_num_per_rank).reordered_rows
    counts = expert_token_num_per_rank.sum(0).to(expert_token_num_per_rank.dtype)
    return made.reordered_rows, _or_empty(made.reordered_extra, tokens), moved, counts


def _or_empty(made: Tensor | None, like: Tensor) -> Tensor:
    """An output that the call does not request is an empty tensor."""
    return made if made is not None else like.new_empty(0, dtype=torch.float32)


def _present(made: Tensor | None) -> Tensor:
    """An output that was requested."""
    assert made is not None
    return made
