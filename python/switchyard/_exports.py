"""The names of a package whose modules define them."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any


def own(package: dict[str, Any], *modules: ModuleType, more: Sequence[str] = ()) -> None:
    """Adds the public names that modules define, not those that they import, to their package, and lists them there.

    `more`: other names of the package.
    """
    made: dict[str, Any] = {}
    for module in modules:
        homes = (module.__name__, package["__name__"])
        here = {name: value for name, value in vars(module).items() if getattr(value, "__module__", "") in homes}
        made |= {name: value for name, value in here.items() if not name.startswith("_")}
    package.update(made)
    package["__all__"] = [*more, *made]
