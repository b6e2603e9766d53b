"""The examples in the docstrings of the installed package, a test each."""

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import switchyard


def modules() -> Iterator[Any]:
    """Every module of the package; a test that says so instead of one whose library is not installed here."""
    yield switchyard
    for found in pkgutil.walk_packages(switchyard.__path__, "switchyard."):
        if found.name.endswith(".__main__"):
            continue
        try:
            yield importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("switchyard"):
                raise
            yield pytest.param(None, id=found.name, marks=pytest.mark.skip(f"{error.name} is not installed"))


def examples() -> Iterator[Any]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for module in modules():
        if not inspect.ismodule(module):
            yield module
            continue
        generated = module.__name__ in ("switchyard.torch", "switchyard.jax")  # which are of no module
        derived = module.__all__ if generated else ()
        found = [finder.find(getattr(module, name), f"{module.__name__}.{name}") for name in derived]
        for test in (*finder.find(module, module.__name__), *(test for tests in found for test in tests)):
            if test.examples:
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("example", list(examples()))
def test_example(example: doctest.DocTest) -> None:
    said = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("name", sorted(n for n in switchyard.__all__ if inspect.isroutine(getattr(switchyard, n))))
def test_every_function_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(switchyard, name)) or "")
