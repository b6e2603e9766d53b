"""One exception, with the codes of the gather."""

from __future__ import annotations

import switchyard
from switchyard.errors import Status


class Error(Exception):
    """A call that was refused: `code` says why, `batch`, `pos`, `value` and `limit` where and how far off.

    It is also a TypeError for a wrong element type, an IndexError for what stands in the tensors, and a ValueError for
    everything else.
    """

    def __init__(
        self, code: str, sentence: str, *, batch: int = -1, pos: int = -1, value: int = 0, limit: int = 0
    ) -> None:
        super().__init__(sentence)
        self.code, self.batch, self.pos, self.value, self.limit = code, batch, pos, value, limit


class _TypeError(Error, TypeError):
    pass


class _IndexError(Error, IndexError):
    pass


class _ValueError(Error, ValueError):
    pass


for _class in (_TypeError, _IndexError, _ValueError):
    _class.__name__ = _class.__qualname__ = "Error"


def refusal(code: str, sentence: str) -> Error:
    """A refused argument; to be raised."""
    return (_TypeError if code == "BAD_DTYPE" else _ValueError)(code, sentence)


def translated(error: switchyard.Error, name: str) -> Error:
    """The library's refusal in the words of this door."""
    kind = {Status.DTYPE: _TypeError, Status.INDEX: _IndexError}.get(error.status, _ValueError)
    fault = error.fault
    sentence = f"{name}{str(error).removeprefix('kv_gather')}"
    return kind(fault.code, sentence, batch=fault.batch, pos=fault.position, value=fault.value, limit=fault.limit)
