"""The examples run from beginning to end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = [Path(__file__).parents[2] / "examples" / folder for folder in ("python", "compat")]
EXAMPLES = sorted(path for folder in FOLDERS for path in folder.glob("*.py"))


def run(path, folder):
    env = dict(os.environ)
    return subprocess.run([sys.executable, str(path)], cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_there_are_examples():
    assert {"moe_layer", "pypto_gather_in_ub", "ttnn_all_to_all_combine"} <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_says_the_same_again(path, tmp_path):
    if "import torch" in path.read_text():
        pytest.importorskip("torch", reason="torch is not installed")
    first, again = run(path, tmp_path), run(path, tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout != ""
