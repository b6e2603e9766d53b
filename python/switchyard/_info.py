"""Versions, what was found on this machine, and the settings of the process."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import SupportsIndex

from . import _binding
from ._binding import core
from ._numbers import integer, is_flag
from ._sentences import bad, shown
from .errors import Status, rejection

LIBRARIES = ("numpy", "torch", "jax", "ml_dtypes", "mpi4py")


@dataclass(frozen=True, repr=False)
class Info:
    """Result of :func:`info`."""

    version: str
    results_version: int
    """Equal inputs and seeds give equal bytes within one number."""
    isa: str
    """The kernel table in use."""
    isa_tables: tuple[str, ...]
    """The kernel tables this CPU can run, best first."""
    threads: int
    """The most that a call may use."""
    mpi: str | None
    """The MPI the package was built with."""
    library: str
    """Path of libswitchyard."""
    device_library: str | None
    """Path of libswitchyard_cuda, for arrays on CUDA devices."""
    command: str | None
    """Path of the command line."""
    python: str
    libraries: dict[str, str]
    """Array libraries that are installed here, and their versions."""

    def __repr__(self) -> str:
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                value = ", ".join(f"{name} {version}" for name, version in value.items())
            elif isinstance(value, tuple):
                value = ", ".join(value)
            lines.append(f"{field.name:16} {'not in this package' if value is None else value}")
        return "\n".join(lines)


def command() -> str | None:
    """The path of the command line, if the package has it."""
    program = _binding.FOLDER / "bin" / "switchyard"
    return str(program) if program.exists() else None


def info() -> Info:
    """Report versions of the package and what it found on this machine.

    >>> import switchyard
    >>> switchyard.info().results_version
    4
    >>> switchyard.info().isa_tables[-1]
    'scalar'
    """
    isa, threads = core.own()
    return Info(
        version=_binding.version,
        results_version=_binding.results_version,
        isa=isa,
        isa_tables=core.isa_names(),
        threads=threads,
        mpi=_binding.mpi,
        library=str(next(_binding.FOLDER.glob("lib/libswitchyard.so*"))),
        device_library=_devices.library or _beside_library(),
        command=command(),
        python=sys.version.split()[0],
        libraries=_libraries(),
    )


def _beside_library() -> str | None:
    own = next((str(path) for path in _binding.FOLDER.glob("lib/libswitchyard_cuda.so*")), None)
    return own or _library_of_a_wheel()


def _library_of_a_wheel() -> str | None:
    """The file in switchyard-ops-cuda13, a wheel of its own; the library rejects one of another version."""
    spec = importlib.util.find_spec("switchyard_ops_cuda13")
    folders = spec.submodule_search_locations if spec else None
    found = (path for folder in folders or () for path in Path(folder).glob("lib/libswitchyard_cuda.so*"))
    return next((str(path) for path in found), None)


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class _Unchanged:
    def __repr__(self) -> str:
        return "unchanged"


_UNCHANGED = _Unchanged()
_lock = threading.Lock()
_threads = 0
_isa: str | None = None


@dataclass
class _Devices:
    synchronous: bool = os.environ.get("SWITCHYARD_SYNCHRONOUS", "0") not in ("", "0")
    library: str | None = os.environ.get("SWITCHYARD_DEVICE_LIBRARY") or None

    def apply(self) -> None:
        core.configure_devices(self.synchronous, self.library or _beside_library())


_devices = _Devices()
_devices.apply()


def configure(
    *,
    threads: SupportsIndex | _Unchanged | None = _UNCHANGED,
    isa: str | _Unchanged | None = _UNCHANGED,
    synchronous: bool | _Unchanged = _UNCHANGED,
    device_library: str | os.PathLike[str] | _Unchanged | None = _UNCHANGED,
) -> None:
    """Set how many threads a call may use, and which kernel table; and how calls on CUDA devices behave.

    These are settings of the process; every thread applies them at its next call. None ever changes a result. A
    setting that is not given keeps its value.

    Args:
        threads: at least 1; None for the default: the environment variable SWITCHYARD_THREADS, else PyTorch's number of
            threads where it is loaded, else OMP_NUM_THREADS, else all CPUs that this process may run on.
        isa: a name of ``info().isa_tables``; None for the best.
        synchronous: calls on a device wait for their end and raise their own errors, for debugging; not while a graph
            is captured. The environment variable SWITCHYARD_SYNCHRONOUS=1 sets it at the start.
        device_library: file of libswitchyard_cuda; None for the one in the package or in
            switchyard-ops-cuda13, or where the system looks. The
            environment variable SWITCHYARD_DEVICE_LIBRARY sets it at the start.

    >>> import switchyard
    >>> switchyard.configure(threads=1, isa="scalar")
    >>> switchyard.info().threads, switchyard.info().isa
    (1, 'scalar')
    >>> switchyard.configure(threads=None, isa=None)
    """
    global _threads, _isa  # the binding has them too, but sets both at once
    if not (isinstance(synchronous, _Unchanged) or is_flag(synchronous)):
        raise bad(Status.DTYPE, "configure", "synchronous", f"is {shown(synchronous)}, want True or False")
    with _lock:
        new_threads = _threads if isinstance(threads, _Unchanged) else _number_of_threads(threads)
        new_isa = _isa if isinstance(isa, _Unchanged) else _name_of_table(isa)
        core.configure(new_threads, new_isa)
        _threads, _isa = new_threads, new_isa
        if not isinstance(synchronous, _Unchanged):
            _devices.synchronous = bool(synchronous)
        if not isinstance(device_library, _Unchanged):
            _devices.library = None if device_library is None else os.fspath(device_library)
        _devices.apply()


def _number_of_threads(threads: SupportsIndex | None) -> int:
    if threads is None:
        return 0
    most = 2**31 - 1
    try:
        number = integer(threads)
    except TypeError:
        raise rejection(Status.DTYPE, f"configure: threads is {threads!r}, want an integer or None") from None
    if not 1 <= number <= most:
        raise rejection(Status.VALUE, f"configure: threads is {number}, want 1 to {most} or None")
    return number


def _name_of_table(isa: str | None) -> str | None:
    if isa is not None and isa not in core.isa_names():
        names = ", ".join(core.isa_names())
        raise rejection(Status.VALUE, f"configure: isa is {isa!r}, want one that this CPU can run ({names}) or None")
    return isa
