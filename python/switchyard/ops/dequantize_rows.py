from __future__ import annotations

from .._caches import asked_type, row_type
from .._declare import A, Any, Array, Operator, _words
from .._row_formats import dense_shape

operator = Operator(
    "dequantize_rows",
    tuple,
    flows="scales",
    asks={"dtype": ""},
    dtype=asked_type,
    shapes={"out": dense_shape},
    types={"out": lambda xp, codes, format, dtype: row_type(xp, "dequantize_rows", codes, format, dtype)},
)


@operator.function
def dequantize_rows(
    codes: A,
    scales: Array | None = None,
    global_scale: Array | None = None,
    *,
    format: _words.DequantizeRowsFormat,
    scale_layout: _words.DequantizeRowsScaleLayout = "row",
    dtype: Any = None,
    out: A | None = None,
) -> A:
    """Multiply 8-bit codes with the scale of their group: the inverse of :func:`quantize_rows`.

    Args:
        format: that of :func:`quantize_rows`.
        dtype: "bfloat16" (the default, where the library of the codes has it), "float16" or "float32".

    Returns:
        The numbers, [..., H]: each product is rounded to float32, then to the type.

    >>> import numpy as np, switchyard
    >>> codes, scales = np.array([[64, -127, 19, 0]], np.int8), np.array([[0.5]], np.float32)
    >>> switchyard.dequantize_rows(codes, scales, format="int8_token", dtype="float32")
    array([[ 32. , -63.5,   9.5,   0. ]], dtype=float32)
    """
