"""What switchyard.torch rejects, and in which words."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from typing import Any

import pytest
from cases import IDS, MAP, i32, rand, st, torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import switchyard


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: st.moe_permute(rand(4), MAP, num_out_tokens=8), "moe_permute: tokens has rank 1, want 2"),
        (
            lambda: st.moe_permute(rand(4, 3), MAP | True, num_out_tokens=8),
            "routes token 0 to 3 experts, want at most 2",
        ),
        (
            lambda: st.moe_route(rand(4, 3), k=2, score="hard"),
            "moe_route: score is 'hard', want softmax, ",
        ),
        (lambda: st.moe_route(rand(4, 3), k=4), "moe_route: k is 4"),
        (lambda: st.sample(rand(2, 3), empty_token=3), "sample: empty_token is 3, want -1 or 0"),
        (lambda: st.sample(rand(2, 3), top_p="1"), "sample: top_p is '1', want a number, or a tensor"),
        (lambda: st.sample(rand(2, 3), top_k=0.5), "sample: top_k is 0.5, want an integer"),
        (
            lambda: st.sample(rand(2, 3), top_k=(1 << 64) + 5),
            "sample: top_k is 18446744073709551621, want an integer of 64 bits, or a tensor",
        ),
        (lambda: st.kv_gather((), IDS, block_size=2), "kv_gather: cache is an empty tuple, want one array or more"),
        (lambda: st.kv_scatter([], [], IDS), "kv_scatter: cache is an empty list, want one array or more"),
        (
            lambda: st.kv_gather(rand(6, 4), IDS, IDS, block_size=2, format="int8", dtype="int8"),
            "want bfloat16, float16",
        ),
        (
            lambda: st.kv_gather(i8(6, 4), IDS, IDS, scale=torch.ones(6, 1), block_size=2, format="int8\0zzz"),
            r"kv_gather: format is 'int8\x00zzz', want ds32_fp8, pto_int8, ",
        ),
        (
            lambda: st.kv_scatter(i8(6, 4), rand(1, 4), i32(0), torch.ones(6, 1), format="int8\0"),
            r"kv_scatter: format is 'int8\x00', want ds32_fp8, pto_int8, ",
        ),
        (lambda: st.kv_gather([rand(6, 4)], IDS, IDS, block_size=2, out=rand(2, 4)), "kv_gather: out is one array"),
        (lambda: st.kv_gather(rand(6, 4), i32(7), i32(0, 1, 2), block_size=2), "kv_gather: indices"),
        (
            lambda: st.moe_permute(rand(4, 3), MAP, num_out_tokens=8, out=(None, None)),
            "out has 2 tensors, want 6: permut",
        ),
        (
            lambda: st.moe_permute(rand(4, 3).requires_grad_(), MAP, num_out_tokens=8, row_format="int8_token"),
            "moe_permute: tokens requires a gradient, which codes of row_format do not have, want it detached",
        ),
        (lambda: st.kv_gather(rand(6, 4), IDS, IDS, block_size=2, dtype="float16"), "want a format with it"),
        (lambda: same_input(rand(4, 3)), "moe_dispatch: out is input itself, want another tensor"),
    ],
)
def test_sentences(call: Any, sentence: str) -> None:
    with pytest.raises(switchyard.Error) as caught:
        call()
    assert sentence in str(caught.value)


def i8(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.int8)


def same_input(x: Any) -> Any:
    return st.moe_dispatch(i32(0, 0, 0, 0), i32(0, 1, 2, 3), x, num_experts=1, capacity=4, out=x)


def test_only_tensors_are_written_to() -> None:
    rows, indices = rand(8, 3), i32(0, 1, 2, 3, 4, 5, 6, 7)
    out = torch.zeros(4, 3).numpy()
    with pytest.raises(TypeError, match=r"^moe_unpermute: tokens is a ndarray, want a tensor$"):
        st.moe_unpermute(rows, indices, num_tokens=4, out=out)
    with pytest.raises(TypeError, match=r"^kv_gather: out is a ndarray, want a tensor$"):
        st.kv_gather(rand(6, 3), i32(0, 1, 2, 3), i32(0, 1, 2), block_size=2, out=out)
    assert not out.any()
    lazy = torch._neg_view(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"^moe_unpermute: tokens is a lazy conjugate or negation"):
        st.moe_unpermute(rows, indices, num_tokens=4, out=lazy)


class Passing(TorchDispatchMode):
    """Sends calls through the dispatcher, which rejects values of other kinds by its schema."""

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(*args, **(kwargs or {}))


CODES = switchyard.quantize_rows(torch.ones(4, 64), format="int8_token")
ODD_CALLS: dict[str, dict[str, Any]] = {
    "moe_route": {"logits": rand(4, 3), "k": 2},
    "moe_align_block": {"ids": IDS, "num_experts": 4, "block_size": 2},
    "moe_unpermute": {"permuted_tokens": rand(4, 3), "sorted_indices": i32(0, 1, 2, 3), "num_tokens": 4},
    "moe_dispatch": {
        "indices": i32(0, 0),
        "locations": i32(0, 1),
        "input": rand(2, 3),
        "num_experts": 1,
        "capacity": 2,
    },
    "dequantize_rows": {"codes": CODES.codes, "scales": CODES.scales, "format": "int8_token", "dtype": "float16"},
    "kv_gather": {"cache": rand(6, 4), "indices": i32(0, 1), "block_table": i32(0, 1, 2), "block_size": 2},
    "kv_ragged": {"cache": rand(6, 4), "cu_lens": i32(0, 3), "block_table": i32(0, 1, 2)[None], "block_size": 2},
    "kv_scatter": {"cache": rand(6, 4), "src": rand(2, 4), "slots": i32(0, 1)},
    "kv_blocks": {"pairs": i32(0, 1)[None], "cache": rand(6, 4), "block_size": 2},
    "sample": {"logits": rand(2, 3), "seed": 7},
    "sample_verify": {"logits": rand(1, 3, 4), "draft_token": torch.tensor([[0, 2]]), "seed": 7},
    "sample_noise": {"n": 4, "seed": 7},
}
ODD = [None, True, -1, 1 << 64, 10**400, 0.5, float("nan"), "x", b"x", [1, 2], [], (None,) * 2, {}, 1j, len, object()]
ODD += [rand(4, 3), rand(4, 3).numpy(), torch.tensor(1), torch.ones(2, dtype=torch.cfloat), torch.eye(3).to_sparse()]


@pytest.mark.filterwarnings("ignore")  # of sample, about numbers without a seed
@pytest.mark.parametrize("way", ["direct", "dispatched"])
@pytest.mark.parametrize("name", ODD_CALLS)
def test_odd_values_of_every_argument(name: str, way: str) -> None:
    """Of whatever kind a value is: the call accepts it, or raises an Error."""
    function, rejected = getattr(st, name), 0
    parameters = inspect.signature(function).parameters
    with Passing() if way == "dispatched" else contextlib.nullcontext():
        function(**ODD_CALLS[name])
        for field in parameters:
            for value in ODD:
                try:
                    function(**{**ODD_CALLS[name], field: value})
                except switchyard.Error as error:
                    assert str(error).startswith(f"{name}: ")
                    rejected += 1
    assert rejected > 10 * len(parameters)


def test_errors_are_pythons_own() -> None:
    with pytest.raises(IndexError):
        st.kv_gather(rand(6, 4), i32(7), i32(0, 1, 2), block_size=2)
    with pytest.raises(TypeError):
        st.moe_unpermute(torch.zeros(8, 3, dtype=torch.int32), i32(0, 1, 2, 3, 4, 5, 6, 7), num_tokens=4)


@pytest.mark.parametrize(
    "name, call",
    [
        ("moe_permute", lambda: st.moe_permute(elsewhere(4, 3), elsewhere(4, 3).bool(), num_out_tokens=8)),
        ("moe_permute", lambda: st.moe_permute(elsewhere(4, 3), torch.empty(4, 3, dtype=torch.bool), num_out_tokens=8)),
        ("moe_combine_grad", lambda: torch.ops.switchyard.moe_combine_grad(*[elsewhere(4, 3)] * 4, 1, 1)),
        ("kv_scatter", lambda: st.kv_scatter(elsewhere(4, 3), elsewhere(4, 3), elsewhere(4).long())),
        ("kv_gather", lambda: st.kv_gather([elsewhere(4, 3)], elsewhere(4).long(), elsewhere(4).long(), block_size=2)),
    ],
)
def test_other_devices_are_named(name: str, call: Any) -> None:
    """As far as can be told without one: tensors that only pretend to be there."""
    with (
        FakeTensorMode(),
        pytest.raises(switchyard.Error, match=f"{name}: a tensor is on xpu:0, want the cpu or a CUDA device") as caught,
    ):
        call()
    assert caught.value.status == switchyard.Status.DEVICE


def elsewhere(*shape: int) -> Any:
    return torch.empty(shape, device="xpu")


def test_every_operator_has_a_word_for_other_devices() -> None:
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("switchyard::")]
    assert all(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CUDA") for name in names)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_tensors() -> None:
    with pytest.raises(switchyard.Error, match="moe_permute: a tensor is on xpu:0, want the cpu or a CUDA device"):
        st.moe_permute(rand(4, 3).cuda(), MAP, num_out_tokens=8)
    with pytest.raises(switchyard.Error, match="kv_scatter: a tensor is on xpu:0, want the cpu or a CUDA device"):
        st.kv_scatter(rand(4, 3).cuda(), rand(1, 3).cuda(), torch.tensor([0]).cuda())


def without_torch(code: str) -> str:
    """What Python says at last when there is no PyTorch."""
    hide = "import sys; sys.modules['torch'] = None; "
    done = subprocess.run([sys.executable, "-c", hide + code], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_without_torch() -> None:
    said = without_torch("import switchyard.torch")
    assert (
        said == "ModuleNotFoundError: switchyard.torch needs PyTorch 2.4 or newer, and there is none: pip install torch"
    )
    assert without_torch("import switchyard; print(switchyard.__version__)") == switchyard.__version__


def test_with_an_older_torch() -> None:
    code = "import torch; del torch.library.register_autograd; import switchyard.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: switchyard.torch needs PyTorch 2.4 or newer, and there is an older one" in done.stderr


FORWARD = {
    "moe_permute": lambda x: st.moe_permute(x, MAP, num_out_tokens=8).permuted_tokens,
    "moe_unpermute": lambda x: st.moe_unpermute(x, i32(0, 1, 2, 3), num_tokens=4),
    "moe_route": lambda x: st.moe_route(x, k=2).weights,
    "sample": lambda x: st.sample(x, logprob="raw").logprob,
    "kv_gather": lambda x: st.kv_gather(x, torch.tensor([1, 0]), i32(0, 1), block_size=2),
    "kv_ragged": lambda x: st.kv_ragged([x, x], torch.tensor([0, 2]), i32(0, 1), block_size=2)[1],
    "moe_dispatch": lambda x: st.moe_dispatch(
        i32(0, 0, 0, 0), i32(0, 1, 2, 3), torch.zeros(4, 3), num_experts=1, capacity=4, out=x
    ),
    "kv_scatter": lambda x: st.kv_scatter(torch.zeros(4, 3), x, torch.arange(4)),
    "kv_blocks": lambda x: st.kv_blocks(torch.tensor([[0, 1]]), src=x, dst=torch.zeros(4, 3), block_size=2),
    "moe_reorder_chunks": lambda x: st.moe_reorder_chunks(x, torch.tensor([[4]])).reordered_rows,
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_is_rejected(name: str) -> None:
    """It would give tangents of 0."""
    said = f"{name}: a tensor is a dual tensor of torch.autograd.forward_ad, want reverse mode"
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match=said):
            FORWARD[name](torch.autograd.forward_ad.make_dual(rand(4, 3), rand(4, 3)))
        FORWARD[name](rand(4, 3))  # plain tensors pass
    with pytest.raises(NotImplementedError, match=said):
        torch.func.jvp(FORWARD[name], (rand(4, 3),), (rand(4, 3),))
