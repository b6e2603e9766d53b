"""What importing the package costs: torch is imported by its users alone, and nothing needs tvm-ffi."""

import importlib.util
import subprocess
import sys

import pytest

import switchyard

NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

# Tensors of torch go in and come out without a copy.
ZERO_COPY = """
rows, indices = torch.arange(6.0).reshape(3, 2), torch.tensor([2, 0], dtype=torch.int32)
out = torch.zeros(2, 2)
made = switchyard.kv_gather(rows, indices, torch.arange(3), block_size=1, out=out)
assert made is out and out.tolist() == [[4, 5], [0, 1]], out
assert type(switchyard.kv_gather(rows, indices, torch.arange(3), block_size=1)) is torch.Tensor
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["switchyard", "switchyard.__main__", "switchyard.mesh"])
def test_importing_does_not_import_torch(module):
    run(f"import {module}, sys; assert 'torch' not in sys.modules")


def test_calls_on_numpy_arrays_do_not_import_torch():
    run(
        "import sys, numpy as np, switchyard\n"
        "assert switchyard.sample(np.eye(3, dtype=np.float32)).token.tolist() == [0, 1, 2]\n"
        "try: switchyard.sample(np.eye(3, dtype=np.float32), temperature='hot')\n"
        "except switchyard.Error: pass\n"
        "assert 'torch' not in sys.modules"
    )


@NEEDS_TORCH
@pytest.mark.parametrize("order", ["switchyard, torch", "torch, switchyard", "switchyard.torch, torch"])
def test_torch_works_in_every_order(order):
    run(f"import sys; sys.modules['tvm_ffi'] = None; import {order}{ZERO_COPY}")


def test_an_empty_folder_named_torch_is_no_torch(tmp_path):
    (tmp_path / "torch").mkdir()
    run(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy as np, switchyard, torch\n"
        "assert switchyard.sample(np.eye(3, dtype=np.float32)).token.tolist() == [0, 1, 2]"
    )


def test_switchyard_transformers_needs_transformers():
    said = run(
        "import sys; sys.modules['transformers'] = None\n"
        "import switchyard\n"
        "try: import switchyard.transformers\n"
        "except ModuleNotFoundError as error: print(error.name, error)"
    )
    assert said == (
        "transformers switchyard.transformers needs transformers 5 or newer, and there is none: "
        "pip install 'transformers>=5'\n"
    )


def test_modules_are_attributes():
    """Without an import of their own, with the sentence of theirs where they cannot be imported."""
    program = "import sys, switchyard; assert 'switchyard.mesh' not in sys.modules; print(switchyard.mesh.LocalMesh)"
    assert "LocalMesh" in run(program)
    program = "import sys, switchyard; sys.modules['torch'] = None; print(getattr(switchyard, 'torch', 5))"
    assert run(program) == "5\n"
    for name in ("torch", "compat.torch_npu"):
        said = run(
            "import sys; sys.modules['torch'] = None\n"
            f"try: import switchyard.{name}\nexcept ModuleNotFoundError as error: print(error)"
        )
        assert said == f"switchyard.{name} needs PyTorch 2.4 or newer, and there is none: pip install torch\n"
    with pytest.raises(AttributeError, match="module 'switchyard' has no attribute 'touch'"):
        getattr(switchyard, "touch")  # noqa: B009
