"""moe_ids_from_map through `switchyard run`: worked examples, short rows, refusals."""
import unittest

from st import CliTest, Tensor, tensor

MAP = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]]


class Examples(CliTest):
    def test_ids(self):
        for dtype in ("BOOL", "U8", "I8"):
            r = self.ok("moe_ids_from_map", {"routing_map": tensor(dtype, MAP)}, "--k", 2)
            self.equal(r["ids"], "I32", [[0, 2], [1, -1], [2, 3]])
            self.assertEqual(list(r.outputs), ["ids"])

    def test_probs_become_weights(self):
        probs = [[.25, 9, .75, 9], [9, .5, 9, 9], [9, 9, .375, -0.0]]
        r = self.ok("moe_ids_from_map", {"routing_map": tensor("BOOL", MAP), "probs": tensor("F16", probs)}, "--k", 3)
        self.equal(r["ids"], "I32", [[0, 2, -1], [1, -1, -1], [2, 3, -1]])
        self.equal(r["weights"], "F16", [[.25, .75, 0], [.5, 0, 0], [.375, -0.0, 0]])

    def test_bytes_other_than_one(self):
        r = self.ok("moe_ids_from_map", {"routing_map": tensor("U8", [[0, 255, 2]])}, "--k", 2)
        self.equal(r["ids"], "I32", [[1, 2]])

    def test_empty(self):
        r = self.ok("moe_ids_from_map", {"routing_map": Tensor("BOOL", [0, 3], b"")}, "--k", 2)
        self.assertEqual(r["ids"].shape, [0, 2])
        r = self.ok("moe_ids_from_map", {"routing_map": Tensor("BOOL", [2, 0], b"")}, "--k", 1)
        self.equal(r["ids"], "I32", [[-1], [-1]])


class Refusals(CliTest):
    def test_too_many_experts(self):
        self.refused("moe_ids_from_map", {"routing_map": tensor("BOOL", MAP)}, "--k", 1, status="SY_ERR_ROUTING",
                     says="routing_map routes token 0 to 2 experts, want at most k = 1")

    def test_arguments(self):
        self.refused("moe_ids_from_map", {}, "--k", 1, status="SY_ERR_NULL", says="routing_map")
        self.refused("moe_ids_from_map", {"routing_map": tensor("I32", MAP)}, "--k", 2, status="SY_ERR_DTYPE")
        self.refused("moe_ids_from_map", {"routing_map": tensor("BOOL", MAP)}, "--k", -1, status="SY_ERR_VALUE")
        self.usage("moe_ids_from_map", {"routing_map": tensor("BOOL", MAP)}, says="--k")


if __name__ == "__main__":
    unittest.main()
