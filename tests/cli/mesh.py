"""Runs of the command line on a mesh, in one process and in several."""
import os
import shutil
import subprocess
import sys
import unittest

from st import CLI, ROOT, CliTest, tensor

NONE = -1  # no expert; all bits set in files


def mapping_tensor(hosts, devices, form=0):
    table = [[int(d in h) for d in range(devices)] for h in hosts]
    return tensor("U16", (table, [[table]], [[table]] * devices)[form])


def index_tensor(values, dtype="U16", shape=None):
    def bits(v):
        return [bits(x) for x in v] if isinstance(v, list) else 65535 if v == NONE and dtype == "U16" else v
    return tensor(dtype, bits(values), shape)


MPIRUN = os.environ.get("SWITCHYARD_MPIRUN") or shutil.which("mpirun")
HAS_MPI = os.path.exists(CLI + "-mpi") and bool(MPIRUN)


class MeshTest(CliTest):
    def mpirun_lines(self, *lines):
        """A process for each line, a list of arguments."""
        rest = [word for line in lines[1:] for word in (":", "-n", "1", CLI, *map(str, line))]
        return self.mpirun(1, *lines[0], *rest)

    def mpirun(self, ranks, *arguments, env=None, program=CLI):
        """The same line in many processes."""
        # The MPI library never frees everything.
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", **(env or {}))
        return subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "mpirun.py"), "-n", str(ranks), "--mpirun", MPIRUN,
                               program, *map(str, arguments)], capture_output=True, text=True,
                              cwd=self.folder, env=environment, check=False)

    def said(self, done):
        """Lines of ours: an MPI library may have its own remarks on stderr."""
        return [line for line in done.stderr.splitlines() if line.startswith("switchyard:")]

    def everywhere(self, ranks, op, tensors, *options):
        """The output of one process, after that of many has been found to be the same bytes."""
        result = self.ok(op, tensors, *options)
        if HAS_MPI:
            one = self.read("out.safetensors")
            os.unlink(self.path("out.safetensors"))
            done = self.mpirun(ranks, "run", op, "in.safetensors", "out.safetensors", *options)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertNotIn("switchyard", done.stderr)
            self.assertEqual(self.read("out.safetensors"), one)
        return result

    def rejected_everywhere(self, ranks, op, tensors, *options, status, says=""):
        """The same status and the same sentence, once, and no file."""
        one = self.rejected(op, tensors, *options, status=status, says=says)
        if HAS_MPI:
            done = self.mpirun(ranks, "run", op, "in.safetensors", "out.safetensors", *options)
            self.assertEqual((done.returncode, self.said(done)), (1, [one.err.rstrip("\n")]), done.stderr)
            self.assertEqual(os.listdir(self.folder), ["in.safetensors"])


needs_mpi = unittest.skipUnless(HAS_MPI, "no switchyard-mpi in this build, or no mpirun")
