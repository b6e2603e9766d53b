#!/usr/bin/env python3
"""Runs pytest in the project's venv and prints TAP, as the C tests do.

    pytest_tap.py ARGUMENT_OF_PYTEST...

Without a venv (scripts/python_env.py gives the reason) the file is one skipped test.
"""
import os
import re
import sys

import tap

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))


class Tap:
    """A plugin of pytest: prints a line when a test ends. An error in setup or teardown is a failure of the test."""

    def __init__(self):
        self.number = 0
        self.collected = []  # results from before the number of tests is known
        self.trouble = []
        self.skipped = None

    def pytest_collectreport(self, report):
        if report.failed:
            self.collected.append(("not ok", report.nodeid or "the file", report.longreprtext))
        elif report.skipped:  # a whole file: importorskip
            self.collected.append(("ok", f"{report.nodeid or 'the file'} # SKIP {reason_of(report)}"))

    def pytest_collection_finish(self, session):
        broken = any(verdict == "not ok" for verdict, *_ in self.collected)  # then no test is run
        print(f"1..{len(self.collected) + (0 if broken else len(session.items))}")
        for entry in self.collected:
            self.report(*entry)

    def pytest_runtest_logreport(self, report):
        if report.when == "setup":
            self.trouble, self.skipped = [], None
        if report.failed:
            self.trouble += [report.longreprtext, *(f"{title}\n{text}" for title, text in report.sections)]
        elif report.skipped:
            self.skipped = getattr(report, "wasxfail", None) or reason_of(report)
        if report.when != "teardown":
            return
        name = report.nodeid.partition("::")[2] or report.nodeid
        if self.trouble:
            self.report("not ok", name, "\n".join(self.trouble))
        else:
            self.report("ok", name if self.skipped is None else f"{name} # SKIP {self.skipped}")

    def report(self, verdict, name, text=""):
        self.number += 1
        tap.report(self.number, verdict, name.splitlines()[0], text)


def reason_of(report):
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    text = " ".join(text.removeprefix("Skipped: ").split())
    return re.sub(r"could not import .*No module named '(\w+).*", r"\1 is not installed", text)


def run_here(arguments):
    import pytest
    options = ["-p", "no:terminal", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers", "-o", "log_level=WARNING",
               "-c", os.path.join(ROOT, "pyproject.toml")]
    plugin = Tap()
    code = pytest.main([*options, *arguments], plugins=[plugin])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED and plugin.number else int(code)


def main():
    if sys.argv[1] == "--here":
        return run_here(sys.argv[2:])
    import python_env
    reason = python_env.why_not()
    if reason:
        print(f"1..1\nok 1 - {sys.argv[-1]} # SKIP {reason}")
        return 0
    # Run in another folder, so that the installed package is imported and no files are written to the clone.
    here = os.path.join(ROOT, "build", "python-tests")
    os.makedirs(here, exist_ok=True)
    os.chdir(here)
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", MPLBACKEND="Agg", MPLCONFIGDIR=here)
    os.execve(python_env.PYTHON, [python_env.PYTHON, os.path.abspath(__file__), "--here", *sys.argv[1:]], env)


if __name__ == "__main__":
    sys.exit(main())
