#!/usr/bin/env python3
"""Static checks.   lint.py [--format]

clang-format, clang-tidy, cppcheck, shellcheck (where present), ruff and mypy (from build/venv) and the tests of
tests/lint and tests/abi, which need no extra tool and also run in `make test`. `--format` rewrites the sources with
clang-format and ruff instead.
"""
import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys

import python_env
import run_tests
from run_tests import ROOT, Case

# How many states the analyzer visits in a function: a tenth of its default, which takes six times as long in all.
PATHS = [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=20000")]
FOLDERS = ("include", "src", "transports", "compat", "cli", "bench", "examples", "integrations", "python", "tests")
C_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")
PYTHON_FOLDERS = ("python", "examples/python", "examples/compat")  # the package; build scripts must also run on older Python versions


def c_files(suffixes, folders=FOLDERS):
    return sorted(path for folder in folders for path in glob.glob(f"{folder}/**/*", recursive=True, root_dir=ROOT)
                  if path.endswith(suffixes))


def formatted_files():
    return c_files(C_SUFFIXES)


def run(*command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def one_case(tool, command, name=None):
    if not shutil.which(command[0]):
        return Case("lint", name or tool, "skipped", f"{command[0]} is not installed")
    code, text = run(*command)
    return Case("lint", name or tool, "failed" if code else "passed", text if code else "")


def formatting():
    return [one_case("clang-format", ["clang-format", "--dry-run", "-Werror", *formatted_files()])]


def tidy():
    """One case per file. The flags are clang's, from a build folder that is configured only."""
    if not shutil.which("clang-tidy"):
        return [Case("lint", "clang-tidy", "skipped", "clang-tidy is not installed")]
    binding = "OFF" if python_env.why_not() else "ON"
    code, text = run("cmake", "--preset", "lint", "--log-level=NOTICE", f"-DSWITCHYARD_PYTHON={binding}",
                     f"-DPython_EXECUTABLE={python_env.PYTHON}")
    if code:
        return [Case("lint", "clang-tidy", "failed", text)]
    files = [path for path in c_files((".c", ".cpp")) if not path.startswith(("tests/fuzz/", "tests/consumer/"))]
    with open(os.path.join(ROOT, "build/lint/compile_commands.json"), encoding="utf-8") as commands:
        built = {os.path.relpath(entry["file"], ROOT) for entry in json.load(commands)}
    may_be_missing = ("src/kernels/", "examples/", "integrations/", "transports/", "bench/mpi/", "cli/main/", "tests/mpi/", "tests/nccl/",
                      "python/")
    foreign = [path for path in files if path.startswith(may_be_missing) and path not in built]
    files = [path for path in files if path not in foreign]
    with concurrent.futures.ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        cases = list(pool.map(lambda path: one_case("clang-tidy", ["clang-tidy", "-p", "build/lint", "--quiet", *PATHS, path],
                                                    f"clang-tidy {path}"), files))
    return cases + [Case("lint", f"clang-tidy {path}", "skipped", "not built on this machine") for path in foreign]


def cppcheck():
    includes = [f"-I{folder}" for folder in sorted(glob.glob("compat/*/include", root_dir=ROOT))]
    return [one_case("cppcheck", [
        "cppcheck", "--quiet", "--std=c11", "--enable=warning,performance,portability", "--inline-suppr",
        "--error-exitcode=1", "--suppress=missingIncludeSystem", "-j", str(max(1, os.cpu_count() or 1)),
        "-I", "include", "-I", "src", "-I", "cli", "-I", ".", "-I", "build/lint/bench",
        *includes, *c_files((".c",), ("src", "transports", "compat", "cli", "bench", "examples", "integrations", "python"))])]


def venv_tool(name, *arguments):
    """The command of a tool in the venv; its bare name if the venv lacks it, so that it is reported as missing."""
    path = os.path.join(os.path.dirname(python_env.PYTHON), name)
    return [path if os.path.exists(path) else name, *arguments]


def python():
    folders = [folder for folder in PYTHON_FOLDERS if os.path.isdir(os.path.join(ROOT, folder))]
    return [one_case("ruff", venv_tool("ruff", "check", *folders), "ruff check"),
            one_case("ruff", venv_tool("ruff", "format", "--check", *folders), "ruff format"),
            mypy()]


def mypy():
    """The package's types are partly those of PyTorch."""
    if python_env.why_not() or run(python_env.PYTHON, "-c", "import torch")[0]:
        return Case("lint", "mypy", "skipped", "PyTorch is not installed")
    return one_case("mypy", venv_tool("mypy"), "mypy")


def shell():
    return [one_case("shellcheck", ["shellcheck", ".ci/run", *sorted(glob.glob("scripts/*.sh", root_dir=ROOT))])]


def structure():
    return run_tests.run_suites(os.path.join(ROOT, "build/release"), ["lint", "abi"], show=lambda text: None)


TOOLS = (("clang-tidy", tidy), ("cppcheck", cppcheck), ("clang-format", formatting), ("ruff and mypy", python),
         ("shellcheck", shell))
STEPS = (*TOOLS, ("structure, headers, exports, ABI", structure))


def run_all(show, steps=STEPS):
    cases = []
    for name, step in steps:
        found = step()
        _, failed, skipped = run_tests.count(found)
        show(f"  {'FAIL' if failed else 'skip' if skipped == len(found) else 'ok  '} {name}")
        cases += found
    return cases


def main():
    os.chdir(ROOT)
    if "--format" in sys.argv[1:]:
        code, _ = run(*venv_tool("ruff", "format", *PYTHON_FOLDERS)) if not python_env.why_not() else (0, "")
        return subprocess.run(["clang-format", "-i", *formatted_files()], check=False).returncode or code
    show = lambda text: print(text, flush=True)
    cases = run_all(show)
    run_tests.show_trouble(cases, show)
    show(run_tests.say(*run_tests.count(cases)))
    return 1 if run_tests.count(cases)[1] else 0


if __name__ == "__main__":
    sys.exit(main())
