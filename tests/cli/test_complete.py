"""What the shells complete: switchyard complete, and the scripts of cli/complete in the shells that are installed."""
import os
import shutil
import subprocess
import unittest

from st import CLI, OPERATORS, ROOT, CliTest

SCRIPTS = os.path.join(ROOT, "cli", "complete")


class Complete(CliTest):
    def words(self, *line):
        return [row.partition("\t")[0] for row in self.out("complete", "--", *line).splitlines()]

    def test_commands(self):
        listed = [row.split()[0] for row in self.out("help").partition("Commands:")[2].partition("\n\n")[0].splitlines() if row]
        self.assertEqual(self.words(""), listed)
        self.assertEqual(self.words("co"), ["compare"])
        self.assertIn("--version", self.words("-"))
        self.assertNotIn("complete", self.out("help"))

    def test_operators(self):
        for command in ("run", "help", "example", "bench"):
            self.assertEqual(self.words(command, ""), OPERATORS)
        self.assertEqual(self.words("--threads", "2", "run", "kv_b"), ["kv_blocks"])
        self.assertEqual(self.words("show", ""), [])
        self.assertEqual(self.words("run", "kv_blocks", ""), [])  # files
        self.assertIn("\tcopy whole blocks", self.out("complete", "--", "run", "kv_b"))

    def test_options(self):
        for op in self.json("ops")["operators"]:
            found = self.words("run", op["name"], "in", "out", "--")
            self.assertIn("--threads", found)
            self.assertEqual(len(found), len(set(found)))
            for field in op["fields"]:
                option = "--" + field["name"].replace("_", "-").replace("logprob-mode", "logprob")
                if f"\n  {option} " in self.out("help", op["name"]):
                    self.assertIn(option, found)
                if f"\n  {option} " in self.out("help", op["name"]) and field["kind"] != "tensor":
                    words = [word.rpartition("|")[2] for word in field.get("words", []) if word]
                    self.assertEqual(self.words("run", op["name"], option, ""), words if len(words) > 1 else [])
        self.assertEqual(self.words("sim-a2a", "--type", ""), ["bf16", "fp8"])
        self.assertEqual(self.words("bench", "--th"), ["--threads"])
        self.assertEqual(self.words("run", "kv_gather", "--block-size", ""), [])
        self.assertEqual(self.words("run", "kv_gather", "--help", "in", "--pa"), ["--pad"])
        self.assertEqual(self.words("run", "kv_gather", "--isa", "sc"), ["scalar"])

    def shell(self, *command):
        if not shutil.which(command[0]):
            self.skipTest(f"{command[0]} is not installed")
        path = os.path.dirname(CLI) + os.pathsep + os.environ["PATH"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=SCRIPTS,
                              env={**os.environ, "PATH": path, "HOME": self.folder})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_bash(self):
        start = ". ./switchyard.bash; COMP_WORDS=(switchyard {}); COMP_CWORD={}; _switchyard switchyard; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        for words, wanted in ((["run", "kv_b"], ["kv_blocks"]), (["run", "kv_gather", "--pad", ""], ["error", "zero", "skip"]),
                              (["show", ""], [""])):
            line = " ".join(f"'{word}'" for word in words)
            self.assertEqual(self.shell("bash", "--norc", "-c", start.format(line, len(words))), wanted)
        self.assertEqual(self.shell("bash", "--norc", "-c", ". ./switchyard.bash; complete -p switchyard"),
                         ["complete -o bashdefault -o default -F _switchyard switchyard"])

    def test_zsh(self):
        """Its functions are replaced: those need a terminal."""
        start = "_describe() { print -l $found }; _files() { print files }; words=(switchyard {}); CURRENT={}; f() { . ./_switchyard }; f"
        for line, wanted in (("run kv_b", ["kv_blocks:copy whole blocks of a paged KV cache, within it or to another"]),
                             ("run kv_gather --pad z", ["zero"]), ("show ''", ["files"])):
            text = start.replace("{}", line, 1).replace("{}", str(len(line.split()) + 1), 1)
            self.assertEqual(self.shell("zsh", "-f", "-c", text), wanted)

    def test_fish(self):
        for line, wanted in (("run kv_b", ["kv_blocks\tcopy whole blocks of a paged KV cache, within it or to another"]),
                             ("run kv_gather --pad z", ["zero"]), ("show switchyard.f", ["switchyard.fish"])):
            found = self.shell("fish", "--no-config", "-c", f"source switchyard.fish; complete -C 'switchyard {line}'")
            self.assertEqual([row.rstrip() for row in found], wanted)


if __name__ == "__main__":
    unittest.main()
