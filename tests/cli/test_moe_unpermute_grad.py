"""moe_unpermute_grad through `switchyard run`: worked examples and refusals."""
import unittest

from st import CliTest, Tensor, tensor

MAP2 = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
PROBS2 = [[.5, 0, .5], [0, .25, .75], [.125, .875, 0], [.625, 0, .375]]
Y8 = [[1, 1], [2, -1], [3, -3], [4, -5], [5, -7], [6, -9], [7, -11], [8, -13]]
G4 = [[1, 0], [0, 1], [1, 1], [2, -1]]
SLOTS = [0, 5, 3, 6, 1, 4, 2, 7]


def case(grads, indices, rows=None, routing_map=None, probs=None, row_type="F32", probs_type="F32"):
    tensors = {"grad_tokens": tensor(row_type, grads), "sorted_indices": tensor("I32", indices)}
    if rows is not None:
        tensors["permuted_tokens"] = tensor(row_type, rows)
    if routing_map is not None:
        tensors["routing_map"] = tensor("BOOL", routing_map)
    if probs is not None:
        tensors["probs"] = tensor(probs_type, probs)
    return tensors


class Examples(CliTest):
    def test_packed(self):
        for row_type in ("F32", "F16"):
            for probs_type in ("F32", "F16"):
                r = self.ok("moe_unpermute_grad", case(G4, SLOTS, Y8, MAP2, PROBS2, row_type, probs_type))
                self.equal(r["grad_permuted_tokens"], row_type,
                           [[.5, 0], [.125, .125], [1.25, -.625], [0, .25], [.875, .875], [.5, 0], [0, .75],
                            [.75, -.375]])
                self.equal(r["grad_probs"], probs_type, [[1, 0, 6], [0, -5, -11], [1, -2, 0], [9, 0, 29]])
                self.assertEqual(set(r.outputs), {"grad_permuted_tokens", "grad_probs"})

    def test_without_probs(self):
        r = self.ok("moe_unpermute_grad", case(G4, SLOTS))
        self.equal(r["grad_permuted_tokens"], "F32", [[1, 0], [1, 1], [2, -1], [0, 1], [1, 1], [1, 0], [0, 1], [2, -1]])
        self.assertEqual(set(r.outputs), {"grad_permuted_tokens"})

    def test_sample_of_the_vendor(self):
        r = self.ok("moe_unpermute_grad", case([[1, 1]], [0, 1], [[1, 1], [1, 1]], [[1, 1]], [[1, 1]]))
        self.equal(r["grad_permuted_tokens"], "F32", [[1, 1], [1, 1]])
        self.equal(r["grad_probs"], "F32", [[2, 2]])

    def test_capacity(self):
        r = self.ok("moe_unpermute_grad", case([[1], [2], [4]], [0, 1, 2, 0], [[1], [2], [3], [4]],
                                               [[0, 0], [0, 0], [0, 0]], [[.5, 4], [2, 9], [9, .25]]), "--drop-and-pad")
        self.equal(r["grad_permuted_tokens"], "F32", [[.5], [4], [1], [4]])
        self.equal(r["grad_probs"], "F32", [[1, 4], [4, 0], [0, 12]])

    def test_zero_pad(self):
        r = self.ok("moe_unpermute_grad", case([[1], [2]], [1, -1]), "--drop-and-pad", "--zero-pad")
        self.equal(r["grad_permuted_tokens"], "F32", [[2], [0]])

    def test_rows_nobody_names(self):
        r = self.ok("moe_unpermute_grad", case([[3], [5]], [2, -1, 1, -1]))
        self.equal(r["grad_permuted_tokens"], "F32", [[0], [5], [3], [0]])

    def test_no_tokens(self):
        r = self.ok("moe_unpermute_grad", {"grad_tokens": Tensor("BF16", [0, 4], b""),
                                           "sorted_indices": Tensor("I32", [0], b"")})
        self.assertEqual(r["grad_permuted_tokens"].shape, [0, 4])

    def test_threads_and_tables_give_equal_files(self):
        import json
        grads = [[(7 * t + h) % 97 / 8 for h in range(37)] for t in range(53)]
        rows = [[(3 * i + h) % 89 / 16 for h in range(37)] for i in range(6 * 53)]
        indices = [i * 5 % (6 * 53) for i in range(6 * 53)]
        probs = [[(t * 6 + e) % 17 / 16 for e in range(6)] for t in range(53)]
        tables = json.loads(self.cli("info", "--json").stdout)["isa_tables"]
        files = []
        for options in [["--threads", n] for n in (1, 2, 3, 8)] + [["--isa", name] for name in tables]:
            self.ok("moe_unpermute_grad", case(grads, indices, rows, [[1] * 6] * 53, probs), *options)
            files.append(self.read("out.safetensors"))
        self.assertEqual(len(set(files)), 1)


class Refusals(CliTest):
    GOOD = case(G4, SLOTS, Y8, MAP2, PROBS2)

    def spoiled(self, **changes):
        tensors = dict(self.GOOD, **changes)
        return {name: t for name, t in tensors.items() if t is not None}

    def test_missing_tensors(self):
        for name in ("grad_tokens", "sorted_indices", "permuted_tokens", "routing_map"):
            self.refused("moe_unpermute_grad", self.spoiled(**{name: None}), status="SY_ERR_NULL", says=name)

    def test_types_and_shapes(self):
        self.refused("moe_unpermute_grad", self.spoiled(permuted_tokens=tensor("F16", Y8)), status="SY_ERR_DTYPE",
                     says="permuted_tokens")
        self.refused("moe_unpermute_grad", self.spoiled(probs=tensor("F32", PROBS2[:3])), status="SY_ERR_SHAPE",
                     says="probs")
        self.refused("moe_unpermute_grad", case(G4, SLOTS[:7]), status="SY_ERR_SHAPE", says="multiple of 4")

    def test_indices(self):
        self.refused("moe_unpermute_grad", case(G4, [0, 5, 3, 8, 1, 4, 2, 7]), status="SY_ERR_ROUTING", says="8 at 3")
        self.refused("moe_unpermute_grad", case(G4, [0, 5, 3, -1, 1, 4, 2, 7], Y8, MAP2, PROBS2),
                     status="SY_ERR_ROUTING", says="token 1 to 2 experts")
        self.refused("moe_unpermute_grad", case(G4, [0, 4]), "--drop-and-pad", status="SY_ERR_ROUTING", says="4 at 1")


if __name__ == "__main__":
    unittest.main()
