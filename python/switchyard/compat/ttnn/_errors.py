"""The exception of a rejected call."""

from __future__ import annotations

from switchyard.errors import Status


class SwitchyardError(RuntimeError):
    """A call that was rejected; `code` is the library's status."""

    def __init__(self, code: Status, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
