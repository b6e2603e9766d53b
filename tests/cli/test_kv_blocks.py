"""kv_blocks through `switchyard run`: which outputs there are, planes, unknown tensors."""
import unittest

from st import CliTest, tensor

CACHE = tensor("F32", [[[0, 1]], [[10, 11]], [[20, 21]], [[30, 31]]])
FLAT = tensor("I8", [[r] for r in range(4)])
PAIR = tensor("I32", [[3, 0]])


class Blocks(CliTest):
    def test_outputs(self):
        self.assertEqual(list(self.ok("kv_blocks", {"cache": CACHE, "pairs": PAIR}).outputs), ["cache"])
        self.assertEqual(list(self.ok("kv_blocks", {"src": CACHE, "dst": CACHE, "pairs": PAIR}).outputs), ["dst"])

    def test_planes(self):
        r = self.ok("kv_blocks", {"cache.0": CACHE, "cache.1": FLAT, "pairs": PAIR}, "--block-size", 1)
        self.assertEqual(sorted(r.outputs), ["cache.0", "cache.1"])
        self.equal(r["cache.0"], "F32", [[[30, 31]], [[10, 11]], [[20, 21]], [[30, 31]]])
        self.equal(r["cache.1"], "I8", [[3], [1], [2], [3]])
        r = self.ok("kv_blocks", {"src.0": CACHE, "src.1": FLAT, "dst.0": tensor("F32", [[[0, 0]]]),
                                  "dst.1": tensor("I8", [[0]]), "pairs": PAIR}, "--block-size", 1)
        self.equal(r["dst.0"], "F32", [[[30, 31]]])
        self.equal(r["dst.1"], "I8", [[3]])

    def test_usage(self):
        self.usage("kv_blocks", {"cache": CACHE, "slots": PAIR}, says="slots")


if __name__ == "__main__":
    unittest.main()
