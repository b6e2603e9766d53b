"""moe_pad_map through `switchyard run`: worked examples, refusals."""
import unittest

from st import CliTest, Tensor, tensor

MAP = [[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]]


class Examples(CliTest):
    def test_alignments(self):
        for alignment, want, counts in (
            (1, MAP, [3, 0, 2]),
            (2, [[1, 0, 0], [1, 0, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0]], [4, 0, 2]),
            (4, [[1, 0, 1], [1, 0, 1], [1, 0, 1], [1, 0, 1], [0, 0, 0]], [4, 0, 4]),
            (5, [[1, 0, 1]] * 5, [5, 0, 5]),
        ):
            for dtype in ("BOOL", "U8", "I8"):
                r = self.ok("moe_pad_map", {"routing_map": tensor(dtype, MAP)}, "--alignment", alignment)
                self.equal(r["padded_map"], dtype, want)
                self.equal(r["expert_counts"], "I64", counts)
                self.assertEqual(len(r.outputs), 2)

    def test_bytes_other_than_one_stay(self):
        r = self.ok("moe_pad_map", {"routing_map": tensor("U8", [[0], [255], [0]])}, "--alignment", 2)
        self.equal(r["padded_map"], "U8", [[1], [255], [0]])

    def test_empty(self):
        r = self.ok("moe_pad_map", {"routing_map": Tensor("BOOL", [0, 3], b"")}, "--alignment", 4)
        self.assertEqual(r["padded_map"].shape, [0, 3])
        self.equal(r["expert_counts"], "I64", [0, 0, 0])


class Refusals(CliTest):
    def test_too_few_tokens(self):
        self.refused("moe_pad_map", {"routing_map": tensor("BOOL", MAP)}, "--alignment", 8, status="SY_ERR_ROUTING",
                     says="routing_map routes 3 of 5 tokens to expert 0, want at least 8 tokens")

    def test_arguments(self):
        self.refused("moe_pad_map", {}, "--alignment", 1, status="SY_ERR_NULL", says="routing_map")
        self.refused("moe_pad_map", {"routing_map": tensor("F32", MAP)}, "--alignment", 1, status="SY_ERR_DTYPE")
        self.refused("moe_pad_map", {"routing_map": tensor("BOOL", [1, 0])}, "--alignment", 1, status="SY_ERR_SHAPE")
        self.refused("moe_pad_map", {"routing_map": tensor("BOOL", MAP)}, "--alignment", 0, status="SY_ERR_VALUE",
                     says="alignment is 0, want 1 or more")


if __name__ == "__main__":
    unittest.main()
