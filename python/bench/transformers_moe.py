"""switchyard.transformers next to transformers' own: `transformers_moe.py [ROUNDS [THREADS]]`.

The experts of one layer, forward in the shape of OLMoE and forward and backward in a smaller one, with each
implementation; then one step of sampling, from logits to tokens. The variants alternate; a figure is the shortest of
the rounds, in milliseconds. With one thread it is processor time, which other programs disturb less. Outputs are
compared first. The last column is "switchyard_fast" divided by "grouped_mm".
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers.generation import logits_process as stock

import switchyard
import switchyard.transformers as ours

EXPERTS = ("eager", "batched_mm", "grouped_mm", "switchyard", "switchyard_fast")
FEW = 64  # tokens up to which batched_mm runs: it copies the weights of every choice


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    if len(sys.argv) > 2:
        torch.set_num_threads(int(sys.argv[2]))
        switchyard.configure(threads=int(sys.argv[2]))
    torch.manual_seed(0)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    print(f"{versions}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}, ms")
    for dtype in (torch.float32, torch.bfloat16):
        print(f"{f'experts, {dtype}':42}" + "".join(f"{name:>16}" for name in EXPERTS))
        layer = experts(hidden=2048, inner=1024, count=64).to(dtype)
        for tokens in (1, 16, 64):
            show(f"OLMoE layer, {tokens} tokens, forward", rounds, layer, tokens, 8, train=False)
        layer = experts(hidden=512, inner=256, count=32).to(dtype)
        for tokens in (64, 512):
            show(f"512 x 256, 32 experts, {tokens} tokens, forward", 3 * rounds, layer, tokens, 4, train=False)
            show("the same with backward", 3 * rounds, layer, tokens, 4, train=True)
        layer = experts(hidden=64, inner=32, count=128).to(dtype)
        show("64 x 32, 128 experts, 16 tokens, forward", 3 * rounds, layer, 16, 8, train=False)
    print(f"{'sampling, V = 128256':40}{'stock':>12}{'switchyard':>12}{'no argmax':>12}")
    for rows in (1, 16):
        logits = 4 * torch.randn(rows, 128256)
        sampling(f"{rows} rows: T 0.8, k 40, p 0.95, min-p 0.05", rounds, logits, top_k=40, top_p=0.95, min_p=0.05)
        sampling(f"{rows} rows: T 0.8, p 0.95", rounds, logits, top_p=0.95)


def experts(hidden: int, inner: int, count: int) -> Any:
    config = transformers.OlmoeConfig(hidden_size=hidden, intermediate_size=inner, num_experts=count)
    layer = transformers.models.olmoe.modeling_olmoe.OlmoeExperts(config)
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -0.05, 0.05)
    return layer


def show(text: str, rounds: int, layer: Any, tokens: int, choices: int, *, train: bool) -> None:
    dtype = layer.down_proj.dtype
    hidden = torch.randn(tokens, layer.hidden_dim, dtype=dtype, requires_grad=train)
    weights, ids = torch.rand(tokens, layer.num_experts).softmax(-1).to(dtype).topk(choices)
    layer.requires_grad_(train)

    def run(name: str) -> torch.Tensor:
        layer.config._experts_implementation = name
        layer.zero_grad()
        made: torch.Tensor = layer(hidden, ids, weights)
        if train:
            made.sum().backward()
        return made

    theirs = run("eager")
    assert dtype != torch.float32 or torch.equal(theirs, run("switchyard"))
    limit = 0.02 * float(theirs.detach().abs().max())
    torch.testing.assert_close(run("switchyard_fast"), theirs, rtol=0.02, atol=limit)
    names = [name for name in EXPERTS if name != "batched_mm" or tokens * choices <= FEW]
    figures = alternate(rounds, {name: lambda name=name: run(name) for name in names})
    row = "".join(f"{figures[name]:16.2f}" if name in figures else f"{'-':>16}" for name in EXPERTS)
    print(f"{text:42}{row}{figures['switchyard_fast'] / figures['grouped_mm']:8.2f}")


def sampling(text: str, rounds: int, logits: torch.Tensor, **filters: Any) -> None:
    warpers = {"top_k": stock.TopKLogitsWarper, "top_p": stock.TopPLogitsWarper, "min_p": stock.MinPLogitsWarper}
    stages = [stock.TemperatureLogitsWarper(0.8), *(warpers[name](value) for name, value in filters.items())]
    chain = stock.LogitsProcessorList(stages)
    sampler = ours.Sampler(list(range(len(logits))), temperature=0.8, **filters)
    ids = torch.zeros(len(logits), 10 * (rounds + 1), dtype=torch.int64)
    length = iter(range(ids.shape[1]))  # a new token in each call, as in generate

    def theirs() -> torch.Tensor:
        return torch.multinomial(chain(ids[:, :1], logits).softmax(-1), 1)

    def drawn() -> torch.Tensor:
        return sampler(ids[:, : next(length)], logits).argmax(-1)

    def alone() -> torch.Tensor:
        return sampler(ids[:, : next(length)], logits)

    figures = alternate(4 * rounds, {"stock": theirs, "switchyard": drawn, "without argmax": alone})
    print(f"{text:40}" + "".join(f"{figure:12.3f}" for figure in figures.values()))


def alternate(rounds: int, variants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds + 1):  # the first is not counted
        for name, call in variants.items():
            begin = clock()
            call()
            times[name].append(1e3 * (clock() - begin))
    return {name: min(taken[1:]) for name, taken in times.items()}


if __name__ == "__main__":
    main()
