#!/usr/bin/env python3
"""Runs the tests of one build folder and counts single tests.

    run_tests.py BUILD [--label NAME]... [--match REGEX] [--junit FILE]

The list is CTest's. Tests of a program that prints TAP (cmocka can, scripts/tap.py does) are counted one by one, any
other program is one test. A program that crashes, hangs or omits tests is a failure. The last line is
`N passed, N failed, N skipped`; the exit status is 1 when anything failed.
"""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

PLAN = re.compile(r"1\.\.(\d+)\s*$")
MANY = 12  # at most this many tests that are skipped for one reason are named
RESULT = re.compile(r"(not )?ok (\d+)(?: - | (?=# SKIP))?(.*)$")


@dataclass
class Case:
    suite: str
    name: str
    verdict: str  # passed, failed, skipped
    text: str = ""
    seconds: float = 0.0


def read_ctest(build):
    """[(name, command, environment, seconds before it counts as hung, labels)], those with a COST first"""
    answer = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                            check=True, capture_output=True, text=True)
    tests, cost = [], {}
    for test in json.loads(answer.stdout)["tests"]:
        props = {p["name"]: p["value"] for p in test.get("properties", [])}
        cost[test["name"]] = props.get("COST", 0)
        tests.append((test["name"], test.get("command"), props.get("ENVIRONMENT", []),
                      props.get("TIMEOUT", 900), props.get("LABELS", [])))
    return sorted(tests, key=lambda test: -cost[test[0]])


def read_tap(suite, lines):
    """(cases, tests announced) from [(seconds since start, line)]; announced is 0 when this is no TAP."""
    cases, announced, before, last = [], 0, [], 0.0
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
                              skip.strip() if name.strip() else "", when - last))
            if verdict == "failed" and before:
                cases[-1].text = "\n".join(before) + "\n"
            before, last = [], when
        elif line.startswith("# ") and cases and cases[-1].verdict == "failed" and not before:
            cases[-1].text += line[2:] + "\n"
        else:
            before.append(line)
    return cases, announced, before


def run_one(test, wrapper, extra_env):
    name, command, environment, limit, _ = test
    if not command or not (os.path.exists(command[0])):
        return [Case(name, "build", "failed", "the program was not built")]
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", **extra_env)
    env.setdefault("OMP_WAIT_POLICY", "passive")  # several programs share the machine: waiting threads must not spin
    env.update(pair.split("=", 1) for pair in environment)
    start, lines = time.monotonic(), []
    process = subprocess.Popen(wrapper + command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    hung = threading.Event()

    def stop():
        hung.set()
        os.killpg(process.pid, signal.SIGKILL)

    watchdog = threading.Timer(limit, stop)
    watchdog.start()
    for line in process.stdout:
        lines.append((time.monotonic() - start, line.rstrip("\n")))
    code = process.wait()
    watchdog.cancel()
    seconds = time.monotonic() - start

    cases, announced, rest = read_tap(name, lines)
    rest = "\n".join(rest[-200:])
    if not announced:
        ended = how_it_ended(code, hung.is_set(), limit)
        return [Case(name, name, "failed" if ended else "passed", f"{ended}\n{rest}" if ended else "", seconds)]
    ended = how_it_ended(code, hung.is_set(), limit)
    reported = any(c.verdict == "failed" for c in cases)
    if hung.is_set() or code < 0 or code >= 128 or (ended and not reported):
        ended = f"{ended}, after {len(cases)} of {announced} tests"
        cases.append(Case(name, "the program itself", "failed", f"{ended}\n{rest}"))
    elif len(cases) < announced and not reported:
        cases.append(Case(name, "the program itself", "failed", f"only {len(cases)} of {announced} tests ran\n{rest}"))
    return cases


def how_it_ended(code, hung, limit):
    if hung:
        return f"hung: stopped after {limit:.0f} s"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"exit status {code}" if code else ""


def count(cases):
    return tuple(sum(c.verdict == v for c in cases) for v in ("passed", "failed", "skipped"))


def say(passed, failed, skipped):
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def run_suites(build, labels=(), match="", wrapper=(), extra_env=None, show=print):
    """All cases of a build folder, or of the given labels and names; one line per program as it ends."""
    tests = [t for t in read_ctest(build)
             if (not labels or set(labels) & set(t[4])) and re.search(match, t[0])]
    tests.sort(key=lambda test: "random" not in test[0])  # the longest first: at the end nothing waits for one of them
    all_cases = []
    workers = (os.cpu_count() or 1) + 1  # one more: some tests wait, for processes that end or are ended
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(run_one, t, list(wrapper), extra_env or {}): t for t in tests}
        for future in concurrent.futures.as_completed(futures):
            name, cases = futures[future][0], future.result()
            passed, failed, skipped = count(cases)
            parts = [f"{passed:4d} passed"] + [f"{n} {w}" for n, w in ((failed, "failed"), (skipped, "skipped")) if n]
            show(f"  {'FAIL' if failed else 'ok  '} {name:34s} {', '.join(parts):32s} "
                 f"{sum(c.seconds for c in cases):6.1f} s")
            all_cases += cases
    return sorted(all_cases, key=lambda c: c.suite)


def show_trouble(cases, show=print):
    for case in cases:
        if case.verdict == "failed":
            show(f"\nFAILED {case.suite}: {case.name}")
            for line in case.text.splitlines():
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
    parser.add_argument("--label", action="append", default=[])
    parser.add_argument("--match", default="")
    parser.add_argument("--junit")
    args = parser.parse_args()
    flushed = lambda text: print(text, flush=True)
    cases = run_suites(args.build, args.label, args.match, show=flushed)
    show_trouble(cases, flushed)
    if args.junit:
        write_junit(args.junit, cases)
    flushed(say(*count(cases)))
    return 1 if count(cases)[1] or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
