"""kv_blocks through `switchyard run`: one cache, two caches, planes, refusals."""
import unittest

from st import CliTest, tensor

CACHE = tensor("F32", [[[0, 1]], [[10, 11]], [[20, 21]], [[30, 31]]])


def pairs(*values, dtype="I32"):
    return tensor(dtype, [list(pair) for pair in values])


class Blocks(CliTest):
    def test_one_cache(self):
        for dtype in ("I32", "I64"):
            r = self.ok("kv_blocks", {"cache": CACHE, "pairs": pairs((0, 1), (0, 3), (2, 2), dtype=dtype)})
            self.assertEqual(sorted(r.outputs), ["cache"])
            self.equal(r["cache"], "F32", [[[0, 1]], [[0, 1]], [[20, 21]], [[0, 1]]])

    def test_flat(self):
        r = self.ok("kv_blocks", {"cache": tensor("I8", [[r] for r in range(6)]), "pairs": pairs((2, 0))}, "--block-size", 2)
        self.equal(r["cache"], "I8", [[4], [5], [2], [3], [4], [5]])

    def test_two_caches(self):
        r = self.ok("kv_blocks", {"src": CACHE, "dst": tensor("F32", [[[0, 0]]] * 2), "pairs": pairs((3, 0), (1, 1))})
        self.assertEqual(sorted(r.outputs), ["dst"])
        self.equal(r["dst"], "F32", [[[30, 31]], [[10, 11]]])

    def test_planes(self):
        r = self.ok("kv_blocks", {"cache.0": CACHE, "cache.1": tensor("I8", [[[r]] for r in range(4)]), "pairs": pairs((3, 0))})
        self.assertEqual(sorted(r.outputs), ["cache.0", "cache.1"])
        self.equal(r["cache.0"], "F32", [[[30, 31]], [[10, 11]], [[20, 21]], [[30, 31]]])
        self.equal(r["cache.1"], "I8", [[[3]], [[1]], [[2]], [[3]]])
        r = self.ok("kv_blocks", {"src.0": CACHE, "src.1": tensor("I8", [[[r]] for r in range(4)]),
                                  "dst.0": tensor("F32", [[[0, 0]]]), "dst.1": tensor("I8", [[[0]]]), "pairs": pairs((2, 0))})
        self.equal(r["dst.0"], "F32", [[[20, 21]]])
        self.equal(r["dst.1"], "I8", [[[2]]])

    def test_refusals(self):
        def refused(tensors, *options, **wanted):
            self.refused("kv_blocks", tensors, *options, **wanted)
        refused({"cache": CACHE, "pairs": pairs((0, 1), (2, 1))}, status="SY_ERR_INDEX", says="DUPLICATE")
        refused({"cache": CACHE, "pairs": pairs((0, 1), (1, 2))}, status="SY_ERR_INDEX", says="HAZARD")
        refused({"cache": CACHE, "pairs": pairs((0, 4))}, status="SY_ERR_INDEX", says="at position 0 writes block 4")
        refused({"cache": CACHE, "pairs": pairs((-1, 0))}, status="SY_ERR_INDEX", says="at position 0 reads block -1")
        refused({"pairs": pairs((0, 1))}, status="SY_ERR_NULL", says="cache is missing")
        refused({"src": CACHE, "pairs": pairs((0, 1))}, status="SY_ERR_NULL", says="dst is missing")
        refused({"cache": CACHE, "dst": CACHE, "pairs": pairs((0, 1))}, status="SY_ERR_VALUE", says="beside cache")
        refused({"cache": CACHE}, status="SY_ERR_NULL", says="pairs")
        refused({"cache": tensor("I8", [[0]] * 5), "pairs": pairs((0, 1))}, "--block-size", 2, status="SY_ERR_SHAPE",
                says="5 rows")
        refused({"cache": tensor("I8", [[0]] * 4), "pairs": pairs((0, 1))}, status="SY_ERR_VALUE", says="block_size")
        self.usage("kv_blocks", {"cache": CACHE, "slots": pairs((0, 1))}, says="slots")


if __name__ == "__main__":
    unittest.main()
