"""Rows of moe_permute and its kin through `switchyard run`: there and back, equal files whatever threads and tables."""
import json
import unittest

from st import CliTest, f32, tensor

MAP = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
SLOTS = [0, 5, 3, 6, 1, 4, 2, 7]


class ThereAndBack(CliTest):
    def test_unpermute(self):
        """The tokens come back when the probs of each sum to one, with the tensors of the first file as they are."""
        tokens = [[f32(t * 1.25 + h / 8) for h in range(7)] for t in range(4)]
        given = {"routing_map": tensor("BOOL", MAP), "probs": tensor("F32", [[.5 * bit for bit in row] for row in MAP])}
        there = self.ok("moe_permute", {"tokens": tensor("F32", tokens), **given}, "--num-out-tokens", 8)
        rows = {name: there[name] for name in ("permuted_tokens", "sorted_indices")}
        self.equal(self.ok("moe_unpermute", {**rows, **given})["tokens"], "F32", tokens)

    def test_unpermute_with_the_number_of_tokens_in_the_file(self):
        rows = {"permuted_tokens": tensor("F32", [[1, 1]] * 8), "sorted_indices": tensor("I32", SLOTS)}
        r = self.ok("moe_unpermute", rows, metadata={"switchyard.num_tokens": "4"})
        self.equal(r["tokens"], "F32", [[2, 2]] * 4)

    def test_permute_grad(self):
        """Every token gets as many times its gradient as it has experts, when all gradients are one."""
        there = self.ok("moe_permute", {"tokens": tensor("F32", [[1, 2]] * 4), "routing_map": tensor("BOOL", MAP)},
                        "--num-out-tokens", 8)
        rows = {"grad_permuted_tokens": tensor("F32", [[1, 1]] * 8), "sorted_indices": there["sorted_indices"]}
        r = self.ok("moe_permute_grad", rows, "--num-experts", 3, "--num-tokens", 4)
        self.equal(r["grad_tokens"], "F32", [[2, 2]] * 4)

    def test_unpermute_ids(self):
        tokens = [[10, 11], [20, 21], [30, 31]]
        there = self.ok("moe_permute_ids", {"tokens": tensor("F32", tokens),
                                            "ids": tensor("I32", [[2, 0], [1, 2], [0, 2]])})
        rows = {name: there[name] for name in ("permuted_tokens", "sorted_indices")}
        probs = tensor("F32", [[.75, .25], [.5, .5], [.625, .375]])
        self.equal(self.ok("moe_unpermute_ids", {**rows, "probs": probs})["tokens"], "F32", tokens)


class EqualFiles(CliTest):
    def check(self, op, tensors, *more):
        tables = json.loads(self.cli("info", "--json").stdout)["isa_tables"]
        files = set()
        for options in [["--threads", n] for n in (1, 2, 3, 8)] + [["--isa", name] for name in tables]:
            self.ok(op, tensors, *more, *options)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)

    def test_permute(self):
        tokens = [[(7 * t + h) % 97 for h in range(33)] for t in range(257)]
        routing = [[int((t * 5 + e * e) % 11 < 3 and e % 2 == t % 2) for e in range(9)] for t in range(257)]
        self.check("moe_permute", {"tokens": tensor("F32", tokens), "routing_map": tensor("BOOL", routing)},
                   "--num-out-tokens", 257 * max(map(sum, routing)))

    # 53 tokens, all of them with six experts.
    INDICES = tensor("I32", [i * 5 % (6 * 53) for i in range(6 * 53)])
    ROUTING = tensor("BOOL", [[1] * 6] * 53)

    def test_unpermute(self):
        rows = [[(7 * i + h) % 97 / 8 for h in range(37)] for i in range(6 * 53)]
        probs = [[f32((t * 6 + e) % 17 / 17) for e in range(6)] for t in range(53)]
        self.check("moe_unpermute", {"permuted_tokens": tensor("F32", rows), "sorted_indices": self.INDICES,
                                     "routing_map": self.ROUTING, "probs": tensor("F32", probs)})

    def test_unpermute_grad(self):
        grads = [[(7 * t + h) % 97 / 8 for h in range(37)] for t in range(53)]
        rows = [[(3 * i + h) % 89 / 16 for h in range(37)] for i in range(6 * 53)]
        probs = [[(t * 6 + e) % 17 / 16 for e in range(6)] for t in range(53)]
        self.check("moe_unpermute_grad", {"grad_tokens": tensor("F32", grads), "sorted_indices": self.INDICES,
                                          "permuted_tokens": tensor("F32", rows), "routing_map": self.ROUTING,
                                          "probs": tensor("F32", probs)})


if __name__ == "__main__":
    unittest.main()
