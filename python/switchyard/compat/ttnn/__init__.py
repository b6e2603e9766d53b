"""ttnn's names for the exchange between devices: mesh tensors, mappers and composers, and the two operators.

A mesh device here is a mesh inside this process: every shard is a NumPy or PyTorch array, and the exchange moves rows
between them as it would between chips. Signatures and defaults are ttnn's.

docs/compat/ttnn.md has programs.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import device as device

if _TYPE_CHECKING:
    from ._device import *  # noqa: F403
    from ._errors import *  # noqa: F403
    from ._exchange import *  # noqa: F403
    from ._host import *  # noqa: F403
    from ._tensor import *  # noqa: F403
    from ._trace import *  # noqa: F403
    from ._words import *  # noqa: F403
else:
    from ..._exports import own as _own
    from . import _device, _errors, _exchange, _host, _tensor, _trace, _words

    _own(globals(), _device, _errors, _exchange, _host, _tensor, _trace, _words, more=["device"])
