"""Recorded results of the cases, and their random wrong calls.

    python3 tests/case/test_cases.py --update

records the results of fixed calls in bits.txt; do that only together with a new sy_results_version() and a line in the
CHANGELOG, or where a case makes other calls. SWITCHYARD_CASES names another program than that of build/release,
SWITCHYARD_RUN may name an emulator, SWITCHYARD_BITS_OF a header with a list X(ID, name) of the operators that count: those
of a device.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
RECORDED = os.path.join(FOLDER, "bits.txt")
PROGRAM = os.environ.get("SWITCHYARD_CASES", os.path.join(FOLDER, "../../build/release/cases_shared"))
LIST = os.environ.get("SWITCHYARD_BITS_OF")
CALLS = 2000


def run(*arguments):
    command = [*shlex.split(os.environ.get("SWITCHYARD_RUN", "")), PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def by_operator(text):
    """{operator: its line}, of those that count."""
    lines = {line.split()[0]: line for line in text.splitlines()}
    if LIST:
        with open(LIST, encoding="utf-8") as file:
            names = re.findall(r"X\([A-Z_]+, (\w+)\)", file.read())
        lines = {name: line for name, line in lines.items() if name in names}
    return lines


@unittest.skipUnless(PROGRAM, "SWITCHYARD_CASES names a program")
class Bits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.got = by_operator(run("--bits"))
        with open(RECORDED, encoding="utf-8") as file:
            cls.want = by_operator(file.read())

    def test_every_operator(self):
        self.assertEqual(list(self.got), list(self.want))
        for operator, line in self.want.items():
            with self.subTest(operator):
                self.assertEqual(self.got[operator], line)

    def test_most_calls_are_accepted(self):
        """A table of hashes of rejections would prove nothing."""
        for operator, line in self.got.items():
            match = re.search(r" (\d+) done (\d+) rejected$", line)
            if match:
                self.assertGreater(int(match[1]), int(match[2]), operator)


@unittest.skipIf(LIST or os.environ.get("SWITCHYARD_RUN"), "once is enough")
@unittest.skipUnless(PROGRAM, "SWITCHYARD_CASES names a program")
class WrongCalls(unittest.TestCase):
    """Rejected without a byte written, query and sy_infer agree, every run says the same."""

    def record(self, path, *options):
        summary = run("--record", path, "--calls", str(CALLS), *options)
        with open(path, encoding="utf-8") as file:
            return list(file), summary

    def test_two_runs_are_equal(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "calls.txt")
            lines, summary = self.record(path)
            self.assertEqual(len(lines), CALLS)
            self.assertEqual(self.record(path), (lines, summary))
            self.assertNotEqual(self.record(path, "--seed", "2")[0], lines)
            later, _ = self.record(path, "--first", "700")  # a call does not depend on those before it
            self.assertEqual(later[:CALLS - 700], lines[700:])
        for row in summary.splitlines()[1:]:
            name, calls, accepted, sentences = row.split()
            self.assertGreater(int(calls), int(accepted), name)
            self.assertGreater(int(accepted), 0, name)
            self.assertGreater(int(sentences), 5, name)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        recorded = run("--bits")
        with open(RECORDED, "w", encoding="utf-8") as out:
            out.write(recorded)
    else:
        unittest.main()
