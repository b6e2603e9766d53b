"""The Python in the pages is run, block after block, and prints what the page says it prints."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

import switchyard

ROOT = Path(__file__).parents[2]
PAGES = [
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if "```python\n" in page.read_text(encoding="utf-8") or re.search(r"/ops/[a-z]", str(page))
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"^ *print\(.*\) +# (.*)$", re.MULTILINE)
IMPORTED = re.compile(r"^(?:import|from) ([\w, ]+)", re.MULTILINE)


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def missing(block, before=()):
    """Modules that a block uses and that are not installed; blocks before it may have imported them."""
    lines = [line for text in (*before, block) for line in IMPORTED.findall(text)]
    imported = [part.split()[0] for line in lines for part in line.split(",")]
    return sorted({n for n in imported if re.search(rf"\b{n}\b", block) and importlib.util.find_spec(n) is None})


def run(block, names):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block, "a block of the page", "exec"), names)
    return said.getvalue()


@pytest.fixture(autouse=True)
def settings():
    yield
    switchyard.configure(threads=None, isa=None)


def test_names_are_those_of_the_package():
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        for name in re.findall(r"`switchyard\.(?!(?:h|pc)\b)([a-z_]+)", page.read_text(encoding="utf-8")):
            assert hasattr(switchyard, name) or importlib.util.find_spec(f"switchyard.{name}"), (page.name, name)


@pytest.mark.parametrize("page", PAGES)
def test_there_is_something_to_run(page):
    assert any(PRINTED.search(block) for block in blocks(page))


@pytest.mark.parametrize(("page", "number"), [(page, i) for page in PAGES for i in range(len(blocks(page)))])
def test_block(page, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *before, block = blocks(page)[: number + 1]
    if missing(block, before):
        pytest.skip(f"{', '.join(missing(block, before))} is not installed")
    names = {"__name__": "page"}
    for i, earlier in enumerate(before):
        if not missing(earlier, before[:i]):
            run(earlier, names)
    assert run(block, names).splitlines() == PRINTED.findall(block)
