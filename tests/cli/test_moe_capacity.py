"""moe_capacity through `switchyard run`: worked examples, defaults, refusals."""
import unittest

from st import CliTest, tensor

COUNTS = {"counts": tensor("I64", [4, 4, 2])}
SIZES = ("--samples", 5, "--num-experts", 3, "--k", 2)


class Examples(CliTest):
    def test_factors(self):
        for factor, want in ((1, 4), (0.5, 2), (0, 4), (-0.5, 2), (-1, 4)):
            with self.subTest(factor):
                r = self.ok("moe_capacity", COUNTS, *SIZES, f"--factor={factor}")
                self.equal(r["capacity"], "I64", [want])
                self.assertEqual(list(r.outputs), ["capacity"])
                r = self.ok("moe_capacity", COUNTS, *SIZES, f"--factor={factor}", "--alignment", 4)
                self.equal(r["capacity"], "I64", [4])

    def test_a_share_needs_no_counts(self):
        for samples, want in ((18432, 11520), (4608, 2880)):
            r = self.ok("moe_capacity", {}, "--samples", samples, "--num-experts", 2, "--factor", 1.25)
            self.equal(r["capacity"], "I64", [want])

    def test_the_factor_is_a_double(self):
        """As f32 it would be 0.69999999 and give 6."""
        r = self.ok("moe_capacity", {}, "--samples", 10, "--num-experts", 1, "--factor", 0.7)
        self.equal(r["capacity"], "I64", [7])

    def test_defaults(self):
        r = self.ok("moe_capacity", COUNTS, "--samples", 5, "--num-experts", 3)
        self.equal(r["capacity"], "I64", [4])

    def test_counts_of_32_bits(self):
        r = self.ok("moe_capacity", {"counts": tensor("I32", [7, 9])}, "--samples", 5, "--num-experts", 2)
        self.equal(r["capacity"], "I64", [9])

    def test_counts_of_moe_locations(self):
        located = self.ok("moe_locations", {"indices": tensor("I32", [[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]])},
                          "--num-experts", 3)
        r = self.ok("moe_capacity", {"counts": located["counts"]}, *SIZES)
        self.equal(r["capacity"], "I64", [4])


class Refusals(CliTest):
    def test_missing_counts(self):
        for factor in (0, -1):
            self.refused("moe_capacity", {}, *SIZES, f"--factor={factor}", status="SY_ERR_NULL", says="counts")

    def test_counts(self):
        self.refused("moe_capacity", {"counts": tensor("F32", [1, 2, 3])}, *SIZES, status="SY_ERR_DTYPE",
                     says="counts")
        self.refused("moe_capacity", {"counts": tensor("I64", [1, 2])}, *SIZES, status="SY_ERR_SHAPE", says="[3]")
        self.refused("moe_capacity", {"counts": tensor("I64", [1, -5, 2])}, *SIZES, status="SY_ERR_INDEX",
                     says="counts is -5 for expert 1")

    def test_values(self):
        for option, value, says in (("--samples", -1, "samples"), ("--num-experts", 0, "num_experts"),
                                    ("--k", -2, "k is -2"), ("--alignment", -4, "alignment"),
                                    ("--factor", "nan", "factor"), ("--factor", "inf", "factor")):
            with self.subTest(option):
                fields = {"--samples": 5, "--num-experts": 3, "--factor": 1, option: value}
                self.refused("moe_capacity", {}, *[f"{k}={v}" for k, v in fields.items()], status="SY_ERR_VALUE",
                             says=says)

    def test_overflow(self):
        self.refused("moe_capacity", {}, *SIZES, "--factor", 1e30, status="SY_ERR_OVERFLOW", says="2^63")

    def test_required(self):
        self.usage("moe_capacity", COUNTS, "--samples", 5, says="--num-experts")
        self.usage("moe_capacity", COUNTS, "--num-experts", 3, says="--samples")


if __name__ == "__main__":
    unittest.main()
