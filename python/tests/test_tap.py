"""The bridge from pytest to the project's runner: whatever goes wrong must end as a failure."""

import subprocess
import sys
from pathlib import Path

import pytest

BRIDGE = Path(__file__).parents[2] / "scripts" / "pytest_tap.py"


def run(folder, text):
    file = folder / "test_it.py"
    file.write_text("import pytest\n" + text)
    command = [sys.executable, str(BRIDGE), "--here", str(file)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    return lines, done.returncode


@pytest.mark.parametrize(
    ("text", "lines", "code"),
    [
        ("def test_a(): pass", ["1..1", "ok 1 - test_a"], 0),
        ("def test_a(): assert 0\ndef test_b(): pass", ["1..2", "not ok 1 - test_a", "ok 2 - test_b"], 1),
        ("def test_a(): pytest.skip('no luck')", ["1..1", "ok 1 - test_a # SKIP no luck"], 0),
        ("pytest.importorskip('no_such_thing')\ndef test_a(): pass", ["1..1", "ok 1 - "], 0),
        ("def test_a(no_such_fixture): pass", ["1..1", "not ok 1 - test_a"], 1),
        ("@pytest.fixture\ndef f():\n    yield\n    assert 0\ndef test_a(f): pass", ["1..1", "not ok 1 - test_a"], 1),
        ("@pytest.mark.xfail(strict=True)\ndef test_a(): pass", ["1..1", "not ok 1 - test_a"], 1),
        ("@pytest.mark.no_such_mark\ndef test_a(): pass", ["1..1", "not ok 1 - "], 2),
        ("syntax error", ["1..1", "not ok 1 - "], 2),
        ("", ["1..0"], 5),
    ],
)
def test_every_end_is_told(tmp_path, text, lines, code):
    found, ended = run(tmp_path, text)
    assert len(found) == len(lines)
    assert all(a.startswith(b) for a, b in zip(found, lines, strict=True)), found
    assert ended == code
