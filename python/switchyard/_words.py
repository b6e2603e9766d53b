"""Types of parameters that are words, by operator and field: MoeRouteScore is Literal["softmax", "sigmoid", ...].

They are made of the library's description. Type checkers read _words.pyi, which the build writes (binding/words.py).
"""

import re
from typing import Any, Literal

from . import _binding


def __getattr__(name: str) -> Any:
    parts = re.findall("[A-Z][a-z0-9]*", name)
    for n in range(1, len(parts)):
        operator, field = "_".join(parts[:n]).lower(), "_".join(parts[n:]).lower()
        if field in _binding.fields(operator):
            return Literal[tuple(word for word in _binding.words(operator, field) if word is not None)]
    raise AttributeError(f"no operator has a field of the name {name}")
