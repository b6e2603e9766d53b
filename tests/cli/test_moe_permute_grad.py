"""moe_permute_grad through `switchyard run`: worked examples and refusals."""
import struct
import unittest

from st import CliTest, Tensor, tensor

MAP2 = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
Y8 = [[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]]
SLOTS = [0, 5, 3, 6, 1, 4, 2, 7]
SIZES = ("--num-experts", 3, "--num-tokens", 4)


def case(rows, indices, values=None, routing_map=None, row_type="F32", value_type="F32"):
    tensors = {"grad_permuted_tokens": tensor(row_type, rows), "sorted_indices": tensor("I32", indices)}
    if values is not None:
        tensors["grad_permuted_probs"] = tensor(value_type, values)
    if routing_map is not None:
        tensors["routing_map"] = tensor("BOOL", routing_map)
    return tensors


class Examples(CliTest):
    def test_packed(self):
        r = self.ok("moe_permute_grad", case(Y8, SLOTS, list(range(1, 9)), MAP2), *SIZES)
        self.equal(r["grad_tokens"], "F32", [[7, -8], [11, -16], [7, -8], [11, -16]])
        self.equal(r["grad_probs"], "F32", [[1, 0, 6], [0, 4, 7], [2, 5, 0], [3, 0, 8]])
        self.assertEqual(set(r.outputs), {"grad_tokens", "grad_probs"})

    def test_without_probs(self):
        r = self.ok("moe_permute_grad", case(Y8, SLOTS), *SIZES)
        self.equal(r["grad_tokens"], "F32", [[7, -8], [11, -16], [7, -8], [11, -16]])
        self.assertEqual(set(r.outputs), {"grad_tokens"})

    def test_capacity(self):
        r = self.ok("moe_permute_grad", case([[1], [2], [3], [4], [5], [6]], [0, 1, 0, 1, 3, 4], [1, 2, 3, 4, 5, 6]),
                    "--num-experts=3", "--num-tokens=5", "--drop-and-pad")
        self.equal(r["grad_tokens"], "F32", [[4], [6], [0], [5], [6]])
        self.equal(r["grad_probs"], "F32", [[1, 3, 0], [2, 4, 0], [0, 0, 0], [0, 0, 5], [0, 0, 6]])

    def test_highest_row_of_a_pair(self):
        r = self.ok("moe_permute_grad", case([[1], [1], [1], [1]], [1, 1, 0, 0], [1, 2, 3, 4]), "--num-experts", 2,
                    "--num-tokens", 2, "--drop-and-pad")
        self.equal(r["grad_probs"], "F32", [[0, 4], [2, 0]])

    def test_types_are_free_and_bits_survive(self):
        bits = [0x7f81, 0x8000, 1, 0xffff]
        r = self.ok("moe_permute_grad", case([[1.5], [2.5], [3.5], [4.5]], [3, 0, 2, 1], bits, [[1, 1], [1, 1]],
                                             row_type="F16", value_type="BF16"), "--num-experts", 2, "--num-tokens", 2)
        self.equal(r["grad_tokens"], "F16", [[6], [6]])
        self.assertEqual(r["grad_probs"].data, struct.pack("<4H", 0xffff, 0x7f81, 1, 0x8000))

    def test_zero_pad(self):
        r = self.ok("moe_permute_grad", case([[1], [2]], [0, -1], [5, 6]), "--num-experts", 2, "--num-tokens", 2,
                    "--drop-and-pad", "--zero-pad")
        self.equal(r["grad_tokens"], "F32", [[1], [0]])
        self.equal(r["grad_probs"], "F32", [[5, 0], [0, 0]])

    def test_back_from_permute(self):
        """Every token gets as many times its gradient as it has experts, when all gradients are one."""
        there = self.ok("moe_permute", {"tokens": tensor("F32", [[1, 2]] * 4), "routing_map": tensor("BOOL", MAP2)},
                        "--num-out-tokens", 8)
        r = self.ok("moe_permute_grad", {"grad_permuted_tokens": tensor("F32", [[1, 1]] * 8),
                                         "sorted_indices": there["sorted_indices"]}, *SIZES)
        self.equal(r["grad_tokens"], "F32", [[2, 2]] * 4)

    def test_no_rows(self):
        r = self.ok("moe_permute_grad", {"grad_permuted_tokens": Tensor("F32", [0, 2], b""),
                                         "sorted_indices": Tensor("I32", [0], b"")}, *SIZES)
        self.equal(r["grad_tokens"], "F32", [[0, 0]] * 4)


class Refusals(CliTest):
    GOOD = case(Y8, SLOTS, [1] * 8, MAP2)

    def spoiled(self, **changes):
        tensors = dict(self.GOOD, **changes)
        return {name: t for name, t in tensors.items() if t is not None}

    def test_missing_tensors(self):
        for name in ("grad_permuted_tokens", "sorted_indices", "routing_map"):
            self.refused("moe_permute_grad", self.spoiled(**{name: None}), *SIZES, status="SY_ERR_NULL", says=name)

    def test_sizes(self):
        self.refused("moe_permute_grad", self.GOOD, "--num-tokens", 4, status="SY_ERR_VALUE", says="num_experts is 0")
        self.refused("moe_permute_grad", self.GOOD, "--num-experts", 3, status="SY_ERR_VALUE", says="num_tokens is 0")
        self.refused("moe_permute_grad", self.GOOD, "--num-experts", -3, "--num-tokens", 4, status="SY_ERR_VALUE",
                     says="num_experts is -3")
        self.refused("moe_permute_grad", case(Y8, SLOTS), "--num-experts", 3, "--num-tokens", 3,
                     status="SY_ERR_SHAPE", says="multiple of 3")

    def test_types(self):
        self.refused("moe_permute_grad", self.spoiled(grad_permuted_tokens=tensor("I32", Y8)), *SIZES,
                     status="SY_ERR_DTYPE", says="grad_permuted_tokens")

    def test_indices(self):
        self.refused("moe_permute_grad", case(Y8, [0, 5, 3, 8, 1, 4, 2, 7]), *SIZES, status="SY_ERR_ROUTING",
                     says="8 at 3")
        self.refused("moe_permute_grad", case(Y8, [0, 5, 3, -1, 1, 4, 2, 7], [1] * 8, MAP2), *SIZES,
                     status="SY_ERR_ROUTING", says="token 1 to 2 experts")


if __name__ == "__main__":
    unittest.main()
