"""Meshes of the processes of torch.distributed, as far as that goes without a GPU; and the example."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import switchyard
from switchyard.mesh import from_torch_distributed

torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "expert_parallel_torch.py"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_without_a_group() -> None:
    with pytest.raises(switchyard.Error) as found:
        from_torch_distributed()
    text = "from_torch_distributed: torch.distributed is not initialised, want init_process_group before"
    assert str(found.value) == text


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 2}, "the mesh of device 0 is 2 x 1, want 1 devices, one for each process of the group"),
        ({"check": "some"}, "check of device 0 is 'some', want full or none"),
        ({"max_blocks": -1}, "max_blocks of device 0 is -1, want 0 or more"),
        ({"max_inflight": "two"}, "max_inflight of device 0 is 'two', want an integer of 32 bits"),
    ],
)
def test_rejections(given: dict[str, Any], words: str) -> None:
    with pytest.raises(switchyard.Error) as found:
        from_torch_distributed(**given)
    assert str(found.value) == f"from_torch_distributed: {words}"


@pytest.mark.usefixtures("group")
def test_without_a_device() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(switchyard.Error, match="there is no CUDA device for PyTorch, want one for each process"):
        from_torch_distributed()


@pytest.mark.parametrize("devices", ["2", "4"])
def test_example(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not EXAMPLE.exists():
        pytest.skip("there is no examples/python beside the tests")
    spec = importlib.util.spec_from_file_location("expert_parallel_torch", EXAMPLE)
    module = sys.modules["expert_parallel_torch"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.in_one_process(int(devices))
    assert "are those of a loop over tokens" in capsys.readouterr().out
