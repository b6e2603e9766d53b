"""moe_map_from_ids through `switchyard run`: worked examples, missing experts, refusals."""
import unittest

from st import CliTest, Tensor, bf16, tensor

IDS = [[2, 0], [1, 2], [3, 0]]
MAP = [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]


class Examples(CliTest):
    def test_map(self):
        for dtype in ("I32", "I64"):
            r = self.ok("moe_map_from_ids", {"ids": tensor(dtype, IDS)}, "--num-experts", 4)
            self.equal(r["routing_map"], "BOOL", MAP)
            self.assertEqual(list(r.outputs), ["routing_map"])

    def test_weights_become_probs(self):
        r = self.ok("moe_map_from_ids", {"ids": tensor("I32", IDS),
                                         "weights": tensor("F32", [[.75, .25], [.5, -0.0], [.625, .375]])},
                    "--num-experts", 4)
        self.equal(r["routing_map"], "BOOL", MAP)
        self.equal(r["probs"], "F32", [[.25, 0, .75, 0], [0, .5, -0.0, 0], [.375, 0, 0, .625]])
        r = self.ok("moe_map_from_ids", {"ids": tensor("I32", [[1]]), "weights": tensor("BF16", [[bf16(3)]])},
                    "--num-experts", 2)
        self.equal(r["probs"], "BF16", [[0, bf16(3)]])

    def test_missing_experts(self):
        ids = {"ids": tensor("I32", [[-1, 2], [3, 3]])}
        r = self.ok("moe_map_from_ids", ids, "--num-experts", 3, "--allow-missing")
        self.equal(r["routing_map"], "BOOL", [[0, 0, 1], [0, 0, 0]])

    def test_empty(self):
        r = self.ok("moe_map_from_ids", {"ids": Tensor("I32", [0, 2], b"")}, "--num-experts", 3)
        self.assertEqual(r["routing_map"].shape, [0, 3])
        r = self.ok("moe_map_from_ids", {"ids": Tensor("I32", [2, 0], b"")}, "--num-experts", 3)
        self.equal(r["routing_map"], "BOOL", [[0, 0, 0], [0, 0, 0]])

    def test_what_moe_route_chose(self):
        logits = {"logits": tensor("F32", [[3, 1, 2], [1, 2, 3]]), "finished": tensor("BOOL", [0, 1])}
        routed = self.ok("moe_route", logits, "--k", 2)
        r = self.ok("moe_map_from_ids", {"ids": routed["ids"], "weights": routed["weights"]}, "--num-experts", 3,
                    "--allow-missing")
        self.assertEqual(r["routing_map"].data, routed["routing_map"].data)
        self.assertEqual(r["probs"].data, routed["probs"].data)


class Refusals(CliTest):
    def refuse(self, ids, says, status, *options):
        self.refused("moe_map_from_ids", {"ids": tensor("I32", ids)}, "--num-experts", 3, *options, status=status,
                     says=says)

    def test_ids_outside(self):
        self.refuse([[0, 1], [2, 3]], "ids at token 1, slot 1 is 3, want 0 or more and below 3", "SY_ERR_INDEX")
        self.refuse([[0, -1]], "ids at token 0, slot 1 is -1", "SY_ERR_INDEX")
        self.refuse([[0, 4]], "ids at token 0, slot 1 is 4", "SY_ERR_INDEX", "--allow-missing")

    def test_ids_twice(self):
        self.refuse([[0, 1, 2], [2, 1, 2]], "ids at token 1, slot 2 is 2, as slot 0 is, want distinct experts",
                    "SY_ERR_ROUTING")

    def test_arguments(self):
        self.refused("moe_map_from_ids", {}, "--num-experts", 3, status="SY_ERR_NULL", says="ids")
        self.refused("moe_map_from_ids", {"ids": tensor("F32", [[1]])}, "--num-experts", 3, status="SY_ERR_DTYPE")
        self.refused("moe_map_from_ids", {"ids": tensor("I32", [1])}, "--num-experts", 3, status="SY_ERR_SHAPE")
        self.refused("moe_map_from_ids", {"ids": tensor("I32", [[1]])}, "--num-experts", -3, status="SY_ERR_VALUE")
        self.usage("moe_map_from_ids", {"ids": tensor("I32", [[1]])}, says="--num-experts")


if __name__ == "__main__":
    unittest.main()
