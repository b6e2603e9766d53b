"""The test runner itself: whatever goes wrong in a test program must end as a failure."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import python_env
import run_tests


def verdicts(script, limit=60):
    cases = run_tests.run_one(run_tests.Test("it", ["/bin/sh", "-c", script]), silent_seconds=limit)
    return run_tests.count(cases), cases


class Runner(unittest.TestCase):
    def check(self, script, passed, failed, skipped, says="", limit=60):
        found, cases = verdicts(script, limit)
        self.assertEqual(found, (passed, failed, skipped))
        self.assertIn(says, "\n".join(c.text for c in cases))

    def test_tap_is_counted_test_by_test(self):
        self.check("echo 1..3; echo ok 1 - a; echo 'not ok 2 - b'; echo '# 1 != 2'; echo ok 3 - c; exit 1", 2, 1, 0, "1 != 2")

    def test_both_spellings_of_skip(self):
        self.check("echo 1..2; echo 'not ok 1 # SKIP a'; echo 'ok 2 - b # SKIP no luck'", 0, 0, 2, "no luck")
        self.check("echo 1..1; echo '# because: no GPU'; echo 'not ok 1 # SKIP a'", 0, 0, 1, "no GPU")

    def test_several_groups_add_up(self):
        self.check("echo 1..1; echo ok 1 - a; echo 1..2; echo ok 1 - b; echo ok 2 - c", 3, 0, 0)

    def test_a_program_without_tap_is_one_test(self):
        self.check("true", 1, 0, 0)
        self.check("echo why; exit 3", 0, 1, 0, "why")

    def test_dying_is_a_failure(self):
        self.check("echo 1..2; echo ok 1 - a; kill -SEGV $$", 1, 1, 0, "died of SIGSEGV, after 1 of 2 tests")

    def test_leaving_tests_out_is_a_failure(self):
        self.check("echo 1..2; echo ok 1 - a", 1, 1, 0, "only 1 of 2 tests ran")

    def test_a_bad_exit_after_good_tests_is_a_failure(self):
        self.check("echo 1..1; echo ok 1 - a; echo leak; exit 23", 1, 1, 0, "leak")

    def test_hanging_is_a_failure(self):
        self.check("echo 1..2; echo ok 1 - a; sleep 600", 1, 1, 0, "hung: printed nothing for 1 s", limit=1)

    def test_a_slow_program_that_prints_does_not_hang(self):
        self.check("echo 1..2; echo ok 1 - a; for i in 1 2 3 4 5 6; do sleep .5; echo '# .'; done; echo ok 2 - b", 2, 0, 0, limit=2)

    def test_one_reason_is_one_line(self):
        cases = [run_tests.Case(suite, name, "skipped", "no luck") for suite in ("a", "b") for name in "xy"]
        cases.append(run_tests.Case("c", "z", "skipped", "no time"))
        lines = []
        run_tests.show_trouble(cases, lines.append)
        self.assertEqual(lines, ["skipped: 4 tests of a, b: no luck", "skipped: c: z: no time"])

    def test_a_long_failure_is_cut(self):
        lines = []
        run_tests.show_trouble([run_tests.Case("a", "x", "failed", "\n".join(map(str, range(400))))], lines.append)
        self.assertEqual(len(lines), 2 + run_tests.TEXT_LINES)
        self.assertEqual(lines[-1].strip(), "399")


class Tiers(unittest.TestCase):
    """Every test runs in `make test` or in what `make test-all` adds, and no line of tests/tiers.txt is stale."""

    def test_both_tiers_together_are_everything(self):
        tests = run_tests.read_ctest(os.environ["SWITCHYARD_BUILD"])
        quick, more = ({t.name for t in run_tests.chosen(tests, tier)} for tier in ("quick", "more"))
        self.assertEqual(quick | more, {t.name for t in tests})
        self.assertEqual(quick & more, {t.name for t in tests if t.tier == "both"})

    def test_tiers_are_read_in_order(self):
        tiers = [("both", re.compile("a_x")), ("full", re.compile("a_.*"))]
        self.assertEqual([run_tests.tier_of(name, tiers) for name in ("a_x", "a_xy", "a", "b")],
                         [("both", 0), ("full", 1), ("quick", 2), ("quick", 2)])

    def test_no_line_is_stale(self):
        names = [t.name for t in run_tests.read_ctest(os.environ["SWITCHYARD_BUILD"])]
        stale = [pattern.pattern for tier, pattern in run_tests.read_tiers()
                 if pattern.pattern != "mpi" and not any(map(pattern.fullmatch, names))]
        self.assertEqual(stale, [])


class NoVenv(unittest.TestCase):
    def test_without_a_venv_python_tests_are_skipped_with_the_reason(self):
        with tempfile.TemporaryDirectory() as clone:
            shutil.copytree(os.path.join(ROOT, "scripts"), os.path.join(clone, "scripts"))
            shutil.copy(os.path.join(ROOT, "pyproject.toml"), clone)
            self.check_skipped(clone, "`make python` has not run")
            done = subprocess.run([sys.executable, f"{clone}/scripts/python_env.py"], check=True, text=True,
                                  stdout=subprocess.PIPE, env=dict(os.environ, SKIP_SETUP="1"))
            self.assertRegex(done.stdout, r"^python: the Python tests are skipped: .*\n$")
            self.check_skipped(clone, done.stdout.partition("skipped: ")[2].strip())

    def check_skipped(self, clone, reason):
        command = [sys.executable, f"{clone}/scripts/pytest_tap.py", "test_x.py"]
        cases = run_tests.run_one(run_tests.Test("it", command))
        self.assertEqual(run_tests.count(cases), (0, 0, 1))
        self.assertEqual(cases[0].text, reason)


class Torch(unittest.TestCase):
    """Which PyTorch the venv gets: the newest that comes without CUDA's packages."""

    def install(self, offers, asked="", machine="aarch64"):
        """(what is said, what is installed) where the index offers these resolutions of requirements."""
        installed = []

        def pip(*arguments):
            if "--report" not in arguments:
                installed.extend(word for word in arguments[1:] if not word.startswith("-"))
                return 0, ""
            names = offers.get(arguments[-1])
            if names is None:
                return 1, "ERROR: none"
            with open(arguments[arguments.index("--report") + 1], "w", encoding="utf-8") as file:
                json.dump({"install": [{"metadata": {"name": n, "version": "1"}} for n in names]}, file)
            return 0, ""

        with unittest.mock.patch.object(python_env, "pip", pip), \
                unittest.mock.patch.object(python_env.platform, "machine", lambda: machine), \
                unittest.mock.patch.dict(os.environ, {"SWITCHYARD_TORCH": asked}):
            return python_env.install_torch(), installed

    def test_the_newest_is_taken(self):
        self.assertEqual(self.install({"torch>=2.4": ["torch", "sympy"]}), ("", ["torch==1", "sympy==1"]))

    def test_an_older_one_without_cuda_is_taken_instead(self):
        for name in ("nvidia-cudnn-cu13", "cuda-bindings", "triton", "pytorch-triton"):
            offers = {"torch>=2.4": ["torch", name], "torch==2.10.*": ["torch", name], "torch==2.9.*": ["torch"]}
            self.assertEqual(self.install(offers), ("", ["torch==1"]), name)

    def test_cuda_is_never_installed(self):
        said, installed = self.install({candidate: ["torch", "nvidia-nccl-cu12"] for candidate in python_env.TORCH})
        self.assertEqual(installed, [])
        self.assertIn("CUDA", said)

    def test_the_index_is_not_asked_for_x86_64(self):
        said, installed = self.install({"torch>=2.4": ["torch"]}, machine="x86_64")
        self.assertEqual(installed, [])
        self.assertIn("SWITCHYARD_TORCH", said)
        self.assertEqual(self.install({}, "torch==2.8.0", "x86_64"), ("", ["torch==2.8.0"]))

    def test_an_index_without_it_is_reported(self):
        self.assertEqual(self.install({}), ("the index offers none for this platform", []))

    def test_the_environment_decides(self):
        self.assertEqual(self.install({}, "torch==2.8.0"), ("", ["torch==2.8.0"]))
        self.assertEqual(self.install({}, "none")[1], [])


if __name__ == "__main__":
    unittest.main()
