"""Error sentences for calls that are rejected in Python, in the form that the operators use."""

from __future__ import annotations

import re
from typing import Any

from .errors import Error, Fault, Status, rejection

# Names of DLPack's device types.
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


# Codes that are not BAD_ and the name of the status.
_CODES = {
    Status.NULL: "NULL_POINTER",
    Status.ALIAS: "ALIAS",
    Status.INDEX: "INDEX_RANGE",
    Status.STATE: "NONE",
    Status.UNSUPPORTED: "UNSUPPORTED",
}


def bad(status: Status, name: str, field: str, text: str, code: str = "", position: int = -1) -> Error:
    """The exception for an invalid field of an operator; the caller raises it. The code is the status's, or `code`."""
    fault = Fault(code or _CODES.get(status, f"BAD_{status.name}"), field, position=position)
    return rejection(status, f"{name}: {field} {text}", fault)


def sentence_of(name: str, device: int, error: BaseException) -> str:
    """The sentence sent to all processes when an exception keeps one of them from making a call. ASCII, so that it can
    be cut at any place.
    """
    try:
        text = str(error).partition("\n")[0]
    except Exception:
        text = "without a text"
    if not isinstance(error, Error):
        of_call = text.removeprefix(f"{name}() ")  # such as an argument too many
        text = f"{name}: device {device} {of_call if of_call != text else f'raised {type(error).__name__}: {text}'}"
    elif text.startswith(about := f"{name}: {error.fault.argument} ") and not text.startswith(f"{about}of device "):
        text = f"{about}of device {device} {text[len(about) :]}"
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\0")


def shown(value: Any) -> str:
    """A value in a sentence: its repr if that is short, else its type."""
    if isinstance(value, int) and value.bit_length() > 4096:  # Python writes no longer ones
        return "an integer of more than 4096 bits"
    if value is None or isinstance(value, (int, float, str)):
        return repr(value)
    return _with_article(type(value).__name__)


def library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def device_named(text: str) -> str:
    """The library's sentence about a device, with the device's name instead of its number."""
    both = re.search(r"is on device (\d+) of type (\d+), want device (\d+) of type (\d+) like", text)
    if both is not None:
        is_on, wanted = _where(both[1], both[2], "is"), _where(both[3], both[4], "want")
        return f"{text[: both.start()]}{is_on}, {wanted} like{text[both.end() :]}"
    found = re.search(r"device type (\d+), want CPU memory \(type 1\)", text)
    name = DEVICES.get(int(found[1])) if found else None
    if found is None or name is None:
        return text
    return f"{text[: found.start()]}{_with_article(name)} device, want CPU memory{text[found.end() :]}"


def _where(number: str, kind: str, verb: str) -> str:
    if int(kind) in (1, 3):
        return "is in CPU memory" if verb == "is" else "want CPU memory"
    name = f"cuda:{number}" if int(kind) == 2 else f"device {number} of type {DEVICES.get(int(kind), kind)}"
    return f"is on {name}" if verb == "is" else f"want {name}"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"
