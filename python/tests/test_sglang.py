"""switchyard.sglang on stored batches, without SGLang."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ours = pytest.importorskip("switchyard.sglang")

V, ROWS = 50, 8


def batch(seeds: Any = True, **filters: Any) -> Any:
    info = {"top_ks": [1 << 30] * ROWS, "top_ps": [1.0] * ROWS, "min_ps": [0.0] * ROWS, **filters}
    needs = {"top_ks": "top_k", "top_ps": "top_p", "min_ps": "min_p"}
    made = {name: torch.tensor(values) for name, values in info.items()}
    made |= {f"need_{word}_sampling": name in filters for name, word in needs.items()}
    seed = torch.arange(ROWS, dtype=torch.int64) * 7919 if seeds else None
    return SimpleNamespace(**made, sampling_seed=seed, sampling_mask_batch_indices=None)


def candidates(probs: np.ndarray, k: int, p: float, mp: float) -> set[int]:
    """All filters of the same probabilities; the token that crosses p stays."""
    order = np.argsort(-probs, kind="stable")
    before = np.cumsum(probs[order].astype(np.float64)) - probs[order]
    return {int(t) for i, t in enumerate(order) if i < k and before[i] < p and probs[t] >= mp * probs.max()}


FILTERS: list[dict[str, Any]] = [
    {},
    {"top_ks": [1, 2, 3, 5, 8, 13, 1 << 30, 4]},
    {"top_ps": [0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0, 0.2]},
    {
        "top_ks": [1 << 30, 2, 3, 5, 8, 13, 1, 4],
        "top_ps": [0.5] * ROWS,
        "min_ps": [0.0, 0.1, 0.2, 0.0, 0.3, 0.05, 0.0, 0.9],
    },
]


@pytest.mark.parametrize("filters", FILTERS)
def test_draws_are_of_the_candidates(filters: dict[str, Any]) -> None:
    numbers = torch.Generator().manual_seed(1)
    probs = torch.softmax(torch.randn(ROWS, V, generator=numbers) * 2, -1)
    info, drawn = batch(**filters), [set() for _ in range(ROWS)]
    for position in range(400):
        for row, token in enumerate(ours.draw(probs, info, torch.full((ROWS,), position)).tolist()):
            drawn[row].add(token)
    for row in range(ROWS):
        want = candidates(probs[row].numpy(), *(float(getattr(info, n)[row]) for n in ("top_ks", "top_ps", "min_ps")))
        assert drawn[row] <= want
        likely = {token for token in want if probs[row, token] > 0.05 * sum(float(probs[row, t]) for t in want)}
        assert likely <= drawn[row]


def test_a_row_alone_and_without_seeds() -> None:
    probs, positions = torch.full((ROWS, V), 1 / V), torch.arange(ROWS)
    info = batch(top_ps=[0.9] * ROWS)
    together = ours.draw(probs, info, positions)
    for row in range(ROWS):
        one = SimpleNamespace(
            **{n: v[row : row + 1] if isinstance(v, torch.Tensor) else v for n, v in vars(info).items()}
        )
        assert ours.draw(probs[:1], one, positions[row : row + 1]) == together[row]
    torch.manual_seed(3)
    first = ours.draw(probs, batch(seeds=False), positions)
    again = ours.draw(probs, batch(seeds=False), positions)
    torch.manual_seed(3)
    assert torch.equal(first, ours.draw(probs, batch(seeds=False), positions))
    assert not torch.equal(first, again)


def test_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend's class takes the place of one method, and calls it where the candidates are asked for."""
    found: dict[str, Any] = {}
    module: Any = ModuleType("sglang.srt.layers.sampler")
    module.Sampler = type("Sampler", (), {"_sample_from_probs": lambda *given: "its own"})
    module.register_sampler_backend = found.__setitem__
    for name in ("sglang", "sglang.srt", "sglang.srt.layers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    ours.register()
    sampler, info = found["switchyard"](), batch()
    probs = torch.softmax(torch.randn(ROWS, V), -1)
    token, mask = sampler._sample_from_probs(probs, info, torch.zeros(ROWS), True)
    assert mask is None
    assert torch.equal(token, ours.draw(probs, info, torch.zeros(ROWS)))
    info.sampling_mask_batch_indices = torch.tensor([0])
    assert sampler._sample_from_probs(probs, info, torch.zeros(ROWS), True) == "its own"
