from __future__ import annotations

from .._declare import A, Any, Array, Generic, NamedTuple, Operator


class MoeAlignBlock(NamedTuple, Generic[A]):
    """Results of :func:`moe_align_block`; P is the largest number of places that any ids need."""

    sorted_slots: A
    block_experts: A
    num_padded: A
    expert_counts: A
    expert_offsets: A


operator = Operator(
    "moe_align_block",
    MoeAlignBlock,
    extents={"P": lambda T, K, E, B: (T * K + min(E, T * K) * (B - 1)) // B * B},
)


@operator.function
def moe_align_block(
    ids: A,
    expert_map: Array | None = None,
    *,
    num_experts: int,
    block_size: int,
    allow_missing: bool = False,
    skip_unmapped: bool = False,
    out: MoeAlignBlock[Any] | None = None,
) -> MoeAlignBlock[A]:
    """List the slots of every expert, padded to whole blocks, for a matrix product whose blocks have one expert each.

    Slot ``t*K + j`` is slot j of token t; ``T*K`` marks padding. Experts are in ascending order, and slots inside an
    expert too. The rows themselves are not moved.

    Args:
        ids: [T, K] int32 or int64, each 0 or more and below ``num_experts``; in any order, repeated or not.
        out: arrays to write to, instead of new ones; there sorted_slots and block_experts may be longer, and the counts
            and offsets None.

    >>> import numpy as np, switchyard
    >>> ids = np.array([[2, 0], [1, 2], [0, 2]], np.int32)
    >>> blocks = switchyard.moe_align_block(ids, num_experts=4, block_size=2)
    >>> blocks.sorted_slots
    array([1, 4, 2, 6, 0, 3, 5, 6, 6, 6], dtype=int32)
    >>> blocks.block_experts
    array([ 0,  1,  2,  2, -1], dtype=int32)
    >>> blocks.num_padded
    array([8], dtype=int32)
    """
