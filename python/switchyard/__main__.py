"""The command line: `python -m switchyard`, and `switchyard` where a wheel is installed."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._info import command


def main() -> NoReturn:
    """Replace this process by the program in the wheel."""
    program = command()
    if program is None:
        sys.exit(
            "switchyard: this package was built without the command line, which needs jansson's header and library "
            "(Debian: libjansson-dev). Install them, then the package again."
        )
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
