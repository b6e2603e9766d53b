"""--device cuda, on the emulated device: run, ops, info, demo, bench. Times are never validated."""
import json
import os
import re
import sys
import unittest

from mesh import MeshTest, needs_mpi
from st import OPERATORS, ROOT, CliTest, tensor

LIBRARY = os.environ.get("SWITCHYARD_EMULATED_CUDA")
THERE = ("--device", "cuda", "--device-library", LIBRARY)


def on_device():
    """Operators of the backend, from the library's list."""
    with open(os.path.join(ROOT, "src", "plan", "plan.h"), encoding="utf-8") as file:
        return re.findall(r"X\([A-Z_]+, (\w+)\)", file.read()) + ["all_to_all_dispatch", "all_to_all_combine"]


class Usage(CliTest):
    """What needs no device."""

    def test_without_a_library(self):
        for words in (("bench", "kv_gather", "--quick"), ("run", "sample_noise", "out", "--n", 4)):
            done = self.cli(*words, "--device", "cuda", "--device-library", "/nowhere/x.so")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, r"\Aswitchyard: libswitchyard_cuda\.so[.\d]* could not be loaded: "
                                          r"[^\n]*/nowhere/x.so[^\n]*\n\Z")
            self.assertEqual(os.listdir(self.folder), [])
        info = self.json("info", "--device-library", "/nowhere/x.so")
        self.assertEqual(info["cuda"]["devices"], [])
        self.assertIn("/nowhere/x.so", info["cuda"]["error"])
        self.assertIn(f"CUDA              none: {info['cuda']['error']}\n",
                      self.out("info", "--device-library", "/nowhere/x.so"))

    def test_why(self):
        """On a CPU the kernel table runs."""
        self.cli("example", "kv_slots", "in.safetensors")
        options = self.out("help", "kv_slots").split("out.safetensors", 1)[1].split("\n")[0].split()
        self.assertEqual(self.out("info", "--isa", "scalar", "--why", "kv_slots", "in.safetensors", *options), "kv_slots: scalar\n")
        self.mistake("info", "--why", "kv_slots", says="info --why needs an operator and an input file")
        self.mistake("bench", "--why", "kv", says="--why needs --device cuda")

    def test_names_of_devices(self):
        for name in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cuda0", ""):
            self.mistake("bench", "kv_gather", "--quick", "--device", name, says=f"--device is {name}, want cpu, cuda or cuda:N")
        self.mistake("bench", "--device", "cpu", "--device", "cpu", says="--device is given twice")

    def test_cases(self):
        """Those of a device are in the list, and no operator is without one."""
        lines = self.out("bench", "--list", "--device", "cuda").splitlines()
        cases = [tuple(line.split(None, 1)) for line in lines]
        self.assertEqual(len(set(cases)), len(cases))
        self.assertEqual({op for op, _ in cases}, set(OPERATORS) | {"kv_planes", "kv_format"})
        self.assertIn(("moe_permute", "bf16 T=32768 E=256 K=8 H=7168"), cases)
        self.assertNotIn(("moe_permute", "bf16 T=32768 E=256 K=8 H=7168"),
                         [tuple(line.split(None, 1)) for line in self.out("bench", "--list").splitlines()])


@unittest.skipIf(not LIBRARY, "the emulated device was not built")
class Run(MeshTest):
    def both(self, op, tensors, *options):
        """The result of a call in CPU memory, which that on the device equals: files and messages."""
        here, there = (self.run_op(op, tensors, *options, *more) for more in ((), THERE))
        self.assertEqual((here.code, here.out, here.err), (there.code, there.out, there.err))
        self.assertEqual(here.outputs is None, there.outputs is None)
        for name, got in (there.outputs or {}).items():
            want = here[name]
            self.assertEqual((got.dtype, got.shape, got.data), (want.dtype, want.shape, want.data), name)
        return there

    def test_every_operator(self):
        """Its example has the same bytes, or the call is rejected where the operator is not on the device."""
        for op in OPERATORS:
            options = self.out("help", op).split("out.safetensors", 1)[1].split("\n")[0].split()
            self.cli("example", op, "in.safetensors")
            words = ["run", op, "in.safetensors"][:3 if os.path.exists(self.path("in.safetensors")) else 2]
            here = self.cli(*words, "here", *options)
            there = self.cli(*THERE, *words, "there", *options)  # after an operator's name its own --device is meant
            with self.subTest(op):
                self.assertEqual((here.returncode, here.stderr), (0, ""))
                if op in on_device():
                    self.assertEqual((there.returncode, there.stderr), (0, ""))
                    self.assertEqual(self.read("here"), self.read("there"))
                else:
                    self.assertEqual(there.returncode, 1)
                    self.assertRegex(there.stderr, rf"\Aswitchyard: {op}: SY_ERR_UNSUPPORTED: [^\n]+\n\Z")
            for name in os.listdir(self.folder):
                os.unlink(self.path(name))

    def test_why(self):
        self.cli("example", "moe_permute", "in.safetensors")
        options = self.out("help", "moe_permute").split("out.safetensors", 1)[1].split("\n")[0].split()
        self.assertRegex(self.out("info", *THERE, "--why", "moe_permute", "in.safetensors", *options),
                         r"\Amoe_permute: cuda\n  alone +rows are not aligned to 16 bytes\n"
                         r"(  \w+ +[a-z0-9 ,]+\n)*  parts +runs\n\Z")
        self.assertEqual(os.listdir(self.folder), ["in.safetensors"])

    def test_planes_and_old_contents(self):
        tensors = {"indices": tensor("I32", [0, -1, 3]), "block_table": tensor("I32", [0, 2, 1]),
                   "cache.0": tensor("F32", [[10 * r, r] for r in range(6)]), "cache.1": tensor("U8", [[r] for r in range(6)]),
                   "out.1": tensor("U8", [[7], [8], [9]])}
        r = self.both("kv_gather", tensors, "--block-size", 2, "--pad", "skip")
        self.equal(r["out.1"], "U8", [[0], [8], [5]])
        tensors = {"cache.0": tensor("F32", [[0, 1]] * 4), "src.0": tensor("F32", [[5, 6]]), "cache.1": tensor("U8", [[2]] * 4),
                   "src.1": tensor("U8", [[7]]), "slots": tensor("I32", [3])}
        r = self.both("kv_scatter", tensors)
        self.equal(r["cache.1"], "U8", [[2], [2], [2], [7]])

    def test_mesh(self):
        """One tensor for each device of the mesh, what was there before, and a fault of the second."""
        mapping = tensor("U16", [[1, 0], [0, 1], [1, 0], [0, 1]])
        tensors = {"input.0": tensor("F32", [[1, 2]]), "input.1": tensor("F32", [[3, 4], [5, 6]]), "expert_mapping": mapping,
                   "expert_indices.0": tensor("I32", [[0, 3]]), "expert_indices.1": tensor("I32", [[2, 0], [-1, 1]])}
        options = ("--mesh", "1x2", "--max-tokens", 2, "--layout", "expert", "--align", 2)
        r = self.both("all_to_all_dispatch", tensors, *options)
        self.assertEqual(r.code, 0, r.err)
        tensors["expert_indices.1"] = tensor("I32", [[2, 0], [-1, 4]])
        r = self.both("all_to_all_dispatch", tensors, *options)
        self.assertIn("SY_ERR_INDEX: expert_indices of device 1 at token 1, slot 1 is 4, want", r.err)

    @needs_mpi
    def test_mesh_of_processes(self):
        """Each is one device, on the GPU that they share; a fault of one is said once."""
        tensors = {"input": tensor("F32", [[[1, 2]], [[3, 4]]]), "expert_mapping": tensor("U16", [[1, 0], [0, 1]]),
                   "expert_indices": tensor("I32", [[[0, 1]], [[1, -1]]])}
        for more in ((), ("--layout", "expert", "--align", 2)):
            options = ("--mesh", "1x2", *more)
            self.assertEqual(self.both("all_to_all_dispatch", tensors, *options).code, 0)
            one = self.read("out.safetensors")
            words = ("run", "all_to_all_dispatch", "in.safetensors", "out.safetensors", *options, *THERE)
            os.unlink(self.path("out.safetensors"))
            done = self.mpirun(2, *words)
            self.assertEqual((done.returncode, done.stdout, self.said(done)), (0, "", []))
            self.assertEqual(self.read("out.safetensors"), one)
        tensors["expert_indices"] = tensor("I32", [[[0, 1]], [[1, 4]]])
        self.assertEqual(self.both("all_to_all_dispatch", tensors, *options).code, 1)
        done = self.mpirun(2, *words)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("SY_ERR_INDEX: expert_indices of device 1 at token 0, slot 1 is 4, want"), 1)

    def test_rejections(self):
        tensors = {"indices": tensor("I32", [0, 7]), "block_table": tensor("I32", [0, 2, 1]), "cache": tensor("F32", [[1]] * 6)}
        r = self.both("kv_gather", tensors, "--block-size", 2)
        self.assertRegex(r.err, r"\Aswitchyard: kv_gather: SY_ERR_INDEX: ")
        r = self.both("kv_gather", tensors, "--block-size", 0)
        self.assertEqual(r.code, 1)
        self.mistake("run", "kv_gather", "in.safetensors", "out", *THERE, "--device-library", LIBRARY, says="--device-library is given twice")
        done = self.cli("run", "sample_noise", "out", "--n", 4, "--device=cuda:1", *THERE[2:])
        self.assertEqual((done.returncode, done.stderr), (2, "switchyard: device is cuda:1, want 0 or more and below 1, the "
                                                             "CUDA devices of this machine\n"))

    def test_operators(self):
        """ops names the devices of each, as the library that it finds has them."""
        ops = self.json("ops", *THERE[2:])["operators"]
        self.assertEqual({op["name"]: op["devices"] for op in ops},
                         {op: ["cpu", "cuda"] if op in on_device() else ["cpu"] for op in OPERATORS})
        lines = self.out("ops", *THERE[2:]).splitlines()
        self.assertEqual([line.split()[0] for line in lines if line.split()[1:3] == ["cpu", "cuda"]],
                         [op for op in OPERATORS if op in on_device()])
        ops = self.json("ops", "--device-library", "/nowhere/x.so")["operators"]
        self.assertEqual({tuple(op["devices"]) for op in ops}, {("cpu",)})

    def test_demo(self):
        text = self.out("demo", *THERE)
        self.assertIn("\n   operators on cuda:0, where it has them: emulated GPU, ", text)
        steps = re.findall(r"^\d  ([a-z_]+) (?:.*\n)*? +[\d.]+ [um]s .*a plain [a-z ]+ of its [\d.]+ [KM]B(.*)$", text, re.M)
        self.assertEqual(len(steps), 8)
        for op, where in steps:
            self.assertEqual(where == ", on the device", not op.startswith("all_to_all"), op)
        self.assertIn("Every result was checked and is right.", text)
        self.assertIn(" &middot; cuda:0 emulated GPU", self.read("demo.html").decode())

    def test_demo_with_slow_copies(self):
        """Steps beside a disturbed copy have a time and no share."""
        text = self.out("demo", *THERE, env={"EMULATED_SLOW": "1"})
        slow = r"a plain copy[a-z ]* of its [\d.]+ [KM]B took [\d.]+ m?s on the device: is the machine busy\?"
        self.assertEqual(len(re.findall(rf"^ +[\d.]+ us +{slow}$", text, re.M)), 5)
        page = self.read("demo.html").decode()
        self.assertEqual(len(re.findall(slow, page)), 5)
        for share in re.findall(r"(\d+)(?:%| percent) of (?:the speed of )?a plain", text + page):
            self.assertLessEqual(int(share), 150)

    def test_info(self):
        info = self.json("info", *THERE[2:])
        self.assertEqual(info["cuda"]["error"], None)
        self.assertEqual(info["cuda"]["devices"], [{"id": "cuda:0", "name": "emulated GPU", "major": 9, "minor": 0,
                                                    "multiprocessors": 4, "memory_bytes": 1 << 30}])
        self.assertIn("  CUDA              cuda:0 emulated GPU, compute capability 9.0, 4 multiprocessors, 1 GiB\n",
                      self.out("info", *THERE[2:]))


@unittest.skipIf(not LIBRARY, "the emulated device was not built")
class Bench(CliTest):
    def test_json(self):
        arguments = ("bench", "kv_gather", "kv_planes", "sample", "all_to_all", "--quick", "--shape", "k=512", "--shape", "k=1024",
                     "--shape", "n=1024", "--shape", "greedy", "--shape", "padded", "--json", *THERE)
        report = json.loads(self.out(*arguments))
        self.assertTrue(report["pass"])
        self.assertEqual((report["device"]["id"], report["device"]["name"]), ("cuda:0", "emulated GPU"))
        self.assertEqual(set(report["limits"]), {"copy_gb_per_s", "fill_gb_per_s", "read_gb_per_s"})
        cases = {(case["op"], case["shape"]): case for case in report["cases"]}
        self.assertEqual(sorted(op for op, _ in cases), ["all_to_all_dispatch"] * 2 + ["kv_gather", "kv_gather", "kv_scatter", "sample"])
        for case in cases.values():
            self.assertTrue(case["checked"])
            self.assertEqual((case["turns"], case["sets"], case["calls"]), (3, 2, 2))
            for field in ("seconds", "bytes", "gb_per_s", "limit_seconds", "share_of_limit", "times_limit"):
                self.assertGreater(case[field], 0, field)

    def test_choices(self):
        """What each case takes on 132 multiprocessors, where there is a choice; SWITCHYARD_RECORD=1 writes the list."""
        done = self.out("bench", "--why", "kv", "moe", "quantize_rows", "dequantize_rows", "sample", "local_reduce", *THERE,
                        env={"EMULATED_PROCESSORS": "132"})
        lines = [re.sub(" {2,}", "  ", line.rstrip()) for line in done.splitlines()]
        text = "".join(f"{line}\n" for line in lines if line.count("  ") == 2)
        path = os.path.join(ROOT, "tests", "cuda", "choices.txt")
        if os.environ.get("SWITCHYARD_RECORD"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(text.splitlines(), file.read().splitlines())

    def test_every_operator(self):
        """Each case has the CPU's bytes, and every operator but one for the host is on the device."""
        text = self.out("bench", "--quick", *THERE)
        rows = text.split("\n\n")[1].splitlines()[1:]
        self.assertEqual({row.split()[0] for row in rows}, set(OPERATORS))
        self.assertEqual(set(OPERATORS) - set(on_device()), {"moe_place"})
        self.assertIn(f"{len(rows) - 1} cases checked against the CPU, 0 wrong, 1 not on the device\n", text)

    def test_wrong_results_are_not_timed(self):
        arguments = ("bench", "kv_gather", "--quick", "--shape", "k=1024", "--json", *THERE)
        done = self.cli(*arguments, env={"EMULATED_WRONG": "1"})
        reason = "out on the device differs from the CPU's"
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"switchyard: bench: kv_gather 1152 B B=1 k=1024 of 32k S=64: {reason}\n"))
        report = json.loads(done.stdout)
        self.assertEqual((report["pass"], report["cases"][0]["checked"], report["cases"][0]["reason"]), (False, False, reason))
        checked = self.cli(*arguments, "--check", env={"EMULATED_WRONG": "1"})
        self.assertEqual((checked.returncode, checked.stderr), (1, done.stderr))
        self.assertEqual(json.loads(checked.stdout)["cases"], report["cases"])
        self.assertEqual(self.cli(*arguments, "--check").returncode, 0)

    def test_peers(self):
        """The other process is told the device; one without CUDA is left out."""
        stub = self.write("stub", f"#!/bin/sh\ncat > '{self.path('asked')}'\necho '{{\"results\": []}}'\n".encode())
        os.chmod(stub, 0o700)
        arguments = ("bench", "kv_gather", "--quick", "--shape", "k=1024", "--peers", *THERE)
        done = self.cli(*arguments, env={"SWITCHYARD_PYTHON": stub})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        asked = json.loads(self.read("asked"))
        self.assertEqual((asked["device"], asked["cold_bytes"]), ("cuda:0", 300 << 20))
        self.assertEqual(asked["cases"], ["1152 B B=1 k=1024 of 32k S=64"])
        done = self.cli(*arguments, env={"SWITCHYARD_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""})
        self.assertRegex(done.stdout, r"\npytorch: [^\n]+, left out\n")

    def test_formats(self):
        for options, says, rows in (((), "cold", 1), (("--warm",), "warm", 1), (("--cold", "--warm"), "cold and warm", 2)):
            arguments = ("bench", "kv_gather", "--quick", "--shape", "k=1024", *THERE, *options)
            text = self.out(*arguments)
            self.assertIn(f", cuda:0, CUDA graphs, {says} buffers, quick\nemulated GPU, compute capability 9.0, ", text)
            self.assertEqual(text.count("% of copy"), rows)


if __name__ == "__main__":
    unittest.main()
