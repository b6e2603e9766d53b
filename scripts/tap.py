#!/usr/bin/env python3
"""Runs one Python unittest file and prints TAP, as the C tests do.   tap.py FILE [FILTER]"""
import importlib.util
import os
import sys
import unittest


def report(number, verdict, name, text=""):
    print(f"{verdict} {number} - {name}")
    for line in text.splitlines():
        print(f"# {line}")
    sys.stdout.flush()


class TapResult(unittest.TestResult):
    """Prints each test when it ends. A test with failing subtests is one failed test."""

    def __init__(self):
        super().__init__()
        self.number = 0
        self.trouble = []
        self.skip_reason = None

    def startTest(self, test):
        super().startTest(test)
        self.trouble, self.skip_reason = [], None

    def addError(self, test, err):
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self.trouble.append(self.errors[-1][1])
        else:  # setUpClass or setUpModule: no test of its own to report it
            self.report("not ok", str(test), self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.trouble.append(self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            listed = self.failures if issubclass(err[0], test.failureException) else self.errors
            self.trouble.append(f"{subtest}\n{listed[-1][1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if not hasattr(test, "test_case"):  # a skipped subtest does not skip its test
            self.skip_reason = reason

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.trouble.append("succeeded although marked as expected failure")

    def stopTest(self, test):
        super().stopTest(test)
        name = ".".join(test.id().split(".")[1:])
        if self.trouble:
            self.report("not ok", name, "\n".join(self.trouble))
        elif self.skip_reason is not None:
            self.report("ok", f"{name} # SKIP {self.skip_reason}")
        else:
            self.report("ok", name)

    def report(self, verdict, name, text=""):
        self.number += 1
        report(self.number, verdict, name, text)


def main():
    path = os.path.abspath(sys.argv[1])
    sys.path.insert(0, os.path.dirname(path))
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    if len(sys.argv) > 2:
        loader.testNamePatterns = [f"*{sys.argv[2]}*"]
    suite = loader.loadTestsFromModule(module)
    print(f"1..{suite.countTestCases()}", flush=True)
    result = TapResult()
    suite.run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
