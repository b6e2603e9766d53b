"""An expert-parallel layer in PyTorch, forward and backward, with one process per GPU: torch.distributed and NCCL.

Run it: python examples/python/expert_parallel_torch.py [processes]

Every process has some of the experts and some of the tokens. It sends its tokens to their experts, runs its own experts
on the rows that arrive, and gets the sums of the results back; gradients take the same way in the other direction.
Every process then computes the whole problem alone, on a mesh inside the process, and compares its part bit for bit:
the experts get the same rows in the same order, so every product and every sum is the same one. Without a GPU only the
mesh inside one process runs; it is compared with a loop over tokens.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import tempfile
from typing import Any

import torch
from torch import Tensor

from switchyard.mesh import LocalMesh, from_torch_distributed

TOKENS, WIDTH, HIDDEN, EXPERTS, K = 24, 64, 96, 8, 2  # tokens of each device; experts of all

Shards = tuple[Tensor, ...]  # a tensor for each device of this process


def _given(mesh: Any, shards: Shards) -> Any:
    """As a mesh takes them: without gradients; with one device per process that device's tensor alone."""
    shards = tuple(shard.detach().contiguous() for shard in shards)
    return shards if isinstance(mesh, LocalMesh) else shards[0]


def _taken(mesh: Any, result: Any) -> Shards:
    return result if isinstance(mesh, LocalMesh) else (result,)


class Dispatch(torch.autograd.Function):
    """Rows of the experts, and the weight of each row, from tokens [N, H] and weights [N, K]."""

    @staticmethod
    def forward(ctx: Any, mesh: Any, routing: Any, chosen: Shards, hosts: Tensor, *shards: Tensor) -> Any:
        n = len(shards) // 2
        there = mesh.all_to_all_dispatch(
            _given(mesh, shards[:n]),
            _given(mesh, chosen),
            hosts,
            planes=[_given(mesh, shards[n:])],
            layout="expert",
            routing=routing,
            want=["src", "expert_offsets"],
        )
        sources, offsets = _taken(mesh, there.src), _taken(mesh, there.expert_offsets)
        weights = [
            plane.gather(1, src[:, 2:].long())[:, 0]  # of the slot that chose this expert
            for plane, src in zip(_taken(mesh, there.plane_tokens[0]), sources, strict=True)
        ]
        ctx.mesh, ctx.routing = mesh, routing
        ctx.mark_non_differentiable(*offsets)
        return (*_taken(mesh, there.tokens), *weights, *offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        n = len(grads) // 3
        mesh, routing = ctx.mesh, ctx.routing
        tokens = mesh.all_to_all_combine(_given(mesh, grads[:n]), sum=True, routing=routing)
        rows = tuple(grad[:, None] for grad in grads[n : 2 * n])
        weights = mesh.all_to_all_combine(_given(mesh, rows), routing=routing)  # [K, N, 1]: a row for each slot
        return (
            *(None,) * 4,
            *_taken(mesh, tokens.output),
            *(grad[:, :, 0].T.contiguous() for grad in _taken(mesh, weights.output)),
        )


class Combine(torch.autograd.Function):
    """For each token the sum of the rows of its experts. The gradient of a row is that of its token."""

    @staticmethod
    def forward(ctx: Any, mesh: Any, routing: Any, *rows: Tensor) -> Any:
        ctx.mesh, ctx.routing = mesh, routing
        return _taken(mesh, mesh.all_to_all_combine(_given(mesh, rows), sum=True, routing=routing).output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        mesh = ctx.mesh
        there = mesh.all_to_all_dispatch(
            _given(mesh, grads), reuse_routing=True, routing=ctx.routing, layout="expert", want=[]
        )
        return (None, None, *_taken(mesh, there.tokens))


def layer(
    mesh: Any, tokens: Shards, chosen: Shards, weights: Shards, hosts: Tensor, up: Shards, down: Shards
) -> Shards:
    """The results [N, H] for the tokens of each device here. `up` and `down`: the experts of each device."""
    n = len(tokens)
    routing = mesh.routing()
    made = Dispatch.apply(mesh, routing, chosen, hosts, *tokens, *weights)
    results = []
    for d in range(n):
        rows, row_weights, offsets = made[d], made[n + d], made[2 * n + d].tolist()
        parts = [
            (rows[begin:end] @ up[d][i]).relu() @ down[d][i]
            for i, (begin, end) in enumerate(itertools.pairwise(offsets))
        ]
        results.append(torch.cat(parts) * row_weights[:, None])
    return Combine.apply(mesh, routing, *results)


def problem(devices: int, place: str) -> dict[str, Any]:
    """The same in every process: tokens, choices, weights and experts of all devices."""
    made = torch.Generator().manual_seed(1)
    here = EXPERTS // devices

    def random(*shape: int) -> Shards:
        return tuple((torch.randn(shape, generator=made) / shape[-2] ** 0.5).to(place) for _ in range(devices))

    chosen = [torch.stack([torch.randperm(EXPERTS, generator=made)[:K] for _ in range(TOKENS)]) for _ in range(devices)]
    return {
        "tokens": random(TOKENS, WIDTH),
        "chosen": tuple(c.int().to(place) for c in chosen),
        "weights": tuple(torch.rand(TOKENS, K, generator=made).to(place) for _ in range(devices)),
        "hosts": torch.eye(devices, dtype=torch.int32).repeat_interleave(here, 0).to(torch.uint16).to(place),
        "up": random(here, WIDTH, HIDDEN),
        "down": random(here, HIDDEN, WIDTH),
        "wanted": random(TOKENS, WIDTH),
    }


LEARNED = ("tokens", "weights", "up", "down")  # what gets a gradient


def run(compute: Any, given: dict[str, Any], devices: range) -> list[tuple[Tensor, ...]]:
    """Of each of these devices the result and the gradients of tokens, weights and experts."""
    leaves = {name: tuple(given[name][d].detach().clone().requires_grad_() for d in devices) for name in LEARNED}
    results = compute(chosen=tuple(given["chosen"][d] for d in devices), hosts=given["hosts"], **leaves)
    torch.autograd.backward(results, [given["wanted"][d] for d in devices])
    return [
        (results[i].detach(), *(leaves[name][i].grad for name in LEARNED))  # type: ignore[misc]
        for i in range(len(devices))
    ]


def by_token(tokens: Shards, chosen: Shards, weights: Shards, hosts: Tensor, up: Shards, down: Shards) -> Shards:
    """The same as `layer`, token by token."""
    ups, downs = torch.cat(up), torch.cat(down)
    results = []
    for d in range(len(tokens)):
        rows = []
        for token, experts, scales in zip(tokens[d], chosen[d].tolist(), weights[d], strict=True):
            parts = [w * ((token @ ups[e]).relu() @ downs[e]) for e, w in zip(experts, scales, strict=True)]
            rows.append(torch.stack(parts).sum(0))
        results.append(torch.stack(rows))
    return tuple(results)


def process(rank: int, devices: int, folder: str) -> None:
    """One of the processes."""
    gpus = torch.cuda.device_count()
    if gpus < devices:  # NCCL accepts several processes on a GPU when each seems to be on a machine of its own
        os.environ.update(NCCL_HOSTID=f"process-{rank}", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(rank % gpus)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=devices)
    given = problem(devices, f"cuda:{rank % gpus}")
    with from_torch_distributed() as mesh:
        (mine,) = run(functools.partial(layer, mesh), given, range(rank, rank + 1))
    with LocalMesh(1, devices) as mesh:
        alone = run(functools.partial(layer, mesh), given, range(devices))[rank]
    same = [torch.equal(a, b) for a, b in zip(mine, alone, strict=True)]
    print(f"process {rank} of {devices}: result and four gradients equal those of one process: {same}", flush=True)
    torch.distributed.destroy_process_group()
    assert all(same)


def in_one_process(devices: int) -> None:
    """On the CPU."""
    given = problem(devices, "cpu")
    with LocalMesh(1, devices) as mesh:
        results = run(functools.partial(layer, mesh), given, range(devices))
    # A loop over tokens multiplies row by row, so the sums inside its products have another order.
    torch.testing.assert_close(results, run(by_token, given, range(devices)), rtol=1e-4, atol=1e-5)
    print(f"{devices} devices in one process: results and gradients are those of a loop over tokens")


def main(devices: int = 2) -> None:
    """All processes, where there is a GPU; else one."""
    if torch.cuda.is_available():
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(process, (devices, folder), devices)
    else:
        in_one_process(devices)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
