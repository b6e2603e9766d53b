#!/usr/bin/env python3
"""Prints the measured tables of the pages from docs/figures, between `<!-- figures: FILE.tsv [only=REGEX] -->` and `<!-- end -->`.

figures.py [--check]: without it pages are rewritten; with it pages that differ are listed, exit status 1.

A file has lines "# run", each with machine, date, commit that recorded it and command, then a head and rows, by tabs. `only` keeps the
rows in which the expression occurs.
"""
import glob
import os
import re
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
PLACE = re.compile(r"(<!-- figures: (\S+\.tsv)(?: only=(\S+))? -->\n).*?(<!-- end -->)", re.S)


def table(name, only=""):
    with open(os.path.join(ROOT, "docs", "figures", name), encoding="utf-8") as file:
        lines = file.read().splitlines()
    runs = [line.split("\t", 1)[1] for line in lines if line.startswith("# run\t")]
    head, *rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert runs and rows and all(len(row) == len(head) for row in rows), f"{name}: no run, or a row of another length than the head"
    rows = [head, ["---"] * len(head), *(row for row in rows if re.search(only or "", "\t".join(row)))]
    text = "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)
    text = re.sub(r"(?<=\d) (?=(us|ms|%|times)\b|%)", "\u00a0", text)  # a number stays with its unit
    return text + "\n" + "".join(f"{run[0].upper()}{run[1:]}.\n" for run in runs)


def main():
    stale = []
    for path in ["README.md", *sorted(glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True))]:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            old = file.read()
        new = PLACE.sub(lambda place: place[1] + table(place[2], place[3]) + place[4], old)
        if new != old and "--check" in sys.argv[1:]:
            stale.append(f"{path}: differs from docs/figures: run scripts/figures.py")
        elif new != old:
            with open(os.path.join(ROOT, path), "w", encoding="utf-8") as file:
                file.write(new)
    print("\n".join(stale), end="\n" if stale else "")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
