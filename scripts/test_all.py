#!/usr/bin/env python3
"""The checks for maintainers, after `make test`.   test_all.py [STAGE]...

One line per stage (STAGES, at the end), logs in build/test-all/, report in build/junit-all.xml, last line
`N passed, N failed, N skipped`.
"""
import concurrent.futures
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

import lint
import make_site
import python_env
import run_tests
from run_tests import ROOT, Case, rename

FUZZ_SECONDS = 30  # of all targets together
SCHEDULES = {"comm_schedule": 60000, "mpi_schedule_2": 16000, "mpi_schedule_3": 6000, "mpi_schedule_4": 3000,
             "mpi_schedule_8": 1200}  # exchanges of each program
FUZZ_MEMORY_MB = 2048
CUDA_ARCHITECTURE = "90-real"  # nvcc takes minutes for each
ASAN_PYTHON = ("binding_table", "errors", "frameworks", "mesh", "sample")
OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"


class Missing(Exception):
    """A tool that a stage needs is not on this machine."""


class Broken(Exception):
    """A build step failed; the text says how."""


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Missing(f"{tool} is not installed")


def must(*command):
    code, text = lint.run(*command)
    if code:
        raise Broken(f"{' '.join(command)}: exit status {code}\n{text[-20000:]}")
    return text


def build(preset, *targets):
    must("cmake", "--preset", preset, "--log-level=NOTICE")
    must("cmake", "--build", f"build/{preset}", *(["--target", *targets] if targets else []))
    return os.path.join(ROOT, "build", preset)


def quiet(_):
    pass


def sanitizer_runs(compiler, sanitizer, wrapper=(), env=None):
    """Whether an empty program runs: containers may forbid what a sanitizer needs from the kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "empty.c"), os.path.join(folder, "empty")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int main(void) { return 0; }\n")
        must(compiler, f"-fsanitize={sanitizer}", source, "-o", program)
        return subprocess.run([*wrapper, program], env=dict(os.environ, **(env or {})), capture_output=True,
                              check=False).returncode == 0


def more():
    """What tests/tiers.txt leaves out of `make test`, and longer runs. Most schedules are a stage of their own."""
    others = f"^(?!({'|'.join(SCHEDULES)})$)"
    return rename(run_tests.run_suites(build("release"), match=others, tier="more", show=quiet), "more")


def cuda():
    """Kernels compiled for one architecture, warnings as errors, and what their machine code promises."""
    need("nvcc")
    folder = "build/nvcc"
    must("cmake", "-S", ".", "-B", folder, "--log-level=NOTICE", "-DSWITCHYARD_CUDA=ON", "-DSWITCHYARD_WERROR=ON",
         "-DSWITCHYARD_CUDA_QUICK=ON",
         f"-DSWITCHYARD_CUDA_ARCHITECTURES={CUDA_ARCHITECTURE}",
         *(f"-DSWITCHYARD_{part}=OFF" for part in ("CLI", "COMPAT", "EXAMPLES", "MPI", "TESTS")))
    must("nice", "cmake", "--build", folder)
    library = os.path.join(ROOT, folder, "libswitchyard_cuda.so")
    return python_cases("cuda", "tests/cuda/test_registers.py", {"SWITCHYARD_CUDA_SHARED": library}, "nvcc")


def asan():
    """Leaks are checked in the C tests only, which search where memory outlives them (tests/leaks.c): a search takes seconds
    on some machines, and the command line tests start hundreds of processes. Random calls are fewer in both sanitizer builds."""
    folder = build("asan")
    base = "strict_string_checks=1:allocator_may_return_null=1:leak_check_at_exit=0:detect_leaks="
    cases, can_find_leaks = [], 1
    if not sanitizer_runs("cc", "address", env={"ASAN_OPTIONS": "detect_leaks=1"}):
        cases, can_find_leaks = [Case("leaks", "leaks", "skipped", "the leak search cannot run on this system")], 0
    parts = ((can_find_leaks, ["case", "op", "fault", "isa", "comm", "compat"], "^(?!isa_mass)"),  # bounds of sums, not of memory
             # these start hundreds of processes; the worked examples are among the first labels too, without the command line
             (0, ["cli", "example"], "^(?!cli_test_(all_to_all_bad|bench|commands|device|examples))"))
    for leaks, labels, match in parts:
        env = {"ASAN_OPTIONS": f"{base}{leaks}", "UBSAN_OPTIONS": "print_stacktrace=1", "SWITCHYARD_TESTS": "few"}
        cases += run_tests.run_suites(folder, labels, match, extra_env=env, show=quiet)
    # MPI has no frame pointers, and unloads its plugins before the search, which the storage of their threads confuses.
    env = {"ASAN_OPTIONS": f"{base}{can_find_leaks}:fast_unwind_on_malloc=0:malloc_context_size=20",
           "UBSAN_OPTIONS": "print_stacktrace=1",
           "LSAN_OPTIONS": f"use_tls=0:suppressions={ROOT}/tests/mpi/lsan.supp:print_suppressions=0"}
    cases += run_tests.run_suites(folder, ["mpi"], "_[12]$|killed|^mpi$", extra_env=env, show=quiet)
    return rename(cases + asan_python(f"{base}0"), "asan")


def asan_python(options):
    """The Python binding. Python itself is built without sanitizers, so the sanitizer's library is preloaded, and with it
    the C++ library, whose exceptions it intercepts."""
    first = [must("cc", f"-print-file-name={name}").strip() for name in ("libasan.so", "libstdc++.so")]
    reason = python_env.why_not() or ("" if all(map(os.path.isabs, first)) else "cc has no shared libasan")
    if reason:
        return [Case("python", "python", "skipped", reason)]
    folder = "build/asan-python"
    shutil.rmtree(os.path.join(ROOT, folder, "package"), ignore_errors=True)
    off = [f"-DSWITCHYARD_{part}=OFF" for part in ("CLI", "TESTS", "EXAMPLES", "MPI")]
    must("cmake", "--preset", "asan", "-B", folder, "--log-level=NOTICE", *off, "-DSWITCHYARD_PYTHON=ON",
         f"-DPython_EXECUTABLE={python_env.PYTHON}")
    must("cmake", "--build", folder, "--target", "switchyard_python")
    must("cmake", "--install", folder, "--component", "python", "--prefix", f"{folder}/package")
    package = os.path.join(ROOT, folder, "package")
    shutil.copytree("python/switchyard", f"{package}/switchyard", dirs_exist_ok=True)
    env = {"LD_PRELOAD": " ".join(first), "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1",
           "PYTHONPATH": package}
    cases = []
    for name in ASAN_PYTHON:
        command = [sys.executable, "scripts/pytest_tap.py", os.path.join(ROOT, f"python/tests/test_{name}.py")]
        cases += run_tests.run_one(run_tests.Test(f"python_{name}", command), extra_env=env)
    return cases


def tsan():
    need("clang")
    # A forked child starts threads of its own.
    env = {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0", "SWITCHYARD_TESTS": "few"}
    # The sanitizer's memory map fails on kernels with much address randomisation.
    wrapper = ["setarch", "-R"]
    if not shutil.which("setarch") or subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        wrapper = []
    if not sanitizer_runs("clang", "thread", wrapper):
        raise Missing("the thread sanitizer cannot run on this system")
    labels = ["case", "op", "fault", "comm", "compat"]  # kernels have no threads
    cases = run_tests.run_suites(build("tsan"), labels, wrapper=wrapper, extra_env=env, show=quiet)
    cases.append(Case("mpi", "tests/mpi", "skipped", "the thread sanitizer cannot see into the MPI library"))
    return rename(cases, "tsan")


def mpich():
    """Another MPI than the one of `make test`. Its processes spin while they wait, so there are few of them."""
    need("mpicc.mpich", "mpirun.mpich")
    folder = build("mpich", "tests_mpi")
    return rename(run_tests.run_suites(folder, ["mpi"], "_2$|killed", show=quiet), "mpich")


def schedules():
    """Random schedules of requests, one program after the other, since each has many processes and threads."""
    folder, cases = build("release"), []
    for name, exchanges in SCHEDULES.items():
        env = {"SWITCHYARD_EXCHANGES": str(exchanges), "SWITCHYARD_TESTS": "full"}
        cases += run_tests.run_suites(folder, match=f"^{name}$", extra_env=env, show=quiet)
    return rename(cases, "schedules")


def beside(function, values):
    """The cases of function(value), two values at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [case for cases in pool.map(function, values) for case in cases]


def bits_of(preset, emulator=()):
    folder = build(preset, "cases_shared")
    env = dict(os.environ, SWITCHYARD_CASES=os.path.join(folder, "cases_shared"), SWITCHYARD_RUN=" ".join(emulator))
    return python_cases("bits", "tests/case/test_cases.py", env, preset)


def python_cases(suite, path, env, stage):
    test = run_tests.Test(suite, [sys.executable, "scripts/tap.py", path])
    return rename(run_tests.run_one(test, extra_env={k: v for k, v in env.items() if k.startswith("SWITCHYARD_")}), stage)


def bits_native():
    def one(preset):
        try:
            need(preset.split("-")[0])
            return bits_of(preset)
        except Missing as reason:
            return [Case(f"{preset}.bits", "bits", "skipped", str(reason))]

    release = "clang-O3" if "clang" in must("cc", "--version") else "gcc-O3"  # the same flags; `make test` has compared its bits
    return beside(one, [preset for preset in ("clang-O0", "gcc-O0", "gcc-O3", "clang-O3") if preset != release])


def other_architecture():
    compiler, root = f"{OTHER}-linux-gnu-gcc", f"/usr/{OTHER}-linux-gnu"
    emulator = (f"qemu-{OTHER}", "-L", root)
    need(compiler, emulator[0])
    env = {"SWITCHYARD_CC": compiler, "SWITCHYARD_RUN": " ".join(emulator)}
    return bits_of(OTHER, emulator) + python_cases("abi", "tests/abi/test_abi.py", env, OTHER)


def fuzz():
    need("clang")
    folder = build("fuzz")
    targets = sorted(path for path in glob.glob(os.path.join(folder, "fuzz_*")) if os.access(path, os.X_OK))
    if not targets:
        raise Broken("no fuzz targets were built")
    corpus = os.path.join(folder, "corpus")
    shutil.rmtree(corpus, ignore_errors=True)
    must(sys.executable, "tests/fuzz/make_corpus.py", corpus)
    return beside(lambda target: [fuzz_one(target, corpus, FUZZ_SECONDS // len(targets))], targets)


def fuzz_one(target, corpus, seconds):
    stem = os.path.basename(target)[len("fuzz_"):]
    seeds, found = os.path.join(corpus, stem), os.path.join(corpus, stem + ".found")
    os.makedirs(seeds, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    start = time.monotonic()
    code, text = lint.run(target, f"-max_total_time={seconds}", "-seed=1", f"-rss_limit_mb={FUZZ_MEMORY_MB}", "-timeout=60",
                          "-print_final_stats=1", f"-artifact_prefix={found}/", found, seeds)
    with open(os.path.join(ROOT, "build/test-all", f"fuzz-{stem}.log"), "w", encoding="utf-8") as log:
        log.write(text)
    story = "\n".join(line for line in text.splitlines() if not re.match(r"#\d+\s|\s*NEW_FUNC", line))
    return Case("fuzz", stem, "failed" if code else "passed", story[-8000:] if code else "", time.monotonic() - start)


def bench():
    """Every full shape of every group of cases, once, against its plain loop; `make test` has the small ones."""
    command = os.path.join(build("release", "switchyard_cli"), "switchyard")

    def one(group):
        start = time.monotonic()
        code, text = lint.run("env", "OMP_WAIT_POLICY=passive", command, "bench", group, "--check")
        story = "\n".join(line for line in text.splitlines() if not line.endswith(" ok"))
        return [Case("bench", group, "failed" if code else "passed", story if code else "", time.monotonic() - start)]

    groups = sorted({line.split()[0] for line in must(command, "bench", "--list").splitlines()}, reverse=True)
    return beside(one, groups)


def wheel():
    return python_cases("python_package", "tests/python_package/test_wheel.py", {}, "wheel")


def site():
    """The documentation as a site: a dead link is an error."""
    command = os.path.join(build("release", "switchyard_cli"), "switchyard")
    start = time.monotonic()
    code, text = lint.run(sys.executable, "scripts/make_site.py", command, "build/site")
    if code == make_site.MISSING:
        raise Missing("mkdocs-material cannot be installed here")
    return [Case("site", "make site", "failed" if code else "passed", text if code else "", time.monotonic() - start)]


def vllm():
    """vLLM with its own sampler and with ours, where scripts/vllm_env.sh has installed it."""
    python = os.path.join(ROOT, "build", "vllm", "bin", "python")
    if not os.path.exists(python):
        raise Missing("scripts/vllm_env.sh has not run")
    must(python, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", ".")
    start = time.monotonic()
    code, text = lint.run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"python/tests/{name}.py" for name in (
        "test_requests", "test_vllm", "vllm_engine")))
    return [Case("vllm", "python/tests/vllm_engine.py", "failed" if code else "passed", text[-20000:] if code else "",
                 time.monotonic() - start)]


def lint_all():
    return lint.run_all(quiet, lint.TOOLS)  # the other checks are tests of `make test`


ALONE = ("more", "asan", "tsan", "mpich", "schedules", "bench", "vllm")  # use all processors, and processes that wait for each other
STAGES = {
    "more": ("the tests that make test leaves out, and longer runs", more),
    "asan": ("address and undefined-behaviour sanitizers", asan),
    "tsan": ("thread sanitizer", tsan),
    "mpich": ("MPI tests on MPICH", mpich),
    "schedules": (f"random schedules, {sum(SCHEDULES.values())} exchanges", schedules),
    "bench": ("every case of switchyard bench against its plain loop, not timed", bench),
    "bits": ("equal bits: gcc and clang, -O0 and -O3", bits_native),
    "cross": (f"equal bits and layouts on {OTHER} under qemu", other_architecture),
    "fuzz": (f"fuzzing, {FUZZ_SECONDS} s in all", fuzz),
    "cuda": (f"kernels compiled by nvcc for {CUDA_ARCHITECTURE}", cuda),
    "wheel": ("the Python package as a wheel and as a source archive", wheel),
    "site": ("the documentation as a site", site),
    "vllm": ("vLLM's engine with switchyard.vllm", vllm),
    "lint": ("lint", lint_all),
}


def run_stage(name, show):
    title, stage = STAGES[name]
    show(f"== {name}: {title}")
    start = time.monotonic()
    try:
        cases = stage()
    except Missing as reason:
        cases = [Case(name, name, "skipped", str(reason))]
    except Broken as reason:
        cases = [Case(name, "build", "failed", str(reason))]
    passed, failed, skipped = run_tests.count(cases)
    show(f"   {name} {'FAIL' if failed else 'skip' if not passed else 'ok'}: {run_tests.say(passed, failed, skipped)}, "
         f"{time.monotonic() - start:.0f} s")
    return cases


def main():
    os.chdir(ROOT)
    os.makedirs("build/test-all", exist_ok=True)
    show = lambda text: print(text, flush=True)
    start = time.monotonic()
    wanted = sys.argv[1:] or list(STAGES)
    unknown = [name for name in wanted if name not in STAGES]
    if unknown:
        show(f"unknown stage {unknown[0]}; there are {', '.join(STAGES)}")
        return 2
    everything = []
    for name in wanted:
        if name in ALONE:
            everything += run_stage(name, show)
    # The longest first.
    everything += beside(lambda name: run_stage(name, show), [name for name in reversed(wanted) if name not in ALONE])
    run_tests.show_trouble(everything, show)
    run_tests.write_junit("build/junit-all.xml", everything)
    show(run_tests.say_times(start))
    show(run_tests.say(*run_tests.count(everything)))
    return 1 if run_tests.count(everything)[1] or not everything else 0


if __name__ == "__main__":
    sys.exit(main())
