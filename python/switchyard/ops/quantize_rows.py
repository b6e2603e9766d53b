from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator, _words
from .._row_formats import code_shape, code_type, scale_shape, scale_type, scales_apart


class QuantizeRows(NamedTuple, Generic[A]):
    """Results of :func:`quantize_rows`.

    codes: [..., H] uint8, the bytes of float8_e4m3fn; int8 with the format "int8_token"; records, [..., H/32*34] or
        [..., H/32*18] uint8, with the formats "q8_0" and "q4_0"; [..., H/2] uint8 with "nvfp4".
    scales: [..., G], or as ``scale_layout`` says; float32, or uint8, exponents with bias 127, with the formats of e8m0;
        uint8, the bytes of float8_e4m3fn, with "nvfp4". None with the formats "q8_0" and "q4_0".
    """

    codes: A
    scales: A | None


operator = Operator(
    "quantize_rows",
    QuantizeRows,
    shapes={"codes": code_shape, "scales": scale_shape},
    types={"codes": code_type, "scales": scale_type},
    when={"scales": scales_apart},
)


@operator.function
def quantize_rows(
    input: A,
    global_scale: Array | None = None,
    *,
    format: _words.QuantizeRowsFormat,
    scale_layout: _words.QuantizeRowsScaleLayout = "row",
    out: QuantizeRows[Any] | None = None,
) -> QuantizeRows[A]:
    """Make codes of 4 or 8 bits of rows, with a scale for each group of neighbours.

    Scale and codes have the bits of the library that a format is named after. Any contents are accepted: a NaN is no
    magnitude and has a code of its own (int8: 0), an infinity counts as the largest float32.

    Args:
        input: [..., H] float32, float16 or bfloat16; H is a multiple of the group.
        global_scale: [1] or [T] float32, positive, with "nvfp4": the scale of all numbers, or of those of each row;
            with "nvfp4_amax" their largest magnitude.
        format: "fp8_128" (vLLM, SGLang), "fp8_128_deepep", "fp8_128_deepgemm": float8_e4m3fn, groups of 128, float32
            scales; "fp8_128_ue8m0": the same with powers of two; "mxfp8", "mxfp8_floor" (OCP): groups of 32, powers of
            two; "int8_token": int8, one float32 scale for a row; "q8_0", "q4_0" (ggml): int8 or 4 bits, groups of 32,
            each after its float16 scale in a record of 34 or 18 bytes; "nvfp4", "nvfp4_amax" (Transformer Engine):
            float4_e2m1, two in a byte, groups of 16, scales of float8_e4m3fn by rows.
        scale_layout: "row", or that of a matrix product: "col", [ceil(G*b/4), R, 4/b] for scales of b bytes, the words
            of a column of rows together, where R is the number of rows T rounded up to a multiple of 4; "swizzle",
            [ceil(T/128), ceil(G/4), 512], the tiles that tensor cores read, for the formats of e8m0. Bytes that
            belong to no scale are 0.

    >>> import numpy as np, switchyard
    >>> rows = np.array([[1, -2, 0.3, 0.001]], np.float32)
    >>> quantized = switchyard.quantize_rows(rows, format="int8_token")
    >>> quantized.codes
    array([[  64, -127,   19,    0]], dtype=int8)
    >>> quantized.scales
    array([[0.01574803]], dtype=float32)
    """
