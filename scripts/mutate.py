#!/usr/bin/env python3
"""Measures how many small faults in the library the tests find.

    mutate.py [--seed N] [--count N] [--tests all] [--match REGEX] [--budget SECONDS] [--out DIR]
    mutate.py --faults FILE [...]
    mutate.py --list

Faults such as `<=` in place of `<`, a constant that is one more, a condition that is always false or a statement that
is left out are drawn from the folders of FOLDERS: the same number from each, and in a folder a kind first, then one of
it, so that rare kinds come up as often as common ones. All are compiled into one build of a copy of the tracked files
(build/mutate), in which SWITCHYARD_MUTANT=n selects one. src/cuda is compiled for the emulated device. A fault that
does not compile is replaced by another one.

Each test runs once without a fault and records which faults it reaches. Then each fault is tried with the tests that
reach it, the shortest first, until one fails, crashes, or takes ten times as long as before and at least half a minute.
What may be due to a busy machine, a time or processes that wait for each other, has to happen twice.
The tests are those of `make test`, with `--tests all` all of them (SWITCHYARD_TESTS=full in the environment: in their
long form). Those of the Python package are left out, since it has a library of its own; so are those that read sources
or build the library again.

faults.json, results.jsonl and table.txt are written to DIR (build/mutate). A run that was interrupted, or has spent its
budget (7200 s), is continued by the same command. `--faults FILE` tries the faults of an earlier faults.json on the
present tree: a fault is located by its file, the text of its line and the change; one that is no longer there is "gone"
and not counted. `--list` prints every possible fault. Needs Ninja.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import glob
import hashlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import run_tests
from run_tests import ROOT
from mutate_sites import HEADER, LOG_BYTES, SELECTOR, Finder, Site, mutated

WORK = os.path.join(ROOT, "build", "mutate")
TREE, BUILD = os.path.join(WORK, "tree"), os.path.join(WORK, "build")
FOLDERS = ("src/ops", "src/cpu", "src/cuda", "src/exchange", "src/comm", "src/kernels")
SUFFIXES = (".c", ".h", ".cu", ".cuh")
LEFT_OUT = {"python", "lint", "abi", "consumer"}  # labels of CTest
UNSURE = {"mpi", "nccl", "comm", "cli", "example"}  # labels: processes or threads that wait for each other
WORKERS = os.cpu_count() or 1
LEAST_SECONDS, TIMES_LONGER = 30, 10  # a test that takes longer has found the fault
MARK = f"SWITCHYARD_MUTANT_RUN={os.getpid()}."  # in the environment of every process that a test starts
FOLDER = f"mutate{os.getpid()}."  # in the folder of temporary files: where a test runs
FAILED = re.compile(r"^not ok (?!.*# SKIP)", re.M)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def tracked(*paths):
    return subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, check=True, capture_output=True,
                          text=True).stdout.splitlines()


def find_all():
    """{folder: [site]} of the tracked files."""
    found = {folder: [] for folder in FOLDERS}
    for path in tracked(*FOLDERS):
        if path.endswith(SUFFIXES):
            found[folder_of(path)] += Finder(path, read(path)).sites
    return found


# ---- Choosing ----

def folder_of(path):
    return next(folder for folder in FOLDERS if path.startswith(folder + "/"))


def overlaps(site, others):
    return any(site.file == o.file and site.first < o.last and o.first < site.last for o in others)


def draw(sites, seed):
    """All sites of a folder in the order in which they are taken: a kind, then one of it."""
    chance, kinds = random.Random(seed), {}
    for site in sites:
        kinds.setdefault(site.kind, []).append(site)
    while kinds:
        kind = chance.choice(sorted(kinds))
        yield kinds[kind].pop(chance.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]


def choose(found, seed, count):
    """{number: site} that compile, the folders in turn."""
    compiled = configure()
    queues = {folder: draw([s for s in sites if s.file in compiled or not s.file.endswith(".c")], f"{seed} {folder}")
              for folder, sites in found.items()}
    chosen, number, folders = {}, 0, list(FOLDERS)
    while True:
        while len(chosen) < count and folders:
            folder = min(folders, key=lambda f: sum(folder_of(s.file) == f for s in chosen.values()))
            site = next((s for s in queues[folder] if not overlaps(s, chosen.values())), None)
            if site is None:
                folders.remove(folder)
                continue
            number = next(n for n in itertools.count(1) if n not in chosen)
            chosen[number] = site
        bad = build(chosen)
        if not bad:
            return chosen
        say(f"{len(bad)} of {len(chosen)} faults do not compile: others are drawn")
        for number in bad:
            del chosen[number]


def locate(found, saved):
    """({number: site}, {number: site} that are gone) of faults that an earlier run has saved."""
    by_key = {site.key(): site for sites in found.values() for site in sites}
    by_line = collections.defaultdict(list)
    for key, site in by_key.items():
        by_line[key[1:5]].append(site)
    chosen, gone = {}, {}
    for fault in saved:
        key = site_of(fault).key()
        elsewhere = by_line[key[1:5]]  # its file may have another name
        site = by_key.get(key) or (elsewhere[0] if len(elsewhere) == 1 else None)
        if site is None or overlaps(site, chosen.values()):
            gone[fault["number"]] = site_of(fault)
        else:
            chosen[fault["number"]] = site
    return chosen, gone


def build_again(found, saved):
    """Likewise, with those that do not compile any more as gone."""
    chosen, gone = locate(found, saved)
    configure()
    while bad := build(chosen):
        gone.update({number: chosen.pop(number) for number in bad})
    return chosen, gone


# ---- The build ----

def say(text):
    print(text, flush=True)


def write_tree(chosen):
    """Only files that change are written: the build has nothing to do for others."""
    contents = {f"src/{HEADER}": SELECTOR.encode()}
    for path in tracked():
        if os.path.isfile(os.path.join(ROOT, path)):
            with open(os.path.join(ROOT, path), "rb") as file:
                contents[path] = file.read()
    for path in {site.file for site in chosen.values()}:
        contents[path] = mutated(read(path), {n: s for n, s in chosen.items() if s.file == path}).encode()
    for folder, _, names in os.walk(TREE):
        for name in names:
            if os.path.relpath(os.path.join(folder, name), TREE) not in contents:
                os.remove(os.path.join(folder, name))
    for path, content in contents.items():
        copy = os.path.join(TREE, path)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "ab+") as file:
            file.seek(0)
            if file.read() != content:
                file.truncate(0)
                file.write(content)
        if path != f"src/{HEADER}":
            shutil.copymode(os.path.join(ROOT, path), copy)


def configure():
    """Writes the copy without faults; the files of C that this machine compiles."""
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        write_tree({})
        subprocess.run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "--log-level=NOTICE",
                        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DSWITCHYARD_CUDA=OFF"],
                       check=True)
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        return {os.path.relpath(entry["file"], TREE) for entry in json.load(file)}


def lines_of(site):
    text = read(site.file)
    return range(text.count("\n", 0, site.first) + 1, text.count("\n", 0, site.last) + 2)


def build(chosen):
    """The numbers of faults that do not compile, or that this machine does not compile."""
    write_tree(chosen)
    start = time.monotonic()
    done = subprocess.run(["ninja", "-C", BUILD, "-k", "0", "-j", str(WORKERS)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    say(f"build: {time.monotonic() - start:.0f} s")
    if done.returncode == 0:
        deps = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], check=True, capture_output=True, text=True).stdout
        used = {os.path.relpath(os.path.join(BUILD, path), TREE) for path in re.findall(r"^ +(\S.*)", deps, re.M)}
        return [number for number, site in chosen.items() if site.file not in used]
    lines = [line for line in done.stdout.splitlines() if TREE in line]
    for some in ([line for line in lines if " error: " in line], lines):  # the second: what was inlined where
        named = re.findall(r"(/[^\s:]+):(\d+)", "\n".join(some))
        places = {(os.path.relpath(path, TREE), int(line)) for path, line in named}
        bad = [number for number, site in chosen.items() if any((site.file, line) in places for line in lines_of(site))]
        if bad:
            return bad
    failed = set(re.findall(r"^FAILED: .*/(\w+)\.", done.stdout, re.M))
    bad = [number for number, site in chosen.items() if os.path.basename(site.file).split(".")[0] in failed]
    if not bad:
        sys.exit(f"{done.stdout[-5000:]}\nmutate: this does not compile, and no fault is the reason")
    return bad


# ---- Tests ----

def end_processes(mark):
    """What a test left running: the processes of mpirun have a session of their own."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if any(variable.startswith(mark.encode()) for variable in file.read().split(b"\0")):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def run_test(test, limit, **variables):
    """(why it failed or "", seconds)."""
    mark = f"{MARK}{threading.get_ident()}."
    folder = tempfile.mkdtemp(prefix=FOLDER)
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", TMPDIR=folder, **variables)
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env.update(pair.split("=", 1) for pair in (*test.environment, mark))
    start, why, text = time.monotonic(), "", ""
    with open(os.path.join(folder, "output"), "w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(test.command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        code = None
        while code is None and not why:
            try:
                code = process.wait(0.25)
            except subprocess.TimeoutExpired:
                output.seek(0)
                why = "a test failed" if FAILED.search(output.read()) else ""
                if time.monotonic() - start > limit:
                    why = f"ran longer than {limit:.0f} s"
        seconds = time.monotonic() - start
        if why:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    if code:
        why = run_tests.how_it_ended(code, False, seconds, 0)
    cases, announced, _ = run_tests.read_tap(test.name, [(0.0, line) for line in text.splitlines()])
    failed = next((case.name for case in cases if case.verdict == "failed"), "")
    if failed or (not why and len(cases) < announced):
        why = failed or f"only {len(cases)} of {announced} tests ran"
    if why:
        end_processes(mark)
    shutil.rmtree(folder, ignore_errors=True)
    return why, seconds


def measure(tests):
    """({test: [numbers of faults that it reaches]}, {test: seconds}) without a fault; tests that fail are left out."""
    reach, times = {}, {}

    def one(test):
        with tempfile.NamedTemporaryFile() as log:
            log.truncate(LOG_BYTES)
            why, seconds = run_test(test, 3600, SWITCHYARD_MUTANT_LOG=log.name)
            return test.name, why, seconds, [n for n, byte in enumerate(log.read(LOG_BYTES)) if byte]

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for name, why, seconds, numbers in pool.map(one, tests):
            if why:
                say(f"{name} fails without a fault ({why}), and is left out")
            else:
                reach[name], times[name] = numbers, round(seconds, 2)
    say(f"{len(reach)} tests, {sum(times.values()):.0f} s")
    return reach, times


def try_fault(number, tests, times, ends):
    """(verdict, test, why), or None when the time is spent."""
    for test in tests:
        if time.monotonic() > ends:
            return None
        limit = max(LEAST_SECONDS, TIMES_LONGER * times[test.name])
        why, seconds = run_test(test, limit, SWITCHYARD_MUTANT=str(number))
        if why and (seconds > limit or UNSURE & set(test.labels)):
            why, _ = run_test(test, limit, SWITCHYARD_MUTANT=str(number))
        if why:
            return "found", test.name, why
    return "survived", "", f"{len(tests)} tests pass" if tests else "no test comes by"


# ---- The whole ----

def site_of(fault):
    return Site(**{name: value for name, value in fault.items() if name != "number"})


def faults_of(sites):
    return [{"number": number, **dataclasses.asdict(site)} for number, site in sorted(sites.items())]


def table(faults, gone, results):
    out = [f"{'folder':14s} faults  found  survived  (not reached)  not tried"]
    rows = [(folder, [f for f in faults if f["file"].startswith(folder + "/")]) for folder in FOLDERS]
    for name, own in (*rows, ("all", faults)):
        done = [results[f["number"]] for f in own if f["number"] in results]
        survived = [r for r in done if r["verdict"] == "survived"]
        unreached = sum(r["why"].startswith("no test") for r in survived)
        out.append(f"{name:14s} {len(own):6d} {len(done) - len(survived):6d} {len(survived):9d} {unreached:14d} "
                   f"{len(own) - len(done):10d}")
    left = [f for f in faults if results.get(f["number"], {}).get("verdict") == "survived"]
    out += ["", f"Survived: {len(left)}"]
    out += [f"{f['number']:4d} {site_of(f).show()} ({results[f['number']]['why']})" for f in left]
    out += ["", f"Gone: {len(gone)}"] + [f"{f['number']:4d} {site_of(f).show()}" for f in gone]
    return "\n".join(out) + "\n"


def load(path, otherwise):
    if not os.path.exists(path):
        return otherwise
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def state_of_tree():
    paths = [path for path in tracked("src", "include", "tests") if path.endswith((*SUFFIXES, ".py", ".txt"))]
    text = "".join(f"{path}\n{read(path)}" for path in paths if not path.startswith("tests/lint/"))
    return hashlib.sha256(text.encode()).hexdigest()


def prepare(args, found, path):
    """What faults.json holds, and the build: of this run, or of an earlier one that this continues."""
    wanted = load(args.faults, {}).get("faults", []) if args.faults else []
    options = {"seed": args.seed, "count": args.count, "tests": args.tests, "match": args.match,
               "state": state_of_tree(), "faults": [site_of(fault).key() for fault in wanted]}
    options = json.loads(json.dumps(options))  # tuples as lists
    saved = load(path, {})
    if saved.get("options") == options:
        build_again(found, saved["faults"])
        return saved, False
    chosen, gone = build_again(found, wanted) if args.faults else (choose(found, args.seed, args.count), {})
    tests = [t for t in run_tests.read_ctest(BUILD) if not LEFT_OUT & set(t.labels)]
    reach, times = measure(run_tests.chosen(tests, "" if args.tests == "all" else "quick", (), args.match))
    saved = {"options": options, "faults": faults_of(chosen), "gone": faults_of(gone), "reach": reach, "times": times}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(saved, file, indent=0)
    return saved, True


def try_all(saved, results, path, ends):
    times, reach = saved["times"], saved["reach"]
    tests = sorted((t for t in run_tests.read_ctest(BUILD) if t.name in reach), key=lambda t: times[t.name])
    lock = threading.Lock()

    def one(fault):
        if time.monotonic() > ends:
            return
        start, number = time.monotonic(), fault["number"]
        answer = try_fault(number, [t for t in tests if number in reach[t.name]], times, ends)
        if answer:
            verdict, by, why = answer
            seconds = round(time.monotonic() - start, 1)
            with lock, open(path, "a", encoding="utf-8") as file:
                results[number] = dict(fault, verdict=verdict, by=by, why=why, seconds=seconds)
                file.write(json.dumps(results[number]) + "\n")
                say(f"{len(results)}/{len(saved['faults'])} {verdict} {by} ({why}) {site_of(fault).show()}")

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(one, [fault for fault in saved["faults"] if fault["number"] not in results]))


def stop(number, _):
    say(f"stopped by {signal.Signals(number).name}; the same command continues")
    end_processes(MARK)
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), f"{FOLDER}*")):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=210)
    parser.add_argument("--faults")
    parser.add_argument("--tests", choices=("quick", "all"), default="quick")
    parser.add_argument("--match", default="", help="only tests whose name has this pattern")
    parser.add_argument("--budget", type=float, default=7200, help="seconds")
    parser.add_argument("--out", default=WORK)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    ends = time.monotonic() + args.budget
    found = find_all()
    if args.list:
        for site in (site for sites in found.values() for site in sites):
            say(f"{site.kind:12s} {site.show()}")
        return 0
    os.makedirs(args.out, exist_ok=True)
    results_file = os.path.join(args.out, "results.jsonl")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A fault may allocate in an endless loop; a test of three tensors of 4 GiB does not touch them.
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
    saved, new = prepare(args, found, os.path.join(args.out, "faults.json"))
    results = {}
    if os.path.exists(results_file) and new:
        os.remove(results_file)
    elif os.path.exists(results_file):
        with open(results_file, encoding="utf-8") as file:
            results = {result["number"]: result for result in map(json.loads, file)}
    try_all(saved, results, results_file, ends)
    text = table(saved["faults"], saved["gone"], results)
    with open(os.path.join(args.out, "table.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    say(f"\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
