"""A decode step as one CUDA graph: cache, routing, experts and sampling, without the host.

Without a CUDA device the same step runs on the CPU and draws the same tokens. For that the parts that are PyTorch's
are exact here: weights and states are eighths, whose sums have no rounding in any order. Switchyard's own parts have
the same bits everywhere.
"""

import sys
import time

import torch

import switchyard
import switchyard.torch as sy

BATCH, WIDTH, EXPERTS, VOCAB, BLOCK, LENGTH, STEPS = 8, 64, 16, 512, 16, 64, 24

device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
generator = torch.Generator().manual_seed(1)


def eighths(*shape: int) -> torch.Tensor:
    return (torch.randint(-8, 9, shape, generator=generator) / 8).to(device)


embedding, router, head = eighths(VOCAB, WIDTH), eighths(WIDTH, EXPERTS), eighths(WIDTH, VOCAB)
cache = torch.zeros(BATCH * LENGTH, WIDTH, device=device)
blocks = torch.randperm(BATCH * LENGTH // BLOCK, generator=generator).reshape(BATCH, -1).to(device)
sequences = torch.arange(BATCH, device=device)
tokens = torch.arange(BATCH, device=device)
position = torch.zeros(BATCH, dtype=torch.int64, device=device)
recent = torch.arange(4, device=device)


def step() -> None:
    """One token for every sequence: reads and writes tensors that stay where they are."""
    slots = sy.kv_slots(position, sequences, blocks, block_size=BLOCK)
    sy.kv_scatter(cache, embedding[tokens], slots)
    last = (position[:, None] - recent).clamp(min=0)
    hidden = sy.kv_gather(cache, last, blocks, block_size=BLOCK).sum(1)
    routed = sy.moe_route(hidden @ router, k=2)
    rows = sy.moe_permute(hidden, routed.routing_map, num_out_tokens=2 * BATCH)
    made = rows.permuted_tokens * 2  # experts
    hidden = sy.moe_unpermute(made, rows.sorted_indices, routed.routing_map, routed.probs)
    logits = ((hidden * 8).round() / 8) @ head
    tokens.copy_(sy.sample(logits, top_k=20, temperature=8.0, seed=sequences, offset=position).token)
    position.add_(1)


drawn = []
if device.type == "cuda":
    step()  # once, for what PyTorch makes at the first product of matrices
    tokens.copy_(sequences)
    position.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # nothing runs: the calls are recorded
        step()
    for _ in range(STEPS):
        graph.replay()
        drawn.append(tokens.clone())
    switchyard.sync()  # raises what a replay found wrong in contents
    start = time.perf_counter()
    for _ in range(LENGTH - STEPS):
        graph.replay()
    switchyard.sync()
    print(f"{(time.perf_counter() - start) / (LENGTH - STEPS) * 1e6:.0f} us per step", file=sys.stderr)
else:
    for _ in range(STEPS):
        step()
        drawn.append(tokens.clone())

for sequence in torch.stack(drawn, 1)[:3].tolist():
    print(*sequence)
