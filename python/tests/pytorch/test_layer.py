"""The layer of examples/python, trained beside a layer in plain torch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from cases import rand, torch
from torch import nn

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "moe_layer.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("moe_layer", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = sys.modules["moe_layer"] = importlib.util.module_from_spec(spec)  # where torch.compile looks for it
    spec.loader.exec_module(module)
    return module


if not EXAMPLE.exists():
    pytest.skip("there is no examples/python beside the tests", allow_module_level=True)
moe = example()
WIDTH, HIDDEN, EXPERTS, K = 16, 32, 4, 2


class TorchLayer(nn.Module):
    """The same layer without switchyard, written so that its sums have the library's order.

    Rows are gathered by expert and token, so that the products are the same ones, and added to their tokens in that
    order. A weight is spread over a row of 16 by doubling, so that the sum of its gradient is folded by halves.
    """

    def __init__(self, router: nn.Linear, up: Any, down: Any) -> None:
        super().__init__()
        self.router, self.up, self.down = router, nn.Parameter(up.detach().clone()), nn.Parameter(down.detach().clone())

    def forward(self, tokens: Any) -> Any:
        logits = self.router(tokens)
        routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(K).indices, True)
        probs = torch.where(routing_map, logits.softmax(-1), 0)
        expert, token = routing_map.t().nonzero(as_tuple=True)
        parts = tokens[token].split(torch.bincount(expert, minlength=EXPERTS).tolist())
        said = torch.cat([(part @ self.up[e]).relu() @ self.down[e] for e, part in enumerate(parts)])
        weight = probs[token, expert].unsqueeze(1)
        while weight.shape[1] < WIDTH:
            weight = torch.cat((weight, weight), 1)
        return torch.zeros_like(tokens).index_add(0, token, weight * said)


class DenseLayer(TorchLayer):
    """The same once more, as its formula: every expert sees every token, and weights of 0 do the rest."""

    def forward(self, tokens: Any) -> Any:
        logits = self.router(tokens)
        routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(K).indices, True)
        probs = torch.where(routing_map, logits.softmax(-1), 0)
        said = torch.einsum("th,ehf->tef", tokens, self.up).relu()
        return torch.einsum("te,tef,efh->th", probs, said, self.down)


def models(kind: type[Any], capacity: int | None = None) -> tuple[Any, Any]:
    """Two models of the same parameters: with our layer, and with another."""
    torch.manual_seed(1)
    layer = moe.MoELayer(WIDTH, HIDDEN, EXPERTS, K, capacity)
    ours = moe.toy_model(layer, WIDTH)
    router = nn.Linear(WIDTH, EXPERTS, bias=False)
    theirs = moe.toy_model(kind(router, layer.up, layer.down), WIDTH)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_training_is_that_of_plain_torch_to_the_bit() -> None:
    ours, theirs = models(TorchLayer)
    losses, wanted = moe.train(ours, 300), moe.train(theirs, 300)
    assert losses == wanted
    assert sum(losses[-20:]) < 0.2 * sum(losses[:20])
    for (name, got), want in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert torch.equal(got, want), name


@pytest.mark.parametrize("capacity", [None, 64])
def test_training_follows_the_formula(capacity: int | None) -> None:
    """Thirty steps beside the dense layer, which adds in other orders.

    Each step differs by a few roundings, 2**-23 of numbers around 1. Adam divides a gradient by its size, so that an
    error in its last bits becomes one in those of the step, which is 0.01; near a gradient of 0 it can be many times
    more. Thirty steps of that stay below 1e-4, a hundredth of one step. A wrong gradient is off by whole steps. A
    capacity of 64, the size of the batch, drops nothing.
    """
    ours, theirs = models(DenseLayer, capacity)
    losses, wanted = moe.train(ours, 30), moe.train(theirs, 30)
    assert max(abs(a - b) for a, b in zip(losses, wanted, strict=True)) < 1e-4
    for (name, got), want in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert (got - want).abs().max() < 1e-4, name


@pytest.mark.parametrize("capacity", [8, 40])
def test_a_capacity_drops_the_later_tokens(capacity: int) -> None:
    torch.manual_seed(2)
    layer = moe.MoELayer(WIDTH, HIDDEN, EXPERTS, K, capacity)
    tokens = rand(64, WIDTH)
    logits = layer.router(tokens)
    routing_map = torch.zeros_like(logits, dtype=torch.bool).scatter(1, logits.topk(K).indices, True)
    kept = routing_map & (routing_map.cumsum(0) <= capacity)
    said = torch.einsum("th,ehf->tef", tokens, layer.up).relu()
    want = torch.einsum("te,tef,efh->th", torch.where(kept, logits.softmax(-1), 0), said, layer.down)
    torch.testing.assert_close(layer(tokens), want, rtol=1e-5, atol=1e-5)
    assert kept.sum() < routing_map.sum() or capacity == 40


def test_a_compiled_layer_trains_the_same() -> None:
    ours, theirs = models(lambda *_: moe.MoELayer(WIDTH, HIDDEN, EXPERTS, K, 48), 48)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    assert moe.train(compiled, 20) == moe.train(theirs, 20)
    for (name, got), want in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert torch.equal(got, want), name


def test_bfloat16() -> None:
    """The library adds in float32 and rounds once: beside float32 the layer is off by the rounding of its numbers."""
    torch.manual_seed(3)
    layer, tokens = moe.MoELayer(WIDTH, HIDDEN, EXPERTS, K), rand(32, WIDTH)
    exact, low = tokens.clone().requires_grad_(), tokens.bfloat16().requires_grad_()
    want = layer(exact)
    want.square().sum().backward()
    grads = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    got = layer.bfloat16()(low)
    got.float().square().sum().backward()
    assert got.dtype == low.grad.dtype == torch.bfloat16
    # Some tokens choose other experts at 8 bits; of all the others numbers differ by a few of 2**-8.
    close = (got.float() - want).abs().amax(1) < 0.1
    assert close.float().mean() > 0.8
    assert all(p.grad.dtype == torch.bfloat16 and p.grad.isfinite().all() for p in layer.parameters())
    assert all(
        torch.cosine_similarity(g.flatten(), p.grad.float().flatten(), 0) > 0.9
        for g, p in zip(grads, layer.parameters(), strict=True)
    )
