"""`switchyard compare`: the accuracy metrics, what counts as failure, tolerances, output forms."""
import json
import struct
import unittest

from st import INF, NAN, CliTest, Tensor, encode, raw, tensor

BASE, EVALUATED = [1, -2, 0, 4], [1.5, -2, 1e-7, 3]


class CompareTest(CliTest):
    def compare(self, a, b, *options):
        self.write("a.safetensors", encode(a))
        self.write("b.safetensors", encode(b))
        return self.cli("compare", "a.safetensors", "b.safetensors", *options)

    def results(self, a, b, *options):
        """{(tensor, metric): result}, and the exit code."""
        done = self.compare(a, b, "--json", *options)
        self.assertEqual(done.stderr, "")
        report = json.loads(done.stdout)
        self.assertEqual(report["pass"], done.returncode == 0)
        self.assertEqual(report["pass"], all(r["pass"] for r in report["results"]))
        return {(r["tensor"], r["metric"]): r for r in report["results"]}, done.returncode

    def one(self, metric, evaluated, baseline, *options, dtype="F32"):
        """The result of one metric on one tensor."""
        a, b = ({"x": v if isinstance(v, Tensor) else tensor(dtype, v)} for v in (evaluated, baseline))
        results, _ = self.results(a, b, "--metric", metric, *options)
        return results["x", metric]


class Metrics(CompareTest):
    def test_example_i(self):
        got, code = self.results({"x": tensor("F32", EVALUATED)}, {"x": tensor("F32", BASE)},
                                 "--metric", "diff1,diff2,diff3,diff3_1,diff3_2,diff4,bits")
        self.assertEqual(code, 1)
        self.assertAlmostEqual(got["x", "diff1"]["value"], 0.214286, 6)
        self.assertAlmostEqual(got["x", "diff2"]["value"], 0.243975, 6)
        self.assertAlmostEqual(got["x", "diff3"]["value"], 0.5, 6)
        self.assertAlmostEqual(got["x", "diff3"]["m1"], 0.5, 12)
        self.assertAlmostEqual(got["x", "diff3"]["m2"], 1e-7, 12)
        self.assertIsNone(got["x", "diff3_1"]["value"])  # infinite
        self.assertFalse(got["x", "diff3_1"]["pass"])
        self.assertEqual(got["x", "diff3_2"]["value"], 1)
        self.assertEqual((got["x", "diff4"]["p1"], got["x", "diff4"]["p2"], got["x", "diff4"]["n"]), (2 / 3, 1 / 3, 3))
        self.assertTrue(got["x", "diff4"]["pass"])
        self.assertEqual(got["x", "bits"]["value"], 3)

    def test_example_i_as_text(self):
        done = self.compare({"x": tensor("F32", EVALUATED)}, {"x": tensor("F32", BASE)},
                            "--metric", "diff1,diff2,diff3,diff3_1")
        self.assertEqual(done.returncode, 1)
        for text in ("0.214286", "0.243975", "0.5 (m1 0.5, m2 1e-07)", "inf"):
            self.assertIn(text, done.stdout)
        self.assertEqual(done.stdout.count("FAIL"), 4)
        self.assertTrue(done.stdout.endswith("4 of 4 comparisons failed\n"))

    def test_the_first_difference_is_named(self):
        a, b = ({"x": tensor("F32", values, [2, 1, 3])} for values in ([1, NAN, 3, -0.0, 5, 6], [1, -NAN, 3, 0, 5.5, 6]))
        done = self.compare(a, b)
        self.assertEqual(done.stdout.splitlines()[1].strip(), "first at [1,0,0]: -0, baseline 0")
        self.assertNotIn("first at", self.compare(a, a).stdout + self.compare(a, b, "--metric", "diff1").stdout)

    def test_a_is_the_evaluated_side(self):
        self.assertAlmostEqual(self.one("diff1", [2], [1])["value"], 1, 6)
        self.assertAlmostEqual(self.one("diff1", [1], [2])["value"], 0.5, 6)

    def test_equal_files_pass_everything(self):
        for values in ([1, -2, 0, 4], [0, 0, 0], [NAN, INF, -INF, 1]):
            got, code = self.results({"x": tensor("F32", values)}, {"x": tensor("F32", values)},
                                     "--metric", "diff1,diff2,diff3,diff3_1,diff3_2,diff4,bits", "--tol", 0)
            self.assertEqual(code, 0, got)

    def test_diff3_is_absolute_at_the_threshold(self):
        for dtype, at in (("F32", 1e-6), ("F16", 2.0**-14)):  # f16: below 1e-4
            got = self.one("diff3", [2 * at], [at], dtype=dtype)
            self.assertEqual(got["m1"], 0)
            self.assertAlmostEqual(got["m2"] / at, 1, 3)

    def test_diff3_is_relative_above_the_threshold(self):
        self.assertAlmostEqual(self.one("diff3", [4e-6], [2e-6])["m1"], 1, 3)
        self.assertAlmostEqual(self.one("diff3", [2.0**-12], [2.0**-13], dtype="F16")["m1"], 1, 3)
        got = self.one("diff3", tensor("BF16", [0x3900]), tensor("BF16", [0x3980]))  # 2^-13 and 2^-12
        self.assertEqual((got["m1"], got["m2"]), (.5, 0))

    def test_diff3_threshold_of_other_types_is_zero(self):
        got = self.one("diff3", [2e-9], [1e-9], dtype="F64")
        self.assertEqual(got["m1"], 1)
        self.assertEqual(self.one("diff3", [7], [0], dtype="I32")["m2"], 7)

    def test_diff3_1_zero_by_zero(self):
        self.assertEqual(self.one("diff3_1", [0, 3], [0, 2])["value"], .5)

    def test_diff4_needs_a_hundred(self):
        base = [float(i) for i in range(1, 101)]
        above = [x + 0.5 for x in base]
        got = self.one("diff4", above[:99], base[:99])
        self.assertEqual((got["n"], got["p1"], got["p2"], got["pass"]), (99, 1, 0, True))
        got = self.one("diff4", above, base)
        self.assertEqual((got["n"], got["pass"]), (100, False))
        got = self.one("diff4", above[:99] + [base[99] - 1], base)
        self.assertEqual((got["n"], got["p2"], got["pass"]), (100, .01, True))

    def test_empty_arrays_pass(self):
        none = {"x": Tensor("F32", [0, 4], b"")}
        self.assertEqual(self.results(none, none, "--metric", "diff1,diff2,diff3,diff3_1,diff3_2,diff4,bits")[1], 0)

    def test_nothing_to_compare_is_no_pass(self):
        done = self.compare({}, {})
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing to compare", done.stderr)

    def test_nan_and_infinity_on_both_sides_leave_the_sums(self):
        got = self.one("diff1", [NAN, INF, -INF, 2], [NAN, INF, -INF, 1])
        self.assertAlmostEqual(got["value"], 1, 6)
        self.assertEqual(got["not_finite"], 0)

    def test_nan_or_infinity_on_one_side_fails_every_metric(self):
        for e, b in ((NAN, 1), (1, NAN), (INF, 1), (INF, -INF), (NAN, INF)):
            got, code = self.results({"x": tensor("F32", [e, 1])}, {"x": tensor("F32", [b, 1])},
                                     "--metric", "diff1,diff2,diff3,diff3_1,diff3_2,diff4,bits", "--tol", 1e30)
            self.assertEqual(code, 1)
            self.assertEqual([r["pass"] for r in got.values()], [False] * 7)

    def test_bits(self):
        nans = [Tensor("F32", [2], struct.pack("<2I", a, 0)) for a in (0x7fc00000, 0xff800001)]
        self.assertTrue(self.one("bits", *nans)["pass"])
        self.assertEqual(self.one("bits", *nans, "--nan-bits")["value"], 1)
        self.assertTrue(self.one("bits", nans[0], nans[0], "--nan-bits")["pass"])
        self.assertEqual(self.one("bits", [0.0, 1], [-0.0, 1])["value"], 1)
        self.assertEqual(self.one("bits", [2**53], [2**53 + 1], dtype="I64")["value"], 1)
        self.assertTrue(self.one("bits", tensor("F8_E4M3", [0x7f]), tensor("F8_E4M3", [0xff]))["pass"])
        self.assertFalse(self.one("bits", tensor("U8", [0x7f]), tensor("U8", [0xff]))["pass"])

    def test_64_bit_integers_keep_their_difference(self):
        self.assertEqual(self.one("diff3_2", [2**62 + 1], [2**62], dtype="I64")["value"], 1)
        self.assertEqual(self.one("diff3_2", [2**64 - 1], [2**64 - 3], dtype="U64")["value"], 2)
        self.assertEqual(self.one("diff3_2", [-2**63], [2**63 - 1], dtype="I64")["value"], float(2**64 - 1))

    def test_value_of_every_type(self):
        # one against zero: the largest absolute error is the value itself
        for dtype, bits, value in (("F16", 0x3c01, 1 + 2**-10), ("BF16", 0x3f81, 1 + 2**-7), ("F8_E4M3", 0x7e, 448),
                                   ("F8_E4M3", 0x01, 2**-9), ("F8_E5M2", 0x7b, 57344), ("F8_E5M2", 0x81, 2**-16),
                                   ("F16", 0x8001, 2**-24), ("F16", 0xfbff, 65504)):
            size = 2 if dtype.endswith("16") else 1
            e = Tensor(dtype, [1], bits.to_bytes(size, "little"))
            with self.subTest((dtype, bits)):
                self.assertEqual(self.one("diff3_2", e, Tensor(dtype, [1], bytes(size)))["value"], value)
        e8m0 = [Tensor("F8_E8M0", [1], bytes([x])) for x in (130, 127)]
        self.assertEqual(self.one("diff3_2", *e8m0)["value"], 7)
        for dtype, value in (("I8", -128), ("I16", -32768), ("I32", -2**31), ("U8", 255), ("U16", 65535),
                             ("U32", 2**32 - 1), ("BOOL", 1), ("F64", 0.1)):
            with self.subTest(dtype):
                self.assertEqual(self.one("diff3_2", [value], [0], dtype=dtype)["value"], abs(value))


class Failures(CompareTest):
    X = tensor("F32", [1, 2])

    def test_tensor_on_one_side_only(self):
        one = {"x": self.X}
        for a, b, name in ((dict(one, y=self.X), one, "y"), (one, dict(one, z=self.X), "z")):
            got, code = self.results(a, b)
            self.assertEqual(code, 1)
            self.assertIn("only in", got[name, None]["reason"])
            self.assertTrue(got["x", "bits"]["pass"])

    def test_other_shape(self):
        got, code = self.results({"x": self.X}, {"x": tensor("F32", [[1, 2]])})
        self.assertEqual((code, got["x", None]["reason"]), (1, "F32 [2] against F32 [1,2]"))

    def test_other_type(self):
        got, code = self.results({"x": tensor("I32", [1, 2])}, {"x": tensor("U32", [1, 2])})
        self.assertEqual((code, got["x", None]["reason"]), (1, "I32 [2] against U32 [2]"))

    def test_one_tensor_by_name(self):
        a, b = {"x": self.X, "y": self.X}, {"x": self.X, "y": tensor("F32", [1, 3])}
        self.assertEqual(self.results(a, b)[1], 1)
        got, code = self.results(a, b, "--tensor", "x")
        self.assertEqual((code, list(got)), (0, [("x", "bits")]))
        self.assertEqual(self.results(a, b, "--tensor", "x", "--tensor=y")[1], 1)

    def test_tensor_nobody_has(self):
        done = self.compare({"x": self.X}, {"x": self.X}, "--tensor", "w")
        self.assert_usage(done.returncode, done.stderr, "tensor w")

    def test_lines_are_aligned(self):
        tensors = {"a": self.X, "a_longer_name": self.X}
        done = self.compare(tensors, tensors, "--metric", "bits,diff1")
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 5)
        self.assertEqual(len({line.index("pass") for line in lines[:4]}), 1)
        self.assertEqual(lines[4], "4 comparisons, all pass")


class Many(CompareTest):
    def write_many(self, name, n, more):
        entries = [b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(n)]
        self.write(name, raw(b"{" + b",".join(entries + [more]) + b"}", b"\1"))

    def test_many_tensors(self):
        """A search through all tensors for each of them took 34 s for 80,000, and would not end in time here."""
        n = 320_000
        self.write_many("a.safetensors", n, b'"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}')
        self.write_many("b.safetensors", n, b'"y":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}')
        done = self.cli("compare", "a.safetensors", "b.safetensors")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), n + 3)
        self.assertTrue(lines[n].startswith("x ") and "only in a.safetensors" in lines[n], lines[n])
        self.assertTrue(lines[n + 1].startswith("y ") and "only in b.safetensors" in lines[n + 1], lines[n + 1])
        self.assertEqual(lines[n + 2], f"2 of {n + 2} comparisons failed")


class Tolerances(CompareTest):
    A, B = {"x": tensor("F32", [1.002])}, {"x": tensor("F32", [1])}

    def passes(self, *options):
        return self.results(self.A, self.B, *options)[1] == 0

    def test_defaults(self):
        self.assertTrue(self.passes("--metric", "diff1,diff2"))
        self.assertFalse(self.passes())
        for metric in ("bits", "diff3", "diff3_1", "diff3_2"):
            self.assertFalse(self.passes("--metric", metric))

    def test_one_for_all(self):
        self.assertTrue(self.passes("--metric", "diff1,diff2,diff3,diff3_1,diff3_2", "--tol", "0.01"))
        self.assertFalse(self.passes("--metric", "diff1", "--tol", "0.001"))
        self.assertTrue(self.passes("--metric", "bits", "--tol", "1"))

    def test_by_name(self):
        self.assertTrue(self.passes("--metric", "diff1,diff3", "--tol", "diff3=0.01"))
        self.assertFalse(self.passes("--metric", "diff1,diff3", "--tol", "diff3=0.01,diff1=1e-6"))
        self.assertTrue(self.passes("--metric=diff1,diff3", "--tol=1e-9,diff1=0.1,diff3=0.1"))

    def test_equality_passes(self):
        for tolerance, code in ((2, 0), (1.999, 1)):
            self.assertEqual(self.one("diff3_2", [3], [1], "--tol", tolerance)["pass"], code == 0)

    def test_infinite_tolerance_does_not_pass_an_infinite_error(self):
        self.assertFalse(self.one("diff3_1", [1], [0], "--tol", "inf")["pass"])

    def test_usage(self):
        for options, says in ((("--tol", "x"), "not a number"), (("--tol", "-1"), "from 0 up"),
                              (("--tol", "nan"), "from 0 up"), (("--tol", "diff9=1"), "diff9"),
                              (("--tol", "diff4=1"), "diff4"), (("--tol",), "needs a value"),
                              (("--metric", "diff9"), "diff9"), (("--metric", "diff1,,bits"), "unknown metric"),
                              (("--metric", ""), "unknown metric"), (("--frob",), "--frob")):
            with self.subTest(options):
                done = self.compare(self.A, self.B, *options)
                self.assert_usage(done.returncode, done.stderr, says)

    def test_words(self):
        for words in ((), ("a",), ("a", "b", "c")):
            done = self.cli("compare", *words)
            self.assertEqual(done.returncode, 2)

    def test_unreadable(self):
        done = self.cli("compare", "nowhere", "nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "switchyard: nowhere: cannot be opened: No such file or directory\n")


if __name__ == "__main__":
    unittest.main()
