"""A shared memory file system that is too small, as containers have it: rows travel in messages, and nothing hangs."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import mpirun

LIMIT_SECONDS = 800  # it hangs; less than the runner waits for a line
MPIRUN = os.environ.get("SWITCHYARD_MPIRUN")
PROGRAM = os.environ.get("SWITCHYARD_MPI_TESTS")
SMALL = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=24m tmpfs /dev/shm && exec "$0" "$@"']


def can_mount():
    return shutil.which("unshare") and subprocess.run([*SMALL, "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(MPIRUN and PROGRAM, "SWITCHYARD_MPIRUN and SWITCHYARD_MPI_TESTS name programs")
@unittest.skipUnless(can_mount(), "this machine lets us mount no file system of our own")
class SmallSharedMemory(unittest.TestCase):
    def check(self, processes):
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            job = subprocess.Popen([*SMALL, MPIRUN, "-n", str(processes), PROGRAM, "collective", "small"], env=mpirun.environment(),
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True)
            code, stopped = mpirun.wait(job, LIMIT_SECONDS)
            output.seek(0)
            text = output.read()
        self.assertFalse(stopped, text)
        self.assertEqual(code, 0, text)

    def test_two(self):
        self.check(2)

    def test_three(self):
        self.check(3)


if __name__ == "__main__":
    unittest.main()
