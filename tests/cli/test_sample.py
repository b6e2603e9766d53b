"""sample through `switchyard run`: the worked examples of its specification, row parameters, noise, refusals."""
import struct
import unittest

from st import INF, NAN, CliTest, Tensor, bf16, f32, tensor

X5 = [0, 1, 2, 3, 2.5]


def logits(*rows, dtype="F32", **more):
    return dict({"logits": tensor(dtype, [list(row) for row in rows])}, **more)


def q_rows(*rows):
    return tensor("F32", [list(row) for row in rows])


class SampleTest(CliTest):
    def sample(self, tensors, *options):
        return self.ok("sample", tensors, *options)

    def token(self, tensors, *options):
        return self.sample(tensors, *options)["token"].values()

    def lists(self, tensors, *options):
        """Per row: the candidates of the list, cut to `kept`, and their probabilities."""
        r = self.sample(tensors, "--list", *options)
        kept = r["kept"].values()
        return ([row[:n] for row, n in zip(r["list_token"].nested(), kept)],
                [row[:n] for row, n in zip(r["list_prob"].nested(), kept)], r)


class Examples(SampleTest):
    def test_w1_nothing_on(self):
        r = self.sample(logits([1, 3, 3, -2, 0]), "--masked-logits")
        self.equal(r["token"], "I64", [1])
        self.equal(r["masked_logits"], "F32", [[1, 3, 3, -2, 0]])
        self.equal(r["kept"], "I32", [5])
        self.equal(r["row_flags"], "U32", [0])
        self.assertEqual(set(r.outputs), {"token", "kept", "row_flags", "masked_logits"})

    def test_w2_top_k_with_ties(self):
        tokens, probs, r = self.lists(logits([2, 5, 3, 3, 1, 3]), "--top-k", 3, "--masked-logits")
        self.assertEqual(tokens, [[1, 2, 3]])
        self.near(probs[0], [.7869861, .1065070, .1065070], 1e-7)
        self.equal(r["masked_logits"], "F32", [[-INF, 5, 3, 3, -INF, -INF]])
        self.equal(r["token"], "I64", [1])
        self.equal(r["list_token"], "I64", [[1, 2, 3, 0, 0, 0]])

    def test_w3_top_p(self):
        for p, want in ((.5, [0]), (.6, [0, 1]), (.75, [0, 1, 4]), (.9, [0, 1, 4])):
            with self.subTest(p):
                tokens, probs, _ = self.lists(logits([2, 1, 0, -1, 1]), "--top-p", p)
                self.assertEqual(tokens, [want])
                self.near(probs[0], [.5205944, .1915160, .1915160][:len(want)], 1e-7)

    def test_w4_reaching_p_exactly_ends_the_set(self):
        zeros = logits([0, 0, 0, 0])
        for options, want in ((("--top-p", .5), [0, 1]), (("--top-p", .51), [0, 1, 2]),
                              (("--top-k", 3, "--top-p", .5), [0, 1]), (("--top-p", 0), [0]),
                              (("--top-k", 3, "--top-p", -1), [0])):
            with self.subTest(options):
                self.assertEqual(self.lists(zeros, *options)[0], [want])

    def test_w5_noise_by_position(self):
        self.assertEqual(self.token(logits(X5, q=q_rows([.05, .9, .3, 1.2, 2]))), [2])
        _, probs, _ = self.lists(logits(X5))
        self.near(probs[0], [.0230546, .0626688, .1703514, .4630632, .2808620], 1e-7)

    def test_w6_noise_by_rank(self):
        r = self.sample(logits(X5, q=q_rows([.05, .9, .3, 1.2, 2])), "--top-k", 3, "--masked-logits", "--list")
        self.equal(r["token"], "I64", [3])
        self.equal(r["masked_logits"], "F32", [[-INF, -INF, 2, 3, 2.5]])
        self.equal(r["list_token"], "I64", [[3, 4, 2, 0, 0]])
        self.near(r["list_prob"].values(), [.5064804, .3071959, .1863237, 0, 0], 1e-7)

    def test_w6_noise_by_vocabulary_instead(self):
        tensors = logits(X5, q=q_rows([.05, .9, .3, 1.2, 2]))
        self.assertEqual(self.token(tensors, "--top-k", 3, "--q-order", "vocab"), [2])

    def test_w7_one_softmax_only(self):
        tokens, probs, r = self.lists(logits(X5, q=q_rows([1.2, .35, .3, .9, .05])), "--top-p", .9)
        self.assertEqual(tokens, [[3, 4, 2]])
        self.near(probs[0], [.4630632, .2808620, .1703514], 1e-7)
        self.equal(r["token"], "I64", [4])

    def test_w8_one_batch_of_different_rows(self):
        n = -INF
        rows = [[0, 1, 2, 3, 2.5, -1], [4, 4, 4, 4, 1, 1], [1, 2, 3, 4, 5, 6], [.5, .25, .125, 0, -.125, -.25]]
        tensors = logits(*rows, q=q_rows(*[[.7, .2, .9, .1, .5, .3]] * 4), top_k=tensor("I32", [4, 3, 2000, 0]),
                         top_p=tensor("F32", [.75, .5, .9, 1]))
        r = self.sample(tensors, "--masked-logits", "--list")
        self.equal(r["token"], "I64", [4, 1, 4, 3])
        self.equal(r["masked_logits"], "F32",
                   [[n, n, n, 3, 2.5, n], [4, 4, n, n, n, n], [n, n, n, 4, 5, 6], rows[3]])
        self.equal(r["kept"], "I32", [2, 2, 3, 6])
        self.equal(r["list_token"], "I64",
                   [[3, 4, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [5, 4, 3, 0, 0, 0], [0, 1, 2, 3, 4, 5]])

    def test_w9_min_p_alone(self):
        tokens, probs, r = self.lists(logits([0, 2, -1, 3, 2.5], q=q_rows([.9, .2, .7, .1, .5])), "--min-p", .3)
        self.assertEqual(tokens, [[1, 3, 4]])
        self.near(probs[0], [.1801112, .4895930, .2969532], 1e-7)
        self.equal(r["token"], "I64", [3])

    def test_w10_lists(self):
        row = logits([0, 2, -1, 3, 2.5])
        for options, want, prob in (
                (("--top-k", 4, "--top-p", .9), [3, 4, 1, 0, 0], [.4940230, .2996401, .1817409, 0, 0]),
                (("--top-k", 4, "--top-p", .9, "--min-p", .5), [3, 4, 0, 0, 0], [.4940230, .2996401, 0, 0, 0]),
                (("--top-k", 4, "--top-p", -1), [3, 0, 0, 0, 0], [1, 0, 0, 0, 0]),
                ((), [0, 1, 2, 3, 4], [.0243754, .1801112, .0089672, .4895930, .2969532])):
            with self.subTest(options):
                r = self.sample(row, "--list", *options)
                self.equal(r["list_token"], "I64", [want])
                self.near(r["list_prob"].values(), prob, 1e-7)
                self.equal(r["token"], "I64", [3])

    def test_w11_probabilities_in(self):
        row = [.05, .4, .1, .3, .15]
        tokens, _, r = self.lists(logits(row, q=q_rows([1, .5, 2, 1, 1])), "--probs-in", "--top-p", .6,
                                  "--masked-logits")
        self.assertEqual(tokens, [[1, 3]])
        self.equal(r["masked_logits"], "F32", [[0, .4, 0, .3, 0]])
        self.equal(r["token"], "I64", [3])
        tokens, probs, r = self.lists(logits(row), "--probs-in", "--top-k", 2, "--top-p", .9)
        self.assertEqual((tokens, probs), ([[1, 3]], [[f32(.4), f32(.3)]]))
        self.equal(r["token"], "I64", [1])

    def test_w12_nan_and_infinities(self):
        r = self.sample(logits([1, NAN, 2, -INF]), "--masked-logits")
        self.equal(r["token"], "I64", [2])
        self.equal(r["kept"], "I32", [2])
        self.equal(r["row_flags"], "U32", [1])
        self.equal(r["masked_logits"], "F32", [[1, -INF, 2, -INF]])
        r = self.sample(logits([1, INF, 2, INF], q=q_rows([.1, .9, .1, .5])))
        self.equal(r["token"], "I64", [3])
        self.equal(r["row_flags"], "U32", [2])
        self.assertEqual(self.lists(logits([1, INF, 2, INF]), "--top-p", .4)[0], [[1]])

    def test_w12_empty_row(self):
        r = self.sample(logits([-INF] * 4, [1, 2, 3, 4], [NAN] * 4), "--masked-logits")
        self.equal(r["token"], "I64", [-1, 3, -1])
        self.equal(r["row_flags"], "U32", [4, 0, 5])
        self.equal(r["kept"], "I32", [0, 4, 0])
        self.equal(r["masked_logits"], "F32", [[-INF] * 4, [1, 2, 3, 4], [-INF] * 4])
        self.assertEqual(self.token(logits([-INF] * 4), "--empty-token", 0), [0])
        self.assertEqual(self.token(logits([-INF] * 4), "--empty-token=-1"), [-1])

    def test_w12_zeros_and_very_negative_rows(self):
        self.assertEqual(self.lists(logits([-0.0, 0, -0.0, 0]), "--top-k", 3)[0], [[0, 1, 2]])
        self.assertEqual(self.lists(logits([-300, -301, -302, -400]), "--top-p", .9)[0], [[0, 1]])

    def test_w13_integers(self):
        row = logits([2, 1, 0, -1])
        for options, want in ((("--top-p", .9), 3), (("--top-p", .5), 1), (("--top-p", .9, "--temperature", .5), 2),
                              (("--top-p", .9, "--temperature", 2), 4)):
            with self.subTest(options):
                self.equal(self.sample(row, *options)["kept"], "I32", [want])
        r = self.sample(row, "--list", "--logprob", "raw")
        self.equal(r["list_prob"], "F32", [[.643914273, .236882829, .0871443194, .032058603]])
        self.equal(r["logprob"], "F32", [-0.440189689])

    def test_w14_noise(self):
        row = logits([2, 1, 0, -1])
        for seed, noise, want in ((1, "cdf", 2), (1, "race", 0), (12, "race", 2), (12, "cdf", 0)):
            with self.subTest((seed, noise)):
                options = ("--seed", seed, "--offset", 5, "--stream", 2)
                self.assertEqual(self.token(row, *options, "--noise", noise), [want])
                if noise == "cdf":
                    self.assertEqual(self.token(row, *options), [want])

    def test_w14_race_is_q_by_vocabulary_with_eps_0(self):
        row = [2, 1, 0, -1]
        for q, want in (([1.44216263, 1.13107944, 1.08627951, 1.87793005], 0),
                        ([1.63547158, 5.14151907, .118143849, .653757691], 2)):
            self.assertEqual(self.token(logits(row, q=q_rows(q)), "--q-order", "vocab", "--eps", 0), [want])


class Parameters(SampleTest):
    ROW = [0, 1, 2, 3, 2.5]

    def test_per_row_tensors_of_every_form(self):
        two = [self.ROW, self.ROW]
        for k in (tensor("I64", [2, 3]), tensor("I32", [[2], [3]])):
            self.equal(self.sample(logits(*two, top_k=k))["kept"], "I32", [2, 3])
        self.equal(self.sample(logits(*two, top_k=tensor("I32", [2])))["kept"], "I32", [2, 2])

    def test_option_equals_tensor(self):
        for name, dtype, value in (("top_k", "I64", 3), ("top_p", "F32", .7), ("min_p", "F32", .4),
                                   ("temperature", "F32", .3)):
            with self.subTest(name):
                a = self.sample(logits(self.ROW), "--list", "--" + name.replace("_", "-"), value).outputs
                b = self.sample(logits(self.ROW, **{name: tensor(dtype, [value])}), "--list").outputs
                self.assertEqual({n: t.data for n, t in a.items()}, {n: t.data for n, t in b.items()})

    def test_seed_option_equals_tensor_in_every_type(self):
        rows = [self.ROW] * 6
        want = self.token(logits(*rows), "--seed", 2**64 - 3, "--offset", 9)
        self.assertEqual(want, self.token(logits(*rows), "--seed", -3, "--offset", 9))
        self.assertEqual(want, self.token(logits(*rows, seed=tensor("I64", [-3]), offset=tensor("U64", [9]))))
        each = {"seed": tensor("U64", [2**64 - 3] * 6), "stream": tensor("I32", list(range(6)))}
        self.assertEqual(want, self.token(logits(*rows, **each), "--offset", 9))

    def test_stream_defaults_to_0_where_each_row_has_a_seed(self):
        rows, seeds = [self.ROW] * 8, [7, 8, 9, 10, 7, 8, 9, 10]
        drawn = self.token(logits(*rows, seed=tensor("I64", seeds)))
        self.assertGreater(len(set(drawn)), 1)
        self.assertEqual(drawn, [self.token(logits(self.ROW), "--seed", seed)[0] for seed in seeds])
        self.assertEqual(drawn, self.token(logits(*rows, seed=tensor("I64", seeds)), "--stream", 0))

    def test_stream_defaults_to_the_row_number(self):
        rows = [self.ROW] * 8
        by_row = self.token(logits(*rows), "--seed", 77)
        self.assertGreater(len(set(by_row)), 1)
        self.assertEqual(by_row, self.token(logits(*rows, stream=tensor("U32", list(range(8)))), "--seed", 77))
        same = self.token(logits(*rows), "--seed", 77, "--stream", 3)
        self.assertEqual(same, [by_row[3]] * 8)

    def test_noise_none_by_name_ignores_the_seed(self):
        self.assertEqual(self.token(logits(*[self.ROW] * 4), "--seed", 5, "--noise", "none"), [3] * 4)

    def test_temperature_zero_is_greedy(self):
        self.assertEqual(self.token(logits(*[self.ROW] * 4), "--seed", 5, "--temperature", 0), [3] * 4)

    def test_nan_and_infinite_parameters_turn_stages_off(self):
        for options in (("--top-p", "nan"), ("--min-p", "nan"), ("--top-p", "inf"), ("--min-p", "-inf"), ("--top-k", 0),
                        ("--top-k", -5), ("--top-k", 5), ("--temperature", "nan")):
            with self.subTest(options):
                self.equal(self.sample(logits(self.ROW), *options)["kept"], "I32", [5])

    def test_ties_all(self):
        r = self.sample(logits([2, 5, 3, 3, 1, 3]), "--top-k", 2, "--ties", "all", "--masked-logits")
        self.equal(r["kept"], "I32", [4])
        self.equal(r["masked_logits"], "F32", [[-INF, 5, 3, 3, -INF, 3]])
        self.equal(self.sample(logits([2, 5, 3, 3, 1, 3]), "--top-k", 2, "--ties=exact")["kept"], "I32", [2])

    def test_k_limit(self):
        self.equal(self.sample(logits(self.ROW), "--top-k", 3, "--k-limit", 2)["kept"], "I32", [5])
        self.equal(self.sample(logits(self.ROW), "--top-k", 2, "--k-limit", 2)["kept"], "I32", [2])

    def test_guess_changes_nothing(self):
        want = self.sample(logits(self.ROW), "--top-p", .9, "--list").outputs
        for guess in (-76, 0, 1, 10**9):
            got = self.sample(logits(self.ROW), "--top-p", .9, "--list", "--top-k-guess", guess).outputs
            self.assertEqual({n: t.data for n, t in got.items()}, {n: t.data for n, t in want.items()})

    def test_min_p_one_keeps_one(self):
        self.equal(self.sample(logits([3, 3, 3]), "--min-p", 1)["kept"], "I32", [1])

    def test_default_eps(self):
        # q = 0 everywhere: with eps the scores are prob/1e-8, finite and ordered by probability.
        self.assertEqual(self.token(logits([1, 2, 0], q=q_rows([0, 0, 0]))), [1])
        # |q| = 1e-8 against 0: the default eps makes the ratio 2, not infinite; prob ratio e wins over it.
        self.assertEqual(self.token(logits([0, 1, -9], q=q_rows([0, 1e-8, 1]))), [1])
        self.assertEqual(self.token(logits([0, 1, -9], q=q_rows([0, 1e-8, 1])), "--eps", 0), [0])

    def test_logprob(self):
        row = logits([2, 1, 0, -1])
        self.assertNotIn("logprob", self.sample(row).outputs)
        self.assertNotIn("logprob", self.sample(row, "--logprob", "none").outputs)
        self.near(self.sample(row, "--logprob", "final")["logprob"].values(), [-0.440189689], 1e-7)
        self.equal(self.sample(row, "--logprob", "final", "--temperature", 0)["logprob"], "F32", [0])
        final = self.sample(row, "--logprob", "final", "--seed", 1, "--offset", 5, "--stream", 2)
        self.equal(final["token"], "I64", [2])
        self.near(final["logprob"].values(), [-2.440189689], 1e-6)
        self.assertEqual(self.sample(logits([-INF] * 3), "--logprob", "raw")["logprob"].values(), [-INF])

    def test_no_rows(self):
        r = self.sample({"logits": Tensor("F32", [0, 4], b"")}, "--list", "--masked-logits", "--logprob", "raw")
        self.assertEqual((r["token"].shape, r["list_token"].shape, r["logprob"].shape), ([0], [0, 4], [0]))


class Edits(SampleTest):
    def test_barred_tokens(self):
        for dtype in ("I32", "U32"):
            r = self.sample(logits(X5, allow_bits=tensor(dtype, [[0b10111]])), "--masked-logits", "--top-k", 3)
            self.equal(r["token"], "I64", [4])
            self.equal(r["masked_logits"], "F32", [[-INF, 1, 2, -INF, 2.5]])
            self.equal(r["kept"], "I32", [3])

    def test_one_row_of_bits_for_all(self):
        rows = [[i % 30 for i in range(70)], [-i for i in range(70)]]
        bits = tensor("U32", [[0, 0x80000001, 0xffffffff]])
        self.assertEqual(self.token(logits(*rows, allow_bits=bits)), [69, 32])

    def test_nothing_allowed(self):
        r = self.sample(logits(X5, allow_bits=tensor("I32", [[-32]])), "--masked-logits", "--logprob", "raw")
        self.equal(r["token"], "I64", [-1])
        self.equal(r["row_flags"], "U32", [4])
        self.equal(r["masked_logits"], "F32", [[-INF] * 5])
        self.equal(r["logprob"], "F32", [-INF])

    def test_log_probabilities(self):
        row = logits(X5, allow_bits=tensor("I32", [[7]]))
        self.near(self.sample(row, "--logprob", "raw")["logprob"].values(), [-1.769892], 1e-6)
        self.near(self.sample(row, "--logprob", "final")["logprob"].values(), [-.4076060], 1e-6)


    def test_overrides(self):
        edits = {"override_indptr": tensor("I64", [0, 2, 2]), "override_token": tensor("I32", [1, 3]),
                 "override_logit": tensor("F32", [4, -INF])}
        r = self.sample(logits(X5, X5, **edits), "--masked-logits", "--top-k", 3)
        self.equal(r["token"], "I64", [1, 3])
        self.equal(r["masked_logits"], "F32", [[-INF, 4, 2, -INF, 2.5], [-INF, -INF, 2, 3, 2.5]])
        allow = tensor("U32", [[0b11101]])
        self.assertEqual(self.token(logits(X5, X5, allow_bits=allow, **edits)), [4, 3])

    def test_an_override_is_not_rounded(self):
        edits = {"override_indptr": tensor("I32", [0, 1]), "override_token": tensor("I64", [2]),
                 "override_logit": tensor("F32", [f32(1.0000001)])}
        r = self.sample(logits([bf16(1)] * 3, dtype="BF16", **edits), "--masked-logits")
        self.equal(r["token"], "I64", [2])
        self.equal(r["masked_logits"], "F32", [[1, 1, f32(1.0000001)]])

    def test_raw_log_probability_of_an_override(self):
        edits = {"override_indptr": tensor("I64", [0, 3]), "override_token": tensor("I32", [0, 3, 4]),
                 "override_logit": tensor("F32", [4, -INF, -INF])}
        self.near(self.sample(logits(X5, **edits), "--logprob", "raw")["logprob"].values(), [-3.769892], 1e-6)
        self.near(self.sample(logits(X5, **edits), "--logprob", "final")["logprob"].values(), [-.1698460], 1e-6)


class Types(SampleTest):
    def test_f16_and_bf16_logits_give_the_same(self):
        row = [0, 1, 2, 3, 2.5]
        want = self.sample(logits(row), "--top-k", 4, "--top-p", .9, "--list", "--masked-logits").outputs
        for tensors in (logits(row, dtype="F16"), logits([bf16(x) for x in row], dtype="BF16")):
            got = self.sample(tensors, "--top-k", 4, "--top-p", .9, "--list", "--masked-logits").outputs
            self.assertEqual({n: t.data for n, t in got.items()}, {n: t.data for n, t in want.items()})

    def test_top_p_in_the_type_of_the_logits(self):
        row = [bf16(0)] * 10
        tensors = logits(row, dtype="BF16", top_p=tensor("BF16", [0x3f66]))  # 0.8984375: 9 of 10
        self.equal(self.sample(tensors)["kept"], "I32", [9])

    def test_vendor_sample_rows(self):
        tensors = {"logits": Tensor("BF16", [3, 1024], struct.pack("<H", 1) * 3072),
                   "top_p": tensor("BF16", [1, 1, 1]), "top_k": tensor("I32", [128] * 3),
                   "q": Tensor("F32", [3, 1024], struct.pack("<f", 1) * 3072)}
        r = self.sample(tensors)
        self.equal(r["token"], "I64", [0, 0, 0])
        self.equal(r["kept"], "I32", [1, 1, 1])

    def test_threads_give_equal_files(self):
        rows = [[((i * 37 + b * 11) % 101) / 8 - 6 for i in range(700)] for b in range(5)]
        files = set()
        for threads in (1, 2, 3, 8):
            self.sample(logits(*rows), "--top-p", .95, "--seed", 3, "--list", "--masked-logits", "--logprob", "final",
                        "--threads", threads)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)


class Refusals(SampleTest):
    ROW = [1, 2, 3]

    def test_missing_logits(self):
        self.refused("sample", {"top_k": tensor("I32", [1])}, status="SY_ERR_NULL", says="logits")

    def test_types(self):
        for name, t in (("logits", tensor("F64", [self.ROW])), ("top_k", tensor("F32", [1])),
                        ("top_p", tensor("F64", [1])), ("min_p", tensor("F16", [1])), ("q", tensor("F16", [self.ROW])),
                        ("seed", tensor("F32", [1]))):
            with self.subTest(name):
                self.refused("sample", dict(logits(self.ROW), **{name: t}), status="SY_ERR_DTYPE", says=name)

    def test_shapes(self):
        for name, t in (("logits", tensor("F32", self.ROW)), ("logits", Tensor("F32", [2, 0], b"")),
                        ("top_k", tensor("I32", [1, 2])), ("q", tensor("F32", [[1, 2]])),
                        ("allow_bits", tensor("I32", [[1, 2]])), ("allow_bits", tensor("I32", [[1], [2]]))):
            with self.subTest(name):
                self.refused("sample", dict(logits(self.ROW), **{name: t}), status="SY_ERR_SHAPE", says=name)

    def test_values(self):
        for options, says in ((("--eps", -1), "eps"), (("--eps", "nan"), "eps"), (("--eps", "inf"), "eps"),
                              (("--eps", "1e999"), "eps"), (("--k-limit", -1), "k_limit"), (("--noise", "q"), "q"),
                              (("--noise", "race"), "seed"), (("--noise", "cdf"), "seed")):
            with self.subTest(options):
                self.refused("sample", logits(self.ROW), *options, status="SY_ERR_VALUE", says=says)

    def test_overrides(self):
        good = {"override_indptr": tensor("I64", [0, 1]), "override_token": tensor("I32", [1]),
                "override_logit": tensor("F32", [0])}
        for name, t, status in (("override_indptr", tensor("I64", [1, 0]), "INDEX"),
                                ("override_indptr", tensor("I64", [0, 2]), "INDEX"),
                                ("override_indptr", tensor("I64", [0]), "SHAPE"),
                                ("override_token", tensor("I32", [3]), "INDEX"),
                                ("override_token", tensor("I32", [-1]), "INDEX"),
                                ("override_token", tensor("F32", [1]), "DTYPE"),
                                ("override_logit", tensor("F16", [1]), "DTYPE"),
                                ("override_logit", tensor("F32", [1, 2]), "SHAPE")):
            with self.subTest(name):
                self.refused("sample", logits(self.ROW, **dict(good, **{name: t})), status=f"SY_ERR_{status}",
                             says=name)
        for name in good:
            self.refused("sample", logits(self.ROW, **{name: good[name]}), status="SY_ERR_NULL", says="override")

    def test_vocabulary_beyond_the_integers(self):
        tensors = {"logits": Tensor("F16", [1, 2**23 + 1], bytes(2 * (2**23 + 1)))}
        self.refused("sample", tensors, status="SY_ERR_OVERFLOW")


if __name__ == "__main__":
    unittest.main()
