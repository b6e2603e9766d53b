"""switchyard bench: which cases run, what is printed, in every format. Times are never validated."""
import json
import os
import pty
import re
import subprocess
import sys
import unittest

from st import CLI, OPERATORS, ROOT, CliTest

READS = ["kv_select", "moe_route", "moe_ids_from_map", "sample", "sample_verify", "sample_overrides", "moe_capacity", "moe_dispatch_grad_gate"]
FILLS = ["moe_map_from_ids", "sample_noise"]


class Bench(CliTest):
    def test_quick_json(self):
        report = self.json("bench", "--quick", "--threads", 2)
        self.assertTrue(report["pass"] and report["quick"])
        self.assertEqual(report["command"], "switchyard bench --quick --threads 2 --json")
        self.assertEqual(report["threads"], 2)
        self.assertRegex(report["date"], r"\A20\d\d-\d\d-\d\d\Z")
        self.assertEqual({case["op"] for case in report["cases"]}, set(OPERATORS))
        for case in report["cases"]:
            self.assertTrue(case["checked"])
            for field in ("seconds", "bytes", "gb_per_s", "limit_seconds", "limit_gb_per_s", "share_of_limit",
                          "times_limit", "plain_seconds", "times_faster_than_plain"):
                self.assertGreater(case[field], 0, field)
            self.assertGreaterEqual(case["spread"], 0)
            self.assertGreaterEqual(case["turns"], 3)
            self.assertIn(case["limit"], ("read",) if case["op"] in READS else ("fill",) if case["op"] in FILLS
                          else ("copy", "copy+fill"))

    def test_limits_of_the_machine(self):
        report = self.json("bench", "moe_permute", "--quick")
        limits, machine = report["limits"], report["machine"]
        by_streams = limits["read_gb_per_s_by_streams"]
        self.assertEqual(list(by_streams), ["1", "2", "4"])
        self.assertEqual(limits["read_gb_per_s"], max(by_streams.values()))
        self.assertEqual(limits["read_gb_per_s"], by_streams[str(limits["read_streams"])])
        for rate in (limits["copy_gb_per_s"], limits["fill_gb_per_s"], *by_streams.values()):
            self.assertGreater(rate, 0)
        self.assertEqual(machine["cpus"], os.sysconf("SC_NPROCESSORS_ONLN"))
        self.assertGreaterEqual(machine["last_level_cache_bytes"], 0)
        self.assertGreaterEqual(machine["last_level_caches"], 1)

    def test_one_operator_as_text(self):
        text = self.out("bench", "kv_gather", "--quick", "--isa", "scalar")
        self.assertIn("kernels scalar", text)
        self.assertRegex(text, r"\nlimits, cold: copy [\d.]+ GB/s \(read and written\), fill [\d.]+ GB/s, "
                                      r"read [\d.]+ GB/s \([\d.]+, [\d.]+, [\d.]+ with 1, 2, 4 streams per thread\)")
        self.assertNotIn("moe_permute", text)
        self.assertIn("0 wrong", text)

    def test_buffers(self):
        """Cold by default, warm by name, both by both names; the head says which, and so do rows of both."""
        for options, says, rows in (((), "cold", ["cold"]), (("--cold",), "cold", ["cold"]),
                                    (("--warm",), "warm", ["warm"]),
                                    (("--warm", "--cold"), "cold and warm", ["cold", "warm"])):
            arguments = ("bench", "kv_gather", "--quick", "--shape", "S=16", *options)
            report = self.json(*arguments)
            self.assertEqual([case["buffers"] for case in report["cases"]], rows)
            text = self.out(*arguments)
            self.assertIn(f" threads, {says} buffers, quick\n", text.replace("1 thread,", "1 threads,"))
            self.assertEqual(re.findall(r"S=16 +(cold|warm) ", text), rows if len(rows) == 2 else [])
            self.assertIn("1 case checked", text)

    def test_check(self):
        """The cases of a run, each with its verdict, and no times."""
        cases = ("bench", "quantize_rows", "kv_format", "--quick")
        listed = [line.split(None, 1)[1] for line in self.out(*cases, "--list").splitlines()]
        text = self.cli(*cases, "--check")
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        head, rows, end = text.stdout.split("\n\n")
        self.assertEqual([re.split(r"  +", row)[1:] for row in rows.splitlines()], [[shape, "ok"] for shape in listed])
        self.assertEqual(end, f"{len(listed)} cases checked against a plain loop, 0 wrong\n")
        self.assertNotIn("buffers", head)
        report = self.json(*cases, "--check")
        self.assertEqual([(case["shape"], set(case)) for case in report["cases"]],
                         [(shape, {"op", "shape", "checked"}) for shape in listed])
        self.assertTrue(report["pass"] and all(case["checked"] for case in report["cases"]))
        self.assertNotIn("limits", report)

    def test_cliffs(self):
        """As many neighbours as were asked for, each of a listed case; others with another seed. Exit 1: one is a cliff."""
        listed, shapes = re.findall(r"bf16 .+", self.out("bench", "--list", "--quick", "moe_unpermute")), []
        for seed in (1, 2):
            done = self.cli("bench", "moe_unpermute", "--quick", "--cliffs", 4, "--seed", seed, "--threads", 1)
            self.assertEqual((done.returncode in (0, 1), done.stderr), (True, ""))
            rows = re.findall(r"^moe_unpermute +(bf16 \S+(?: \S+)*?)  ", done.stdout, re.M)
            self.assertEqual((len(rows), done.stdout.count(" times the time per byte")), (8, 4))
            self.assertLessEqual(set(rows[::2]), set(listed))
            shapes.append(rows)
        self.assertNotEqual(*shapes)

    def test_usage(self):
        for arguments, says in ((("--list", "--json"), "does not go together"), (("nope",), "nope"),
                                (("--check", "--warm"), "--check times nothing"), (("--check", "--peers"), "--check times nothing"),
                                (("--check=1",), "--check"), (("--cliffs", 0), "needs a positive number"),
                                (("--cliffs", 3, "--json"), "does not go together"),
                                (("--fast",), "--fast"), (("--threads", "x"), "--threads"), (("--peers=1",), "--peers")):
            self.mistake("bench", *arguments, says=says)


class Cases(CliTest):
    def listed(self, *arguments):
        text = self.out("bench", "--list", *arguments)
        return [tuple(line.split(None, 1)) for line in text.splitlines()]

    def test_list_names_every_case_once(self):
        for arguments in ((), ("--quick",)):
            cases = self.listed(*arguments)
            self.assertEqual(len(set(cases)), len(cases))
            # kv_planes and kv_format time kv_gather and kv_scatter with several planes and with packed rows.
            self.assertEqual({op for op, _ in cases}, set(OPERATORS) | {"kv_planes", "kv_format"})

    def test_a_family_is_all_whose_names_begin_so(self):
        self.assertEqual({op for op, _ in self.listed("all_to_all")}, {"all_to_all_dispatch", "all_to_all_combine"})
        self.assertEqual(self.listed("kv"), [case for case in self.listed() if case[0].startswith("kv_")])
        self.assertEqual({op for op, _ in self.listed("sample")}, {"sample"})  # an operator is itself alone
        for arguments, says in ((("all_t",), "no benchmark of all_t"), (("kv", "kv_gather"), "kv_gather is named twice"),
                                (("kv_gather", "kv"), "kv_gather is named twice"), (("",), "no benchmark of")):
            self.mistake("bench", *arguments, says=says)

    def test_list_is_what_a_run_runs(self):
        report = self.json("bench", "kv_gather", "moe_permute", "--quick")
        self.assertEqual([(case["op"], case["shape"]) for case in report["cases"]],
                         self.listed("kv_gather", "moe_permute", "--quick"))

    def test_shape_matches_parts_in_any_letters(self):
        everything = self.listed()
        for texts in (("greedy",), ("GrEeDy",), ("[48,", "e=256"), ("B",)):
            options = [option for text in texts for option in ("--shape", text)]
            want = [case for case in everything if any(text.lower() in case[1].lower() for text in texts)]
            self.assertTrue(want)
            self.assertEqual(self.listed(*options), want)
        self.assertEqual(self.listed("sample", "--shape=f32"), [c for c in everything if c[0] == "sample" and
                                                                "f32" in c[1]])

    def test_shape_chooses_what_runs(self):
        report = self.json("bench", "--quick", "--shape", "S=16")
        self.assertEqual([case["op"] for case in report["cases"]], ["kv_gather"])

    def test_shapes_that_match_nothing(self):
        for arguments in (("--shape", "T=77"), ("--shape", "greedy", "--shape", "T=77"),
                          ("moe_permute", "--shape", "T=77", "--list")):
            self.assertIn("switchyard bench --list shows them",
                          self.mistake("bench", *arguments, says="no case has a shape with T=77"))

    def test_usage(self):
        many = ["--shape=a"] * 17
        for arguments, says in ((("--shape",), "--shape needs a text"), (("--shape=",), "--shape needs a text"),
                                (many, "more than 16 times"), (("--list", "--json"), "does not go together"),
                                (("sample", "sample"), "sample is named twice"), (("--list=1",), "--list")):
            self.mistake("bench", *arguments, says=says)


class Compare(CliTest):
    """scripts/bench_compare.py: "slower" is more than 5 % (2 % on a device) and 0.3 us, in every pair of runs."""

    SCRIPT = os.path.join(ROOT, "scripts", "bench_compare.py")

    def compare(self, *runs, device=None):
        """(status, counts that are not 0, lines) for [{shape: us, None if wrong}], old and new in turn."""
        paths = []
        for i, run in enumerate(runs):
            cases = [{"op": "sample", "shape": shape, "buffers": "cold", "checked": True, "seconds": us * 1e-6} if us else
                     {"op": "sample", "shape": shape, "checked": False, "reason": "differs"} for shape, us in run.items()]
            report = {"isa": "neon", "threads": 2, "machine": {"cpu": "a"}, "cases": cases}
            if device:
                report["device"] = {"id": "cuda:0", "name": device}
            paths.append(self.write(f"{i}.json", json.dumps(report).encode()))
        done = subprocess.run([sys.executable, self.SCRIPT, *paths], capture_output=True, text=True, check=False)
        counts = [line for line in done.stdout.splitlines() if line.endswith(" unchanged")]
        self.assertEqual((done.stderr, len(counts)), ("", 1))
        found = {name: int(n) for n, name in re.findall(r"(\d+) ([a-z ]+)", counts[0])}
        return done.returncode, {name: n for name, n in found.items() if n}, done.stdout.splitlines()

    def test_one_row(self):
        for times, device, status, name in (
                ((100, 105.1) * 3, None, 1, "slower"), ((100, 104.9) * 3, None, 0, "unchanged"),
                ((100, 120, 100, 120, 100, 104), None, 0, "unchanged"),  # not in every pair
                ((100, 102.1) * 3, "H200", 1, "slower"), ((100, 101.9) * 3, "H200", 0, "unchanged"),
                ((4, 4.31) * 3, None, 1, "slower"), ((4, 4.29) * 3, None, 0, "unchanged"),
                ((105.1, 100) * 3, None, 0, "faster"), ((104.9, 100) * 3, None, 0, "unchanged"),
                ((100, 120), None, 1, "slower"), ((100, 100, 100, None), None, 1, "wrong in new")):
            got = self.compare(*({"x": us} for us in times), device=device)
            self.assertEqual(got[:2], (status, {name: 1}), times)

    def test_several_rows(self):
        old, new = {"a": 10, "b": 20, "c": 30, "d": 40}, {"a": 12, "b": 20, "c": 20, "e": 50}
        status, counts, lines = self.compare(*(old, new) * 3)
        self.assertEqual(status, 1)
        self.assertEqual(counts, {"slower": 1, "faster": 1, "not in new": 1, "not in old": 1, "unchanged": 1})
        again = "10 -> 12 us (+20.0 %)"
        self.assertEqual(lines[:2], ["slower:", f"  sample a cold cpu neon threads=2: {again}, {again}, {again}"])
        self.assertEqual(lines[4:8], ["not in new:", "  sample d cold cpu neon threads=2", "not in old:",
                                      "  sample e cold cpu neon threads=2"])

    def test_what_the_command_prints(self):
        path = self.write("run.json", self.out("bench", "kv_gather", "--quick", "--cold", "--warm", "--json").encode())
        done = subprocess.run([sys.executable, self.SCRIPT, *[path] * 6], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(" 0 not in old, 4 unchanged\n", done.stdout)

    def test_usage(self):
        times = self.write("times.json", self.out("bench", "kv_gather", "--quick", "--json").encode())
        moved = {**json.loads(self.read("times.json")), "machine": {"cpu": "another"}}
        elsewhere = self.write("else.json", json.dumps(moved).encode())
        check = self.write("check.json", self.out("bench", "kv_gather", "--quick", "--check", "--json").encode())
        for paths, says in (((), "OLD.json"), ((times,), "OLD.json"), ((times, elsewhere), "different machines"),
                            ((times, check), "'seconds'"), ((times, "nowhere.json"), "nowhere.json"), ((times, CLI), "bench --json")):
            done = subprocess.run([sys.executable, self.SCRIPT, *paths], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(says, done.stderr)


class Progress(CliTest):
    """A line on stderr while a case runs, on terminals only, and gone before the row is printed."""

    COMMAND = [CLI, "bench", "moe_permute", "--quick"]

    def on_terminal(self, stdout, *arguments):
        """What the command writes to a terminal that is its stderr, and its stdout too unless that is a pipe."""
        ours, theirs = pty.openpty()
        with subprocess.Popen([*self.COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=stdout or theirs,
                              stderr=theirs) as process:
            os.close(theirs)
            seen = b""
            try:
                while block := os.read(ours, 4096):
                    seen += block
            except OSError:  # Linux reports the end of a terminal so
                pass
            finally:
                os.close(ours)
            out = process.stdout.read() if stdout else b""
            self.assertEqual(process.wait(), 0)
        return seen.decode(), out.decode()

    def test_line_by_line(self):
        seen, out = self.on_terminal(subprocess.PIPE)
        self.assertIn("0 wrong", out)
        self.assertNotIn("[1/3]", out)
        listed = self.out("bench", "moe_permute", "--quick", "--list").splitlines()
        shapes = [line.split(None, 1)[1] for line in listed]
        want = ""
        for i, shape in enumerate(shapes):
            line = f"[{i + 1}/{len(shapes)}] moe_permute {shape} ..."
            want += line + "\r" + " " * len(line) + "\r"
        self.assertEqual(seen, want)

    def test_rows_follow_on_a_clean_line(self):
        seen, _ = self.on_terminal(None)
        self.assertEqual(seen.count("\rmoe_permute  bf16"), 3, seen)

    def test_json_on_the_terminal_has_none(self):
        seen, _ = self.on_terminal(None, "--json")
        self.assertTrue(json.loads(seen)["pass"])

    def test_json_elsewhere_has_one(self):
        seen, out = self.on_terminal(subprocess.PIPE, "--json")
        self.assertIn("[3/3]", seen)
        self.assertTrue(json.loads(out)["pass"])

    def test_nothing_without_a_terminal(self):
        done = self.cli("bench", "moe_permute", "--quick")
        self.assertEqual(done.stderr, "")
        self.assertNotIn("\r", done.stdout)


if __name__ == "__main__":
    unittest.main()
