"""Text from outside (names in files, file names, arguments) never controls a terminal: it is shown with escapes, and JSON
stays JSON."""
import json
import os
import subprocess
import unittest

from st import CLI, CliTest, Tensor, encode, raw, tensor

# What is written, and what is shown.
HIDDEN = {
    "\a": r"\a", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\x1b": r"\x1b", "\x01": r"\x01", "\x7f": r"\x7f",
    "\x80": r"\u{80}", "\x9b": r"\u{9b}", "\u061c": r"\u{61c}", "\u200b": r"\u{200b}", "\u200f": r"\u{200f}",
    "\u2028": r"\u{2028}", "\u2029": r"\u{2029}", "\u202a": r"\u{202a}", "\u202e": r"\u{202e}", "\u2060": r"\u{2060}",
    "\u2066": r"\u{2066}", "\u2069": r"\u{2069}", "\ufeff": r"\u{feff}", "\U000e0041": r"\u{e0041}",
}
PLAIN = "é 漢 \U0001f600 \\n %s \xa0"
ALL = "a" + "".join(HIDDEN) + "z"
SHOWN = "a" + "".join(HIDDEN.values()) + "z"


class Text(CliTest):
    def call(self, *arguments):
        """(exit code, all that is printed), which holds no hidden character and is UTF-8."""
        done = subprocess.run([CLI, *arguments], capture_output=True, cwd=self.folder, check=False)
        text = (done.stdout + done.stderr).decode("utf-8")
        for hidden in HIDDEN:
            if hidden != "\n":
                self.assertNotIn(hidden, text)
        return done.returncode, text

    def test_tensors_and_metadata(self):
        one = tensor("U8", [1])
        for name in (*HIDDEN, PLAIN):
            self.write("x", encode({f"<{name}>": one}, {f"({name})": f"[{name}]"}))
            shown = HIDDEN.get(name, name)
            code, text = self.call("show", "x")
            self.assertEqual((code, text), (0, f"<{shown}>  U8 [1]\n    1\nmetadata ({shown}) = [{shown}]\n"))
            code, text = self.call("run", "kv_gather", "x", "out", "--block-size", "2")
            self.assertEqual(code, 2)
            self.assertIn(f"takes no tensor <{shown}> (", text)
            code, text = self.call("compare", "x", "x")
            self.assertEqual((code, text.split("  ")[0]), (0, f"<{shown}>"))

    def test_sentences_about_headers(self):
        self.write("x", raw(json.dumps({"x": {ALL: 1}}).encode()))
        code, text = self.call("show", "x")
        self.assertEqual((code, text[:58]), (2, "switchyard: x: tensor x: unknown key " + SHOWN[:21]))
        self.assertEqual(text.count("\n"), 1)

    def test_files(self):
        for name in (*HIDDEN, PLAIN):
            name = f"f{name}.x"
            shown = f"f{HIDDEN.get(name[1:-2], name[1:-2])}.x"
            self.assertEqual(self.call("show", name), (2, f"switchyard: {shown}: cannot be opened: No such file or directory\n"))
            code, text = self.call("example", "kv_gather", name)
            self.assertEqual((code, text.count(shown)), (0, 2))
            code, text = self.call("run", "kv_gather", name, f"no/{name}", "--block-size", "2")
            self.assertEqual((code, text), (2, f"switchyard: no/{shown}: cannot be written: No such file or directory\n"))
            self.write("empty", encode({"y": tensor("U8", [1])}))
            code, text = self.call("compare", name, "empty")
            self.assertEqual(code, 1)
            self.assertIn(f"only in {shown}", text)
        self.write(ALL, encode({"expert_indices": Tensor("U16", [2, 1, 1, 1, 1], bytes(4)),
                                "expert_mapping": tensor("U16", [[1, 0], [0, 1]])}))
        code, text = self.call("sim-a2a", ALL, "--hidden", "8")
        self.assertIn(SHOWN, text)

    def test_bytes_that_are_no_text(self):
        for name, shown in ((b"a\xffb", r"a\xffb"), (b"\xc0\x80", r"\xc0\x80"), (b"\xed\xa0\x80", r"\xed\xa0\x80"),
                            (b"\xe2\x80", r"\xe2\x80"), (b"\xf4\x90\x80\x80", r"\xf4\x90\x80\x80"), (b"\xf8x", r"\xf8x")):
            self.assertEqual(self.call("show", name), (2, f"switchyard: {shown}: cannot be opened: No such file or directory\n"))
            with open(os.path.join(os.fsencode(self.folder), name), "wb") as file:
                file.write(encode({"x": tensor("U8", [1])}))
            code, text = self.call("compare", "--json", name, name)
            self.assertEqual(code, 0)
            self.assertIn("\ufffd", json.loads(text)["evaluated"])

    def test_arguments(self):
        for line in ([ALL], ["run", ALL], ["run", "kv_gather", "a", "b", ALL], ["run", "kv_gather", f"--{ALL}"],
                     ["run", "kv_gather", "--block-size", ALL], ["run", "kv_slots", f"--pad={ALL}"], ["help", ALL],
                     ["help", "run", ALL], ["--isa", ALL, "info"], ["--threads", ALL, "info"], ["info", ALL],
                     ["example", ALL, "x"], ["compare", "--metric", ALL, "a", "b"], ["compare", "--tol", ALL, "a", "b"],
                     ["compare", f"--{ALL}", "a", "b"], ["bench", ALL], ["bench", f"--{ALL}"], ["demo", f"--{ALL}"],
                     ["sim-a2a", f"--{ALL}"], ["sim-a2a", "--k", ALL]):
            with self.subTest(line):
                code, text = self.call(*line)
                self.assertEqual(code, 2, text)
                self.assertIn(SHOWN[:12], text)

    def test_json(self):
        for name in (*HIDDEN, PLAIN, '"\\'):
            self.write("x", encode({name: tensor("U8", [1])}))
            code, text = self.call("compare", "--json", "x", "x")
            self.assertEqual((code, json.loads(text)["results"][0]["tensor"]), (0, name))

    def test_long_names_are_cut_between_characters(self):
        self.write("x", encode({"\u202e" * 100: tensor("U8", [1]), "é" * 300: tensor("U8", [1])}))
        _, text = self.call("show", "x")
        first, _, second, _ = text.splitlines()
        self.assertRegex(first, r"^(\\u\{202e\})+\.\.\.  U8 \[1\]$")
        self.assertRegex(second, r"^é+\.\.\.  U8 \[1\]$")


if __name__ == "__main__":
    unittest.main()
