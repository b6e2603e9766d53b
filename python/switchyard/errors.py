"""Exceptions of rejected calls: one sentence, and the same as numbers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["CommError", "Error", "Fault", "Status"]


# The library's status codes; `SY_ERR_SHAPE` in C is `Status.SHAPE` here.
Status = enum.IntEnum(
    "Status",
    "OK NULL DTYPE SHAPE STRIDE VALUE OVERFLOW ALIAS INDEX ROUTING CAPACITY STATE DEVICE UNSUPPORTED NOMEM COMM "
    "MISMATCH TIMEOUT",
    start=0,
)


@dataclass(frozen=True)
class Fault:
    """What exactly was wrong. Numbers that have no meaning for a fault are -1 (batch, position) or 0."""

    code: str = ""
    argument: str = ""
    batch: int = -1
    position: int = -1
    value: int = 0
    limit: int = 0


class Error(Exception):
    """A call that was rejected. Its outputs are unchanged.

    Every error is also one of Python's own: TypeError for a missing argument or an unsupported type,
    IndexError for an index in the data that is out of range, MemoryError, NotImplementedError, TimeoutError,
    RuntimeError for failures between processes, ValueError for everything else.

    >>> import numpy as np, switchyard
    >>> try:
    ...     switchyard.moe_permute(np.ones((4, 2)), np.ones((4, 3), bool), num_out_tokens=8)
    ... except ValueError as error:
    ...     print(error.status.name, error.fault.position, error.fault.value, error.fault.limit)
    ROUTING 0 3 2
    """

    status: Status
    fault: Fault

    def __init__(self, status: Status, sentence: str, fault: Fault | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.fault = fault if fault is not None else Fault()

    def __reduce__(self) -> tuple[object, ...]:
        return rejection, (int(self.status), str(self), self.fault)


class CommError(Error, RuntimeError):
    """Processes disagree about a call, or cannot reach each other."""


def _also(kind: type[Exception]) -> type[Error]:
    """The class of errors that are of one of Python's own kinds too."""
    return type("Error", (Error, kind), {"__module__": __name__})


_ValueError = _also(ValueError)
_CLASSES: dict[Status, type[Error]] = {
    **dict.fromkeys((Status.NULL, Status.DTYPE), _also(TypeError)),
    Status.INDEX: _also(IndexError),
    Status.NOMEM: _also(MemoryError),
    Status.UNSUPPORTED: _also(NotImplementedError),
    Status.TIMEOUT: _also(TimeoutError),
    **dict.fromkeys((Status.COMM, Status.MISMATCH, Status.STATE), CommError),
}


def status_of(error: BaseException) -> Status:
    """The status of an exception: its own, or the one whose exception is of the same kind; STATE for an interrupt."""
    if isinstance(error, Error):
        return error.status
    if not isinstance(error, Exception):
        return Status.STATE
    kinds = (Status.DTYPE, Status.INDEX, Status.NOMEM, Status.UNSUPPORTED)
    return next((s for s in kinds if isinstance(error, _CLASSES[s].__bases__[1])), Status.VALUE)


def rejection(status: int, sentence: str, fault: Fault | None = None) -> Error:
    """The exception for a status; the caller raises it."""
    known = Status(status)
    return _CLASSES.get(known, _ValueError)(known, sentence, fault)
