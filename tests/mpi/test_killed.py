"""A process that dies in the middle of an exchange must not leave the others waiting."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import mpirun

LIMIT_SECONDS = 60
MPIRUN = os.environ.get("SWITCHYARD_MPIRUN")
PROGRAM = os.environ.get("SWITCHYARD_MPI_KILLED")


@unittest.skipUnless(MPIRUN and PROGRAM, "SWITCHYARD_MPIRUN and SWITCHYARD_MPI_KILLED name programs")
class Killed(unittest.TestCase):
    def check(self, processes, way):
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            job = mpirun.start(MPIRUN, processes, [PROGRAM, way], stdout=output, stderr=subprocess.STDOUT)
            code, stopped = mpirun.wait(job, LIMIT_SECONDS)
            output.seek(0)
            text = output.read()
        self.assertFalse(stopped, text)
        self.assertIn("all processes exchange", text)
        self.assertNotEqual(code, 0, text)

    def test_shared_memory(self):
        self.check(3, "shared")

    def test_messages(self):
        self.check(3, "messages")


if __name__ == "__main__":
    unittest.main()
