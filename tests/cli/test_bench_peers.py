"""switchyard bench --peers: what the other process is asked, what becomes of its answer, and what of its absence."""
import importlib.util
import json
import os
import stat
import sys
import unittest

from st import ROOT, CliTest

sys.path.insert(0, os.path.join(ROOT, "bench"))
import peers  # noqa: E402

CASE = ("bench", "kv_gather", "--quick", "--shape", "S=16")
SHAPE = "1152 B B=1 k=8192 of 8k S=16"


class PeersTest(CliTest):
    def stub(self, answer="", code=0, complaint="", name="stub"):
        """An interpreter that keeps its arguments and its input beside itself and says what it is told to."""
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.write(name + ".out", text.encode())
        self.write(name + ".err", complaint.encode())
        path = self.write(name, f"""#!/bin/sh
printf '%s' "$1" > '{self.path(name)}.flag'
printf '%s' "$2" > '{self.path(name)}.script'
cat > '{self.path(name)}.in'
cat '{self.path(name)}.err' >&2
cat '{self.path(name)}.out'
exit {code}
""".encode())
        os.chmod(path, stat.S_IRWXU)
        return path

    def bench(self, *options, env, command=CASE):
        return self.out(*command, "--peers", *options, env={"PYTHON": "", **env})

    def report(self, *options, **more):
        return json.loads(self.bench("--json", *options, **more))

    def answer(self, *results, trouble=()):
        return {"peers": [{"name": "pytorch", "version": "9.8"}, {"name": "numpy", "version": None}],
                "results": list(results), "trouble": list(trouble)}

    def result(self, seconds, form="index_select, out=", case=0):
        return {"case": case, "peer": "pytorch", "form": form, "seconds": seconds, "spread": 0.25, "turns": 7}


class Answers(PeersTest):
    def test_json(self):
        stub = self.stub(self.answer(self.result(100.0), self.result(1e-9, "index_select, as called"),
                                     trouble=["pytorch: x: its result is wrong, left out"]))
        report = self.report(env={"SWITCHYARD_PYTHON": stub})
        self.assertTrue(report["pass"])
        ours = report["cases"][0]["seconds"]
        first, second = report["peers"]["results"]
        self.assertEqual(first, {"op": "kv_gather", "shape": SHAPE, "buffers": "cold", "peer": "pytorch",
                                 "version": "9.8", "form": "index_select, out=", "seconds": 100.0, "spread": 0.25,
                                 "turns": 7, "times_slower_than_switchyard": 100.0 / ours})
        self.assertEqual((second["form"], second["times_slower_than_switchyard"]),
                         ("index_select, as called", 1e-9 / ours))
        self.assertEqual(report["peers"]["interpreter"], stub)
        self.assertEqual(report["peers"]["notes"],
                         [f"pytorch 9.8, run by {stub}", f"numpy: not importable by {stub}, left out",
                          "pytorch: x: its result is wrong, left out"])

    def test_text(self):
        stub = self.stub(self.answer(self.result(100.0), self.result(1e-9)))
        text = self.bench("--threads", 2, env={"SWITCHYARD_PYTHON": stub})
        _, _, table = text.partition("\npeers, on 2 threads (numpy: one)\n\n")
        rows = table.splitlines()
        self.assertRegex(rows[0], r"\Aoperator +shape +peer +time +\+- +switchyard is\Z")
        self.assertRegex(rows[1], r"\Akv_gather +" + SHAPE + r" +pytorch index_select, out= +100 s +25%  "
                                  r"[\d.]+ x faster\Z")
        self.assertRegex(rows[2], r" 0\.001 us +25%  [\d.]+ x slower\Z")
        self.assertEqual(rows[3:], ["", f"pytorch 9.8, run by {stub}", f"numpy: not importable by {stub}, left out", "",
                                    "1 case checked against a plain loop, 0 wrong"])

    def test_both_buffers_are_two_questions(self):
        stub = self.stub(self.answer(self.result(1.0)))
        report = self.report("--cold", "--warm", env={"SWITCHYARD_PYTHON": stub})
        self.assertEqual([peer["buffers"] for peer in report["peers"]["results"]], ["cold", "warm"])
        self.assertEqual(len(report["peers"]["notes"]), 2)
        text = self.bench("--cold", "--warm", env={"SWITCHYARD_PYTHON": stub})
        self.assertRegex(text, SHAPE + " warm +pytorch index_select")

    def test_control_characters_do_not_pass(self):
        stub = self.stub(self.answer(self.result(1.0, "\x1b[31mred"), trouble=["a\nb"]))
        text = self.bench(env={"SWITCHYARD_PYTHON": stub})
        self.assertIn(r"pytorch \x1b[31mred", text)
        self.assertIn("\na\\nb\n", text)


class Questions(PeersTest):
    def asked(self, *options, command=CASE):
        stub = self.stub(self.answer())
        self.bench(*options, env={"SWITCHYARD_PYTHON": stub}, command=command)
        return json.loads(self.read("stub.in"))

    def test_script_is_the_one_of_the_sources(self):
        self.asked()
        with open(os.path.join(ROOT, "bench", "peers.py"), "rb") as file:
            self.assertEqual(self.read("stub.script"), file.read())
        self.assertEqual(self.read("stub.flag"), b"-c")

    def test_request(self):
        request = self.asked("--threads", 2)
        self.assertGreaterEqual(request.pop("cold_bytes"), 128 << 20)
        self.assertEqual(request, {"op": "kv_gather", "threads": 2, "device": "cpu", "quick": True, "cases": [SHAPE]})
        self.assertEqual(self.asked("--warm")["cold_bytes"], 0)

    def test_shapes_of_every_operator(self):
        for op in ("moe_permute", "moe_dispatch", "sample", "kv_gather", "moe_route"):
            request = self.asked(command=("bench", op, "--quick"))
            listed = self.out("bench", op, "--quick", "--list").splitlines()
            self.assertEqual(request["cases"], [line.split(None, 1)[1] for line in listed])

    def test_what_a_shape_says(self):
        for op, shape, want in (
                ("kv_gather", "1152 B B=16 k=2048 of 128k S=64",
                 {"sequences": 16, "tokens": 131072, "k": 2048, "block": 64, "row_elements": 576}),
                ("moe_permute", "bf16 T=4096 E=8 K=2 H=4096 fp8_128",
                 {"dtype": "bf16", "tokens": 4096, "experts": 8, "k": 2, "hidden": 4096}),
                ("moe_dispatch", "f16 S=31 C=640 H=1024 E=2 zero unique",
                 {"dtype": "f16", "samples": 31, "capacity": 640, "hidden": 1024, "experts": 2, "zero": True}),
                ("moe_route", "f32 T=1 E=256 K=8 sigmoid bias groups",
                 {"dtype": "f32", "tokens": 1, "experts": 256, "k": 8, "groups": 8, "top_groups": 4, "score": "sigmoid",
                  "given": False, "softmax_after": False, "bias": True}),
                ("moe_route", "f32 T=4096 E=8 K=2 softmax after",
                 {"score": "none", "softmax_after": True, "bias": False, "groups": 0}),
                ("sample", "bf16 [48,131072] k=50 p=0.9 q by list",
                 {"dtype": "bf16", "batch": 48, "vocab": 131072, "top_k": 50, "top_p": 0.9, "flat": False, "noise": "q",
                  "masked": False}),
                ("sample", "f32 [8,32000] p=0.9 flat",
                 {"top_k": 0, "top_p": 0.9, "flat": True, "noise": "draw", "masked": False}),
                ("sample", "f32 [8,32000] min_p=0.05 normal", {"top_p": 0, "masked": True}),
                ("sample", "bf16 [48,131072] greedy 512 overridden", {"noise": "greedy", "masked": True})):
            got = peers.case_of(op, shape)
            self.assertEqual({name: got[name] for name in want}, want)

    def test_not_asked_unless_wanted(self):
        stub = self.stub(self.answer())
        done = self.cli(*CASE, "--json", env={"SWITCHYARD_PYTHON": stub})
        self.assertNotIn("peers", json.loads(done.stdout))
        self.assertFalse(os.path.exists(self.path("stub.in")))

    def test_which_interpreter(self):
        first, second = self.stub(self.answer(), name="first"), self.stub(self.answer(), name="second")
        for env, name in (({"SWITCHYARD_PYTHON": first, "PYTHON": second}, first),
                          ({"SWITCHYARD_PYTHON": "", "PYTHON": second}, second)):
            self.assertEqual(self.report(env=env)["peers"]["interpreter"], name)
        path = {"SWITCHYARD_PYTHON": "", "PYTHON": "", "PATH": self.folder}
        self.stub(self.answer(), name="python3")
        os.symlink("/bin/cat", self.path("cat"))
        self.assertEqual(self.report(env=path)["peers"]["interpreter"], "python3")
        self.assertTrue(os.path.exists(self.path("python3.in")))


class Absences(PeersTest):
    """Whatever goes wrong over there is one line here, and the run is as good as without peers."""

    def notes(self, env, command=CASE):
        report = self.report(env=env, command=command)
        self.assertTrue(report["pass"])
        self.assertEqual(report["peers"]["results"], [])
        text = self.bench(env=env, command=command)
        self.assertNotIn("switchyard is", text)
        for note in report["peers"]["notes"]:
            self.assertIn(f"\n{note}\n", text)
        return report["peers"]["notes"]

    def test_no_interpreter(self):
        two = ("bench", "--quick", "--shape", "T=1", "--shape", "S=16")
        self.assertEqual(self.notes({"SWITCHYARD_PYTHON": "/nowhere/python"}, two),
                         ["peers: /nowhere/python cannot be run (No such file or directory), left out"])

    def test_interpreter_that_fails(self):
        stub = self.stub(code=3, complaint="Traceback\nBoom: \x1b[31mno luck\n\n")
        self.assertEqual(self.notes({"SWITCHYARD_PYTHON": stub}),
                         [f"peers of kv_gather: {stub} failed (Boom: \\x1b[31mno luck), left out"])
        stub = self.stub(code=1)
        self.assertEqual(self.notes({"SWITCHYARD_PYTHON": stub}),
                         [f"peers of kv_gather: {stub} failed (without a word), left out"])

    def test_answers_that_are_none(self):
        good = self.result(1.0)
        for answer in ("", "{", "[]", "{}", '{"results": 7}', "nonsense", self.answer({**good, "case": 1}),
                       self.answer({**good, "case": -1}), self.answer({**good, "case": "0"}),
                       self.answer({**good, "seconds": 0}), self.answer({**good, "seconds": "fast"}),
                       self.answer({**good, "spread": -1})):
            with self.subTest(answer):
                stub = self.stub(answer)
                report = self.report(env={"SWITCHYARD_PYTHON": stub})
                self.assertEqual((report["pass"], report["peers"]["results"]), (True, []))
                self.assertEqual(report["peers"]["notes"][-1],
                                 f"peers of kv_gather: {stub} answered something that is no list of times")

    def test_operator_without_peers(self):
        stub = self.stub(self.answer())
        self.assertEqual(self.notes({"SWITCHYARD_PYTHON": stub}, ("bench", "moe_locations", "--quick")),
                         ["peers: there are none of these cases"])

    def test_missing_libraries(self):
        """The real script under a real Python whose torch and numpy cannot be imported."""
        os.mkdir(self.path("broken"))
        for name in ("torch", "numpy"):
            self.write(f"broken/{name}.py", b"raise ImportError('not here')\n")
        env = {"SWITCHYARD_PYTHON": sys.executable, "PYTHONPATH": self.path("broken")}
        self.assertEqual(self.notes(env), [f"pytorch: not importable by {sys.executable}, left out",
                                           f"numpy: not importable by {sys.executable}, left out"])

    def test_nothing_of_the_current_folder_is_imported(self):
        for name in ("torch", "numpy", "json", "random"):
            self.write(f"{name}.py", f"open({self.path('imported')!r}, 'w')\nraise ImportError\n".encode())
        self.bench(env={"SWITCHYARD_PYTHON": sys.executable})
        self.assertFalse(os.path.exists(self.path("imported")))


@unittest.skipUnless(any(map(importlib.util.find_spec, ("numpy", "torch"))), "neither numpy nor torch is there")
class Real(PeersTest):
    def test_every_operator(self):
        command = ("bench", "moe_permute", "moe_dispatch", "sample", "kv_gather", "--quick")
        report = self.report(env={"SWITCHYARD_PYTHON": sys.executable}, command=command)
        results, notes = report["peers"]["results"], report["peers"]["notes"]
        self.assertTrue({"moe_permute", "kv_gather"} <= {result["op"] for result in results})
        self.assertEqual([note for note in notes if "wrong" in note or "failed" in note], [])
        for result in results:
            self.assertTrue(result["form"].endswith((", out=", ", as called")))


if __name__ == "__main__":
    unittest.main()
