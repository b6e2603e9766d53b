"""Traces: a capture runs its operators and remembers them; an execution runs them again into the same results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from switchyard.errors import Status

from ._device import MeshDevice
from ._errors import SwitchyardError
from ._tensor import MeshTensor

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _recorded(operator: Callable[_P, _R]) -> Callable[_P, _R]:
    """An operator whose calls are counted by its mesh, and belong to the trace that is captured there."""

    @functools.wraps(operator)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        made = operator(*args, **kwargs)
        tensors = list(_tensors((*args, *kwargs.values())))
        program = (operator.__name__, *(tensor.shape for tensor in tensors))
        mesh = kwargs.get("mesh")  # of a call that names it
        device = mesh if isinstance(mesh, MeshDevice) else tensors[0].device()
        device.ran(program, lambda: _copy(operator(*args, **kwargs), made))
        return made

    return call


def _tensors(values: Iterable[Any]) -> Iterable[MeshTensor]:
    for value in values:
        if isinstance(value, MeshTensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _copy(fresh: Any, made: Any) -> None:
    for source, target in zip(_tensors((fresh,)), _tensors((made,)), strict=True):
        for new, old in zip(source.shards, target.shards, strict=True):
            if new is not old:
                old[...] = new


def begin_trace_capture(mesh_device: MeshDevice, cq_id: int | None = None) -> int:
    if mesh_device.capturing is not None:
        raise SwitchyardError(Status.STATE, "begin_trace_capture: a capture is under way, want end_trace_capture first")
    trace = len(mesh_device.traces)
    mesh_device.traces[trace] = []
    mesh_device.capturing = trace
    return trace


def end_trace_capture(mesh_device: MeshDevice, trace_id: int, cq_id: int | None = None) -> None:
    if mesh_device.capturing is None or mesh_device.capturing != trace_id:
        text = f"end_trace_capture: trace {trace_id} is not captured, want the trace of begin_trace_capture"
        raise SwitchyardError(Status.STATE, text)
    mesh_device.capturing = None


def execute_trace(mesh_device: MeshDevice, trace_id: int, cq_id: int | None = None, blocking: bool = True) -> None:
    """Run the operators of a trace again, on what their inputs hold now."""
    calls = _calls("execute_trace", mesh_device, trace_id)
    if mesh_device.capturing is not None:
        text = f"execute_trace: trace {mesh_device.capturing} is still captured, want end_trace_capture first"
        raise SwitchyardError(Status.STATE, text)
    for call in calls:
        call()


def release_trace(mesh_device: MeshDevice, trace_id: int) -> None:
    _calls("release_trace", mesh_device, trace_id)
    mesh_device.traces[trace_id] = None


def _calls(name: str, mesh_device: MeshDevice, trace_id: int) -> list[Callable[[], None]]:
    calls = mesh_device.traces.get(trace_id)
    if calls is None:
        found = "has been released" if trace_id in mesh_device.traces else "does not exist"
        raise SwitchyardError(Status.STATE, f"{name}: trace {trace_id} {found}, want one of begin_trace_capture")
    return calls


def apply_device_delay(mesh_device: MeshDevice, delays: Any, *args: Any, **kwargs: Any) -> None:
    """No effect: devices of this process have no clocks that could differ."""
    mesh_device.ran("apply_device_delay")
