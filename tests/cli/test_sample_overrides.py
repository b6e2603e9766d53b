"""sample_overrides through `switchyard run`: worked examples, its result as input of sample, refusals."""
import unittest

from st import INF, CliTest, bf16, f32, tensor

X6 = [0, 1, 2, 3, 2.5, -1]


def lists(name, *rows, dtype="I32"):
    """CSR of one list per row."""
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    return {f"{name}_indptr": tensor("I64", ends), f"{name}_token": tensor(dtype, [t for row in rows for t in row])}


def call(*rows, dtype="F32", **more):
    return dict({"logits": tensor(dtype, [list(row) for row in rows])}, **more)


HISTORY = dict(lists("prompt", [5, 3]), **lists("output", [3, 4, 3]))


class OverridesTest(CliTest):
    def overrides(self, tensors, *options):
        """Per row: pairs of token and logit."""
        r = self.ok("sample_overrides", tensors, *options)
        self.assertEqual(list(r.outputs), ["override_indptr", "override_token", "override_logit"])
        ends, pairs = r["override_indptr"].values(), list(zip(r["override_token"].values(),
                                                              r["override_logit"].values()))
        return [pairs[a:b] for a, b in zip(ends, ends[1:])]


class Examples(OverridesTest):
    def test_penalties(self):
        tensors = call(X6, **HISTORY)
        for options, want in ((("--repetition-penalty", 2, "--frequency-penalty", .5), [(3, .5), (4, .75), (5, -2)]),
                              (("--repetition-penalty", 2, "--frequency-penalty", .5, "--presence-penalty", .25),
                               [(3, .25), (4, .5), (5, -2)]),
                              (("--presence-penalty", .25), [(3, 2.75), (4, 2.25)]),
                              (("--repetition-penalty", "nan"), []), ((), [])):
            with self.subTest(options):
                self.assertEqual(self.overrides(tensors, *options), [want])

    def test_biases(self):
        tensors = call(X6, **lists("bias", [3, 0, 2, 0]), bias=tensor("F32", [-INF, 10, 0, -4]))
        self.assertEqual(self.overrides(tensors), [[(0, 6), (3, -INF)]])

    def test_rows_and_their_penalties(self):
        tensors = call([1, 2], [1, 2], [1, 2], **lists("output", [1, 1], [], [0], dtype="I64"),
                       frequency_penalty=tensor("F32", [1, 1, .5]), presence_penalty=tensor("F32", [[0], [0], [.25]]))
        self.assertEqual(self.overrides(tensors), [[(1, 0)], [], [(0, .25)]])

    def test_bf16_logits_give_f32_overrides(self):
        tensors = call([bf16(x) for x in (1, 3)], dtype="BF16", **lists("output", [0]))
        self.assertEqual(self.overrides(tensors, "--repetition-penalty", 3), [[(0, f32(1 / 3))]])

    def test_the_rest_is_zero(self):
        r = self.ok("sample_overrides", call(X6, **HISTORY), "--presence-penalty", .25)
        self.equal(r["override_indptr"], "I64", [0, 2])
        self.equal(r["override_token"], "I32", [3, 4, 0, 0, 0])
        self.equal(r["override_logit"], "F32", [2.75, 2.25, 0, 0, 0])

    def test_no_rows(self):
        r = self.ok("sample_overrides", call(X6))
        self.equal(r["override_indptr"], "I64", [0, 0])
        self.equal(r["override_token"], "I32", [], [0])


class WithSample(OverridesTest):
    def test_what_is_built_is_what_sample_takes(self):
        tensors = call(X6, X6, **lists("output", [3, 4, 3], []))
        edits = self.ok("sample_overrides", tensors, "--frequency-penalty", 1).outputs
        r = self.ok("sample", dict(call(X6, X6), **edits), "--masked-logits")
        self.equal(r["token"], "I64", [2, 3])
        self.equal(r["masked_logits"], "F32", [[0, 1, 2, 1, 1.5, -1], X6])

    def test_a_ban(self):
        tensors = call(X6, **lists("bias", [3]), bias=tensor("F32", [-INF]))
        edits = self.ok("sample_overrides", tensors).outputs
        self.equal(self.ok("sample", dict(call(X6), **edits))["token"], "I64", [4])


class Refusals(OverridesTest):
    def test_tokens_and_ends(self):
        for name, t, status in (("output_token", tensor("I32", [3, 6, 3]), "INDEX"),
                                ("output_token", tensor("I32", [3, -1, 3]), "INDEX"),
                                ("output_token", tensor("F32", [3, 4, 3]), "DTYPE"),
                                ("prompt_indptr", tensor("I64", [2, 0]), "INDEX"),
                                ("prompt_indptr", tensor("I64", [0, 3]), "INDEX"),
                                ("prompt_indptr", tensor("I64", [0]), "SHAPE"),
                                ("repetition_penalty", tensor("F64", [1]), "DTYPE"),
                                ("logits", tensor("F32", X6), "SHAPE")):
            with self.subTest(name):
                self.refused("sample_overrides", dict(call(X6, **HISTORY), **{name: t}), status=f"SY_ERR_{status}",
                             says=name)

    def test_half_a_list(self):
        for name in HISTORY:
            self.refused("sample_overrides", call(X6, **{name: HISTORY[name]}), status="SY_ERR_NULL", says="is missing while")
        self.refused("sample_overrides", call(X6, **lists("bias", [1])), status="SY_ERR_NULL", says="bias")

    def test_missing_logits(self):
        self.refused("sample_overrides", HISTORY, status="SY_ERR_NULL", says="logits")

    def test_results_are_no_input(self):
        self.usage("sample_overrides", call(X6, override_token=tensor("I32", [1])), says="override_token")


if __name__ == "__main__":
    unittest.main()
