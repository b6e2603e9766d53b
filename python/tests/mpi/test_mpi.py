"""Meshes over MPI: the same program as one, two and four processes; and what is said where there is no MPI."""

import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import switchyard
from switchyard.mesh import MpiMesh

HERE = Path(__file__).parent
START = HERE.parents[2] / "scripts" / "mpirun.py"


def why_not() -> str:
    """Why processes cannot be started here; "" if they can."""
    built = switchyard.info().mpi
    if built is None:
        return "the package was built without MPI"
    if "mpi4py" not in switchyard.info().libraries:
        return "mpi4py is not installed"
    return "" if shutil.which(mpirun()) else f"there is no mpirun for {built}"


def mpirun() -> str:
    return os.environ.get("SWITCHYARD_MPIRUN", "mpirun")


@pytest.mark.parametrize(
    ("program", "processes"), [("exchange", 1), ("exchange", 2), ("exchange", 4), ("rejections", 2), ("rejections", 3)]
)
def test_processes(program: str, processes: int) -> None:
    if why_not():
        pytest.skip(why_not())
    command = [sys.executable, str(START), "-n", str(processes), "--mpirun", mpirun()]
    done = subprocess.run(
        [*command, sys.executable, str(HERE / f"{program}.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = re.findall(r"^def (test_\w+)", (HERE / f"{program}.py").read_text(), re.M)
    assert re.findall(r"^ok (\w+)", done.stdout, re.M) == tests


def test_nobody_else_loads_mpi() -> None:
    program = "import switchyard, switchyard.mesh; print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "_core.abi3.so" in maps
    assert "_mpi.abi3.so" not in maps
    assert "libmpi" not in maps
    assert "switchyard_mpi" not in maps


def pretend(monkeypatch: pytest.MonkeyPatch, vendor: str) -> Any:
    """An mpi4py that was made for some MPI library; returns a communicator of it."""

    class Comm:
        pass

    fake = types.ModuleType("mpi4py")
    fake.MPI = types.SimpleNamespace(Comm=Comm, get_vendor=lambda: (vendor, (9, 8, 7)))
    monkeypatch.setitem(sys.modules, "mpi4py", fake)
    return Comm()


def needs_mpi() -> str:
    built = switchyard.info().mpi
    if built is None:
        pytest.skip("the package was built without MPI")
    return built


def test_another_mpi_library(monkeypatch: pytest.MonkeyPatch) -> None:
    built = needs_mpi()
    other = "MPICH" if built.startswith("Open MPI") else "Open MPI"
    comm = pretend(monkeypatch, other)
    with pytest.raises(switchyard.CommError) as raised:
        MpiMesh(comm, 1, 1)
    assert str(raised.value) == f"MpiMesh: mpi4py uses {other} 9.8.7, want {built}, as this package does"


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    built = needs_mpi()
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(NotImplementedError) as raised:
        MpiMesh(None, 1, 1)
    assert isinstance(raised.value, switchyard.Error)
    assert str(raised.value).startswith("MpiMesh: mpi4py is not here (")
    assert str(raised.value).endswith(f"), want it with {built}")


def test_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchyard._binding.mpi", None)
    with pytest.raises(NotImplementedError, match="MpiMesh: this package was built without MPI, want one built where"):
        MpiMesh(None, 1, 1)
