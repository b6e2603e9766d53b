"""sample, sample_overrides and sample_noise through `switchyard run`: spellings of options, files, one operator after another."""
import os
import unittest

from st import INF, CliTest, decode, encode, f32, tensor

ROW = [0, 1, 2, 3, 2.5]
X6 = [0, 1, 2, 3, 2.5, -1]
SEED_12 = [f32(q) for q in (1.63547158, 5.14151907, .118143849, .653757691)]
AT = ("--n", 4, "--offset", 5, "--stream", 2)


def logits(*rows, **more):
    return dict({"logits": tensor("F32", [list(row) for row in rows])}, **more)


class Sample(CliTest):
    def test_outputs_that_are_asked_for(self):
        always, masked, lists = {"token", "kept", "row_flags"}, {"masked_logits"}, {"list_token", "list_prob"}
        for options, more in (((), set()), (("--masked-logits",), masked), (("--list",), lists),
                              (("--logprob", "none"), set()), (("--logprob", "raw"), {"logprob"})):
            self.assertEqual(set(self.ok("sample", logits(ROW), *options).outputs), always | more)

    def test_a_rank_without_log_probabilities(self):
        drafts = {"draft_token": tensor("I32", [3]), "cu_lens": tensor("I32", [0, 1])}
        for op, more in (("sample", {}), ("sample_verify", drafts)):
            self.rejected(op, logits(ROW, **more), "--rank", status="SY_ERR_VALUE",
                          says="logprob_mode is NONE while the rank output is given, want RAW or FINAL, or no output")
            self.equal(self.ok(op, logits(ROW, **more), "--rank", "--logprob", "raw")["rank"], "I32", [1])

    def test_negative_numbers(self):
        rows = logits(*[ROW] * 6)
        want = self.ok("sample", rows, "--seed", 2**64 - 3, "--offset", 9)["token"]
        self.assertEqual(self.ok("sample", rows, "--seed", -3, "--offset", 9)["token"].data, want.data)
        self.equal(self.ok("sample", logits(ROW), "--top-k", -5, "--min-p", "-inf")["kept"], "I32", [5])

    def test_a_number_past_all_floats(self):
        self.rejected("sample", logits(ROW), "--eps", "1e999", status="SY_ERR_VALUE", says="eps")


class Overrides(CliTest):
    def test_what_is_built_is_what_sample_takes(self):
        lists = {"output_indptr": tensor("I64", [0, 3, 3]), "output_token": tensor("I32", [3, 4, 3]),
                 "bias_indptr": tensor("I64", [0, 0, 1]), "bias_token": tensor("I32", [3]), "bias": tensor("F32", [-INF])}
        edits = self.ok("sample_overrides", logits(X6, X6, **lists), "--frequency-penalty", 1).outputs
        self.assertEqual(list(edits), ["override_indptr", "override_token", "override_logit"])
        r = self.ok("sample", logits(X6, X6, **edits), "--masked-logits")
        self.equal(r["token"], "I64", [2, 4])
        self.equal(r["masked_logits"], "F32", [[0, 1, 2, 1, 1.5, -1], [0, 1, 2, -INF, 2.5, -1]])

    def test_results_are_no_input(self):
        self.usage("sample_overrides", logits(X6, override_token=tensor("I32", [1])), says="override_token")


class Noise(CliTest):
    def test_without_an_input_file(self):
        done = self.cli("run", "sample_noise", "out.safetensors", *AT, "--seed", 12)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        outputs = decode(self.read("out.safetensors"))
        self.equal(outputs["q"], "F32", SEED_12)
        self.assertEqual(list(outputs), ["q"])

    def test_metadata(self):
        r = self.ok("sample_noise", {}, metadata={"switchyard.n": "4", "switchyard.seed": "12", "switchyard.offset": "5",
                                                  "switchyard.stream": "2"})
        self.equal(r["q"], "F32", SEED_12)

    def test_numbers_of_all_bits(self):
        one = self.ok("sample_noise", {}, "--n", 3, "--seed", 2**64 - 1, "--offset", 2**64 - 2, "--stream", 2**32 - 1)["q"]
        two = self.ok("sample_noise", {}, "--n", 3, "--seed=-1", "--offset=-2", "--stream=-1")["q"]
        self.assertEqual(one.data, two.data)

    def test_usage(self):
        self.usage("sample_noise", {}, says="--n")
        self.usage("sample_noise", {"q": tensor("F32", [1])}, "--n", 1, says="takes no tensor q (it takes none)")
        for option, value, says in (("--seed", 2**64, "64 bits"), ("--stream", 2**32, "32 bits"), ("--n", "x", "integer")):
            self.usage("sample_noise", {}, *([] if option == "--n" else ["--n", 1]), option, value, says=says)

    def test_words(self):
        self.mistake("run", "sample_noise", "--n", 1, says="sample_noise needs an output file")
        self.write("in.safetensors", encode({}))
        self.mistake("run", "sample_noise", "in.safetensors", "out.safetensors", "more", "--n", 1, says="one word too many")
        self.mistake("run", "sample_noise", "missing.safetensors", "out.safetensors", "--n", 1, says="missing.safetensors")
        self.assertEqual(os.listdir(self.folder), ["in.safetensors"])


if __name__ == "__main__":
    unittest.main()
