#!/usr/bin/env python3
"""Runs the tests of one build folder and counts single tests.

    run_tests.py BUILD [--tier TIER] [--label NAME]... [--match REGEX] [--junit FILE] [--list]

The list is CTest's; tests/tiers.txt assigns tiers. `quick` is what `make test` runs, `more` is what `make test-all`
adds: the tests that are not quick (SWITCHYARD_TESTS=full), and more of some that are (SWITCHYARD_TESTS=more). Tests of a program that
prints TAP (cmocka can, scripts/tap.py does) are counted one by one, any other program is one test. A program that
crashes, omits tests, or prints nothing for 15 minutes is a failure. The last line is `N passed, N failed, N skipped`;
the exit status is 1 when anything failed. `--list` prints the names with their tiers and runs nothing.
"""
import argparse
import concurrent.futures
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
TIERS = os.path.join(ROOT, "tests", "tiers.txt")
PLAN = re.compile(r"1\.\.(\d+)\s*$")
MANY = 12  # at most this many tests that are skipped for one reason are named
TEXT_LINES = 40  # of a failed test are shown; the report has all
SLOWEST = 10  # programs are listed at the end
SILENT_SECONDS = 900  # without a line of output: it hangs
STACK_SECONDS = 30  # for a program that hangs to print where, once it is told to stop
BECAUSE = "# because: "  # the reason of the next skipped test, see support_skip of tests/support.h
RESULT = re.compile(r"(not )?ok (\d+)(?: - | (?=# SKIP))?(.*)$")


@dataclass
class Case:
    suite: str
    name: str
    verdict: str  # passed, failed, skipped
    text: str = ""
    seconds: float = 0.0


@dataclass
class Test:
    name: str
    command: list
    environment: list = field(default_factory=list)
    labels: list = field(default_factory=list)
    tier: str = "quick"  # quick, both (quick, and longer in test-all), full (only in test-all)
    place: int = 0  # the least begins first where there are no times of earlier runs


def read_tiers():
    """[(tier, pattern)]: the first pattern that matches a whole name decides; a name that none matches is quick."""
    with open(TIERS, encoding="utf-8") as file:
        rows = [line.split("#")[0].split() for line in file]
    return [(row[0], re.compile(pattern)) for row in rows if row for pattern in row[1:]]


def tier_of(name, tiers):
    """(tier, number of the pattern)"""
    return next(((tier, i) for i, (tier, pattern) in enumerate(tiers) if pattern.fullmatch(name)), ("quick", len(tiers)))


def read_ctest(build):
    answer = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                            check=True, capture_output=True, text=True)
    tests, tiers = [], read_tiers()
    for test in json.loads(answer.stdout)["tests"]:
        props = {p["name"]: p["value"] for p in test.get("properties", [])}
        tests.append(Test(test["name"], test.get("command"), props.get("ENVIRONMENT", []), props.get("LABELS", []),
                          *tier_of(test["name"], tiers)))
    return tests


def read_tap(suite, lines):
    """(cases, tests announced, lines after the last) from [(seconds since start, line)]; announced is 0 when this is no TAP."""
    cases, announced, before, last, because = [], 0, [], 0.0, ""
    for when, line in lines:
        plan, result = PLAN.match(line), RESULT.match(line)
        if plan:
            announced += int(plan.group(1))
        elif result and announced:
            name, _, skip = result.group(3).partition("# SKIP")
            # After the word cmocka writes the name of a skipped test, tap.py the reason.
            skipped = "# SKIP" in line
            verdict = "skipped" if skipped else "failed" if result.group(1) else "passed"
            cases.append(Case(suite, name.strip() or skip.strip(), verdict,
                              (skip.strip() if name.strip() else because) if skipped else "", when - last))
            because = ""
            if verdict == "failed" and before:
                cases[-1].text = "\n".join(before) + "\n"
            before, last = [], when
        elif line.startswith(BECAUSE):
            because = line.removeprefix(BECAUSE)
        elif line.startswith("# ") and cases and cases[-1].verdict == "failed" and not before:
            cases[-1].text += line[2:] + "\n"
        else:
            before.append(line)
    return cases, announced, before


def run_one(test, wrapper=(), extra_env=None, silent_seconds=SILENT_SECONDS):
    """The cases of one program."""
    if not test.command or not os.path.exists(test.command[0]):
        return [Case(test.name, "build", "failed", "the program was not built")]
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", **(extra_env or {}))
    env.setdefault("OMP_WAIT_POLICY", "passive")  # several programs share the machine: waiting threads must not spin
    env.update(pair.split("=", 1) for pair in test.environment)
    lines, seconds, code, hung = run_watched([*wrapper, *test.command], env, silent_seconds)
    cases, announced, rest = read_tap(test.name, lines)
    rest = "\n".join(rest[-200:])
    ended = how_it_ended(code, hung, seconds, silent_seconds)
    if not announced:
        return [Case(test.name, test.name, "failed" if ended else "passed", f"{ended}\n{rest}" if ended else "", seconds)]
    reported = any(c.verdict == "failed" for c in cases)
    if hung or code < 0 or code >= 128 or (ended and not reported):
        ended = f"{ended}, after {len(cases)} of {announced} tests"
        cases.append(Case(test.name, "the program itself", "failed", f"{ended}\n{rest}"))
    elif len(cases) < announced and not reported:
        cases.append(Case(test.name, "the program itself", "failed", f"only {len(cases)} of {announced} tests ran\n{rest}"))
    return cases


def run_watched(command, env, silent_seconds):
    """([(seconds since start, line)], seconds, exit status, whether it was stopped for printing nothing)"""
    start, lines, hung = time.monotonic(), [], threading.Event()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    ended = threading.Event()

    def watch():
        limit = silent_seconds
        while not ended.wait(limit):
            limit = silent_seconds - (time.monotonic() - start - (lines[-1][0] if lines else 0.0))
            if limit <= 0:
                hung.set()
                os.killpg(process.pid, signal.SIGTERM)
                if not ended.wait(STACK_SECONDS):
                    os.killpg(process.pid, signal.SIGKILL)
                return

    watchdog = threading.Thread(target=watch, daemon=True)
    watchdog.start()
    for line in process.stdout:
        lines.append((time.monotonic() - start, line.rstrip("\n")))
    code = process.wait()
    ended.set()
    watchdog.join()
    return lines, time.monotonic() - start, code, hung.is_set()


def how_it_ended(code, hung, seconds, silent_seconds):
    if hung:
        return f"hung: printed nothing for {silent_seconds:.0f} s, stopped after {seconds:.0f} s"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"exit status {code}" if code else ""


def count(cases):
    return tuple(sum(c.verdict == v for c in cases) for v in ("passed", "failed", "skipped"))


def rename(cases, prefix):
    for case in cases:
        case.suite = f"{prefix}.{case.suite}"
    return cases


def say(passed, failed, skipped):
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def chosen(tests, tier="", labels=(), match=""):
    """The tests of a tier (quick, more, or all), of any of the labels, whose name has the pattern."""
    left_out = {"quick": "full", "more": "quick"}.get(tier)
    return [t for t in tests
            if t.tier != left_out and (not labels or set(labels) & set(t.labels)) and re.search(match, t.name)]


def environment_of(test, tier, extra_env):
    """With `more` a test that is quick too leaves out what it has done in `make test`, as far as it can."""
    length = {"both": "more", "full": "full"}.get(test.tier)
    return dict(extra_env or {}, SWITCHYARD_TESTS=length) if tier == "more" and length else extra_env


def run_suites(build, labels=(), match="", wrapper=(), extra_env=None, show=print, tier=""):
    """All cases of a build folder, or of the given tier, labels and names; one line per program as it ends."""
    tests = chosen(read_ctest(build), tier, labels, match)
    times = read_times(build)
    # The longest first, by the last run: at the end nothing waits for one of them. Those never run here come before.
    tests.sort(key=lambda test: (-times.get(test.name, 1e6), test.place))
    all_cases, width = [], len(str(len(tests)))
    workers = (os.cpu_count() or 1) + 1  # one more: some tests wait, for processes that end or are ended
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(run_one, t, wrapper, environment_of(t, tier, extra_env)): t for t in tests}
        for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
            name, cases = futures[future].name, future.result()
            passed, failed, skipped = count(cases)
            parts = [f"{passed:4d} passed"] + [f"{n} {w}" for n, w in ((failed, "failed"), (skipped, "skipped")) if n]
            show(f"[{number:{width}d}/{len(tests)}] {'FAIL' if failed else 'ok  '} {name:34s} {', '.join(parts):32s} "
                 f"{sum(c.seconds for c in cases):6.1f} s")
            all_cases += cases
    write_times(build, times | seconds_of(all_cases))
    return sorted(all_cases, key=lambda c: c.suite)


def seconds_of(cases):
    sums = {}
    for case in cases:
        sums[case.suite] = sums.get(case.suite, 0.0) + case.seconds
    return sums


def read_times(build):
    """{name: seconds} of earlier runs in this folder."""
    try:
        with open(os.path.join(build, "test-times.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def write_times(build, times):
    with open(os.path.join(build, "test-times.json"), "w", encoding="utf-8") as file:
        json.dump(times, file, indent=0, sort_keys=True)


def say_times(start):
    """Real time since `start`, and what all processors have spent on programs that this one has started and that have ended:
    on a machine that is busy with other things only the second says how long a run takes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{time.monotonic() - start:.0f} s, processors {used.ru_utime + used.ru_stime:.0f} s"


def show_slowest(cases, show=print):
    slowest = sorted(seconds_of(cases).items(), key=lambda item: -item[1])[:SLOWEST]
    show("slowest: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in slowest))


def show_trouble(cases, show=print):
    for case in cases:
        if case.verdict == "failed":
            show(f"\nFAILED {case.suite}: {case.name}")
            lines = case.text.splitlines()
            if len(lines) > TEXT_LINES:
                show(f"    ({len(lines) - TEXT_LINES} lines before these are in the report)")
            for line in lines[-TEXT_LINES:]:
                show(f"    {line}")
    reasons = {}
    for case in cases:
        if case.verdict == "skipped":
            reasons.setdefault(case.text or "no reason given", {}).setdefault(case.suite, []).append(case.name)
    for reason, suites in reasons.items():  # one line each, however many tests have it
        many = sum(len(names) for names in suites.values())
        text = f"{many} tests of {', '.join(suites)}"
        if len(suites) == 1 and many <= MANY:
            text = "".join(f"{suite}: {', '.join(names)}" for suite, names in suites.items())
        show(f"skipped: {text}: {reason}")


def write_junit(path, cases):
    clean = lambda text: re.sub(r"[^\t\n\x20-\ud7ff\ue000-\ufffd]", "?", text)
    passed, failed, skipped = count(cases)
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           f'<testsuites tests="{len(cases)}" failures="{failed}" skipped="{skipped}">']
    for suite in sorted({c.suite for c in cases}):
        own = [c for c in cases if c.suite == suite]
        _, failed, skipped = count(own)
        out.append(f'<testsuite name={quoteattr(suite)} tests="{len(own)}" failures="{failed}" skipped="{skipped}" '
                   f'time="{sum(c.seconds for c in own):.3f}">')
        for c in own:
            head = f'<testcase classname={quoteattr(suite)} name={quoteattr(clean(c.name))} time="{c.seconds:.3f}"'
            if c.verdict == "failed":
                first = clean(c.text).strip().partition("\n")[0]
                out.append(f"{head}><failure message={quoteattr(first)}>{escape(clean(c.text))}</failure></testcase>")
            elif c.verdict == "skipped":
                out.append(f"{head}><skipped message={quoteattr(clean(c.text))}/></testcase>")
            else:
                out.append(f"{head}/>")
        out.append("</testsuite>")
    out.append("</testsuites>")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--tier", choices=("quick", "more"), default="")
    parser.add_argument("--label", action="append", default=[])
    parser.add_argument("--match", default="")
    parser.add_argument("--junit")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    flushed = lambda text: print(text, flush=True)
    if args.list:
        for test in sorted(chosen(read_ctest(args.build), args.tier, args.label, args.match), key=lambda t: t.name):
            flushed(f"{test.tier:5s} {test.name}")
        return 0
    start = time.monotonic()
    cases = run_suites(args.build, args.label, args.match, show=flushed, tier=args.tier)
    show_trouble(cases, flushed)
    if args.junit:
        write_junit(args.junit, cases)
    if cases:
        show_slowest(cases, flushed)
    flushed(say_times(start))
    flushed(say(*count(cases)))
    return 1 if count(cases)[1] or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
