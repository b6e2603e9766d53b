"""moe_reorder_chunks through `switchyard run`: worked examples, both directions, refusals."""
import unittest

from st import CliTest, Tensor, tensor

COUNTS = [[2, 0, 1], [1, 2, 1]]
ROWS = [[10 * i, 10 * i + 1] for i in range(7)]
TOGETHER = [0, 1, 3, 4, 5, 2, 6]


def case(dtype="I32", counts=None, rows=None, **more):
    return dict({"rows": tensor("F32", rows or ROWS), "counts": tensor(dtype, counts or COUNTS)}, **more)


class Examples(CliTest):
    def test_experts_together(self):
        for dtype in ("I32", "I64"):
            r = self.ok("moe_reorder_chunks", case(dtype))
            self.equal(r["reordered_rows"], "F32", [ROWS[i] for i in TOGETHER])
            self.equal(r["expert_offsets"], "I64", [0, 3, 5, 7])
            self.assertEqual(len(r.outputs), 2)

    def test_there_and_back(self):
        extra = tensor("F16", [i / 8 for i in range(7)])
        there = self.ok("moe_reorder_chunks", case(extra=extra))
        self.equal(there["reordered_extra"], "F16", [i / 8 for i in TOGETHER])
        back = self.ok("moe_reorder_chunks", {"rows": there["reordered_rows"], "extra": there["reordered_extra"],
                                              "counts": tensor("I32", COUNTS)}, "--inverse")
        self.equal(back["reordered_rows"], "F32", ROWS)
        self.equal(back["reordered_extra"], "F16", [i / 8 for i in range(7)])
        self.equal(back["expert_offsets"], "I64", [0, 3, 5, 7])

    def test_rows_of_no_chunk(self):
        r = self.ok("moe_reorder_chunks", case(counts=[[1, 0], [2, 1]], rows=[[1], [2], [3], [4], [5]]))
        self.equal(r["reordered_rows"], "F32", [[1], [2], [3], [4], [0]])
        self.equal(r["expert_offsets"], "I64", [0, 3, 4])

    def test_rows_of_any_rank_and_type(self):
        r = self.ok("moe_reorder_chunks", {"rows": tensor("U8", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
                                           "counts": tensor("I64", [[0, 1], [1, 0]])})
        self.equal(r["reordered_rows"], "U8", [[[5, 6], [7, 8]], [[1, 2], [3, 4]]])
        r = self.ok("moe_reorder_chunks", {"rows": tensor("I64", [1, 2]), "counts": tensor("I64", [[0, 1], [1, 0]])})
        self.equal(r["reordered_rows"], "I64", [2, 1])

    def test_empty(self):
        r = self.ok("moe_reorder_chunks", {"rows": Tensor("F32", [0, 2], b""), "counts": tensor("I32", [[0, 0]])})
        self.assertEqual(r["reordered_rows"].shape, [0, 2])
        self.equal(r["expert_offsets"], "I64", [0, 0, 0])


class Refusals(CliTest):
    def test_contents(self):
        self.refused("moe_reorder_chunks", case(counts=[[2, 0, 1], [1, 2, 3]]), status="SY_ERR_INDEX",
                     says="counts at rank 1, expert 2 is 3, want 0 to 1, the rows that are left")
        self.refused("moe_reorder_chunks", case(counts=[[2, -1], [1, 2]]), status="SY_ERR_INDEX",
                     says="counts at rank 0, expert 1 is -1")

    def test_arguments(self):
        self.refused("moe_reorder_chunks", {"rows": tensor("F32", ROWS)}, status="SY_ERR_NULL", says="counts")
        self.refused("moe_reorder_chunks", case("F32"), status="SY_ERR_DTYPE", says="counts")
        self.refused("moe_reorder_chunks", case(counts=[1, 2]), status="SY_ERR_SHAPE", says="counts")
        self.refused("moe_reorder_chunks", case(extra=tensor("F32", [1, 2])), status="SY_ERR_SHAPE",
                     says="extra has 2 rows, want 7, as rows has")


if __name__ == "__main__":
    unittest.main()
