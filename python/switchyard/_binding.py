"""The compiled part of the package: binding.so, loaded once, and its functions that are no operators."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Protocol

from ._ffi import tvm_ffi

FOLDER = Path(__file__).parent
_module: Any = tvm_ffi.load_module(str(FOLDER / "lib" / "binding.so"))


class Run(Protocol):
    """A function of the binding: takes values in the order of its table, returns a status."""

    def __call__(self, *values: object) -> int: ...


def operator(name: str) -> Run:
    return _module.operator(name)  # type: ignore[no-any-return]


def query(name: str) -> Run:
    return _module.query(name)  # type: ignore[no-any-return]


@functools.cache
def fields(name: str) -> tuple[str, ...]:
    """Names of an operator's values, in the order of the call."""
    names: list[str] = []
    while field := str(_module.field(name, len(names))):
        names.append(field)
    return tuple(names)


def wanted(name: str, at: int) -> str:
    """What the value at this place must be: "a tensor", "an integer"."""
    return str(_module.wanted(name, at))


def last(what: str) -> Any:
    return _module.last(what)


def mesh_function(what: str, name: str) -> Run:
    """The function that starts ("start") an operator of a mesh, or queries what it needs ("query")."""
    return _module.mesh_function(what, name)  # type: ignore[no-any-return]


@functools.cache
def mesh_fields(name: str) -> tuple[str, ...]:
    """Names of the fields of a mesh's operator, in the order of the call."""
    names: list[str] = []
    while field := str(_module.mesh_field(name, len(names))):
        names.append(field)
    return tuple(names)


@functools.cache
def mpi_module() -> Any:
    """The second module, which is linked with MPI."""
    return tvm_ffi.load_module(str(FOLDER / "lib" / "binding_mpi.so"))


mesh_new, mesh_open, mesh_free, mesh_tell = _module.mesh_new, _module.mesh_open, _module.mesh_free, _module.mesh_tell
request_test, request_wait, request_free = _module.request_test, _module.request_wait, _module.request_free
mesh_alloc, mesh_reject = _module.mesh_alloc, _module.mesh_reject
routing_new, routing_free = _module.routing_new, _module.routing_free

view = _module.view
last_integer = _module.last_integer
empty = _module.empty
clear = _module.clear
zeros = _module.zeros
configure = _module.configure
version: str = str(_module.version())
results_version: int = int(_module.results_version())
mpi: str | None = str(_module.mpi()) or None


def isa_names() -> tuple[str, ...]:
    """Kernel tables this CPU can run, best first."""
    names: list[str] = []
    while name := str(_module.isa(len(names))):
        names.append(name)
    return tuple(names)
