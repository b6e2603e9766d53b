"""What a call from Python costs beyond the same call from C: `calls.py [ROUNDS]`.

Small arrays, so that the work itself is short. The C call is timed in a loop in C (repeat.c), on the very arrays that
the Python call was seen to pass. All ways of one operator take turns, a few milliseconds each; a figure is the median
of the turns, in nanoseconds per call.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi

import switchyard

TURN = 200  # calls
TARGET_NS = 3000
TOKENS, WIDTH, EXPERTS, CHOICES = 4, 16, 8, 2


class Case(NamedTuple):
    operator: str
    call: str  # as a caller writes it
    arrays: dict[str, Any]


def cases() -> Iterator[Case]:
    draw = np.random.default_rng(1)
    tokens = draw.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    logits = draw.standard_normal((TOKENS, EXPERTS)).astype(np.float32)
    routed = switchyard.moe_route(logits, k=CHOICES)
    mapped = {"routing_map": routed.routing_map, "probs": routed.probs}
    rows = switchyard.moe_permute(tokens, **mapped, num_out_tokens=TOKENS * CHOICES)
    yield Case("moe_route", "moe_route(logits, k=2", {"logits": logits})
    yield Case("moe_permute", "moe_permute(tokens, routing_map, probs, num_out_tokens=8", {"tokens": tokens, **mapped})
    permuted = {"rows": rows.permuted_tokens, "sorted_indices": rows.sorted_indices}
    yield Case("moe_unpermute", "moe_unpermute(rows, sorted_indices, routing_map, probs", {**permuted, **mapped})
    paged = {"cache": tokens, "indices": np.array([3, 0]), "block_table": np.array([1, 0])}
    yield Case("kv_gather", "kv_gather(cache, indices, block_table, block_size=2", paged)
    yield Case("sample, greedy", "sample(logits", {"logits": logits})
    numbers = "sample(logits, temperature=0.8, top_k=5, top_p=0.9, seed=7"
    yield Case("sample, numbers", numbers, {"logits": logits})
    drawn = {"logits": logits, "top_p": np.full(TOKENS, 0.9, np.float32), "seed": np.arange(TOKENS)}
    yield Case("sample, top-p", "sample(logits, top_p=top_p, seed=seed", drawn)


def libraries() -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Rows of the table: whose arrays, how they are made, and the module whose functions are called."""
    yield "numpy", lambda array: array, switchyard
    try:
        import torch
    except ImportError:
        return
    yield "torch", torch.from_numpy, switchyard
    yield "sy.torch", torch.from_numpy, importlib.import_module("switchyard.torch")


class Seen:
    """Stands in for the binding's function of an operator once, to see the values of a call."""

    def __init__(self, operator: Any) -> None:
        self.operator, self.run, self.values = operator, operator._run, ()

    def __call__(self, *values: Any) -> int:
        self.values = values
        status: int = self.run(*values)
        return status

    def __enter__(self) -> Seen:
        self.operator._run = self
        return self

    def __exit__(self, *_: object) -> None:
        self.operator._run = self.run


def turn(text: str, names: dict[str, Any]) -> Callable[[], float]:
    """Nanoseconds of a call, when called. The garbage collector rests meanwhile."""
    timer = timeit.Timer(text, timer=time.perf_counter_ns, globals=names)
    return lambda: timer.timeit(TURN) / TURN


def time_case(case: Case, array: Callable[[Any], Any], module: Any, repeat: Any, rounds: int) -> list[float]:
    """Nanoseconds of the C call, the binding's function alone, the call with out= and the call without."""
    name = case.operator.partition(",")[0]
    operator: Any = sys.modules[f"switchyard.ops.{name}"].__dict__["operator"]
    names = {**vars(module), **{key: array(value) for key, value in case.arrays.items()}}
    names["out"] = eval(case.call + ")", names)
    with Seen(operator) as seen:
        eval(case.call + ", out=out)", names)
    names |= {"run": operator._run, "values": seen.values}
    ways = [
        lambda: repeat(name, TURN, *seen.values) / TURN,
        turn("run(*values)", names),
        turn(case.call + ", out=out)", names),
        turn(case.call + ")", names),
    ]
    turns = [[way() for way in ways] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    root = Path(__file__).resolve().parents[2]
    repeat = tvm_ffi.load_module(str(root / "build" / "python" / "python_bench.so")).repeat
    info = switchyard.info()
    versions = ", ".join(f"{name} {info.libraries[name]}" for name, *_ in libraries() if name in info.libraries)
    print(f"switchyard {info.version}, {info.isa}, Python {info.python}, tvm-ffi {info.tvm_ffi}, {versions}")
    print(f"ns per call, {TOKENS} tokens of {WIDTH} numbers, {EXPERTS} experts; medians of {rounds} turns")
    print(f"{'':16}{'':9}{'C call':>8}{'binding':>9}{'out=':>8}{'beyond C':>10}{'new':>8}{'beyond C':>10}")
    worst = 0.0
    for case in cases():
        for library, array, module in libraries():
            c, binding, given, new = time_case(case, array, module, repeat, rounds)
            worst = max(worst, given - c) if module is switchyard else worst
            figures = f"{c:8.0f}{binding:9.0f}{given:8.0f}{given - c:10.0f}{new:8.0f}{new - c:10.0f}"
            print(f"{case.operator:16}{library:9}{figures}", flush=True)
    print(f"most beyond the C call with out=: {worst:.0f} ns; wanted: at most {TARGET_NS}")


if __name__ == "__main__":
    main()
