"""A mixture-of-experts layer in PyTorch, on the operators of switchyard.torch.

Run it to train a small model on a toy task: python examples/python/moe_layer.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import switchyard.torch as st


class MoELayer(nn.Module):
    """Each token goes through k of several feed-forward experts, and gets the weighted sum of their results.

    Without a capacity every expert gets all tokens that chose it. Their number is known only after routing, so the
    experts are called one after the other, and a compiled graph breaks there. With a capacity every expert has that
    many rows, zero where it has fewer tokens; later tokens of a full expert are dropped. Shapes are fixed then: the
    experts are one batched product, and the layer compiles as a whole.
    """

    def __init__(self, width: int, hidden: int, experts: int, k: int, capacity: int | None = None) -> None:
        super().__init__()
        self.k, self.capacity = k, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """[T, width] to [T, width]."""
        logits = self.router(tokens)
        # The choice of experts has no gradient. Their weights have one, so they are computed here in torch.
        routing_map = st.moe_route(logits.detach(), k=self.k).routing_map
        probs = torch.where(routing_map, logits.softmax(-1), 0)
        return (
            self._packed(tokens, routing_map, probs)
            if self.capacity is None
            else self._fixed(tokens, routing_map, probs, self.capacity)
        )

    def _packed(self, tokens: Tensor, routing_map: Tensor, probs: Tensor) -> Tensor:
        rows = st.moe_permute(tokens, routing_map, num_out_tokens=tokens.shape[0] * self.k)
        parts = rows.permuted_tokens.split(rows.expert_counts.tolist())
        results = [(part @ self.up[e]).relu() @ self.down[e] for e, part in enumerate(parts)]
        return st.moe_unpermute(torch.cat(results), rows.sorted_indices, routing_map, probs)

    def _fixed(self, tokens: Tensor, routing_map: Tensor, probs: Tensor, capacity: int) -> Tensor:
        experts, width, _ = self.up.shape
        mode = {"drop_and_pad": True, "zero_pad": True}
        rows = st.moe_permute(tokens, routing_map, num_out_tokens=experts * capacity, **mode)
        batched = rows.permuted_tokens.view(experts, capacity, width)
        results = torch.bmm(torch.bmm(batched, self.up).relu(), self.down).view(-1, width)
        return st.moe_unpermute(results, rows.sorted_indices, routing_map, probs, **mode)


def toy_batch(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points, and for each a linear function of it, chosen by its sector: a task that suits experts."""
    points = torch.randn((count, 2), generator=generator)
    slopes = torch.tensor([[3.0, 0.0], [0.0, -2.0], [-1.0, 2.0], [1.0, 1.0]])
    sector = (points[:, 0] > 0).long() + 2 * (points[:, 1] > 0).long()
    return points, (points * slopes[sector]).sum(-1, keepdim=True)


def toy_model(layer: nn.Module, width: int) -> nn.Module:
    """The layer between two linear maps."""
    return nn.Sequential(nn.Linear(2, width), layer, nn.Linear(width, 1))


def train(model: nn.Module, steps: int, seed: int = 0) -> list[float]:
    """Losses of the steps."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        points, expected = toy_batch(64, generator)
        loss = (model(points) - expected).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(1)
    layer = MoELayer(width=16, hidden=32, experts=4, k=2)
    losses = train(toy_model(layer, 16), 300)
    for step in (0, 10, 30, 100, 299):
        print(f"step {step:3}  loss {losses[step]:.4f}")
