"""tvm-ffi, loaded without torch.

tvm-ffi imports torch, where it is installed, because it has a table of torch's element types and checks arguments for
torch's tensors. That takes seconds. While tvm-ffi loads, a substitute takes the place of torch; it forwards to torch
once the program has imported it. Programs that use tvm-ffi with torch see no difference.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any


class _Absent:
    """A class without instances: takes the place of a class of torch while torch is not imported."""


class _Type:
    """Takes the place of an element type of torch, as a key of tvm-ffi's table."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Torch(ModuleType):
    """Takes the place of torch in tvm-ffi: never imports it, and forwards to it once it is imported."""

    def __init__(self) -> None:
        super().__init__("torch")
        self._types: dict[str, _Type] | None = {}
        self._loading = True

    def __getattr__(self, name: str) -> Any:
        torch = None if self._loading else sys.modules.get("torch")
        if name in ("Tensor", "dtype") and not hasattr(torch, name):
            return _Absent
        if self._loading:
            return self._while_loading(name)
        if torch is None:
            torch = importlib.import_module("torch")
        if self._types is not None:
            self._enter_types(torch)
        return getattr(torch, name)

    def _while_loading(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "cuda":
            raise ImportError("torch is not imported yet")  # to tvm-ffi this is a torch without CUDA
        assert self._types is not None
        return self._types.setdefault(name, _Type(name))

    def _enter_types(self, torch: ModuleType) -> None:
        """Puts the types of torch into the table of tvm-ffi, which is reachable only through its keys."""
        types, self._types = self._types or {}, None
        ours = types.values()
        for table in gc.get_referrers(*ours):
            if table is types or type(table) is not dict:
                continue
            for key in [key for key in table if key in ours]:
                entry = table.pop(key)
                if hasattr(torch, key.name):
                    table[getattr(torch, key.name)] = entry


def _load() -> Any:
    if "tvm_ffi" in sys.modules or "torch" in sys.modules or importlib.util.find_spec("torch") is None:
        return importlib.import_module("tvm_ffi")
    torch = sys.modules["torch"] = _Torch()
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        torch._loading = False
        if sys.modules.get("torch") is torch:
            del sys.modules["torch"]


def meet_torch() -> None:
    """Gives tensors of a torch before 2.10 the table of C functions that newer ones have, as tvm-ffi itself does."""
    wanted = os.environ.get("TVM_FFI_DISABLE_TORCH_C_DLPACK", "0") == "0"
    if wanted and isinstance(getattr(tvm_ffi.core, "torch", None), _Torch):
        importlib.import_module("tvm_ffi._optional_torch_c_dlpack").load_torch_c_dlpack_extension()


tvm_ffi: Any = _load()
