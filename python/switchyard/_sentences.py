"""What is said of a call that is refused before its operator is asked, told as the operator would tell it."""

from __future__ import annotations

import re
from typing import Any

from .errors import Error, Fault, Status, refusal

# DLPack's device types, which most people know by name.
DEVICES = {
    2: "CUDA",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    9: "VPI",
    10: "ROCm",
    13: "CUDA managed",
    14: "oneAPI",
    15: "WebGPU",
    16: "Hexagon",
    17: "MAIA",
}


def bad(status: Status, name: str, field: str, said: str) -> Error:
    """The exception for a field of an operator that is not as it must be; to be raised."""
    return refusal(status, f"{name}: {field} {said}", Fault(f"BAD_{status.name}", field))


def sentence_of(name: str, device: int, error: Exception) -> str:
    """The sentence for all processes about an exception that keeps the process of one device from making a call. ASCII,
    so that it can be cut at any place.
    """
    try:
        said = str(error).partition("\n")[0]
    except Exception:
        said = "without a text"
    if not isinstance(error, Error):
        of_call = said.removeprefix(f"{name}() ")  # such as an argument too many
        said = f"{name}: device {device} {of_call if of_call != said else f'raised {type(error).__name__}: {said}'}"
    elif said.startswith(about := f"{name}: {error.fault.argument} ") and not said.startswith(f"{about}of device "):
        said = f"{about}of device {device} {said[len(about) :]}"
    return said.encode("ascii", "backslashreplace").decode().replace("\0", "\\0")


def told(value: Any) -> str:
    """A value in a sentence: itself where it is short, else what it is."""
    if value is None or isinstance(value, (int, float, str)):
        return repr(value)
    return _with_article(type(value).__name__)


def library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def device_named(said: str) -> str:
    """The library's sentence about a device, with its name instead of its number."""
    found = re.search(r"device type (\d+), want CPU memory \(type 1\)", said)
    name = DEVICES.get(int(found[1])) if found else None
    if found is None or name is None:
        return said
    return f"{said[: found.start()]}{_with_article(name)} device, want CPU memory{said[found.end() :]}"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"
