"""PyPTO's names: tensors, types and views, and `experimental` with the two gathers.

What PyPTO traces and compiles for its accelerator runs here immediately, on the CPU. A tensor holds a NumPy or PyTorch
array; plain arrays are accepted in place of tensors, and the result of an operator is of the kind of its input.

docs/compat/pypto.md has programs.
"""

from . import experimental as experimental
from . import frontend as frontend
from . import runtime as runtime
from ._errors import Error as Error
from ._record import function as function
from ._record import loop as loop
from ._record import options as options
from ._tensor import Tensor as Tensor
from ._tensor import assemble as assemble
from ._tensor import from_numpy as from_numpy
from ._tensor import from_torch as from_torch
from ._tensor import get_vec_tile_shapes as get_vec_tile_shapes
from ._tensor import set_vec_tile_shapes as set_vec_tile_shapes
from ._tensor import view as view
from ._types import DataType as DataType
from ._types import TileOpFormat as TileOpFormat

tensor = Tensor

_listed = [*DataType]
DT_INT4, DT_INT8, DT_INT16, DT_INT32, DT_INT64, DT_FP8, DT_FP16, DT_FP32, DT_BF16, DT_HF4, DT_HF8 = _listed[:11]
DT_UINT8, DT_UINT16, DT_UINT32, DT_UINT64, DT_BOOL, DT_DOUBLE, DT_FP8E4M3, DT_FP8E5M2, DT_FP8E8M0 = _listed[11:20]
DT_FP4_E2M1X2, DT_FP4_E1M2X2, DT_FP4_E2M1, DT_FP4_E1M2, DT_BOTTOM = _listed[20:]
TILEOP_ND, TILEOP_NZ = TileOpFormat.TILEOP_ND, TileOpFormat.TILEOP_NZ
