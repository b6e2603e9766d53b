"""all_to_all_dispatch and all_to_all_combine as their definitions read, on lists; and runs of the command line on them,
in one process and in several. Shares nothing with the C code."""
import os
import shutil
import subprocess
import sys
import unittest

from st import CLI, ROOT, CliTest, tensor

NONE = -1  # no expert; all bits set in files


class Mesh:
    """R x C devices and the groups of an axis (None, 0, 1)."""

    def __init__(self, rows, cols, axis=None):
        self.rows, self.cols, self.axis, self.devices = rows, cols, axis, rows * cols

    def group(self, d):
        """Devices of d's group by position."""
        if self.axis == 0:
            return [r * self.cols + d % self.cols for r in range(self.rows)]
        if self.axis == 1:
            return [d // self.cols * self.cols + c for c in range(self.cols)]
        return list(range(self.devices))

    def options(self):
        return ["--mesh", f"{self.rows}x{self.cols}"] + ([] if self.axis is None else ["--cluster-axis", self.axis])


def order(counts, batch, dim, flat):
    """(position, token) of every row of a group, given the tokens of each position."""
    rows = [(p, n) for p, count in enumerate(counts) for n in range(count)]
    if dim == 1 or flat:
        return rows
    s = counts[0] // batch
    return sorted(rows, key=lambda row: (row[1] // s, row[0], row[1] % s))


def live_slots(chosen):
    """Slots whose expert no earlier slot names."""
    return [k for k, e in enumerate(chosen) if e != NONE and e not in chosen[:k]]


def dispatch(mesh, hosts, rows, chosen, batch=1, dim=1, flat=False):
    """Per device: (row or None, chosen) of every token of its group, and where each came from."""
    out = []
    for d in range(mesh.devices):
        group = mesh.group(d)
        where = order([len(chosen[s]) for s in group], batch, dim, flat)
        table = [chosen[group[p]][n] for p, n in where]
        sent = [rows[group[p]][n] if any(d in hosts[e] for e in c if e != NONE) else None
                for (p, n), c in zip(where, table)]
        out.append((sent, table, where))
    return out


def local_experts(hosts, d):
    return [e for e, devices in enumerate(hosts) if d in devices]


def combine(mesh, hosts, results, chosen, batch=1, dim=1, flat=False, local_reduce=False):
    """Per device [K][N] of rows or None; results[d](expert or None, row of the group) is what a device holds."""
    out = []
    for d in range(mesh.devices):
        group = mesh.group(d)
        where = order([len(chosen[s]) for s in group], batch, dim, flat)
        k_slots = len(chosen[d][0]) if chosen[d] else 0
        mine = [[None] * len(chosen[d]) for _ in range(k_slots)]
        for t, (p, n) in enumerate(where):
            if group[p] != d:
                continue
            slots = [k for k in live_slots(chosen[d][n]) if set(hosts[chosen[d][n][k]]) & set(group)]
            if not local_reduce:
                for k in slots:
                    e = chosen[d][n][k]
                    mine[k][n] = results[next(q for q in group if q in hosts[e])](e, t)
                continue
            for q in group:
                held = [(chosen[d][n][k], k) for k in slots if q in hosts[chosen[d][n][k]]]
                if held:
                    mine[min(held)[1]][n] = results[q](None, t)
        out.append(mine)
    return out


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
            lines = [line for line in done.stderr.splitlines(True) if line.startswith("switchyard:")]
            self.assertEqual((done.returncode, lines), (1, [one.err]), done.stderr)
            self.assertEqual(os.listdir(self.folder), ["in.safetensors"])


needs_mpi = unittest.skipUnless(HAS_MPI, "no switchyard-mpi in this build, or no mpirun")
