#!/usr/bin/env python3
"""Starts a test program as several processes of MPI, on any machine.

    mpirun.py -n PROCESSES [--mpirun PROGRAM] PROGRAM [ARGUMENT]...

Works with more processes than processors, as root, and in containers with any network. When this
program is terminated, the job has some seconds to print its stacks.
"""
import argparse
import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile

STACK_SECONDS = 20  # for processes to print their stacks

# Processes of one machine need no network, and waiting ones yield the processor.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",  # several jobs at a time would share the first processors
    "OMPI_MCA_plm": "isolated",                    # no remote shell
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # forbidden in some containers, which Open MPI detects too late
    "OMPI_MCA_osc": "sm,pt2pt",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "PMIX_MCA_gds": "hash",
}
HYDRA = {
    "HYDRA_LAUNCHER": "fork",
    "UCX_TLS": "self,sm",
}


def environment():
    env = dict(os.environ)
    # Open MPI's jobs of one user share a folder, which one makes while another removes it.
    folder = tempfile.mkdtemp(prefix="mpi")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, value in {**OPEN_MPI, **HYDRA, "OMPI_MCA_orte_tmpdir_base": folder, "OMP_NUM_THREADS": "1"}.items():
        env.setdefault(name, value)
    return env


def start(mpirun, processes, command, **more):
    """A job in a process group of its own."""
    return subprocess.Popen([mpirun, "-n", str(processes), *command], env=environment(), stdin=subprocess.DEVNULL,
                            start_new_session=True, **more)


def wait(job, limit):
    """(exit status, whether it had to be stopped)"""
    try:
        return job.wait(limit), False
    except subprocess.TimeoutExpired:
        return stop(job), True


def stop(job):
    job.terminate()
    try:
        return job.wait(STACK_SECONDS) or 1
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        return job.wait() or 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, required=True, dest="processes")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    job = start(args.mpirun, args.processes, args.command)
    # The job is in a group of its own: who stops this program does not reach it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(stop(job)))
    code = job.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
