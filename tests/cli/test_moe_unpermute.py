"""moe_unpermute through `switchyard run`: worked examples, the way back from moe_permute, refusals."""
import json
import unittest

from st import CliTest, Tensor, f32, tensor

MAP2 = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
PROBS2 = [[.5, 0, .5], [0, .25, .75], [.125, .875, 0], [.625, 0, .375]]
Y8 = [[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]]
SLOTS = [0, 5, 3, 6, 1, 4, 2, 7]
PROBS5 = [[.9, .1, .01], [.8, .2, .02], [.7, .3, .03], [.6, .4, .04], [.5, .5, .05]]


def case(rows, indices, routing_map=None, probs=None, row_type="F32", probs_type="F32"):
    tensors = {"permuted_tokens": tensor(row_type, rows), "sorted_indices": tensor("I32", indices)}
    if routing_map is not None:
        tensors["routing_map"] = tensor("BOOL", routing_map)
    if probs is not None:
        tensors["probs"] = tensor(probs_type, probs)
    return tensors


class Examples(CliTest):
    def test_plain(self):
        r = self.ok("moe_unpermute", case(Y8, SLOTS), "--num-tokens", 4)
        self.equal(r["tokens"], "F32", [[7, -8], [11, -16], [7, -8], [11, -16]])
        self.assertEqual(set(r.outputs), {"tokens"})

    def test_weighted(self):
        for probs_type in ("F32", "F16"):
            r = self.ok("moe_unpermute", case(Y8, SLOTS, MAP2, PROBS2, probs_type=probs_type))
            self.equal(r["tokens"], "F32", [[3.5, -4], [6.25, -9.5], [4.625, -6.25], [4.875, -6.75]])

    def test_capacity_plain(self):
        r = self.ok("moe_unpermute", case([[1], [2], [3], [4], [5], [6]], [0, 1, 0, 1, 3, 4]), "--num-tokens=5",
                    "--drop-and-pad")
        self.equal(r["tokens"], "F32", [[4], [6], [0], [5], [6]])

    def test_capacity_weighted(self):
        r = self.ok("moe_unpermute", case([[1], [2], [3], [4], [5], [6]], [0, 1, 0, 1, 3, 4], probs=PROBS5),
                    "--drop-and-pad")
        self.assertEqual(r["tokens"].shape, [5, 1])
        self.near(r["tokens"].values(), [1.2, 2.4, 0, .2, .3])

    def test_capacity_sample_of_the_vendor(self):
        r = self.ok("moe_unpermute", case([[1, 1], [1, 1]], [1, 1], probs=[[1, 1], [1, 1]]), "--drop-and-pad")
        self.equal(r["tokens"], "F32", [[0, 0], [2, 2]])

    def test_zero_pad(self):
        r = self.ok("moe_unpermute", case([[1], [2], [3], [4], [5], [6]], [0, 1, -1, -1, 3, 4]), "--num-tokens", 5,
                    "--drop-and-pad", "--zero-pad")
        self.equal(r["tokens"], "F32", [[1], [2], [0], [5], [6]])

    def test_unused_slots(self):
        r = self.ok("moe_unpermute", case([[1, 2], [5, 6], [9, 9], [9, 9], [9, 9], [9, 9]], [0, -1, -1, -1, 1, -1]),
                    "--num-tokens", 3)
        self.equal(r["tokens"], "F32", [[1, 2], [0, 0], [5, 6]])

    def test_number_of_tokens_in_the_file(self):
        r = self.ok("moe_unpermute", case(Y8, SLOTS), metadata={"switchyard.num_tokens": "4"})
        self.assertEqual(r["tokens"].shape, [4, 2])


class Semantics(CliTest):
    def test_back_from_permute(self):
        """The tokens come back when the probs of each sum to one, with the tensors of the first file as they are."""
        tokens = [[f32(t * 1.25 + h / 8) for h in range(7)] for t in range(4)]
        source = {"tokens": tensor("F32", tokens), "routing_map": tensor("BOOL", MAP2),
                  "probs": tensor("F32", [[.5 * bit for bit in row] for row in MAP2])}
        there = self.ok("moe_permute", source, "--num-out-tokens", 8)
        again = self.ok("moe_unpermute", {"permuted_tokens": there["permuted_tokens"],
                                          "sorted_indices": there["sorted_indices"],
                                          "routing_map": source["routing_map"], "probs": source["probs"]})
        self.equal(again["tokens"], "F32", tokens)

    def test_zero_weight_hides_infinity(self):
        r = self.ok("moe_unpermute", case([[float("inf")], [3]], [0, 1], [[1, 1]], [[0, 2]]))
        self.equal(r["tokens"], "F32", [[6]])

    def test_bf16_is_rounded_once(self):
        r = self.ok("moe_unpermute", case([[0x4380], [0x3f80], [0x3f80]], [0, 1, 2], row_type="BF16"),
                    "--num-tokens", 1)
        self.equal(r["tokens"], "BF16", [[0x4381]])

    def test_no_rows(self):
        r = self.ok("moe_unpermute", {"permuted_tokens": Tensor("F32", [0, 2], b""),
                                      "sorted_indices": Tensor("I32", [0], b"")}, "--num-tokens", 3)
        self.equal(r["tokens"], "F32", [[0, 0]] * 3)

    def test_threads_and_tables_give_equal_files(self):
        rows = [[(7 * i + h) % 97 / 8 for h in range(37)] for i in range(6 * 53)]
        indices = [i * 5 % (6 * 53) for i in range(6 * 53)]
        routing = [[1] * 6 for _ in range(53)]
        probs = [[f32((t * 6 + e) % 17 / 17) for e in range(6)] for t in range(53)]
        files = []
        tables = json.loads(self.cli("info", "--json").stdout)["isa_tables"]
        for options in [["--threads", n] for n in (1, 2, 3, 8)] + [["--isa", name] for name in tables]:
            self.ok("moe_unpermute", case(rows, indices, routing, probs), *options)
            files.append(self.read("out.safetensors"))
        self.assertEqual(len(set(files)), 1)


class Refusals(CliTest):
    GOOD = case(Y8, SLOTS, MAP2, PROBS2)

    def spoiled(self, **changes):
        tensors = dict(self.GOOD, **changes)
        return {name: t for name, t in tensors.items() if t is not None}

    def test_missing_tensors(self):
        for name in ("permuted_tokens", "sorted_indices", "routing_map"):
            self.refused("moe_unpermute", self.spoiled(**{name: None}), status="SY_ERR_NULL", says=name)

    def test_nothing_tells_the_tokens(self):
        self.refused("moe_unpermute", case(Y8, SLOTS), status="SY_ERR_NULL", says="num_tokens")

    def test_types(self):
        self.refused("moe_unpermute", self.spoiled(permuted_tokens=tensor("F64", Y8)), status="SY_ERR_DTYPE",
                     says="permuted_tokens")
        self.refused("moe_unpermute", self.spoiled(sorted_indices=tensor("I64", SLOTS)), status="SY_ERR_DTYPE",
                     says="sorted_indices")

    def test_shapes(self):
        self.refused("moe_unpermute", self.spoiled(sorted_indices=tensor("I32", SLOTS[:7])), status="SY_ERR_SHAPE",
                     says="sorted_indices")
        self.refused("moe_unpermute", case(Y8, SLOTS), "--num-tokens", 3, status="SY_ERR_SHAPE", says="multiple of 3")
        self.refused("moe_unpermute", case(Y8, [0] * 8, probs=PROBS2), "--drop-and-pad", status="SY_ERR_SHAPE",
                     says="multiple of 3")

    def test_number_of_tokens(self):
        self.refused("moe_unpermute", case(Y8, SLOTS), "--num-tokens", -4, status="SY_ERR_VALUE", says="num_tokens")
        self.refused("moe_unpermute", self.GOOD, "--num-tokens", 8, status="SY_ERR_VALUE", says="num_tokens")

    def test_indices(self):
        for bad in (8, -2):
            self.refused("moe_unpermute", case(Y8, [0, 5, 3, bad, 1, 4, 2, 7]), "--num-tokens", 4,
                         status="SY_ERR_ROUTING", says=f"{bad} at 3")
        for bad in (4, -1):
            self.refused("moe_unpermute", case(Y8, [0, 1, 2, bad, 1, 2, 2, 3]), "--num-tokens", 4, "--drop-and-pad",
                         status="SY_ERR_ROUTING", says=f"{bad} at 3, want 0 to 3")

    def test_experts_and_slots_disagree(self):
        self.refused("moe_unpermute", case(Y8, SLOTS, [[1, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 1]], PROBS2),
                     status="SY_ERR_ROUTING", says="token 2 to 3 experts")


if __name__ == "__main__":
    unittest.main()
