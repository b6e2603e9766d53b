#!/usr/bin/env python3
"""Starts a test program as several processes of MPI, on any machine.

    mpirun.py -n PROCESSES [--mpirun PROGRAM] [--limit SECONDS] PROGRAM [ARGUMENT]...

Works with more processes than processors, as root, and in containers with any network. A job that lasts longer than the
limit is terminated, and has some seconds to print its stacks.
"""
import argparse
import os
import signal
import subprocess
import sys

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
    for name, value in {**OPEN_MPI, **HYDRA, "OMP_NUM_THREADS": "1"}.items():
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
        job.terminate()
    try:
        return job.wait(STACK_SECONDS), True
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        return job.wait(), True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, required=True, dest="processes")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    code, stopped = wait(start(args.mpirun, args.processes, args.command), args.limit)
    if stopped:
        print(f"hung: stopped after {args.limit:.0f} s", file=sys.stderr)
    return 1 if stopped else code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
