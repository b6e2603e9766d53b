"""One exception, with the codes of the gather."""

from __future__ import annotations

import switchyard
from switchyard.errors import Status


class Error(Exception):
    """A call that was rejected: `code` is the reason; `batch`, `pos`, `value` and `limit` give place and numbers.

    It is also a TypeError for a wrong element type, an IndexError for contents of tensors, and a ValueError for
    everything else.
    """

    def __init__(
        self, code: str, sentence: str, *, batch: int = -1, pos: int = -1, value: int = 0, limit: int = 0
    ) -> None:
        super().__init__(sentence)
        self.code, self.batch, self.pos, self.value, self.limit = code, batch, pos, value, limit


def _also(kind: type[Exception]) -> type[Error]:
    """The class of errors that are of one of Python's own kinds too."""
    return type("Error", (Error, kind), {"__module__": __name__})


_TypeError, _IndexError, _ValueError = map(_also, (TypeError, IndexError, ValueError))


def rejection(code: str, sentence: str) -> Error:
    """The exception for a rejected argument; the caller raises it."""
    return (_TypeError if code == "BAD_DTYPE" else _ValueError)(code, sentence)


def translated(error: switchyard.Error, name: str) -> Error:
    """The library's error as an error of this layer."""
    kind = {Status.DTYPE: _TypeError, Status.INDEX: _IndexError}.get(error.status, _ValueError)
    fault = error.fault
    sentence = f"{name}{str(error).removeprefix('kv_gather')}"
    return kind(fault.code, sentence, batch=fault.batch, pos=fault.position, value=fault.value, limit=fault.limit)
