"""Switchyard: the operators that move and pick tokens in large language models.

Every operator is a function. It takes arrays of NumPy, PyTorch, CuPy, JAX and any other library that supports DLPack,
in CPU memory or on a CUDA device, without conversion. Results are arrays of the library of the first argument, or are
written to `out`. An invalid call raises :class:`Error` with a sentence and leaves its outputs unchanged.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _binding, _without_gradient
from ._binding import results_version as results_version
from ._binding import version as __version__
from ._device import sync
from ._docstrings import complete as _complete
from ._info import Info, configure, info
from ._without_gradient import *  # noqa: F403
from .errors import CommError, Error, Fault, Status
from .ops.kv_blocks import kv_blocks
from .ops.kv_gather import kv_gather
from .ops.kv_ragged import kv_ragged
from .ops.kv_scatter import kv_scatter
from .ops.local_reduce import local_reduce
from .ops.moe_capacity import moe_capacity
from .ops.moe_combine import moe_combine, moe_dispatch_grad_data
from .ops.moe_dispatch import MoeDispatch, moe_dispatch
from .ops.moe_ids_from_map import MoeIdsFromMap, moe_ids_from_map
from .ops.moe_map_from_ids import MoeMapFromIds, moe_map_from_ids
from .ops.moe_permute import MoePermute, moe_permute
from .ops.moe_permute_ids import MoePermuteIds, moe_permute_ids
from .ops.moe_reorder_chunks import MoeReorderChunks, moe_reorder_chunks
from .ops.moe_route import MoeRoute, moe_route
from .ops.moe_unpermute import moe_unpermute
from .ops.moe_unpermute_ids import moe_unpermute_ids
from .ops.sample import Sample, sample
from .ops.sample_overrides import SampleOverrides, sample_overrides
from .ops.sample_verify import SampleVerify, sample_verify

__all__ = [
    "CommError",
    "Error",
    "Fault",
    "Info",
    "MoeDispatch",
    "MoeIdsFromMap",
    "MoeMapFromIds",
    "MoePermute",
    "MoePermuteIds",
    "MoeReorderChunks",
    "MoeRoute",
    "Sample",
    "SampleOverrides",
    "SampleVerify",
    "Status",
    "__version__",
    "configure",
    "info",
    "kv_blocks",
    "kv_gather",
    "kv_ragged",
    "kv_scatter",
    "local_reduce",
    "moe_capacity",
    "moe_combine",
    "moe_dispatch",
    "moe_dispatch_grad_data",
    "moe_ids_from_map",
    "moe_map_from_ids",
    "moe_permute",
    "moe_permute_ids",
    "moe_reorder_chunks",
    "moe_route",
    "moe_unpermute",
    "moe_unpermute_ids",
    "results_version",
    "sample",
    "sample_overrides",
    "sample_verify",
    "sync",
]
__all__ += _without_gradient.__all__

for _name in __all__:
    if _binding.table(_name):
        _complete(globals()[_name], _name)

if not _TYPE_CHECKING:  # checkers know the modules, and that there are no others

    def __getattr__(name: str) -> object:
        """Imports a module of the package when it is first used: switchyard.torch."""
        if name not in ("compat", "jax", "mesh", "torch", "transformers"):
            raise AttributeError(f"module 'switchyard' has no attribute {name!r}")
        import importlib

        try:
            return importlib.import_module(f"switchyard.{name}")
        except ImportError as error:
            raise AttributeError(str(error)) from error
