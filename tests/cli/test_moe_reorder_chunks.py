"""moe_reorder_chunks through `switchyard run`: there and back."""
import unittest

from st import CliTest, tensor

ROWS = [[10 * i, 10 * i + 1] for i in range(7)]
EXTRA = [i / 8 for i in range(7)]


class ReorderChunks(CliTest):
    def test_there_and_back(self):
        rows, extra, counts = tensor("F32", ROWS), tensor("F16", EXTRA), tensor("I32", [[2, 0, 1], [1, 2, 1]])
        there = self.ok("moe_reorder_chunks", {"rows": rows, "extra": extra, "counts": counts})
        back = self.ok("moe_reorder_chunks", {"rows": there["reordered_rows"], "extra": there["reordered_extra"],
                                              "counts": counts}, "--inverse")
        self.equal(back["reordered_rows"], "F32", ROWS)
        self.equal(back["reordered_extra"], "F16", EXTRA)


if __name__ == "__main__":
    unittest.main()
