"""The compiled part of the package: binding.so, loaded once, and its functions that are no operators."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ._ffi import tvm_ffi
from .errors import Fault

_calls: Any
try:
    _calls = importlib.import_module("switchyard._calls")
except ImportError:  # built without the headers of Python, or this is a Python without its stable ABI
    _calls = None
calls = "C" if _calls else "Python, slower: the package was built without the headers of Python (Debian: python3-dev)"

FOLDER = Path(__file__).parent
_module: Any = tvm_ffi.load_module(str(FOLDER / "lib" / "binding.so"))
if _calls is not None:
    _calls.bind(_module.calls())


if TYPE_CHECKING or _calls is None:

    class Call:
        """The base class of operators. That of calls.c runs calls on tensors of PyTorch in C; here all are general."""

        __slots__ = ()
        general: Any

        def __call__(self, given: tuple[Any, ...], out: Any = None, *asked: Any) -> Any:
            return self.general(given, out, *asked)

        def prepare(self, *of: Any) -> None:
            """Describes the operator."""

        def direct(self, values: tuple[Any, ...], out: Any, watched: int) -> Any:
            """The results; on a device also a status, which is final; None: only the general way can run the call.

            `watched` has a bit for each value: tensors that must have no gradient. No tensor may have a lazy sign.
            """

    def simple(values: tuple[Any, ...], out: Any, array: type) -> bool:
        """Whether the values, and `out` if it is a tuple, are only such arrays, None, numbers and text."""
        kinds = {array, type(None), bool, int, float, str}
        return kinds.issuperset(map(type, values + (out if isinstance(out, tuple) else ())))

else:
    Call, simple = _calls.Call, _calls.simple


class Run(Protocol):
    """A function of the binding: takes values in the order of its table, returns a status."""

    def __call__(self, *values: object) -> int: ...


def operator(name: str) -> Run:
    return _module.operator(name)  # type: ignore[no-any-return]


def query(name: str) -> Run:
    return _module.query(name)  # type: ignore[no-any-return]


def meet(torch: Any) -> Any:
    """Gives calls.c what it uses of PyTorch, if tensors there have the table of C functions for DLPack.

    Returns a function that moves the version counters of tensors.
    """
    table, written = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None), _version_counter(torch)
    if _calls is not None and table is not None:
        _calls.meet(torch.Tensor, torch.nn.Parameter, table, torch.Tensor.is_neg, torch.is_grad_enabled, written)
    return written


def _version_counter(torch: Any) -> Any:
    move = torch.autograd.graph.increment_version
    try:
        torch._C._increment_version((torch.empty(0),))
    except (AttributeError, TypeError):  # an older PyTorch takes one tensor, and none of inference mode
        return lambda tensors: [move(tensor) for tensor in tensors if not tensor.is_inference()]
    return torch._C._increment_version


class Field(NamedTuple):
    """A value of an operator's call, as the library describes it (sy_field_info)."""

    name: str
    kind: str
    flags: int
    like: str  # the input whose element type it has
    shape: str  # "T H"; alternatives "k S | S"
    text: str  # its words, see `words`
    preset: str
    types: tuple[str, ...]

    @property
    def written(self) -> bool:
        return bool(self.flags & 1)

    @property
    def optional(self) -> bool:
        return bool(self.flags & 2)

    @property
    def per_row(self) -> bool:
        """Whether this is a parameter of rows, which may be a number."""
        return bool(self.flags & 8)

    @property
    def changed(self) -> bool:
        """Whether this output is read and changed."""
        return bool(self.flags & 128)

    @property
    def keeps(self) -> bool:
        """Whether elements of this output may keep their value."""
        return bool(self.flags & 256)

    @property
    def words(self) -> tuple[Any, ...]:
        """The words of an enum in the order of C, None where a number has none; those that are numbers as such."""
        spelled = [word.rpartition("|")[2] for word in self.text.split()]
        return tuple(None if w == "-" else int(w) if w.lstrip("-").isdigit() else w for w in spelled)

    @property
    def wanted(self) -> str:
        """What is said to be wanted in its place."""
        return WANTED.get(self.kind) or listed(self.words)


WANTED = {
    "tensor": "an array",
    "bool": "True or False",
    "int": "an integer of 32 bits",
    "i64": "an integer of 64 bits",
    "u32": "an integer of 32 bits, not negative",
    "u64": "an integer of 64 bits",
    "f32": "a number",
    "f64": "a number",
    "routing": "what this library made",
}


def listed(words: Iterable[object]) -> str:
    """Words in a sentence: "nhd or hnd"."""
    *others, last = [str(word) for word in words if word is not None]
    return f"{', '.join(others)} or {last}" if others else last


@functools.cache
def table(name: str) -> tuple[Field, ...]:
    """An operator's values in the order of the call: inputs, numbers, outputs."""
    found: list[Field] = []
    while row := str(_module.describe(name, len(found))):
        of, kind, flags, like, shape, text, preset, *types = row.split("\t")
        found.append(Field(of, kind, int(flags), like, shape, text, preset, tuple(types)))
    return tuple(found)


@functools.cache
def fields(name: str) -> tuple[str, ...]:
    """Names of an operator's values, in the order of the call."""
    return tuple(field.name for field in table(name))


@functools.cache
def words(name: str, field: str) -> tuple[Any, ...]:
    """The words of an enum."""
    return table(name)[fields(name).index(field)].words


def last(what: str) -> Any:
    return _module.last(what)


def last_fault() -> Fault:
    """The last failed call as numbers."""
    numbers = (int(last(what)) for what in ("batch", "position", "value", "limit"))
    return Fault(str(last("code")), str(last("argument")), *numbers)


def own(what: str) -> Any:
    """The kernel table ("isa") or the number of threads ("threads") of this thread's context."""
    return _module.own(what)


def mesh_function(what: str, name: str) -> Run:
    """The function that starts ("start") an operator of a mesh, or queries what it needs ("query")."""
    return _module.mesh_function(what, name)  # type: ignore[no-any-return]


@functools.cache
def nccl_module() -> Any:
    """The part that uses NCCL."""
    return tvm_ffi.load_module(str(FOLDER / "lib" / "binding_nccl.so"))


@functools.cache
def mpi_module() -> Any:
    """The second module, which is linked with MPI."""
    return tvm_ffi.load_module(str(FOLDER / "lib" / "binding_mpi.so"))


mesh_new, mesh_open, mesh_free, mesh_tell = _module.mesh_new, _module.mesh_open, _module.mesh_free, _module.mesh_tell
mesh_sync = _module.mesh_sync
request_test, request_wait, request_free = _module.request_test, _module.request_wait, _module.request_free
mesh_alloc, mesh_reject = _module.mesh_alloc, _module.mesh_reject
routing_new, routing_free = _module.routing_new, _module.routing_free

view = _module.view
last_integer = _module.last_integer
empty = _module.empty
clear = _module.clear
zeros = _module.zeros
device_empty = _module.device_empty
copy = _module.copy
sync = _module.sync
configure = _module.configure
configure_devices = _module.configure_devices
version: str = str(_module.version())
results_version: int = int(_module.results_version())
mpi: str | None = str(_module.mpi()) or None


def isa_names() -> tuple[str, ...]:
    """Kernel tables this CPU can run, best first."""
    names: list[str] = []
    while name := str(_module.isa(len(names))):
        names.append(name)
    return tuple(names)
