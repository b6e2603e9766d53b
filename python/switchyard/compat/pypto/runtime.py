"""PyPTO's runtime: runs the last recorded function on data of the host. There is no device."""

from __future__ import annotations

from typing import Any

from ._record import last
from ._tensor import as_tensor


def _device_init(*args: Any, **kwargs: Any) -> None:
    """No effect, as `_device_fini`."""


def _device_fini(*args: Any, **kwargs: Any) -> None: ...


def _device_run_once_data_from_host(*tensors: Any) -> None:
    """Run the last function of `pypto.function` with these tensors, in its order; results are written to them."""
    last().run(tuple(as_tensor(tensor, "_device_run_once_data_from_host: tensor") for tensor in tensors))
