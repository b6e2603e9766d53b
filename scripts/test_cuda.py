#!/usr/bin/env python3
"""The C tests on the CUDA device of this machine.   test_cuda.py [--match REGEX] [--tool NAME]... [--build FOLDER] [-- CMAKE_ARGUMENT...]
                                                  test_cuda.py --mesh [--emulated] [--limit SECONDS] [--build FOLDER] [--python PROGRAM]

Builds into build/cuda for the GPU that nvidia-smi names, with further arguments for cmake where libraries are in unusual
places; --build names a folder that is built already. Then runs, on the device: the tests of tests/op, the cases of the operators, the worked examples with launches for 1, 3 and all multiprocessors, graphs of
calls, the recorded results of tests/case; and the examples once more, with launches for 3 multiprocessors, under
compute-sanitizer with memcheck, racecheck and initcheck, or with each --tool (none: --tool ""). Programs share the GPU by MPS
where it is installed: without it they take turns of milliseconds. Report in build/junit-cuda.xml, last line
`N passed, N failed, N skipped`.

With --mesh, which needs Open MPI and NCCL: exchanges between processes that share the GPU (test_cuda_mesh.py says which), a line of
counts for each part; what has not ended after --limit seconds has failed. --python names a program that has PyTorch and the package.
--emulated: on the emulated device and the double of NCCL, in build/release.

Without a GPU or nvcc it says so in one line and ends with 0: there is nothing that could be tested here, and the emulated
device of `make test` has run the same programs.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

import run_tests
import test_cuda_mesh
from run_tests import ROOT, Case

BUILD = os.path.join(ROOT, "build", "cuda")
TOOLS = ("memcheck", "racecheck", "initcheck")
CONTEXTS = ("ctx", "ctx_device", "ctx_threads", "describe")  # programs about contexts and CPU memory


def operators():
    """Those of the backend, from the library's list."""
    with open(os.path.join(ROOT, "src/plan/plan.h"), encoding="utf-8") as file:
        return re.findall(r"X\([A-Z_]+, (\w+)\)", file.read())


def programs():
    """Names of the tests of tests/op that can run on the device as a whole, a file each."""
    stems = (os.path.splitext(os.path.basename(path))[0] for path in sorted(glob.glob(os.path.join(ROOT, "tests/op/*.c"))))
    return [f"op_{stem}" for stem in stems if stem not in CONTEXTS]


def gpu():
    """(architecture for cmake, name) of the first GPU, or (None, why not)."""
    for tool in ("nvidia-smi", "nvcc"):
        if not shutil.which(tool):
            return None, f"{tool} is not there"
    done = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap,name", "--format=csv,noheader"], capture_output=True,
                          text=True, check=False)
    match = re.match(r"(\d+)\.(\d+), (.+)", done.stdout)
    return (f"{match[1]}{match[2]}-real", match[3]) if match else (None, "nvidia-smi finds no GPU")


def build(architecture, arguments, targets=()):
    """None, or what went wrong. targets: of exchanges between processes; without, everything else."""
    parts = ["-DSWITCHYARD_MPI=ON", "-DSWITCHYARD_NCCL=ON"] if targets else ["-DSWITCHYARD_MPI=OFF"]
    commands = (["cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release", "-DSWITCHYARD_CUDA=ON",
                 f"-DSWITCHYARD_CUDA_ARCHITECTURES={architecture}", *parts, *arguments],
                ["cmake", "--build", BUILD, "--parallel", str(os.cpu_count() or 2), *(["--target", *targets] if targets else [])])
    for command in commands:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            return Case("build", "build", "failed", f"{' '.join(command)}\n{done.stdout[-20000:]}")
    return None


def bits(folder, env):
    """tests/case/test_cases.py with the program whose calls go to the device."""
    program = os.path.join(folder, "cases")
    command = [sys.executable, os.path.join(ROOT, "scripts/tap.py"), os.path.join(ROOT, "tests/case/test_cases.py")]
    if not os.path.exists(program):
        return [Case("bits", "bits", "failed", "cases was not built: cmocka was not found")]
    more = {"SWITCHYARD_CASES": program, "SWITCHYARD_BITS_OF": os.path.join(ROOT, "src/plan/plan.h")}
    return run_tests.run_one(run_tests.Test("bits", command), extra_env={**env, **more})


def programs_of(folder, names, env, mps, show):
    """The programs, side by side by MPS, which ends all of them when a kernel of one fails: what failed runs again without."""
    pattern = lambda some: f"^({'|'.join(sorted(some))})$"
    cases = run_tests.run_suites(folder, match=pattern(names), extra_env={**env, **mps.env}, show=show)
    failed = {case.suite for case in cases if case.verdict == "failed"} if mps.env else ()
    if failed:
        show(f"again without MPS: {', '.join(sorted(failed))}")
        cases = [case for case in cases if case.suite not in failed]
        cases += run_tests.run_suites(folder, match=pattern(failed), extra_env=env, show=show)
    return cases


def sanitized(folder, tool, examples, env, show):
    if not shutil.which("compute-sanitizer"):
        return [Case(tool, tool, "skipped", "compute-sanitizer is not installed")]
    wrapper = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99"]
    filled = {"SWITCHYARD_TEST_FILLED": "1"} if tool == "initcheck" else {}  # tests/device.c says why
    return run_tests.rename(run_tests.run_suites(folder, match=examples, wrapper=wrapper, extra_env={**env, **filled}, show=show), tool)


def mesh(args, architecture, show):
    """Exchanges between processes; the exit status."""
    folder = args.build or (os.path.join(ROOT, "build", "release") if args.emulated else BUILD)
    broken = None if args.build or args.emulated else build(architecture, args.cmake, test_cuda_mesh.targets(False))
    library = os.path.join(os.path.abspath(folder), f"libswitchyard_cuda{'_emulated' if args.emulated else ''}.so")
    cases = [broken] if broken else test_cuda_mesh.run(os.path.abspath(folder), library, args.emulated, args.python, args.limit,
                                                       lambda part: re.search(args.match, part), show)
    return finish(cases, show)


def finish(cases, show):
    run_tests.show_trouble(cases, show)
    run_tests.write_junit(os.path.join(ROOT, "build", "junit-cuda.xml"), cases)
    show(run_tests.say(*run_tests.count(cases)))
    return 1 if run_tests.count(cases)[1] or not cases else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="only programs whose names match")
    parser.add_argument("--tool", action="append", help="of compute-sanitizer")
    parser.add_argument("--mesh", action="store_true", help="exchanges between processes instead")
    parser.add_argument("--emulated", action="store_true", help="with --mesh: on the emulated device")
    parser.add_argument("--limit", type=float, default=240, help="with --mesh: seconds")
    parser.add_argument("--build", help="a folder that is built already")
    parser.add_argument("--python", default=sys.executable, help="with --mesh: runs the PyTorch example")
    parser.add_argument("cmake", nargs="*", help="arguments of cmake, after --")
    args = parser.parse_args()
    show = lambda text: print(text, flush=True)
    architecture, name = (None, "") if args.mesh and args.emulated else gpu()
    if args.mesh and (architecture or args.emulated):
        return mesh(args, architecture, show)
    if not architecture:
        show(f"test-cuda: nothing was run: {name}")
        return 0
    show(f"{name}, {len(operators())} operators on the device")
    folder = os.path.abspath(args.build or BUILD)
    broken = None if args.build else build(architecture, args.cmake)
    env = {"SWITCHYARD_TESTS": "full", "SWITCHYARD_TEST_DEVICE": "cuda", "SWITCHYARD_TEST_CUDA_LIBRARY": os.path.join(folder, "libswitchyard_cuda.so")}
    cases = [broken] if broken else []
    if not broken:
        every = [*programs(), "gpu_graph", "gpu_mesh", "gpu_nucleus", *(f"{kind}_{op}" for kind in ("case", "examples") for op in operators())]
        wanted = [p for p in every if re.search(args.match, p)]
        examples = [p for p in wanted if p.startswith("examples_")]
        mps = test_cuda_mesh.Mps(True, show)
        try:
            cases += programs_of(folder, wanted, env, mps, show)
        finally:
            mps.close()
        cases += bits(folder, env) if re.search(args.match, "bits") else []
        for tool in filter(None, TOOLS if args.tool is None else args.tool):
            show(f"{tool}:")
            cases += sanitized(folder, tool, f"^({'|'.join(examples)})$", env, show) if examples else []
    return finish(cases, show)


if __name__ == "__main__":
    sys.exit(main())
