"""`ttnn.device`: the names of its module that programs import."""

from __future__ import annotations

import enum

# Not relative: this file may be imported as `ttnn.device`, and must not load a second copy of these.
from switchyard.compat.ttnn._device import Device
from switchyard.compat.ttnn._words import DispatchCoreAxis, SubDevice, SubDeviceId

__all__ = ["Arch", "Device", "DispatchCoreAxis", "SubDevice", "SubDeviceId"]


class Arch(enum.Enum):
    """Kinds of chips. No device here is one of them."""

    WORMHOLE_B0 = 2
    BLACKHOLE = 3
    QUASAR = 4
