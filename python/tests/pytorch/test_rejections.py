"""What switchyard.torch rejects, and in which words."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from cases import IDS, MAP, i32, rand, st, torch
from torch._subclasses import FakeTensorMode

import switchyard


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: st.sample(rand(2, 3), top_p="1"), "sample: top_p is '1', want a number, or a tensor"),
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


def test_with_an_older_torch() -> None:
    code = "import torch; del torch.library.register_autograd; import switchyard.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: switchyard.torch needs PyTorch 2.4 or newer, and there is an older one" in done.stderr
