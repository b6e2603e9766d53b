from __future__ import annotations

from .._declare import A, Any, Array, Operator, _words


def _shape(
    sorted_indices: Any, expert_offsets: Any, from_: str, to: str, num_tokens: int, num_rows: int, k: int
) -> tuple[Any, ...]:
    rows = num_rows or (0 if from_ == "te" else sorted_indices.shape[0])
    if to == "te":
        return (num_tokens, 2 * expert_offsets.shape[0] - 1)
    return (rows if to == "row" else num_tokens * (k or (rows // num_tokens if num_tokens else 0)),)


operator = Operator("moe_convert_indices", tuple, shapes={"converted_indices": _shape})


@operator.function
def moe_convert_indices(
    sorted_indices: A,
    expert_offsets: Array | None = None,
    *,
    from_: _words.MoeConvertIndicesFrom = "slot",
    to: _words.MoeConvertIndicesTo,
    num_tokens: int,
    num_rows: int = 0,
    k: int = 0,
    out: A | None = None,
) -> A:
    """Convert the permutation of :func:`moe_permute` to the form of another library.

    ``"slot"``: [T*K], the row of slot j of token t at ``t*K + j``, as moe_permute makes it packed. ``"row"``: [M], the
    token of each row, as moe_permute makes it with ``drop_and_pad``, and Megatron-LM always. ``"te"``: [T, 2E+1], the
    rows of each token in descending order, from column E on their experts, in the last column their number, as
    Transformer Engine's row_id_map. -1 marks an empty place.

    Args:
        from_: the form that is read (``from`` in C, which is a keyword in Python).

    >>> import numpy as np, switchyard
    >>> slots = np.array([0, 5, 3, 6, 1, 4, 2, 7], np.int32)
    >>> switchyard.moe_convert_indices(slots, to="row", num_tokens=4)
    array([0, 2, 3, 1, 2, 0, 1, 3], dtype=int32)
    >>> switchyard.moe_convert_indices(slots, np.array([0, 3, 5, 8]), to="te", num_tokens=4)
    array([[ 5,  0, -1,  2,  0, -1,  2],
           [ 6,  3, -1,  2,  1, -1,  2],
           [ 4,  1, -1,  1,  0, -1,  2],
           [ 7,  2, -1,  2,  0, -1,  2]], dtype=int32)
    """
