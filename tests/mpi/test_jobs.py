"""Jobs in a bad place: one whose process dies in the middle of an exchange must not leave the others waiting; where the shared memory
file system is too small, as containers have it, rows travel in messages, and nothing hangs."""
import os
import shutil
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
SMALL = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=24m tmpfs /dev/shm && exec "$0" "$@"']


def can_mount():
    return shutil.which("unshare") and subprocess.run([*SMALL, "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(MPIRUN and PROGRAM, "SWITCHYARD_MPIRUN and SWITCHYARD_MPI_TESTS name programs")
class Jobs(unittest.TestCase):
    def run_job(self, start):
        """Exit code and output of the job that start(output) begins."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            code, stopped = mpirun.wait(start(output), LIMIT_SECONDS)
            output.seek(0)
            text = output.read()
        self.assertFalse(stopped, text)
        return code, text

    def check_killed(self, processes, way):
        code, text = self.run_job(lambda output: mpirun.start(MPIRUN, processes, [PROGRAM, "killed", way], stdout=output,
                                                              stderr=subprocess.STDOUT))
        self.assertIn("all processes exchange", text)
        self.assertNotEqual(code, 0, text)

    def test_killed_in_shared_memory(self):
        self.check_killed(3, "shared")

    def test_killed_in_messages(self):
        self.check_killed(3, "messages")

    @unittest.skipUnless(DEVICE, "SWITCHYARD_EMULATED_CUDA names a library")
    def test_killed_on_a_device(self):
        there = {"SWITCHYARD_TEST_DEVICE": "cuda", "SWITCHYARD_TEST_CUDA_LIBRARY": DEVICE}
        for way in ("shared", "messages"):
            with self.subTest(way), unittest.mock.patch.dict(os.environ, there):
                self.check_killed(2, way)

    @unittest.skipUnless(can_mount(), "this machine lets us mount no file system of our own")
    def test_little_shared_memory(self):
        for processes in (2, 3):
            command = [*SMALL, MPIRUN, "-n", str(processes), PROGRAM, "collective", "small"]
            code, text = self.run_job(lambda output, command=command: subprocess.Popen(
                command, env=mpirun.environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True))
            self.assertEqual(code, 0, text)


if __name__ == "__main__":
    unittest.main()
