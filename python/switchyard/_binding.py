"""The compiled part of the package, the module _core, and the library's descriptions of its operators."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .errors import Fault

core: Any = importlib.import_module("switchyard._core")
FOLDER = Path(__file__).parent

version: str = core.version
results_version: int = core.results_version
mpi: str | None = core.mpi or None

# A word of Python's own; and an output that is requested by how it is meant.
ALIASES = {"from": "from_", "logprob_mode": "logprob"}


def meet(torch: Any) -> Any:
    """Tells _core of PyTorch; its tensors are read fastest where they have the table of C functions for DLPack.

    Returns a function that moves the version counters of tensors.
    """
    tensor, written = torch.Tensor, _version_counter(torch)
    table = getattr(tensor, "__dlpack_c_exchange_api__", None)
    core.meet(tensor, torch.nn.Parameter, table, tensor.is_neg, torch.is_grad_enabled, written)
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
    range: str  # of a scalar: accepted values; "E: 0.." where it is an extent
    help: str  # one line

    @property
    def parameter(self) -> str:
        """Its name in Python."""
        return ALIASES.get(self.name, self.name)

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
    """An operator's values in the order of the call: inputs, scalars, outputs."""
    return tuple(Field(*row) for row in core.describe(name))


@functools.cache
def fields(name: str) -> tuple[str, ...]:
    """Names of an operator's values, in the order of the call."""
    return tuple(field.name for field in table(name))


@functools.cache
def words(name: str, field: str) -> tuple[Any, ...]:
    """The words of an enum."""
    return table(name)[fields(name).index(field)].words


def last_failure() -> tuple[str, Fault]:
    """The last failed call of this thread: its sentence, and the same as numbers."""
    sentence, *fault = core.last()
    return sentence, Fault(*fault)
