"""Switchyard: the operators that move and pick tokens in large language models.

Every operator is a function. Arrays of NumPy, PyTorch, JAX and any other library that speaks DLPack are taken as
they lie in memory; results are arrays of the same library as the first argument, or go where `out` says. A call that
cannot be right raises :class:`Error` with a sentence, and leaves its outputs as they were.
"""

from ._binding import results_version as results_version
from ._binding import version as __version__
from .errors import CommError, Error, Fault, Status
from .ops.moe_permute import MoePermute, moe_permute

__all__ = [
    "CommError",
    "Error",
    "Fault",
    "MoePermute",
    "Status",
    "__version__",
    "moe_permute",
    "results_version",
]
