"""scripts/reference.py: a man page for each command and operator, with every name, that man and mandoc accept."""
import glob
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from st import CLI, OPERATORS, ROOT, CliTest

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import reference  # noqa: E402


class Man(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.man = made.name
        reference.main(CLI, cls.man)
        cls.pages = sorted(glob.glob(os.path.join(cls.man, "man*", "*.[13]")))

    def shown(self, page):
        """As a reader sees it; skipped where there is no program for it."""
        if not shutil.which("mandoc"):
            self.skipTest("mandoc is not installed")
        done = subprocess.run(["mandoc", "-Tascii", "-Owidth=1000", page], capture_output=True, text=True, check=True)
        return re.sub(".\b", "", done.stdout)

    def test_pages(self):
        names = {os.path.basename(page) for page in self.pages}
        self.assertEqual(names, {"switchyard.1", "sy_status.3", "sy_moe_dispatch_grad_data.3", *(f"sy_{op}.3" for op in OPERATORS),
                                 *(f"switchyard-{name}.1" for name in reference.COMMANDS)})
        listed = re.findall(r"^  (\S+)", self.out("help").partition("Operators:")[0], re.M)
        self.assertEqual(sorted({*reference.COMMANDS, "help"}), sorted(listed))

    def test_every_name(self):
        for op in self.json("ops")["operators"]:
            text = self.shown(os.path.join(self.man, "man3", f"sy_{op['name']}.3"))
            self.assertIn(f"sy_status sy_{op['name']}(sy_ctx *ctx, ", text)
            names, types = text[text.index("\nNAMES\n"):], reference.members(f"sy_{op['name']}_args")
            for field in op["fields"]:
                name = field["name"].partition("[")[0]
                self.assertRegex(names, rf"\n +{name}\b")
                words = field.get("words", []) if field["kind"] in ("enum", "format") else []
                for word, constant in itertools.zip_longest(words, [row[0] for row in reference.enumerators(types[name])]):
                    self.assertTrue(word is None or word.partition("|")[0] in names, word)
                    self.assertTrue(word is None or constant is None or f"({constant})" in names, constant)

    def test_every_option_of_a_command(self):
        for command in reference.COMMANDS:
            text = self.shown(os.path.join(self.man, "man1", f"switchyard-{command}.1"))
            for option in re.findall(r"--[a-z-]+", self.out(command, "--help")):
                self.assertIn(option, text)

    def test_codes(self):
        text = self.shown(os.path.join(self.man, "man3", "sy_status.3"))
        for name, number in re.findall(r"^ +(SY_(?:ERR|FAULT)_\w+) =\s+(\d+)", reference.HEADER, re.M):
            self.assertRegex(text, rf"\n +{name}\s+{number}; ")

    def test_see_also(self):
        for page in self.pages:
            with open(page, encoding="utf-8") as file:
                see = file.read().partition("SEE ALSO")[2]
            for name, section in re.findall(r"\\fB(.*?)\\fR\((\d)\)", see):
                self.assertTrue(os.path.exists(os.path.join(self.man, f"man{section}", name.replace("\\", "") + f".{section}")), name)

    def check(self, *command, **more):
        """Only what it writes about the pages counts, not the pages themselves, which man writes to its output."""
        if not shutil.which(command[0]):
            self.skipTest(f"{command[0]} is not installed")
        for page in self.pages:
            done = subprocess.run([*command, page], capture_output=True, text=True, check=False, env={**os.environ, **more})
            self.assertEqual(done.stderr + ("" if more else done.stdout), "")

    def test_mandoc(self):
        self.check("mandoc", "-T", "lint", "-W", "warning")

    def test_man(self):
        self.check("man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="80")


if __name__ == "__main__":
    unittest.main()
