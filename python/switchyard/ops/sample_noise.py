from __future__ import annotations

from .._declare import Any, Operator

operator = Operator("sample_noise", tuple)


@operator.function
def sample_noise(*, n: int, seed: int = 0, offset: int = 0, stream: int = 0, out: Any = None) -> Any:
    """Make the noise that :func:`sample` uses with noise "race", to repeat a draw elsewhere.

    ``sample`` with this q, ``q_order="vocab"`` and ``eps=0`` picks the token that it picks with the same seed, offset
    and stream and ``noise="race"``. The noise of a token does not depend on n.

    Args:
        stream: number of the sequence, likewise; its low 32 bits are used. Without it sample uses 0, or the number of
            the row if one seed is given for several rows.
        out: [n] float32, an array to write to; without it a NumPy array is made.

    >>> import numpy as np, switchyard
    >>> switchyard.sample_noise(n=4, seed=12, offset=5, stream=2)
    array([1.6354716 , 5.141519  , 0.11814385, 0.6537577 ], dtype=float32)
    """
