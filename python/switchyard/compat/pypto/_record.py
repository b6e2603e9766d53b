"""Functions that are recorded: their operators run at once, and again when the function runs with data."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from ._errors import rejection

P = ParamSpec("P")
R = TypeVar("R")


class Function:
    """What `function` records: its tensors, and its operators in order."""

    def __init__(self, name: str, tensors: list[Any]) -> None:
        self.name, self.tensors = name, tensors
        self.calls: list[Callable[[], None]] = []

    def run(self, given: tuple[Any, ...]) -> None:
        """Run the operators with these tensors in place of those of the recording."""
        if len(given) != len(self.tensors):
            text = f"function: {self.name} takes {len(self.tensors)} tensors, want as many, not {len(given)}"
            raise rejection("BAD_OPTION", text)
        for i, (tensor, data) in enumerate(zip(self.tensors, given, strict=True)):
            if tensor.shape != data.shape or tensor.dtype != data.dtype:
                found, want = (f"{one.shape} {one.dtype.name}" for one in (data, tensor))
                raise rejection("BAD_SHAPE", f"function: tensor {i} of {self.name} is {found}, want {want}")
        before = [dict(vars(tensor)) for tensor in self.tensors]
        try:
            for tensor, data in zip(self.tensors, given, strict=True):
                vars(tensor).update(vars(data))
            for call in self.calls:
                call()
        finally:
            for tensor, old in zip(self.tensors, before, strict=True):
                vars(tensor).update(old)


class _State:
    """Of the process, as in PyPTO: the function that is being recorded, and the last one."""

    recording: Function | None = None
    last: Function | None = None


def recorded(operator: Callable[P, R]) -> Callable[P, R]:
    """An operator whose calls belong to the function that is being recorded."""

    @functools.wraps(operator)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        made = operator(*args, **kwargs)
        if _State.recording is not None:
            _State.recording.calls.append(lambda: _again(operator(*args, **kwargs), made))
        return made

    return call


def _again(fresh: Any, made: Any) -> None:
    if hasattr(made, "valid_shape"):
        vars(made).update(vars(fresh))


@contextlib.contextmanager
def function(name: str, *args: Any) -> Iterator[Function]:
    """Record the operators of a block. They run at once on what the tensors hold, and again in `runtime`."""
    if _State.recording is not None:
        raise rejection("BAD_OPTION", f"function: {name} is inside of another, want one at a time")
    made = Function(name, [one for one in args if hasattr(one, "valid_shape")])
    _State.recording = made
    try:
        yield made
        _State.last = made
    finally:
        _State.recording = None


def last() -> Function:
    if _State.last is None:
        raise rejection("BAD_OPTION", "runtime: no function has been recorded, want a block of pypto.function before")
    return _State.last


def loop(
    *bounds: int,
    name: str = "",
    idx_name: str = "",
    unroll_list: Any = None,
    submit_before_loop: bool = False,
    parallel: bool = False,
) -> Iterator[int]:
    """The numbers of range(*bounds). Names, unrolling and order of submission have no effect."""
    return iter(range(*bounds))


class options(contextlib.ContextDecorator):
    """A decorator or a context that names settings of PyPTO's compiler. They have no effect: nothing is compiled."""

    def __init__(
        self,
        name: str = "",
        codegen_options: Any = None,
        host_options: Any = None,
        pass_options: Any = None,
        runtime_options: Any = None,
        verify_options: Any = None,
        operation_options: Any = None,
        debug_options: Any = None,
        vec_tile_shapes: Any = None,
        cube_tile_shapes: Any = None,
        conv_tile_shapes: Any = None,
        matrix_size: Any = None,
    ) -> None:
        self.name = name

    def __enter__(self) -> options:
        return self

    def __exit__(self, *error: object) -> None:
        pass
