"""What a type checker makes of calls."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")

ARRAY = "numpy.ndarray[Any, numpy.dtype[Any]]"
NUMPY = f"""
import numpy as np
import numpy.typing as npt
import switchyard
x, i = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32)
reveal_type(switchyard.sample(x).token)  # {ARRAY}
reveal_type(switchyard.sample(x).logprob)  # {ARRAY} | None
reveal_type(switchyard.moe_route(x, k=2).ids)  # {ARRAY}
reveal_type(switchyard.moe_permute(x, i, num_out_tokens=4).sorted_indices)  # {ARRAY}
reveal_type(switchyard.moe_unpermute_ids(x, i))  # {ARRAY}
reveal_type(switchyard.kv_gather(x, i, block_size=1))  # {ARRAY}
reveal_type(switchyard.moe_pad_map(i, alignment=2).padded_map)  # {ARRAY}
def plain(n: npt.NDArray[np.float32]) -> None:
    reveal_type(switchyard.sample(n).kept)  # {ARRAY}
"""
LISTED = f"""
reveal_type(switchyard.kv_gather([x, x], i, block_size=1))  # tuple[{ARRAY}, ...]
"""
OTHERS = """
import jax, torch
class Other:
    def __dlpack__(self) -> object: ...
reveal_type(switchyard.sample(Other()).token)  # switchyard._arrays.SupportsDLPack
def others(t: torch.Tensor, j: jax.Array) -> None:
    reveal_type(switchyard.sample(t).token)  # torch.Tensor
    reveal_type(switchyard.kv_gather((t, t), t, block_size=1))  # tuple[torch.Tensor, ...]
    reveal_type(switchyard.sample(j).token)  # jax.Array
"""
TORCH = """
import switchyard.torch as st
def tensors(t: torch.Tensor) -> None:
    reveal_type(st.moe_permute(t, t, num_out_tokens=4).permuted_probs)  # torch.Tensor | None
    reveal_type(st.moe_unpermute(permuted_tokens=t, sorted_indices=t))  # torch.Tensor
    reveal_type(st.kv_gather((t, t), t, block_size=1))  # tuple[torch.Tensor, ...]
    reveal_type(st.moe_pad_map(t, alignment=2).padded_map)  # torch.Tensor
    reveal_type(st.moe_capacity(num_experts=2))  # int
    st.moe_permute(x, t, num_out_tokens=4)  # type: ignore[arg-type]
    st.moe_permute(t, t)  # type: ignore[call-arg]
    st.moe_route(t, k=2, score="tanh")  # type: ignore[arg-type]
"""


def check(tmp_path, program, *settings):
    """Runs mypy with small stubs of torch and jax, whose own take minutes to read."""
    for library, array in (("torch", "Tensor"), ("jax", "Array")):
        (tmp_path / f"{library}.pyi").write_text(f"class {array}:\n    def __dlpack__(self) -> object: ...\n")
    file = tmp_path / "program.py"
    file.write_text(program)
    (tmp_path / "mypy.ini").write_text("\n".join(("[mypy]", "strict = true", *settings)))
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", file.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert revealed == re.findall("reveal_type.*  # (.*)", program)


def test_results_are_arrays_of_the_library(tmp_path):
    check(tmp_path, NUMPY + LISTED + OTHERS + TORCH)


def test_without_other_libraries(tmp_path):
    check(tmp_path, NUMPY, "[mypy-torch.*,jax.*]", "follow_imports = skip")
