"""sample_noise through `switchyard run`: worked examples, with and without an input file, refusals."""
import os
import unittest

from st import CliTest, decode, encode, f32, tensor

NOISE = {1: [1.44216263, 1.13107944, 1.08627951, 1.87793005], 12: [1.63547158, 5.14151907, .118143849, .653757691]}
AT = ("--n", 4, "--offset", 5, "--stream", 2)


class Examples(CliTest):
    def test_printed_noise(self):
        for seed, want in NOISE.items():
            r = self.ok("sample_noise", {}, *AT, "--seed", seed)
            self.equal(r["q"], "F32", [f32(q) for q in want])
            self.assertEqual(list(r.outputs), ["q"])

    def test_without_an_input_file(self):
        done = self.cli("run", "sample_noise", "out.safetensors", *AT, "--seed", 12)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.equal(decode(self.read("out.safetensors"))["q"], "F32", [f32(q) for q in NOISE[12]])

    def test_metadata(self):
        r = self.ok("sample_noise", {}, metadata={"switchyard.n": "4", "switchyard.seed": "12", "switchyard.offset": "5",
                                                  "switchyard.stream": "2"})
        self.equal(r["q"], "F32", [f32(q) for q in NOISE[12]])

    def test_numbers_of_all_bits(self):
        one = self.ok("sample_noise", {}, "--n", 3, "--seed", 2**64 - 1, "--offset", 2**64 - 2, "--stream", 2**32 - 1)["q"]
        two = self.ok("sample_noise", {}, "--n", 3, "--seed=-1", "--offset=-2", "--stream=-1")["q"]
        self.assertEqual(one.data, two.data)

    def test_no_tokens(self):
        self.equal(self.ok("sample_noise", {}, "--n", 0)["q"], "F32", [], [0])

    def test_a_race_with_its_own_noise(self):
        rows = {"logits": tensor("F32", [[2, 1, 0, -1]])}
        for seed, want in ((1, 0), (12, 2)):
            noise = self.ok("sample_noise", {}, *AT, "--seed", seed)["q"]
            race = self.ok("sample", rows, "--noise", "race", "--seed", seed, *AT[2:])
            given = self.ok("sample", dict(rows, q=tensor("F32", [noise.values()])), "--q-order", "vocab", "--eps", 0)
            self.equal(race["token"], "I64", [want])
            self.equal(given["token"], "I64", [want])


class Refusals(CliTest):
    def test_length(self):
        for n in (-1, 2**34 - 3):
            self.refused("sample_noise", {}, f"--n={n}", status="SY_ERR_VALUE", says=f"n is {n}, want 0 to 17179869180")

    def test_usage(self):
        self.usage("sample_noise", {}, says="--n")
        self.usage("sample_noise", {"q": tensor("F32", [1])}, "--n", 1, says="takes no tensor q (it takes none)")
        for option, value, says in (("--seed", 2**64, "64 bits"), ("--stream", 2**32, "32 bits"), ("--n", "x", "integer")):
            self.usage("sample_noise", {}, *([] if option == "--n" else ["--n", 1]), option, value, says=says)

    def test_words(self):
        done = self.cli("run", "sample_noise", "--n", 1)
        self.assert_usage(done.returncode, done.stderr, "sample_noise needs an output file")
        self.write("in.safetensors", encode({}))
        done = self.cli("run", "sample_noise", "in.safetensors", "out.safetensors", "more", "--n", 1)
        self.assert_usage(done.returncode, done.stderr, "one word too many")
        done = self.cli("run", "sample_noise", "missing.safetensors", "out.safetensors", "--n", 1)
        self.assert_usage(done.returncode, done.stderr, "missing.safetensors")
        self.assertEqual(os.listdir(self.folder), ["in.safetensors"])


if __name__ == "__main__":
    unittest.main()
