"""--device cuda, on the emulated device: bench. Times are never judged."""
import json
import os
import re
import unittest

from st import OPERATORS, ROOT, CliTest

LIBRARY = os.environ.get("SWITCHYARD_EMULATED_CUDA")
THERE = ("--device", "cuda", "--device-library", LIBRARY)


def on_device():
    """Operators of the backend, from its own list."""
    with open(os.path.join(ROOT, "src", "cuda", "backend.cuh"), encoding="utf-8") as file:
        return re.findall(r"X\([A-Z_]+, (\w+)\)", file.read())


class Usage(CliTest):
    """What needs no device."""

    def test_without_a_library(self):
        done = self.cli("bench", "kv_gather", "--quick", "--device", "cuda", "--device-library", "/nowhere/x.so")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"\Aswitchyard: libswitchyard_cuda\.so[.\d]* could not be loaded: [^\n]*/nowhere/x.so[^\n]*\n\Z")

    def test_names_of_devices(self):
        for name in ("gpu", "cuda:", "cuda:x", "cuda:-1", "cuda0", ""):
            done = self.cli("bench", "kv_gather", "--quick", "--device", name)
            self.assert_usage(done.returncode, done.stderr, f"--device is {name}, want cpu, cuda or cuda:N")
        done = self.cli("bench", "--device", "cpu", "--device", "cpu")
        self.assert_usage(done.returncode, done.stderr, "--device is given twice")

    def test_peers(self):
        done = self.cli("bench", "--device", "cuda", "--peers")
        self.assert_usage(done.returncode, done.stderr, "--peers does not go together with --device cuda")

    def test_cases(self):
        """Those of a device are in the list, and no operator is without one."""
        lines = self.cli("bench", "--list", "--device", "cuda").stdout.splitlines()
        cases = [tuple(line.split(None, 1)) for line in lines]
        self.assertEqual(len(set(cases)), len(cases))
        self.assertEqual({op for op, _ in cases}, set(OPERATORS) | {"kv_planes", "kv_format"})
        self.assertIn(("moe_permute", "bf16 T=32768 E=256 K=8 H=7168"), cases)
        self.assertNotIn(("moe_permute", "bf16 T=32768 E=256 K=8 H=7168"),
                         [tuple(line.split(None, 1)) for line in self.cli("bench", "--list").stdout.splitlines()])


@unittest.skipIf(not LIBRARY, "the emulated device was not built")
class Bench(CliTest):
    def test_json(self):
        arguments = ("bench", "kv_gather", "kv_planes", "sample", "all_to_all", "--quick", "--shape", "k=512", "--shape", "k=1024",
                     "--shape", "n=1024", "--shape", "greedy", "--shape", "padded", "--json", *THERE)
        done = self.cli(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads(done.stdout)
        self.assertTrue(report["pass"])
        self.assertEqual((report["device"]["id"], report["device"]["name"]), ("cuda:0", "emulated GPU"))
        self.assertEqual(set(report["limits"]), {"copy_gb_per_s", "fill_gb_per_s", "read_gb_per_s"})
        cases = {(case["op"], case["shape"]): case for case in report["cases"]}
        absent = cases.pop(("all_to_all_dispatch", "bf16 D=8 N=16 E=64 K=4 H=256 padded"))
        self.assertEqual(absent["on_device"], False)
        self.assertEqual(sorted(op for op, _ in cases), ["kv_gather", "kv_gather", "kv_scatter", "sample"])
        for case in cases.values():
            self.assertTrue(case["checked"])
            self.assertEqual((case["turns"], case["sets"], case["calls"]), (3, 2, 2))
            for field in ("seconds", "bytes", "gb_per_s", "limit_seconds", "share_of_limit", "times_limit"):
                self.assertGreater(case[field], 0, field)

    def test_every_operator(self):
        """Each case of the backend's operators has the CPU's bytes; each of the others is printed."""
        done = self.cli("bench", "--quick", *THERE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = done.stdout.split("\n\n")[1].splitlines()[1:]
        self.assertEqual({row.split()[0] for row in rows if "not on the device" not in row}, set(on_device()))
        self.assertEqual({row.split()[0] for row in rows if "not on the device" in row}, set(OPERATORS) - set(on_device()))
        absent = sum("not on the device" in row for row in rows)
        self.assertIn(f"{len(rows) - absent} cases checked against the CPU, 0 wrong, {absent} not on the device", done.stdout)

    def test_formats(self):
        for options, says, rows in (((), "cold", 1), (("--warm",), "warm", 1), (("--cold", "--warm"), "cold and warm", 2)):
            arguments = ("bench", "kv_gather", "--quick", "--shape", "k=1024", *THERE, *options)
            text = self.cli(*arguments).stdout
            self.assertIn(f", cuda:0, CUDA graphs, {says} buffers, quick\nemulated GPU, compute capability 9.0, ", text)
            self.assertEqual(text.count("% of copy"), rows)
            head, limits, table, end = self.cli(*arguments, "--markdown").stdout.split("\n\n")
            self.assertIn(f", `cuda:0`, CUDA graphs, {says} buffers, quick. emulated GPU", head)
            self.assertRegex(limits, r"\ALimits, cold: copy [\d.]+ GB/s \(read and written\), fill [\d.]+ GB/s, read [\d.]+ GB/s\.\Z")
            self.assertEqual({line.count("|") for line in table.splitlines()}, {6 + rows})
            self.assertEqual(len(table.splitlines()), 2 + rows)
            self.assertEqual(end, "1 case checked against the CPU, 0 wrong.\n")


if __name__ == "__main__":
    unittest.main()
