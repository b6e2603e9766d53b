"""For `test_cuda.py --mesh`: exchanges of device tensors on one GPU, in one process and between several.

Parts: a mesh inside one process; the programs of tests/mpi that move tensors, with 2 and 4 processes that map each other's memory (IPC) or
send messages; the same over NCCL with 2 and 4 ranks, each of which seems to be on a machine of its own; processes that are killed or
stopped; the PyTorch example. All of them compare with the same oracle, every rejection is made by one process alone, and all of a
part runs side by side as far as there are processors. Processes that share a GPU take turns of milliseconds, so MPS is used
where it is installed, except for processes that are killed, which would take others with them.
"""
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

import mpirun
import run_tests
from run_tests import ROOT, Case

LOCAL = {"cuda_mesh": ("tests_cuda", "mesh"), "op_mesh": ("tests_op", "mesh"),
         "cases": ("cases", "all_to_all_dispatch", "all_to_all_combine")}  # programs with their arguments
# Tests of ranks: numbers of processes, and into how many jobs their tests are divided.
SHARED = {"all_to_all": ((2, 4), 6), "collective": ((2, 4), 2), "schedule": ((2, 4), 3)}
OVER_MPI = {**SHARED, "device": ((2, 4), 4)}
OVER_NCCL = {**SHARED, "create": ((2, 4), 2), "bytes": ((2, 4), 1)}
QUEUES, MOST_QUEUES = 4, 64  # of the GPU: of a process of NCCL, and of all at a time: MPS has some 96


@dataclass
class Job:
    name: str
    processes: int
    command: list
    env: dict = field(default_factory=dict)
    killed: bool = False  # the launcher ends with an error, and soon


def nccl_name(emulated):
    return "nccl" if emulated else "gpu_nccl"


def targets(emulated):
    """What has to be built."""
    return [*(command[0] for command in LOCAL.values()), "tests_mpi", f"tests_{nccl_name(emulated)}",
            "switchyard_cuda_emulated" if emulated else "switchyard_cuda"]


def mpi_command(processes, program, *arguments):
    return [sys.executable, os.path.join(ROOT, "scripts/mpirun.py"), "-n", str(processes), program, *arguments]


def shards(prefix, tests, processes, command, env):
    """Jobs of the tests that run with so many processes; command(name): what one executes."""
    for name, (numbers, n) in tests.items():
        for i in range(n if processes in numbers else 0):
            yield Job(f"{prefix}_{name}_{processes}" + (f", part {i + 1}" if n > 1 else ""), processes, command(name),
                      {**env, "SWITCHYARD_TEST_PART": f"{i}/{n}"})


def ranks_jobs(build, emulated):
    """[(part, jobs)] of programs with several processes."""
    mpi, nccl = os.path.join(build, "tests_mpi"), os.path.join(build, f"tests_{nccl_name(emulated)}")
    parts = [(f"IPC, {n} processes", list(shards("mpi", OVER_MPI, n, lambda name, n=n: mpi_command(n, mpi, name, str(n)), {})))
             for n in (2, 4)]
    for n in (2, 4):
        # Kernels of several communicators have queues of their own: under MPS a process has two unless it asks for more.
        env = {"SWITCHYARD_RANKS": str(n), "CUDA_DEVICE_MAX_CONNECTIONS": str(QUEUES)}
        parts.append((f"NCCL, {n} ranks", list(shards(nccl_name(emulated), OVER_NCCL, n, lambda name: [nccl, name], env))))
    return parts


def killed_jobs(build, emulated):
    jobs, name = [], nccl_name(emulated)
    for how in ("kill", "stop"):
        for way in ("shared", "messages"):
            jobs.append(Job(f"mpi_killed {way} {how}", 2, [os.path.join(build, "tests_mpi"), "killed", way, how], {}, True))
        for processes, when in itertools.product((2, 4), ("header", "rows")):
            command = [os.path.join(build, f"tests_{name}"), "killed", when, how]
            jobs.append(Job(f"{name}_killed_{processes} {when} {how}", processes, command, {"SWITCHYARD_RANKS": str(processes)}))
    return jobs


def run_killed(job, env, limit):
    """One of the processes dies or stops: the others end soon, and with an error."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        begin = time.monotonic()
        started = subprocess.Popen(["mpirun", "-n", str(job.processes), *job.command], env={**mpirun.environment(), **env},
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        code, stopped = mpirun.wait(started, limit)
        output.seek(0)
        text = output.read()
    good = not stopped and code != 0 and "all processes exchange" in text
    return [Case(job.name, job.name, "passed" if good else "failed", "" if good else f"exit status {code}\n{text}",
                 time.monotonic() - begin)]


def run_part(name, jobs, env, deadline, slots, show):
    """All jobs, as many at a time as there are processors for their processes. One line with the counts."""
    free, turn, results, begin = [slots], threading.Condition(), {}, time.monotonic()

    def work(number, job):
        own = min(job.processes, slots)
        with turn:
            turn.wait_for(lambda: free[0] >= own)
            free[0] -= own
        left = deadline - time.monotonic()
        if left < 1:
            found = [Case(job.name, job.name, "failed", "not begun: out of time")]
        elif job.killed:
            found = run_killed(job, {**env, **job.env}, left)
        else:
            found = run_tests.run_one(run_tests.Test(job.name, job.command), extra_env={**env, **job.env}, silent_seconds=left)
        with turn:
            results[number] = found
            free[0] += own
            turn.notify_all()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cases = [case for number in sorted(results) for case in results[number]]
    for case in cases:
        case.suite = f"{name}: {case.suite}"
    show(f"{name}: {run_tests.say(*run_tests.count(cases))}, {time.monotonic() - begin:.1f} s")
    return cases


class Mps:
    """The daemon that lets processes use a GPU at the same time, where it is installed."""

    def __init__(self, wanted, show):
        self.folder, self.env = None, {}
        if not wanted or not shutil.which("nvidia-cuda-mps-control"):
            show("without MPS" if wanted else "an emulated device")
            return
        self.folder = tempfile.mkdtemp()
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}
        done = subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.env}, check=False)
        show(f"with MPS, which started with status {done.returncode}")

    def close(self):
        if self.folder:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env={**os.environ, **self.env}, timeout=20,
                           check=False)
            shutil.rmtree(self.folder, ignore_errors=True)


def example(python, env, deadline, show):
    """examples/python/expert_parallel_torch.py, where PyTorch and the package are installed."""
    can = subprocess.run([python, "-c", "import torch, switchyard.mesh"], capture_output=True, text=True, check=False)
    if can.returncode:
        why = (can.stderr.strip().splitlines() or ["it cannot be imported"])[-1]
        show(f"example: 0 passed, 0 failed, 1 skipped: {why}")
        return [Case("example", "expert_parallel_torch.py", "skipped", why)]
    command = [python, os.path.join(ROOT, "examples/python/expert_parallel_torch.py")]
    return run_part("example", [Job(f"expert_parallel_torch.py {n}", n, [*command, str(n)]) for n in (2, 4)], env, deadline, 4, show)


def run(build, library, emulated, python, limit, match, show):
    """All parts whose names match; the cases."""
    deadline, slots, cases = time.monotonic() + limit, os.cpu_count() or 2, []
    env = {"SWITCHYARD_TEST_DEVICE": "cuda", "SWITCHYARD_TEST_CUDA_LIBRARY": library,
           "SWITCHYARD_EXCHANGES": os.environ.get("SWITCHYARD_EXCHANGES", "300"),
           "NCCL_MAX_NCHANNELS": "2"}  # kernels of NCCL wait for each other: those of all programs must fit the GPU
    parts = [("local mesh", [Job(name, 1, [os.path.join(build, command[0]), *command[1:]]) for name, command in LOCAL.items()]), *ranks_jobs(build, emulated)]
    mps = Mps(not emulated, show)
    try:
        for name, jobs in parts:
            most = MOST_QUEUES // QUEUES if name.startswith("NCCL") and not emulated else slots
            if match(name):
                cases += run_part(name, jobs, {**env, **mps.env}, deadline, min(slots, most), show)
    finally:
        mps.close()
    if match("killed and stopped"):
        cases += run_part("killed and stopped", killed_jobs(build, emulated), env, deadline, slots, show)
    if match("example"):
        cases += example(python, {}, deadline, show)
    return cases
