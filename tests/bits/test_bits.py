"""The results of this build, scenario by scenario, against tests/bits/expected.txt.

    SWITCHYARD_BITS=build/release/bits python3 tests/bits/test_bits.py --update

records new results; do that only together with a new sy_results_version() and a line in the CHANGELOG.
SWITCHYARD_RUN may name an emulator, SWITCHYARD_BITS_OF a header with a list X(ID, name) of the operators that count:
those of a device.
"""
import os
import re
import shlex
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "expected.txt")
BITS = os.environ.get("SWITCHYARD_BITS")
LIST = os.environ.get("SWITCHYARD_BITS_OF")


def run_bits():
    done = subprocess.run(shlex.split(os.environ.get("SWITCHYARD_RUN", "")) + [BITS], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def counting(text):
    """The lines of operators that count."""
    if not LIST:
        return text
    with open(LIST, encoding="utf-8") as file:
        names = re.findall(r"X\([A-Z_]+, (\w+)\)", file.read())
    return "".join(line + "\n" for line in text.splitlines() if line.split()[0] in names)


def of_operator(text, operator):
    return [line for line in text.splitlines() if line.startswith(operator + " ")]


@unittest.skipUnless(BITS, "SWITCHYARD_BITS names the program")
class Bits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.got = counting(run_bits())
        with open(EXPECTED, encoding="utf-8") as file:
            cls.want = counting(file.read())

    def check(self, operator):
        got, want = of_operator(self.got, operator), of_operator(self.want, operator)
        self.assertTrue(want)
        wrong = [f"{w}   expected\n{g}   found" for g, w in zip(got, want) if g != w]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertEqual(len(got), len(want))

    def test_every_line(self):
        """Those of each operator apart; an operator without recorded lines would show up as lines found."""
        for operator in dict.fromkeys(line.split()[0] for line in (self.want + self.got).splitlines()):
            with self.subTest(operator):
                self.check(operator)

    def test_scenes_are_mostly_accepted(self):
        """A table of hashes of refusals would prove nothing."""
        done = sum(int(line.split()[-4]) for line in self.got.splitlines() if line.endswith("refused"))
        refused = sum(int(line.split()[-2]) for line in self.got.splitlines() if line.endswith("refused"))
        self.assertGreater(done, 10 * refused)
        self.assertGreater(refused, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        with open(EXPECTED, "w", encoding="utf-8") as out:
            out.write(run_bits())
    else:
        unittest.main()
