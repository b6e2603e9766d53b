"""Switchyard: the operators that move and pick tokens in large language models.

Every operator is a function. It takes arrays of NumPy, PyTorch, CuPy, JAX and any other library that supports DLPack,
in CPU memory or on a CUDA device, without conversion. Results are arrays of the library of the first argument, or are
written to `out`. An invalid call raises :class:`Error` with a sentence and leaves its outputs unchanged.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _binding
from ._binding import results_version as results_version
from ._binding import version as __version__
from ._device import sync as sync
from ._docstrings import complete as _complete
from ._info import Info as Info
from ._info import configure as configure
from ._info import info as info
from ._without_gradient import *  # noqa: F403
from .errors import CommError as CommError
from .errors import Error as Error
from .errors import Fault as Fault
from .errors import Status as Status
from .ops.kv_blocks import kv_blocks as kv_blocks
from .ops.kv_gather import kv_gather as kv_gather
from .ops.kv_ragged import kv_ragged as kv_ragged
from .ops.kv_scatter import kv_scatter as kv_scatter
from .ops.local_reduce import local_reduce as local_reduce
from .ops.moe_capacity import moe_capacity as moe_capacity
from .ops.moe_combine import moe_combine as moe_combine
from .ops.moe_combine import moe_dispatch_grad_data as moe_dispatch_grad_data
from .ops.moe_dispatch import MoeDispatch as MoeDispatch
from .ops.moe_dispatch import moe_dispatch as moe_dispatch
from .ops.moe_ids_from_map import MoeIdsFromMap as MoeIdsFromMap
from .ops.moe_ids_from_map import moe_ids_from_map as moe_ids_from_map
from .ops.moe_map_from_ids import MoeMapFromIds as MoeMapFromIds
from .ops.moe_map_from_ids import moe_map_from_ids as moe_map_from_ids
from .ops.moe_permute import MoePermute as MoePermute
from .ops.moe_permute import moe_permute as moe_permute
from .ops.moe_permute_ids import MoePermuteIds as MoePermuteIds
from .ops.moe_permute_ids import moe_permute_ids as moe_permute_ids
from .ops.moe_reorder_chunks import MoeReorderChunks as MoeReorderChunks
from .ops.moe_reorder_chunks import moe_reorder_chunks as moe_reorder_chunks
from .ops.moe_route import MoeRoute as MoeRoute
from .ops.moe_route import moe_route as moe_route
from .ops.moe_unpermute import moe_unpermute as moe_unpermute
from .ops.moe_unpermute_ids import moe_unpermute_ids as moe_unpermute_ids
from .ops.sample import Sample as Sample
from .ops.sample import sample as sample
from .ops.sample_overrides import SampleOverrides as SampleOverrides
from .ops.sample_overrides import sample_overrides as sample_overrides
from .ops.sample_verify import SampleVerify as SampleVerify
from .ops.sample_verify import sample_verify as sample_verify

if not _TYPE_CHECKING:  # checkers read the imports above, and know which modules there are
    from inspect import ismodule as _ismodule

    __all__ = [n for n, v in globals().items() if not (n.startswith("_") or _ismodule(v))] + ["__version__"]
    for _name in __all__:
        if _binding.table(_name):
            _complete(globals()[_name], _name)

    def __getattr__(name: str) -> object:
        """Imports a module of the package when it is first used: switchyard.torch."""
        if name not in ("compat", "jax", "mesh", "requests", "torch", "transformers"):
            raise AttributeError(f"module 'switchyard' has no attribute {name!r}")
        import importlib

        try:
            return importlib.import_module(f"switchyard.{name}")
        except ImportError as error:
            raise AttributeError(str(error)) from error
