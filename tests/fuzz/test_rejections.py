"""Wrong calls of every operator: rejected without a byte written, query and sy_infer agree, every run says the same."""
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("SWITCHYARD_REJECTIONS")
CALLS = 2000


@unittest.skipUnless(PROGRAM, "SWITCHYARD_REJECTIONS names a program")
class Rejections(unittest.TestCase):
    def record(self, path, *options):
        job = subprocess.run([PROGRAM, "--calls", str(CALLS), "--out", path, *options], capture_output=True, text=True)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        with open(path, encoding="utf-8") as file:
            return list(file), job.stdout

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
            name, calls, accepted, rejected, sentences = row.split()
            self.assertEqual(int(calls), int(accepted) + int(rejected))
            self.assertGreater(int(accepted), 0, name)
            self.assertGreater(int(sentences), 5, name)


if __name__ == "__main__":
    unittest.main()
