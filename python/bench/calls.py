"""The cost of a call from Python beyond the same call from C: `calls.py [ROUNDS [OPERATORS [LIBRARIES]]]`.

OPERATORS and LIBRARIES are patterns of the first two columns: `calls.py 50 'kv_gather|sample' cuda`. Arrays are small,
so that the work itself is short. The C call is timed in a loop in C (repeat.c), on the arrays that the Python call
passed. The variants of one operator alternate, a few milliseconds each; a figure is the median over the rounds, in
nanoseconds per call. On a CUDA device it is the time until a call returns; kernels run meanwhile. What PyTorch itself
takes there for small tensors comes last.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import switchyard

TURN = 40  # calls: shorter than what a busy machine gives a program at a time
# Nanoseconds beyond the C call, with new results.
TARGETS = {"numpy": 8000, "sy.torch": 15000, "cuda": 12000, "sy.cuda": 12000}
TOKENS, WIDTH, EXPERTS, CHOICES = 4, 16, 8, 2

# As a caller writes them, up to the bracket that closes.
CALLS = {
    "moe_route": "logits, k=2",
    "moe_map_from_ids": "ids, weights, num_experts=8",
    "moe_ids_from_map": "routing_map, probs, k=2",
    "moe_permute": "tokens, routing_map, probs, num_out_tokens=8",
    "moe_unpermute": "rows, sorted_indices, routing_map, probs",
    "moe_permute_grad": "rows, sorted_indices, row_probs, routing_map, num_experts=8, num_tokens=4",
    "moe_unpermute_grad": "tokens, sorted_indices, rows, routing_map, probs",
    "moe_permute_ids": "tokens, ids, weights, num_experts=8",
    "moe_unpermute_ids": "rows, id_indices, weights",
    "moe_align_block": "ids, num_experts=8, block_size=4",
    "moe_pad_map": "routing_map, alignment=1",
    "moe_reorder_chunks": "tokens, chunks",
    "moe_convert_indices": "sorted_indices, to='row', num_tokens=4",
    "moe_locations": "choices, num_experts=8",
    "moe_capacity": "counts, samples=4, num_experts=8, k=2",
    "moe_dispatch": "first_choices, first_places, tokens, num_experts=8, capacity=4",
    "moe_combine": "choices, places, buffer, num_experts=8, capacity=4",
    "moe_dispatch_grad_gate": "choices, places, tokens, buffer, num_experts=8, capacity=4",
    "quantize_rows": "tokens, format='int8_token'",
    "dequantize_rows": "codes, code_scales, format='int8_token', dtype='float32'",
    "local_reduce": "expert_rows, ids, hosts, weights",
    "kv_translate": "indices, block_table, block_size=2",
    "kv_slots": "indices, block_table=block_table, block_size=2",
    "kv_select": "logits, k=2",
    "kv_gather": "cache, indices, block_table, block_size=2",
    "kv_ragged": "cache, lengths, block_tables, block_size=2",
    "kv_scatter": "cache, two_rows, indices",
    "kv_blocks": "pairs, cache, block_size=2",
    "sample, greedy": "logits",
    "sample, numbers": "logits, temperature=0.8, top_k=5, top_p=0.9, seed=7",
    "sample, top-p": "logits, top_p=top_p, seed=seed",
    "sample_verify": "logits, picked, lengths, seed=7",
    "sample_overrides": "logits, lengths4, picked, repetition_penalty=1.5",
    "sample_noise": "n=16, seed=7",
}


def arrays() -> dict[str, Any]:
    """The arguments of the calls."""
    draw = np.random.default_rng(1)
    tokens = draw.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    logits = draw.standard_normal((TOKENS, EXPERTS)).astype(np.float32)
    routed = switchyard.moe_route(logits, k=CHOICES)
    rows = switchyard.moe_permute(tokens, routed.routing_map, routed.probs, num_out_tokens=TOKENS * CHOICES)
    quantized = switchyard.quantize_rows(tokens, format="int8_token")
    choices = routed.ids.T.copy()
    places = switchyard.moe_locations(choices, num_experts=EXPERTS).locations
    return {
        "tokens": tokens,
        "codes": quantized.codes,
        "code_scales": quantized.scales,
        "logits": logits,
        "ids": routed.ids,
        "weights": routed.weights,
        "routing_map": routed.routing_map,
        "probs": routed.probs,
        "counts": routed.counts,
        "rows": rows.permuted_tokens,
        "sorted_indices": rows.sorted_indices,
        "row_probs": rows.permuted_probs,
        "id_indices": switchyard.moe_permute_ids(tokens, routed.ids).sorted_indices,
        "chunks": np.array([[1, 1], [2, 0]]),
        "choices": choices,
        "places": places,
        "first_choices": choices[0],
        "first_places": places[0],
        "buffer": np.ones((EXPERTS * TOKENS, WIDTH), np.float32),
        "expert_rows": np.ones((EXPERTS, TOKENS, WIDTH), np.float32),
        "hosts": np.ones((EXPERTS, 1), np.uint16),
        "cache": tokens.copy(),
        "two_rows": tokens[:2].copy(),
        "indices": np.array([3, 0]),
        "block_table": np.array([1, 0]),
        "block_tables": np.array([[1, 0]]),
        "lengths": np.array([0, 3]),
        "pairs": np.array([[0, 1]]),
        "top_p": np.full(TOKENS, 0.9, np.float32),
        "seed": np.arange(TOKENS),
        "lengths4": np.array([0, 1, 2, 3, 4]),
        "picked": np.array([1, 5, 0, 7]),
    }


def libraries() -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Rows of the table: the array library, how its arrays are made, and the module whose functions are called."""
    yield "numpy", lambda array: array, switchyard
    try:
        import torch
    except ImportError:
        return
    yield "torch", torch.from_numpy, switchyard
    ours = importlib.import_module("switchyard.torch")
    yield "sy.torch", torch.from_numpy, ours
    if torch.cuda.is_available():
        yield "cuda", lambda array: torch.from_numpy(array).cuda(), switchyard
        yield "sy.cuda", lambda array: torch.from_numpy(array).cuda(), ours


class Seen:
    """Takes the place of an operator and records what it is called with."""

    def __init__(self, name: str) -> None:
        self.names = vars(sys.modules[f"switchyard.ops.{name}"])
        self.operator = self.names["operator"]
        self.given: tuple[Any, ...] = ()
        self.out: tuple[Any, ...] = ()

    def __call__(self, given: Any, out: Any = None, *asked: Any) -> Any:
        self.given, self.out = given, self.operator(given, out, *asked)
        return self.out

    def run(self, given: Any, out: Any, planes: Any = ()) -> Any:
        self.given, self.out = given, self.operator.run(given, out, planes)
        return self.out

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)

    def __enter__(self) -> Seen:
        self.names["operator"] = self
        return self

    def __exit__(self, *_: object) -> None:
        self.names["operator"] = self.operator


def turn(text: str, names: dict[str, Any]) -> Callable[[], float]:
    """Nanoseconds of a call, when called. The garbage collector is off meanwhile."""
    timer = timeit.Timer(text, timer=time.perf_counter_ns, globals=names)
    return lambda: timer.timeit(TURN) / TURN


def ended(figure: float) -> float:
    """Waits for the device before the next turn."""
    switchyard.sync()
    return figure


def time_case(case: str, given: dict[str, Any], module: Any, repeat: Any, rounds: int) -> list[float]:
    """Nanoseconds of the C call, of the operator's, of the call without out= and, if it has one, with out=."""
    name = case.partition(",")[0]
    names, call = {**vars(module), **given}, f"{name}({CALLS[case]}"
    with Seen(name) as seen:
        eval(call + ")", {**vars(switchyard), **given})
    names |= {"run": seen.operator.run, "given": seen.given, "made": seen.out, "out": eval(call + ")", names)}
    ways = [
        lambda: repeat(name, TURN, (*seen.given, *seen.out)) / TURN,
        turn("run(given, made)", names),
        turn(call + ")", names),
    ]
    if "out" in inspect.signature(names[name]).parameters:
        ways.append(turn(call + ", out=out)", names))
    turns = [[ended(way()) for way in ways] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def references(device: str, rounds: int) -> Iterator[tuple[str, float]]:
    """What PyTorch takes: an allocation, an addition, and an operator of torch.library that does nothing."""
    import torch

    library = torch.library.Library(f"switchyard_bench_{device}", "DEF")
    library.define("nothing(Tensor a) -> ()")
    library.impl("nothing", lambda a: None, device.upper())
    names = {
        "make": torch.empty,
        "strided": getattr(torch._C._dynamo.guards, f"_empty_strided_{device}"),
        "nothing": getattr(torch.ops, f"switchyard_bench_{device}").nothing.default,
        "there": torch.device(device, 0),
        "f32": torch.float32,
        "a": torch.zeros(64, device=device),
        "b": torch.zeros(64, device=device),
    }
    ways = {
        "torch.empty": "make(4, 16, dtype=f32, device=there)",
        "empty_strided of graphs": "strided((4, 16), (16, 1), f32)",
        "a + b": "a + b",
        "torch.library, no body": "nothing(a)",
    }
    for label, text in ways.items():
        way = turn(text, names)
        yield label, statistics.median(ended(way()) for _ in range(rounds))


def load(path: Path) -> Any:
    """The function of repeat.c, in a second copy of the binding."""
    spec: Any = importlib.util.spec_from_file_location("python_bench", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    bench.meet_arrays(np.ndarray)
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        table = torch.Tensor.__dlpack_c_exchange_api__
        bench.meet(torch.Tensor, torch.nn.Parameter, table, None, None, None)
    return bench.repeat


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    operators, wanted_libraries = (sys.argv[i] if len(sys.argv) > i else "" for i in (2, 3))
    listed = [one for one in libraries() if re.search(wanted_libraries, one[0])]
    places = [
        Path(switchyard.__file__).parent / "lib",
        Path(__file__).resolve().parent.parent.parent / "build" / "python",
    ]
    found = (place / "python_bench.abi3.so" for place in places)
    repeat = load(next(path for path in found if path.exists()))
    info = switchyard.info()
    versions = ", ".join(f"{name} {info.libraries[name]}" for name in ("numpy", "torch") if name in info.libraries)
    print(f"switchyard {info.version}, {info.isa}, Python {info.python}, {versions}")
    print(f"ns per call, {TOKENS} tokens of {WIDTH} numbers, {EXPERTS} experts; medians of {rounds} turns")
    print(f"{'':24}{'':9}{'C call':>8}{'binding':>9}{'new':>8}{'beyond C':>10}{'out=':>8}{'beyond C':>10}")
    most = dict.fromkeys(TARGETS, 0.0)
    cases = [case for case in CALLS if re.search(operators, case)]
    for _, array, module in listed:  # not shown: the first turns of a process are slower
        time_case(cases[0], {name: array(value) for name, value in arrays().items()}, module, repeat, 100)
    for case in cases:
        for library, array, module in listed:
            given = {name: array(value) for name, value in arrays().items()}
            c, binding, new, *out = time_case(case, given, module, repeat, rounds)
            if library in most:
                most[library] = max(most[library], new - c)
            figures = f"{c:8.0f}{binding:9.0f}{new:8.0f}{new - c:10.0f}"
            figures += "".join(f"{with_out:8.0f}{with_out - c:10.0f}" for with_out in out)
            print(f"{case:24}{library:9}{figures}", flush=True)
    for device in sorted({"cuda" if "cuda" in name else "cpu" for name, *_ in listed if name != "numpy"}):
        for label, figure in references(device, rounds):
            print(f"{label:24}{device:9}{'':17}{figure:8.0f}")
    for library, wanted in TARGETS.items():
        if most[library]:
            beyond = f"at most {most[library]:.0f} ns beyond the C call with new results"
            print(f"{library}: {beyond}; wanted: at most {wanted}")


if __name__ == "__main__":
    main()
