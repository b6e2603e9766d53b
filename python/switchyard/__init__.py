"""Switchyard: the operators that move and pick tokens in large language models."""

from ._binding import results_version, version as __version__
from .errors import CommError, Error, Fault, Status
from .ops.moe_permute import MoePermute, moe_permute
