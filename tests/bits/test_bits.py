"""The results of this build, scenario by scenario, against tests/bits/expected.txt.

    SWITCHYARD_BITS=build/release/bits python3 tests/bits/test_bits.py --update

records new results; do that only together with a new sy_results_version() and a line in the CHANGELOG.
SWITCHYARD_RUN may name an emulator.
"""
import os
import shlex
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "expected.txt")
BITS = os.environ.get("SWITCHYARD_BITS")


def run_bits():
    done = subprocess.run(shlex.split(os.environ.get("SWITCHYARD_RUN", "")) + [BITS], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def of_operator(text, operator):
    return [line for line in text.splitlines() if line.startswith(operator + " ")]


@unittest.skipUnless(BITS, "SWITCHYARD_BITS names the program")
class Bits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.got = run_bits()
        with open(EXPECTED, encoding="utf-8") as file:
            cls.want = file.read()

    def check(self, operator):
        got, want = of_operator(self.got, operator), of_operator(self.want, operator)
        self.assertTrue(want)
        wrong = [f"{w}   expected\n{g}   found" for g, w in zip(got, want) if g != w]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
        self.assertEqual(len(got), len(want))

    def test_results_version(self):
        self.check("results_version")

    def test_moe_route(self):
        self.check("moe_route")

    def test_moe_map_from_ids(self):
        self.check("moe_map_from_ids")

    def test_moe_ids_from_map(self):
        self.check("moe_ids_from_map")

    def test_moe_permute(self):
        self.check("moe_permute")

    def test_moe_unpermute(self):
        self.check("moe_unpermute")

    def test_moe_permute_grad(self):
        self.check("moe_permute_grad")

    def test_moe_permute_ids(self):
        self.check("moe_permute_ids")

    def test_moe_unpermute_ids(self):
        self.check("moe_unpermute_ids")

    def test_local_reduce(self):
        self.check("local_reduce")

    def test_moe_align_block(self):
        self.check("moe_align_block")

    def test_moe_pad_map(self):
        self.check("moe_pad_map")

    def test_moe_reorder_chunks(self):
        self.check("moe_reorder_chunks")

    def test_moe_convert_indices(self):
        self.check("moe_convert_indices")

    def test_moe_unpermute_grad(self):
        self.check("moe_unpermute_grad")

    def test_moe_dispatch(self):
        self.check("moe_dispatch")

    def test_moe_combine(self):
        self.check("moe_combine")

    def test_moe_dispatch_grad_gate(self):
        self.check("moe_dispatch_grad_gate")

    def test_moe_locations(self):
        self.check("moe_locations")

    def test_moe_capacity(self):
        self.check("moe_capacity")

    def test_kv_gather(self):
        self.check("kv_gather")

    def test_kv_scatter(self):
        self.check("kv_scatter")

    def test_kv_translate(self):
        self.check("kv_translate")

    def test_kv_slots(self):
        self.check("kv_slots")

    def test_kv_ragged(self):
        self.check("kv_ragged")

    def test_kv_lists(self):
        self.check("kv_lists")

    def test_kv_blocks(self):
        self.check("kv_blocks")

    def test_sample(self):
        self.check("sample")

    def test_sample_noise(self):
        self.check("sample_noise")

    def test_all_to_all_dispatch(self):
        self.check("all_to_all_dispatch")

    def test_all_to_all_combine(self):
        self.check("all_to_all_combine")

    def test_scenes_are_mostly_accepted(self):
        """A table of hashes of refusals would prove nothing."""
        done = sum(int(line.split()[-4]) for line in self.got.splitlines() if line.endswith("refused"))
        refused = sum(int(line.split()[-2]) for line in self.got.splitlines() if line.endswith("refused"))
        self.assertGreater(done, 10 * refused)
        self.assertGreater(refused, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        with open(EXPECTED, "w", encoding="utf-8") as out:
            out.write(run_bits())
    else:
        unittest.main()
