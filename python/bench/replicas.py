"""Rows that an exchange sends when popular experts have replicas, counted for every rule of `replica`.

    python/bench/replicas.py [--tokens 64]

256 experts, 8 per token, chosen with probability 1/rank^0.6, on 32 devices with 288 places (moe_place, distinct). Rows
per token that go to another device, rows of experts per token, and the load of the fullest device over the mean; last
without replicas.
"""

from __future__ import annotations

import argparse

import numpy as np

import switchyard
from switchyard.mesh import LocalMesh

EXPERTS, CHOICES, PLACES, DEVICES = 256, 8, 288, 32


def choose(rng: np.random.Generator, tokens: int) -> np.ndarray:
    """Experts of each token: by weight, without repetition."""
    weights = np.arange(1, EXPERTS + 1) ** -0.6
    order = rng.exponential(size=(tokens, EXPERTS)) / weights
    return np.argsort(order, axis=1)[:, :CHOICES].astype(np.int32)


def hosts_of(places: np.ndarray) -> np.ndarray:
    hosts = np.zeros((EXPERTS, DEVICES), np.uint16)
    for place, expert in enumerate(places):
        hosts[expert, place // (len(places) // DEVICES)] = 1
    return hosts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64, help="of each device")
    tokens = parser.parse_args().tokens
    rng = np.random.default_rng(1)
    loads = np.bincount(choose(rng, 20000).ravel(), minlength=EXPERTS).astype(np.int64)[None]
    placed = switchyard.moe_place(loads, num_physical=PLACES, devices=DEVICES, distinct=True)
    with_replicas = hosts_of(placed.physical_to_logical[0])
    alone = hosts_of(np.arange(EXPERTS))
    chosen = [choose(rng, tokens) for _ in range(DEVICES)]
    rows = [np.zeros((tokens, 1), np.uint8) for _ in range(DEVICES)]
    with LocalMesh(1, DEVICES) as mesh:
        for name in ("all", "first", "round_robin", "hash", "balanced", "local", "no replicas"):
            hosts, rule = (alone, "all") if name == "no replicas" else (with_replicas, name)
            there = mesh.all_to_all_dispatch(rows, chosen, hosts, layout="expert", replica=rule)
            sent = np.stack(there.rows_to)
            served = np.array([int(counts.sum()) for counts in there.expert_counts])
            away = (sent.sum() - np.trace(sent)) / (tokens * DEVICES)
            print(
                f"{name:12} {away:5.1f} rows sent, {served.sum() / (tokens * DEVICES):5.1f} of experts,"
                f" fullest device {served.max() / served.mean():.2f}"
            )


if __name__ == "__main__":
    main()
