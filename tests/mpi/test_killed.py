"""A process that dies in the middle of an exchange must not leave the others waiting."""
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import mpirun

LIMIT_SECONDS = 800  # it hangs; less than the runner waits for a line
MPIRUN = os.environ.get("SWITCHYARD_MPIRUN")
PROGRAM = os.environ.get("SWITCHYARD_MPI_TESTS")
DEVICE = os.environ.get("SWITCHYARD_EMULATED_CUDA")


@unittest.skipUnless(MPIRUN and PROGRAM, "SWITCHYARD_MPIRUN and SWITCHYARD_MPI_TESTS name programs")
class Killed(unittest.TestCase):
    def check(self, processes, way):
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            job = mpirun.start(MPIRUN, processes, [PROGRAM, "killed", way], stdout=output, stderr=subprocess.STDOUT)
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

    @unittest.skipUnless(DEVICE, "SWITCHYARD_EMULATED_CUDA names a library")
    def test_on_a_device(self):
        there = {"SWITCHYARD_TEST_DEVICE": "cuda", "SWITCHYARD_TEST_CUDA_LIBRARY": DEVICE}
        for way in ("shared", "messages"):
            with self.subTest(way), unittest.mock.patch.dict(os.environ, there):
                self.check(2, way)


if __name__ == "__main__":
    unittest.main()
