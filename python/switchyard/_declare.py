"""What operators in `ops` are declared with."""

from collections.abc import Sequence
from typing import Any, Generic

from typing_extensions import NamedTuple

from . import _words
from ._arrays import A, Array
from ._operator import Operator

__all__ = ["A", "Any", "Array", "Generic", "NamedTuple", "Operator", "Sequence", "_words"]
