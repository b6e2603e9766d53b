"""The operators on CUDA tensors: every bit is that of the CPU; streams, errors, graphs, gradients, torch.compile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import calls
import numpy as np
import pytest
from cases import CASES, MAP, rand, st, to_torch, torch
from test_operators import opcheck, recorded

import switchyard

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device here", allow_module_level=True)

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "decode_graph.py"
HOST, DEVICE = torch.device("cpu"), torch.device("cuda", 0)
ON_DEVICE = [name for name in CASES if not name.startswith(calls.HOST)]
tree_map = torch.utils._pytree.tree_map_only
BAD = torch.ones(4, 3, dtype=torch.bool)  # every token to three experts, where two are allowed
SENTENCE = "moe_permute: routing_map routes token 0 to 3 experts, want at most 2"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    switchyard.sync()


def moved(values: Any, device: Any) -> Any:
    """The same values, with copies of tensors on a device."""
    return tree_map(torch.Tensor, lambda t: t.detach().to(device, copy=True).requires_grad_(t.requires_grad), values)


def listed(made: Any) -> list[Any]:
    return [made] if isinstance(made, torch.Tensor) else list(made or ())


def bits(tensor: Any) -> Any:
    return None if tensor is None else (tensor.dtype, tuple(tensor.shape), as_bytes(tensor))


def as_bytes(tensor: Any) -> bytes:
    compact = tensor.detach().cpu().contiguous()
    return bytes(compact.reshape(-1).view(torch.uint8).numpy()) if compact.numel() else b""


def outcome(op: Any, args: Any, device: Any) -> Any:
    """Bits of results, of tensors that were written to, and of gradients."""
    there = moved(args, device)
    results = listed(op(*there))
    tensors = [t for t in torch.utils._pytree.tree_leaves(there) if isinstance(t, torch.Tensor)]
    leaves = [t for t in tensors if t.requires_grad]
    flowing = [t for t in results if t.requires_grad]
    grads = ()
    if leaves and flowing:
        ones = [rand(*t.shape, dtype=t.dtype).to(device) for t in flowing]
        grads = torch.autograd.grad(flowing, leaves, ones, allow_unused=True)
    for tensor in (*results, *grads):
        assert tensor is None or tensor.device == (device if tensors else HOST)
    return [bits(tensor) for tensor in (*results, *tensors, *grads)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ON_DEVICE)
def test_bits_and_gradients(case: str) -> None:
    op, args = recorded(case)[-1]
    try:
        wanted = outcome(op, args, HOST)
    except switchyard.Error as error:  # an operator without a gradient
        with pytest.raises(switchyard.Error) as caught:
            outcome(op, args, DEVICE)
        assert str(caught.value) == str(error)
        return
    assert outcome(op, args, DEVICE) == wanted


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "case"), calls.on_device(), ids=lambda value: value if isinstance(value, str) else "")
def test_plain_functions(name: str, case: Any) -> None:
    wanted = calls.call(case, calls.taken(case, np.copy))
    got = calls.call(case, calls.taken(case, lambda array: to_torch(array).to(DEVICE)))
    assert [None if w is None else w.tobytes() for w in wanted] == [None if g is None else as_bytes(g) for g in got]
    assert all(g is None or g.device == DEVICE for g in got)


@pytest.mark.parametrize("case", [name for name in ON_DEVICE if not name.endswith("_out")][::3])
def test_opcheck(case: str) -> None:
    op, args = recorded(case)[-1]
    opcheck(op, moved(args, DEVICE))


# ---- Streams and errors ----


def test_the_stream_is_the_callers() -> None:
    """A call in a stream waits for the work before it there, and that after it waits for the call."""
    tokens = torch.zeros(4, 1 << 20, device=DEVICE)
    routing_map = MAP.to(DEVICE)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for cycles in (1, 400_000_000):  # the first turn loads kernels and makes the context of the stream, which waits
            tokens.zero_()
            torch.cuda.synchronize()
            torch.cuda._sleep(cycles)
            tokens += 7
            total = st.moe_permute(tokens, routing_map, num_out_tokens=8).permuted_tokens.sum()
        assert not stream.query(), "the call waited"
    stream.synchronize()
    assert total.item() == 7 * 8 * (1 << 20)


@pytest.mark.parametrize("function", [switchyard.moe_permute, st.moe_permute])
def test_errors_of_contents(function: Callable[..., Any]) -> None:
    tokens = torch.ones(4, 2, device=DEVICE)
    first = function(tokens, BAD.to(DEVICE), num_out_tokens=8)  # queued
    first.permuted_tokens.fill_(9)
    with pytest.raises(ValueError, match=SENTENCE) as caught:
        switchyard.sync()
    assert caught.value.fault == switchyard.Fault("ROW_OVERFULL", "routing_map", -1, 0, 3, 2)
    out = first._replace(permuted_tokens=torch.full((8, 2), 5.0, device=DEVICE))
    function(tokens, BAD.to(DEVICE), num_out_tokens=8, out=out)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match=SENTENCE):  # the call before, found by the next one
        function(tokens, MAP.to(DEVICE), num_out_tokens=8)
    assert (out.permuted_tokens == 5).all()
    function(tokens, MAP.to(DEVICE), num_out_tokens=8)
    with pytest.raises(ValueError, match="num_out_tokens is 13, want 0 to 12"):  # arguments at once
        function(tokens, MAP.to(DEVICE), num_out_tokens=13)


def test_devices_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="moe_permute: routing_map is in CPU memory, want cuda:0 like tokens"):
        st.moe_permute(torch.ones(4, 2, device=DEVICE), MAP, num_out_tokens=8)
    with pytest.raises(ValueError, match="moe_permute: routing_map is on cuda:0, want CPU memory like tokens"):
        switchyard.moe_permute(np.ones((4, 2)), MAP.to(DEVICE), num_out_tokens=8)


# ---- Graphs ----


def captured(step: Callable[[], Any]) -> tuple[Any, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = step()
    return graph, made


@pytest.mark.parametrize("warm", [False, True])
def test_a_graph_captured_by_hand(warm: bool) -> None:
    logits = torch.zeros(5, 1000, device=DEVICE)
    offset = torch.zeros(1, dtype=torch.int64, device=DEVICE)

    def step() -> Any:
        routed = st.moe_route(logits[:, :64], k=4)
        rows = st.moe_permute(logits, routed.routing_map, routed.probs, num_out_tokens=20)
        back = st.moe_unpermute(rows.permuted_tokens, rows.sorted_indices, routed.routing_map, routed.probs)
        return st.sample(back, top_k=40, temperature=0.8, seed=11, offset=offset)

    if warm:
        step()
    graph, made = captured(step)
    for i in range(4):
        logits.copy_(rand(5, 1000 + i)[:, :1000])
        offset.fill_(i)
        graph.replay()
        got = made.token.clone()
        assert got.tolist() == step().token.tolist()


def test_a_graph_reports_bad_contents() -> None:
    routing_map, tokens = MAP.to(DEVICE), torch.ones(4, 2, device=DEVICE)
    graph, made = captured(lambda: st.moe_permute(tokens, routing_map, num_out_tokens=8))
    graph.replay()
    switchyard.sync()
    routing_map.copy_(BAD)
    made.permuted_tokens.fill_(3)
    graph.replay()
    with pytest.raises(ValueError, match=SENTENCE):
        switchyard.sync()
    assert (made.permuted_tokens == 3).all()
    routing_map.copy_(MAP)
    graph.replay()
    switchyard.sync()
    assert (made.permuted_tokens == 1).all()


def test_the_decode_step_draws_the_tokens_of_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for visible in ("0", ""):
        env = dict(os.environ, CUDA_VISIBLE_DEVICES=visible)
        done = subprocess.run([sys.executable, str(EXAMPLE)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done)
    assert said[0].stdout == said[1].stdout != ""
    with capsys.disabled():
        print("\ndecode_graph.py:", said[0].stderr.strip())


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(mode: str) -> None:
    def step(x: Any, logits: Any, offset: Any) -> Any:
        routed = st.moe_route(logits, k=2)
        rows = st.moe_permute(x, routed.routing_map, num_out_tokens=2 * x.shape[0])
        back = st.moe_unpermute(rows.permuted_tokens * 2, rows.sorted_indices, routed.routing_map, routed.probs)
        return back, st.sample(back, top_k=3, seed=5, offset=offset).token

    x, logits, offset = rand(6, 16).to(DEVICE), rand(6, 8).to(DEVICE), torch.tensor([3], device=DEVICE)
    wanted = [t.clone() for t in step(x, logits, offset)]
    fast = torch.compile(step, mode=mode, fullgraph=True)
    for _ in range(4):
        got = [t.clone() for t in fast(x, logits, offset)]
    assert [bits(t) for t in got] == [bits(t) for t in wanted]


def test_compiled_gradients() -> None:
    def loss(x: Any) -> Any:
        rows = st.moe_permute(x, MAP.to(DEVICE), num_out_tokens=8)
        return (st.moe_unpermute(rows.permuted_tokens * 3, rows.sorted_indices, num_tokens=4) ** 2).sum()

    plain, compiled = (rand(4, 3).to(DEVICE).requires_grad_() for _ in range(2))
    loss(plain).backward()
    torch.compile(loss, fullgraph=True)(compiled).backward()
    assert bits(plain.grad) == bits(compiled.grad)
