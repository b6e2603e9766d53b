"""Caches with heads in files: --layout nhd and hnd."""
import unittest

from st import CliTest, tensor

HEAD_MAJOR = [[[[8 * b + 4 * h + 2 * s, 8 * b + 4 * h + 2 * s + 1] for s in range(2)] for h in range(2)] for b in range(2)]
TOKEN_MAJOR = [[[HEAD_MAJOR[b][h][s] for h in range(2)] for s in range(2)] for b in range(2)]
ASKED = {"indices": tensor("I32", [1, 2]), "block_table": tensor("I32", [1, 0])}
ROWS = [[[10, 11], [14, 15]], [[0, 1], [4, 5]]]


class Gather(CliTest):
    def gather(self, tensors, *options):
        return self.ok("kv_gather", dict(tensors, **ASKED), "--block-size", 2, *options)

    def test_both_layouts(self):
        self.equal(self.gather({"cache": tensor("F16", HEAD_MAJOR)}, "--layout", "hnd")["out"], "F16", ROWS)
        self.equal(self.gather({"cache": tensor("F16", TOKEN_MAJOR)}, "--layout", "nhd")["out"], "F16", ROWS)
        self.equal(self.gather({"cache": tensor("F16", TOKEN_MAJOR)})["out"], "F16", ROWS)

    def test_planes(self):
        values = [[[[-x for x in row] for row in head] for head in block] for block in HEAD_MAJOR]
        r = self.gather({"cache.0": tensor("I8", HEAD_MAJOR), "cache.1": tensor("I8", values)}, "--layout", "hnd")
        self.equal(r["out.0"], "I8", ROWS)
        self.equal(r["out.1"], "I8", [[[-x for x in head] for head in row] for row in ROWS])

    def test_heads_of_one_element(self):
        r = self.gather({"cache": tensor("F32", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])}, "--layout", "hnd")
        self.equal(r["out"], "F32", [[6, 8], [1, 3]])

    def test_refusals(self):
        flat = dict({"cache": tensor("F32", [[1, 2]] * 4)}, **ASKED)
        self.refused("kv_gather", flat, "--block-size", 2, "--layout", "hnd", status="SY_ERR_SHAPE",
                     says="cache has rank 2, want 3 or more")
        self.usage("kv_gather", flat, "--block-size", 2, "--layout", "ndh", says="ndh")


class Ragged(CliTest):
    def test_head_major(self):
        r = self.ok("kv_ragged", {"cache": tensor("F16", HEAD_MAJOR), "block_table": tensor("I32", [1, 0]),
                                  "starts": tensor("I32", [1]), "cu_lens": tensor("I32", [0, 2])},
                    "--block-size", 2, "--layout", "hnd")
        self.equal(r["out"], "F16", ROWS)


class Scatter(CliTest):
    def test_head_major(self):
        zero = [[[[0, 0]] * 2] * 2] * 2
        r = self.ok("kv_scatter", {"cache": tensor("F16", zero), "src": tensor("F16", ROWS),
                                   "slots": tensor("I64", [3, 0])}, "--layout", "hnd")
        self.equal(r["cache"], "F16", [[[[0, 1], [0, 0]], [[4, 5], [0, 0]]], [[[0, 0], [10, 11]], [[0, 0], [14, 15]]]])


if __name__ == "__main__":
    unittest.main()
