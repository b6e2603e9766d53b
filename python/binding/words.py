"""Writes switchyard/_words.pyi: the words of enums and formats as types, from the descriptions of an installed binding.

words.py FOLDER: that of the installed package, which has _core. CMake runs it at the end of an installation.
"""

import importlib.machinery
import importlib.util
import pathlib
import sys

OPERATORS = pathlib.Path(__file__).parents[1] / "switchyard" / "ops"
MESH = ("all_to_all_dispatch", "all_to_all_combine")


def load(folder):
    path = next(folder.glob("_core.*"))
    loader = importlib.machinery.ExtensionFileLoader("_core", str(path))
    return importlib.util.module_from_spec(importlib.util.spec_from_loader("_core", loader))


def literals(core):
    for name in (*sorted(path.stem for path in OPERATORS.glob("[a-z]*.py")), *MESH):
        for field, kind, *_ in (rows := core.describe(name)):
            if kind in ("enum", "format"):
                text = next(row[5] for row in rows if row[0] == field)
                words = [word.rpartition("|")[2] for word in text.split() if word != "-"]
                listed = (word if word.lstrip("-").isdigit() else f'"{word}"' for word in words)
                yield f"{(name + '_' + field).title().replace('_', '')}: TypeAlias = Literal[{', '.join(listed)}]"


def main():
    folder = pathlib.Path(sys.argv[1])
    lines = ["from typing import Literal, TypeAlias", "", *literals(load(folder))]
    (folder / "_words.pyi").write_text("\n".join(lines) + "\n", encoding="utf-8")


main()
