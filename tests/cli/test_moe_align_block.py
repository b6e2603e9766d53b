"""moe_align_block through `switchyard run`: worked examples, experts elsewhere, refusals."""
import unittest

from st import CliTest, Tensor, tensor

IDS = [[2, 0], [1, 2], [0, 2]]
SIZES = ("--num-experts", 4, "--block-size", 2)


def case(dtype="I32", ids=None, **more):
    return dict({"ids": tensor(dtype, ids or IDS)}, **more)


class Examples(CliTest):
    def check(self, result, slots, blocks, padded, counts, offsets):
        self.equal(result["sorted_slots"], "I32", slots)
        self.equal(result["block_experts"], "I32", blocks)
        self.equal(result["num_padded"], "I32", [padded])
        self.equal(result["expert_counts"], "I64", counts)
        self.equal(result["expert_offsets"], "I64", offsets)
        self.assertEqual(len(result.outputs), 5)

    def test_blocks(self):
        for dtype in ("I32", "I64"):
            self.check(self.ok("moe_align_block", case(dtype), *SIZES),
                       [1, 4, 2, 6, 0, 3, 5, 6, 6, 6], [0, 1, 2, 2, -1], 8, [2, 1, 3, 0], [0, 2, 4, 8, 8])

    def test_experts_elsewhere(self):
        there = case(expert_map=tensor("I32", [1, -1, 0, -1]))
        self.check(self.ok("moe_align_block", there, *SIZES),
                   [1, 4, 2, 6, 0, 3, 5, 6, 6, 6], [1, -1, 0, 0, -1], 8, [2, 1, 3, 0], [0, 2, 4, 8, 8])
        self.check(self.ok("moe_align_block", there, *SIZES, "--skip-unmapped"),
                   [1, 4, 0, 3, 5, 6, 6, 6, 6, 6], [1, 0, 0, -1, -1], 6, [2, 0, 3, 0], [0, 2, 2, 6, 6])

    def test_missing(self):
        r = self.ok("moe_align_block", case(ids=[[-1, 0], [4, 0]]), *SIZES, "--allow-missing")
        self.equal(r["sorted_slots"], "I32", [1, 3, 4, 4, 4, 4, 4, 4])
        self.equal(r["num_padded"], "I32", [2])

    def test_one_block_each(self):
        r = self.ok("moe_align_block", case(ids=[[1], [0]]), "--num-experts", 300, "--block-size", 3)
        self.equal(r["sorted_slots"], "I32", [1, 2, 2, 0, 2, 2])
        self.equal(r["block_experts"], "I32", [0, 1])

    def test_empty(self):
        r = self.ok("moe_align_block", {"ids": Tensor("I32", [0, 2], b"")}, *SIZES)
        self.assertEqual(r["sorted_slots"].shape, [0])
        self.equal(r["num_padded"], "I32", [0])
        self.equal(r["expert_offsets"], "I64", [0] * 5)


class Refusals(CliTest):
    def test_contents(self):
        self.refused("moe_align_block", case(), "--num-experts", 2, "--block-size", 2, status="SY_ERR_INDEX",
                     says="ids at token 0, slot 0 is 2, want 0 or more and below 2")
        self.refused("moe_align_block", case(expert_map=tensor("I32", [0, 1, -2, 3])), *SIZES, status="SY_ERR_INDEX",
                     says="expert_map at expert 2 is -2, want -1 or more")

    def test_arguments(self):
        self.refused("moe_align_block", {}, *SIZES, status="SY_ERR_NULL", says="ids")
        self.refused("moe_align_block", case(), *SIZES, "--skip-unmapped", status="SY_ERR_NULL", says="expert_map")
        self.refused("moe_align_block", case("F32"), *SIZES, status="SY_ERR_DTYPE", says="ids")
        self.refused("moe_align_block", case(expert_map=tensor("I32", [0])), *SIZES, status="SY_ERR_SHAPE",
                     says="expert_map")
        self.refused("moe_align_block", case(), "--num-experts", 4, "--block-size", 0, status="SY_ERR_VALUE",
                     says="block_size is 0, want 1 to 2147483647")


if __name__ == "__main__":
    unittest.main()
