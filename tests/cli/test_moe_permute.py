"""moe_permute through `switchyard run`: the worked examples of its specification, its modes and refusals."""
import struct
import unittest

from st import CliTest, Tensor, tensor

X4 = [[10, 11], [20, 21], [30, 31], [40, 41]]
MAP2 = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
PROBS2 = [[.5, 0, .5], [0, .25, .75], [.125, .875, 0], [.625, 0, .375]]


def case(tokens, routing_map, probs=None, token_type="F32", map_type="BOOL", probs_type="F32"):
    tensors = {"tokens": tensor(token_type, tokens), "routing_map": tensor(map_type, routing_map)}
    if probs is not None:
        tensors["probs"] = tensor(probs_type, probs)
    return tensors


class Examples(CliTest):
    def test_w1_one_expert_per_token(self):
        r = self.ok("moe_permute", case(X4, [[0, 0, 1], [1, 0, 0], [0, 0, 1], [1, 0, 0]]), "--num-out-tokens", 4)
        self.equal(r["sorted_indices"], "I32", [2, 0, 3, 1])
        self.equal(r["permuted_tokens"], "F32", [[20, 21], [40, 41], [10, 11], [30, 31]])
        self.equal(r["expert_counts"], "I64", [2, 0, 2])
        self.equal(r["expert_offsets"], "I64", [0, 2, 2, 4])
        self.assertNotIn("permuted_probs", r.outputs)

    def test_w2_two_experts_and_probs(self):
        r = self.ok("moe_permute", case(X4, MAP2, PROBS2), "--num-out-tokens", 8)
        self.equal(r["sorted_indices"], "I32", [0, 5, 3, 6, 1, 4, 2, 7])
        self.equal(r["permuted_tokens"], "F32",
                   [[10, 11], [30, 31], [40, 41], [20, 21], [30, 31], [10, 11], [20, 21], [40, 41]])
        self.equal(r["permuted_probs"], "F32", [.5, .125, .625, .25, .875, .5, .75, .375])
        self.equal(r["expert_counts"], "I64", [3, 2, 3])
        self.equal(r["expert_offsets"], "I64", [0, 3, 5, 8])
        self.assertEqual(set(r.outputs), {"sorted_indices", "permuted_tokens", "permuted_probs", "expert_counts",
                                          "expert_offsets"})

    def test_w3_bf16_bits_and_a_remainder(self):
        tokens = [[0x3f80, 0xc000], [0x3f00, 0x4040], [0x8000, 0x42c8]]
        r = self.ok("moe_permute", case(tokens, [[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0]], token_type="BF16"),
                    "--num-out-tokens", 7)
        self.equal(r["sorted_indices"], "I32", [0, 5, 2, 3, 1, 4])
        self.equal(r["permuted_tokens"], "BF16", [[0x3f80, 0xc000], [0x8000, 0x42c8], [0x3f00, 0x4040],
                                                  [0x3f00, 0x4040], [0x8000, 0x42c8], [0x3f80, 0xc000]])

    def test_w4_ragged(self):
        r = self.ok("moe_permute", case([[1, 2], [3, 4], [5, 6]], [[1, 0], [0, 0], [1, 0]],
                                        [[.5, .9], [.8, .7], [.25, .1]]), "--num-out-tokens", 6)
        self.equal(r["sorted_indices"], "I32", [0, -1, -1, -1, 1, -1])
        self.equal(r["permuted_tokens"], "F32", [[1, 2], [5, 6], [0, 0], [0, 0], [0, 0], [0, 0]])
        self.equal(r["permuted_probs"], "F32", [.5, .25, 0, 0, 0, 0])
        self.equal(r["expert_offsets"], "I64", [0, 2, 2])

    W5 = case([[10], [20], [30], [40], [50]], [[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1], [1, 0, 1]],
              [[.9, .1, .01], [.8, .2, .02], [.7, .3, .03], [.6, .4, .04], [.5, .5, .05]])

    def test_w5_capacity_with_overflow_and_an_empty_expert(self):
        r = self.ok("moe_permute", self.W5, "--num-out-tokens", 8, "--drop-and-pad")
        self.equal(r["sorted_indices"], "I32", [0, 1, 0, 1, 3, 4])
        self.equal(r["permuted_tokens"], "F32", [[10], [20], [10], [20], [40], [50]])
        self.equal(r["permuted_probs"], "F32", [.9, .8, .1, .2, .04, .05])
        self.equal(r["expert_counts"], "I64", [4, 0, 2])
        self.equal(r["expert_offsets"], "I64", [0, 2, 4, 6])

    def test_w5_zero_pad(self):
        r = self.ok("moe_permute", self.W5, "--num-out-tokens", 8, "--drop-and-pad", "--zero-pad")
        self.equal(r["sorted_indices"], "I32", [0, 1, -1, -1, 3, 4])
        self.equal(r["permuted_tokens"], "F32", [[10], [20], [0], [0], [40], [50]])
        self.equal(r["permuted_probs"], "F32", [.9, .8, 0, 0, .04, .05])

    def test_w6_capacity_with_shortage(self):
        r = self.ok("moe_permute", case(X4, [[0, 0], [0, 0], [1, 0], [0, 0]], [[0, 0], [0, 0], [1, 0], [0, 0]]),
                    "--num-out-tokens=6", "--drop-and-pad=true")
        self.equal(r["sorted_indices"], "I32", [2, 0, 1, 0, 1, 2])
        self.equal(r["permuted_tokens"], "F32", [[30, 31], [10, 11], [20, 21], [10, 11], [20, 21], [30, 31]])
        self.equal(r["permuted_probs"], "F32", [1, 0, 0, 0, 0, 0])

    def test_w7_all_experts(self):
        r = self.ok("moe_permute", case([[.1], [.2], [.3]], [[1, 1]] * 3), "--num-out-tokens", 6)
        self.equal(r["sorted_indices"], "I32", [0, 3, 1, 4, 2, 5])
        self.equal(r["permuted_tokens"], "F32", [[.1], [.2], [.3], [.1], [.2], [.3]])

    def test_w8_f16_three_of_four(self):
        r = self.ok("moe_permute", case([[1.5, 2.5], [3.5, 4.5]], [[1, 1, 0, 1], [0, 1, 1, 1]],
                                        [[.5, .25, .125, .125], [.5, .25, .125, .0625]], "F16", "I8", "F16"),
                    "--num-out-tokens", 6)
        self.equal(r["sorted_indices"], "I32", [0, 1, 4, 2, 3, 5])
        self.equal(r["permuted_tokens"], "F16",
                   [[1.5, 2.5], [1.5, 2.5], [3.5, 4.5], [3.5, 4.5], [1.5, 2.5], [3.5, 4.5]])
        self.equal(r["permuted_probs"], "F16", [.5, .25, .25, .125, .125, .0625])


class Semantics(CliTest):
    def test_any_nonzero_byte_routes(self):
        r = self.ok("moe_permute", case([[1], [2]], [[255, 0], [0, 2]], map_type="U8"), "--num-out-tokens", 2)
        self.equal(r["sorted_indices"], "I32", [0, 1])
        r = self.ok("moe_permute", case([[1], [2]], [[-1, 0], [0, -128]], map_type="I8"), "--num-out-tokens", 2)
        self.equal(r["sorted_indices"], "I32", [0, 1])

    def test_nan_payloads_survive(self):
        bits = [0x7fc12345, 0xff812345, 0x80000000, 0x00000001]
        tokens = Tensor("F32", [2, 2], struct.pack("<4I", *bits))
        r = self.ok("moe_permute", {"tokens": tokens, "routing_map": tensor("U8", [[0, 1], [1, 0]])},
                    "--num-out-tokens", 2)
        self.assertEqual(r["permuted_tokens"].data, struct.pack("<4I", *bits[2:], *bits[:2]))

    def test_wide_and_narrow_elements(self):
        for dtype, values in (("I64", [[2**62, -1], [5, 7]]), ("U8", [[255, 1], [0, 9]]), ("I16", [[-5, 5], [1, 2]]),
                              ("F64", [[.1, .2], [.3, .4]]), ("F8_E4M3", [[0x7f, 1], [2, 0x80]]),
                              ("BOOL", [[1, 0], [0, 1]])):
            with self.subTest(dtype):
                r = self.ok("moe_permute", case(values, [[0, 1], [1, 0]], token_type=dtype), "--num-out-tokens", 2)
                self.equal(r["permuted_tokens"], dtype, values[::-1])

    def test_fewer_rows_asked_than_tokens(self):
        r = self.ok("moe_permute", case(X4, MAP2, PROBS2), "--num-out-tokens", 3)
        self.assertEqual(r["permuted_tokens"].shape, [0, 2])
        self.assertEqual(r["sorted_indices"].shape, [0])
        self.assertEqual(r["permuted_probs"].shape, [0])
        self.equal(r["expert_counts"], "I64", [3, 2, 3])
        self.equal(r["expert_offsets"], "I64", [0, 3, 5, 8])

    def test_no_hidden_elements_still_gives_indices(self):
        tensors = {"tokens": Tensor("F32", [4, 0], b""), "routing_map": tensor("BOOL", MAP2)}
        r = self.ok("moe_permute", tensors, "--num-out-tokens", 8)
        self.assertEqual(r["permuted_tokens"].shape, [8, 0])
        self.equal(r["sorted_indices"], "I32", [0, 5, 3, 6, 1, 4, 2, 7])

    def test_no_tokens_at_all(self):
        tensors = {"tokens": Tensor("BF16", [0, 3], b""), "routing_map": Tensor("BOOL", [0, 4], b"")}
        r = self.ok("moe_permute", tensors, "--num-out-tokens", 0)
        self.assertEqual(r["permuted_tokens"].shape, [0, 3])
        self.equal(r["expert_counts"], "I64", [0, 0, 0, 0])
        self.equal(r["expert_offsets"], "I64", [0, 0, 0, 0, 0])

    def test_threads_and_tables_give_equal_files(self):
        import json
        tokens = [[(7 * t + h) % 97 for h in range(33)] for t in range(257)]
        routing = [[1 if (t * 5 + e * e) % 11 < 3 and e % 2 == t % 2 else 0 for e in range(9)] for t in range(257)]
        most = max(map(sum, routing))
        files = []
        tables = json.loads(self.cli("info", "--json").stdout)["isa_tables"]
        for options in [["--threads", n] for n in (1, 2, 3, 8)] + [["--isa", name] for name in tables]:
            self.ok("moe_permute", case(tokens, routing), "--num-out-tokens", 257 * most, *options)
            files.append(self.read("out.safetensors"))
        self.assertEqual(len(set(files)), 1)


class Refusals(CliTest):
    GOOD = case(X4, MAP2, PROBS2)

    def spoiled(self, **changes):
        tensors = dict(self.GOOD, **changes)
        return {name: t for name, t in tensors.items() if t is not None}

    def test_missing_tokens(self):
        self.refused("moe_permute", self.spoiled(tokens=None), "--num-out-tokens", 8, status="SY_ERR_NULL",
                     says="tokens")

    def test_missing_routing_map(self):
        self.refused("moe_permute", self.spoiled(routing_map=None), "--num-out-tokens", 8, status="SY_ERR_NULL",
                     says="routing_map")

    def test_map_type(self):
        self.refused("moe_permute", self.spoiled(routing_map=tensor("I32", MAP2)), "--num-out-tokens", 8,
                     status="SY_ERR_DTYPE", says="routing_map")

    def test_probs_type(self):
        self.refused("moe_permute", self.spoiled(probs=tensor("F64", PROBS2)), "--num-out-tokens", 8,
                     status="SY_ERR_DTYPE", says="probs")

    def test_token_rank(self):
        self.refused("moe_permute", self.spoiled(tokens=tensor("F32", [1, 2, 3, 4])), "--num-out-tokens", 8,
                     status="SY_ERR_SHAPE", says="tokens")

    def test_map_rows(self):
        self.refused("moe_permute", self.spoiled(routing_map=tensor("BOOL", MAP2[:3])), "--num-out-tokens", 8,
                     status="SY_ERR_SHAPE", says="routing_map")

    def test_probs_shape(self):
        self.refused("moe_permute", self.spoiled(probs=tensor("F32", [[1, 2]] * 4)), "--num-out-tokens", 8,
                     status="SY_ERR_SHAPE", says="probs")

    def test_negative_rows(self):
        self.refused("moe_permute", self.GOOD, "--num-out-tokens", -1, status="SY_ERR_VALUE", says="num_out_tokens")

    def test_more_rows_than_pairs(self):
        self.refused("moe_permute", self.GOOD, "--num-out-tokens", 13, status="SY_ERR_VALUE", says="num_out_tokens")

    def test_token_with_too_many_experts(self):
        self.refused("moe_permute", self.GOOD, "--num-out-tokens", 4, status="SY_ERR_ROUTING")

    def test_unequal_rows_with_the_right_total(self):
        self.refused("moe_permute", case([[1], [2]], [[1, 0, 0], [1, 1, 1]]), "--num-out-tokens", 4,
                     status="SY_ERR_ROUTING")

    def test_capacity_mode_never_looks_at_rows(self):
        self.ok("moe_permute", self.GOOD, "--num-out-tokens", 3, "--drop-and-pad")


if __name__ == "__main__":
    unittest.main()
