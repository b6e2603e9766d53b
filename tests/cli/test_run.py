"""`switchyard run` itself: options, metadata, fields given twice, unknown names, numbers that are none."""
import json
import os
import unittest

from st import OPERATORS, CliTest, encode, tensor

PERMUTE = {"tokens": tensor("F32", [[10, 11], [20, 21], [30, 31], [40, 41]]),
           "routing_map": tensor("BOOL", [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]])}
ROWS = [0, 5, 3, 6, 1, 4, 2, 7]
LOGITS = {"logits": tensor("F32", [[0, 1, 2, 3, 2.5]] * 2)}
GATHER = {"cache": tensor("F32", [[0], [1], [2], [3]]), "indices": tensor("I32", [2, -1]),
          "block_table": tensor("I32", [1, 0])}


class Options(CliTest):
    def test_value_after_a_space_or_an_equals_sign(self):
        for options in (("--num-out-tokens", "8"), ("--num-out-tokens=8",)):
            self.assertEqual(self.ok("moe_permute", PERMUTE, *options)["sorted_indices"].values(), ROWS)

    def test_options_between_and_before_the_files(self):
        self.write("in.safetensors", encode(PERMUTE))
        for line in ("run moe_permute --num-out-tokens 8 in.safetensors out.safetensors",
                     "run moe_permute in.safetensors --num-out-tokens=8 out.safetensors",
                     "run --threads 1 moe_permute in.safetensors out.safetensors --num-out-tokens 8",
                     "--threads=1 run moe_permute in.safetensors out.safetensors --num-out-tokens 8",
                     "run moe_permute --num-out-tokens 8 -- in.safetensors out.safetensors"):
            with self.subTest(line):
                self.out(*line.split())
                os.unlink(self.path("out.safetensors"))

    def test_switch_forms(self):
        capacity = [0, 2, 1, 2, 0, 1]
        for options, want in ((("--drop-and-pad",), capacity), (("--drop-and-pad=true",), capacity),
                              (("--drop-and-pad", "true"), capacity), (("--drop-and-pad=false",), None),
                              (("--drop-and-pad", "false"), None)):
            with self.subTest(options):
                n = 6 if want else 8
                r = self.ok("moe_permute", PERMUTE, "--num-out-tokens", n, *options)
                self.assertEqual(r["sorted_indices"].values(), want or ROWS)

    def test_switch_of_another_word(self):
        for word in ("yes", "1", "", "True"):
            self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, f"--drop-and-pad={word}", says="true or false")

    def test_integers_that_are_none(self):
        for text in ("8x", "", " 8", "8 ", "0x8", "8.0", "1e3", "nan", "--zero-pad", "+", "-"):
            with self.subTest(text):
                self.usage("moe_permute", PERMUTE, f"--num-out-tokens={text}", says="--num-out-tokens")

    def test_integers_beyond_64_bits(self):
        for value in (2**63, -2**63 - 1, 10**30):
            self.usage("moe_permute", PERMUTE, "--num-out-tokens", value, says="64-bit integer")

    def test_integers_at_the_ends_of_64_bits_go_to_the_operator(self):
        for value in (2**63 - 1, -2**63):
            self.rejected("moe_permute", PERMUTE, "--num-out-tokens", value, status="SY_ERR_VALUE")

    def test_floats_that_are_none(self):
        for text in ("", "abc", "0.9x", " 0.9", "1e", "0,9", "--list"):
            with self.subTest(text):
                self.usage("sample", LOGITS, f"--top-p={text}", says="--top-p")

    def test_floats_in_every_form(self):
        for text in ("nan", "inf", "-inf", "1e-3", "-1e-3", ".5", "5.", "0x1p-1", "1e40", "1e-60"):
            with self.subTest(text):
                self.ok("sample", LOGITS, "--top-p", text)

    def test_seeds_at_the_ends(self):
        for value in (2**64 - 1, -2**63, 0):
            self.ok("sample", LOGITS, "--seed", value)
        for value in (2**64, -2**63 - 1, "x", ""):
            self.usage("sample", LOGITS, f"--seed={value}", says="--seed")

    def test_streams_at_the_ends(self):
        for value in (2**32 - 1, -2**31):
            self.ok("sample", LOGITS, "--seed", 1, "--stream", value)
        for value in (2**32, -2**31 - 1):
            self.usage("sample", LOGITS, "--seed", 1, "--stream", value, says="32 bits")

    def test_unknown_words(self):
        """Of options with other words than the field. test_unknown_words_list_those_that_exist has the others."""
        for options, says in ((("--logprob", "true"), "none, raw, final"), (("--empty-token", 1), "-1, 0"),
                              (("--empty-token", ""), "-1, 0")):
            with self.subTest(options):
                self.usage("sample", LOGITS, *options, says=says)

    def test_unknown_option(self):
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, "--num-tokens", 4, says="--num-tokens")
        self.usage("moe_permute", PERMUTE, "--num-out-token", 8, says="did you mean --num-out-tokens?")
        self.usage("moe_permute", PERMUTE, "--num_out_tokens", 8, says="--num_out_tokens")
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, "-z", says="-z")

    def test_option_of_another_operator(self):
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, "--block-size", 2, says="--block-size")

    def test_option_without_its_value(self):
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", says="needs a value")
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, "--threads", says="needs a value")

    def test_option_before_the_operator(self):
        self.mistake("run", "--num-out-tokens", 8, "moe_permute", "a", "b", says="must follow the operator name")

    def test_missing_required_option(self):
        """Every required option of every operator, all others given."""
        for op, fields in self.scalars().items():
            required = {"--" + f["name"].replace("_", "-"): f.get("words", ["1"])[0] for f in fields if f["required"]}
            for missing in required:
                with self.subTest(op + missing):
                    given = [f"{name}={value}" for name, value in required.items() if name != missing]
                    self.usage(op, {}, *given, says=missing)

    def test_unknown_words_list_those_that_exist(self):
        for op, fields in self.scalars().items():
            for field in fields:
                if field["kind"] != "enum" or field["name"] == "memory":  # a hint that is no option
                    continue
                words = [word.rpartition("|")[2] for word in field["words"] if word]
                with self.subTest(f"{op} {field['name']}"):
                    self.usage(op, {}, f"--{field['name'].replace('_', '-')}=other", says=", ".join(words))

    def scalars(self):
        """{operator: descriptions of its fields that are no tensors}"""
        operators = self.json("ops")["operators"]
        return {op["name"]: [f for f in op["fields"] if f["kind"] != "tensor" and "required" in f] for op in operators}

    def test_unknown_operator_lists_those_that_exist(self):
        for name, close in (("moe_umpermute", "did you mean moe_unpermute? "), ("permute", ""), ("", ""),
                            ("sy_sample", "did you mean sample? ")):
            for words in (("run", name, "a", "b"), ("example", name, "a"), ("help", "run", name)):
                self.mistake(*words, says=f"{name} ({close}there are: {', '.join(OPERATORS)})")

    def test_missing_words(self):
        for words in ((), ("moe_permute",), ("moe_permute", "in.safetensors")):
            self.mistake("run", *words, says="an input file and an output file")

    def test_too_many_words(self):
        self.mistake("run", "moe_permute", "a", "b", "c", "--num-out-tokens", 1, says="too many: c")

    def test_usage_errors_point_to_help(self):
        done = self.cli("run", "sample", "a", "b", "--frobnicate")
        self.assertEqual(done.stderr.splitlines()[1], "Try: switchyard run sample --help")


class Twice(CliTest):
    def test_option_twice(self):
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, "--num-out-tokens=8", says="given twice")
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, "--zero-pad", "--zero-pad", says="given twice")
        self.usage("sample", LOGITS, "--top-k", 2, "--top-k", 3, says="given twice")

    def test_option_and_metadata(self):
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, metadata={"switchyard.num_out_tokens": "8"},
                   says="given twice")

    def test_option_and_tensor(self):
        for name, dtype, value in (("top_k", "I32", 2), ("top_p", "F32", .5), ("min_p", "F32", .5), ("seed", "U64", 1),
                                   ("temperature", "F32", 1), ("offset", "I64", 1), ("stream", "U32", 1)):
            with self.subTest(name):
                tensors = dict(LOGITS, **{name: tensor(dtype, [value])})
                self.usage("sample", tensors, "--" + name.replace("_", "-"), value, says="given twice")

    def test_metadata_and_tensor(self):
        self.usage("sample", dict(LOGITS, top_k=tensor("I32", [2])), metadata={"switchyard.top_k": "2"},
                   says="given twice")

    def test_field_and_its_second_name(self):
        self.usage("sample", LOGITS, "--logprob", "raw", metadata={"switchyard.logprob_mode": "raw"},
                   says="given twice")

    def test_context_options(self):
        self.usage("sample", LOGITS, "--threads", 1, "--threads", 2, says="given twice")
        self.usage("sample", LOGITS, "--isa", "scalar", "--isa", "scalar", says="given twice")


class Metadata(CliTest):
    def test_integer_and_boolean(self):
        r = self.ok("moe_permute", PERMUTE, metadata={"switchyard.num_out_tokens": "8"})
        self.assertEqual(r["sorted_indices"].values(), ROWS)
        r = self.ok("moe_permute", PERMUTE,
                    metadata={"switchyard.num_out_tokens": "6", "switchyard.drop_and_pad": "true"})
        self.assertEqual(r["sorted_indices"].values(), [0, 2, 1, 2, 0, 1])
        r = self.ok("moe_permute", PERMUTE, "--num-out-tokens", 8, metadata={"switchyard.drop_and_pad": "false"})
        self.assertEqual(r["sorted_indices"].values(), ROWS)

    def test_words_and_row_fields(self):
        r = self.ok("kv_gather", GATHER, metadata={"switchyard.block_size": "2", "switchyard.pad": "zero"})
        self.assertEqual(r["out"].values(), [0, 0])
        r = self.ok("sample", LOGITS, metadata={"switchyard.top_k": "2", "switchyard.list": "true",
                                                "switchyard.logprob": "raw", "switchyard.masked_logits": "true",
                                                "switchyard.eps": "0.5", "switchyard.temperature": "0.5"})
        self.assertEqual(r["kept"].values(), [2, 2])
        self.assertEqual(set(r.outputs), {"token", "kept", "row_flags", "list_token", "list_prob", "masked_logits",
                                          "logprob"})

    def test_other_keys_are_nobody_s_business(self):
        r = self.ok("moe_permute", PERMUTE, "--num-out-tokens", 8,
                    metadata={"format": "pt", "num_out_tokens": "5", "Switchyard.zero_pad": "x", "switchyardx": "y"})
        self.assertEqual(r["sorted_indices"].values(), ROWS)

    def test_unknown_field(self):
        for key in ("switchyard.num_tokens", "switchyard.num-out-tokens", "switchyard.", "switchyard.threads"):
            with self.subTest(key):
                self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, metadata={key: "8"}, says="no such field")

    def test_bad_values(self):
        self.usage("moe_permute", PERMUTE, metadata={"switchyard.num_out_tokens": "eight"}, says="64-bit integer")
        self.usage("moe_permute", PERMUTE, "--num-out-tokens", 8, metadata={"switchyard.zero_pad": "1"},
                   says="true or false")
        self.usage("kv_gather", GATHER, "--block-size", 2, metadata={"switchyard.pad": "none"},
                   says="error, zero, skip")

    def test_a_value_with_a_line_break_stays_one_line(self):
        self.usage("moe_permute", PERMUTE, metadata={"switchyard.num_out_tokens": "8\nswitchyard: ok"}, says=r"8\nswitch")


class Tensors(CliTest):
    def test_unknown_tensor(self):
        self.usage("moe_permute", dict(PERMUTE, extra=tensor("F32", [1])), "--num-out-tokens", 8, says="extra")
        self.usage("moe_permute", dict(PERMUTE, extra=tensor("F32", [1])), "--num-out-tokens", 8,
                   says="tokens, routing_map, probs")

    def test_outputs_are_not_inputs(self):
        self.usage("moe_permute", dict(PERMUTE, sorted_indices=tensor("I32", [0] * 8)), "--num-out-tokens", 8,
                   says="sorted_indices")
        self.usage("sample", dict(LOGITS, token=tensor("I64", [0, 0])), says="token")


    def test_sums_that_the_file_lacks_begin_as_zero(self):
        given = {"ids": tensor("I32", [[0, 1], [0, 2]]), "logical_to_physical": tensor("I32", [[1, -1], [0, 2], [3, -1]])}
        for old in ({}, {"load": tensor("I64", [0] * 4), "logical_load": tensor("I64", [0] * 3)}):
            r = self.ok("moe_map_physical", dict(given, **old), "--num-physical", 4)
            self.equal(r["physical_ids"], "I32", [[1, 0], [1, 3]])
            self.equal(r["load"], "I64", [1, 2, 0, 1])
            self.equal(r["logical_load"], "I64", [2, 1, 1])


class Context(CliTest):
    def test_unknown_table(self):
        result = self.run_op("sample", LOGITS, "--isa", "abacus")
        self.assert_usage(result.code, result.err, "abacus")
        self.assertIn("scalar", result.err)
        self.assertIsNone(result.outputs)

    def test_scalar_by_name(self):
        self.ok("sample", LOGITS, "--isa", "scalar")

    def test_threads(self):
        for value in (0, 1, 64):
            self.ok("sample", LOGITS, "--threads", value)
        for value in (-1, "two", 2**31, ""):
            self.usage("sample", LOGITS, f"--threads={value}", says="--threads")

    def test_one_thread_by_environment(self):
        self.write("in.safetensors", encode(LOGITS))
        self.out("run", "sample", "in.safetensors", "out.safetensors", env={"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    unittest.main()
