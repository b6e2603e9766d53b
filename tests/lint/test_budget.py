"""The weight of the repository: the larger of lines and bytes / 43, for each top folder, all files but pictures and the model.

tests/lint/budget.txt states how much each folder may weigh, and what exists only for tests, wherever it lies. A budget, in
hundreds, goes down whenever less is needed (`python3 tests/lint/test_budget.py --lower`), and up only for a feature that is worth it.
"""
import collections
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUDGET = os.path.join(ROOT, "tests", "lint", "budget.txt")
LEFT_OUT = re.compile(r"\.(png|svg|gif|jpg|safetensors)$")
ONLY_TESTS = re.compile(r"^(tests/|python/tests/|scripts/(test|run_tests|mutate|pytest|tap|lint|bare))")


def weigh():
    """{folder: weight}; "all" and "only tests" among them."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise unittest.SkipTest("not a git checkout")
    lines, size = collections.Counter(), collections.Counter()
    for path in filter(None, done.stdout.split("\0")):
        full = os.path.join(ROOT, path)
        if LEFT_OUT.search(path) or not os.path.isfile(full):
            continue
        with open(full, "rb") as file:
            data = file.read()
        folder = path.split("/")[0] if "/" in path else "."
        for name in ("all", folder, *(["only tests"] if ONLY_TESTS.match(path) else [])):
            lines[name] += data.count(b"\n")
            size[name] += len(data)
    return {name: max(lines[name], size[name] // 43) for name in lines}


def budgets():
    with open(BUDGET, encoding="utf-8") as file:
        rows = [line.rsplit(None, 1) for line in file if line.strip() and not line.startswith("#")]
    return {name.strip(): int(number) for name, number in rows}


class Budget(unittest.TestCase):
    def test_no_folder_is_heavier(self):
        found, most = weigh(), budgets()
        heavier = [f"{name}: {weight}, budget {most.get(name, 0)}" for name, weight in sorted(found.items())
                   if weight > most.get(name, 0)]
        self.assertEqual(heavier, [])


def lower():
    found, most = weigh(), budgets()
    with open(BUDGET, "w", encoding="utf-8") as file:
        file.write("# Weight of each top folder at most: tests/lint/test_budget.py.\n")
        for name in sorted(found, key=lambda name: (name not in ("all", "only tests"), name)):
            weight = (found[name] + 99) // 100 * 100
            file.write(f"{name:16s} {min(weight, most.get(name, weight))}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        lower()
    else:
        unittest.main()
