"""compat.torch_npu: the calls of torch_npu give what ours give, gradients included."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import switchyard  # noqa: E402
from switchyard.compat import torch_npu  # noqa: E402

MAP = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]


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
    grad, slots = torch.tensor([[1.0], [2], [4], [8]]), torch.tensor([0, 2, 1, 3], dtype=torch.int32)
    routing_map = torch.ones(2, 2, dtype=torch.bool)
    tokens, probs = torch_npu.npu_moe_token_permute_with_routing_map_grad(
        grad, grad[:, 0].clone(), slots, routing_map, 2, 2, False
    )
    assert tokens.tolist() == [[5], [10]]
    assert probs.tolist() == [[1, 4], [2, 8]]


def test_sample() -> None:
    draw = np.random.default_rng(3)
    logits = torch.from_numpy(draw.standard_normal((5, 40)).astype(np.float32)).half()
    top_k, top_p = torch.tensor([3, 0, 40, 7, 1], dtype=torch.int32), torch.tensor([0.9, 0.5, 1, 0.2, 0.9]).half()
    q = torch.from_numpy(draw.exponential(size=(5, 40)).astype(np.float32))
    token, kept = torch_npu.npu_top_k_top_p_sample(logits, top_k, top_p, q, is_need_logits=True)
    want = switchyard.sample(logits, top_k, top_p, q=q, k_limit=1024, empty_token=0, masked_logits=True)
    assert torch.equal(token, want.token)
    assert torch.equal(kept, want.masked_logits)
    token, nothing = torch_npu.npu_top_k_top_p_sample(logits, top_k, top_p)
    assert nothing.numel() == 0
    assert torch.equal(token, logits.argmax(dim=1))
    with pytest.raises(switchyard.Error, match="post_sample is 'multiNomial'"):
        torch_npu.npu_top_k_top_p_sample(logits, top_k, top_p, post_sample="multiNomial")
