"""The package around the operators: version, info, settings, the command line."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import switchyard
from switchyard import _info


@pytest.fixture(autouse=True)
def settings():
    yield
    switchyard.configure(threads=None, isa=None)


def command_line(*arguments, module=True):
    program = [sys.executable, "-m", "switchyard"] if module else [str(Path(sys.executable).parent / "switchyard")]
    return subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)


def test_version_is_one_and_the_same():
    assert switchyard.__version__ == metadata.version("switchyard-ops") == switchyard.info().version
    assert switchyard.__version__.count(".") == 2
    assert switchyard.results_version == switchyard.info().results_version >= 1


def test_info_says_where_things_are():
    info = switchyard.info()
    assert info.isa == info.isa_tables[0]
    assert info.isa_tables[-1] == "scalar"
    assert info.threads >= 1
    assert Path(info.library).is_file()
    assert info.libraries["numpy"] == np.__version__
    told = repr(info)
    assert all(str(part) in told for part in (info.version, info.library, info.isa, np.__version__))
    assert "None" not in told


def test_threads_and_table_are_set_apart_and_put_back():
    before = switchyard.info()
    switchyard.configure(threads=1)
    assert (switchyard.info().threads, switchyard.info().isa) == (1, before.isa)
    switchyard.configure(isa="scalar")
    assert (switchyard.info().threads, switchyard.info().isa) == (1, "scalar")
    switchyard.configure(threads=np.int32(3))
    assert (switchyard.info().threads, switchyard.info().isa) == (3, "scalar")
    switchyard.configure(threads=None, isa=None)
    assert (switchyard.info().threads, switchyard.info().isa) == (before.threads, before.isa)


def test_other_threads_follow():
    def seen():
        return switchyard.info().threads, switchyard.info().isa

    switchyard.configure(threads=3)  # threads have defaults of their own: torch.set_num_threads changes its caller's
    with ThreadPoolExecutor(1) as one:
        assert one.submit(seen).result() == (3, switchyard.info().isa_tables[0])
        switchyard.configure(threads=2, isa="scalar")
        assert one.submit(seen).result() == (2, "scalar")


@pytest.mark.parametrize(
    ("wrong", "kind", "sentence"),
    [
        ({"threads": 0}, ValueError, "configure: threads is 0, want 1 to 2147483647 or None"),
        ({"threads": -1}, ValueError, "configure: threads is -1, want 1 to 2147483647 or None"),
        ({"threads": 2**31}, ValueError, "configure: threads is 2147483648, want 1 to 2147483647 or None"),
        ({"threads": 1.5}, TypeError, "configure: threads is 1.5, want an integer or None"),
        ({"isa": "abacus"}, ValueError, "configure: isa is 'abacus', want one that this CPU can run ("),
        ({"threads": 1, "isa": "abacus"}, ValueError, "configure: isa is 'abacus'"),
        ({"isa": "scalar", "threads": 0}, ValueError, "configure: threads is 0"),
    ],
)
def test_wrong_settings_are_rejected_and_change_nothing(wrong, kind, sentence):
    before = switchyard.info()
    with pytest.raises(kind) as raised:
        switchyard.configure(**wrong)
    assert isinstance(raised.value, switchyard.Error)
    assert str(raised.value).startswith(sentence)
    assert switchyard.info() == before


def needs_command():
    if switchyard.info().command is None:
        pytest.skip("the package was built without the command line")


@pytest.mark.parametrize("module", [True, False])
def test_the_command_line_is_this_library(module):
    needs_command()
    done = command_line("info", "--json", module=module)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["version"], told["isa_tables"]) == (switchyard.__version__, list(switchyard.info().isa_tables))
    assert (switchyard.info().mpi or "not in this build") == told["mpi"]


def test_the_command_line_keeps_arguments_and_exit_codes(tmp_path):
    needs_command()
    assert command_line("no-such-command").returncode == 2
    files = [str(tmp_path / name) for name in ("in put.safetensors", "out.safetensors")]
    assert command_line("example", "moe_permute", files[0]).returncode == 0
    done = command_line("run", "moe_permute", *files, "--num-out-tokens", "8")
    assert done.returncode == 0, done.stderr
    assert command_line("run", "moe_permute", *files, "--num-out-tokens", "-1").returncode == 1


def test_a_package_without_command_line_says_so(monkeypatch, capsys):
    from switchyard import __main__

    monkeypatch.setattr(__main__, "command", lambda: None)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert "jansson" in str(ended.value.code)
    assert "not in this package" in repr(_info.Info(**{**vars(switchyard.info()), "command": None}))
