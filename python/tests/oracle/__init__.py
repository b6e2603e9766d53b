"""What every operator must return, in plain NumPy: slow, short, and written from the formulas of the operator pages.

An oracle takes the fields of an operator by name and returns its outputs by name, or raises `Rejected` with the status
the operator must answer. It knows nothing of the library: full sorts in place of selections, loops over single
elements, Python's integers in place of 64-bit ones.
"""

from .arith import Rejected

__all__ = ["Rejected"]
