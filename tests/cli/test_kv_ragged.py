"""kv_ragged through `switchyard run`: several caches, options."""
import unittest

from st import CliTest, tensor

GOOD = {"cache": tensor("F32", [[10.0 * r] for r in range(8)]), "block_table": tensor("I32", [[3, 1], [0, 2]]),
        "starts": tensor("I32", [1, 0]), "cu_lens": tensor("I32", [0, 3, 5])}


class Ragged(CliTest):
    def test_planes(self):
        tensors = {("cache.0" if name == "cache" else name): t for name, t in GOOD.items()}
        r = self.ok("kv_ragged", dict(tensors, **{"cache.1": tensor("I8", [[r, -r] for r in range(8)])}), "--block-size", 2)
        self.assertEqual(sorted(r.outputs), ["out.0", "out.1"])
        self.equal(r["out.0"], "F32", [[70], [20], [30], [0], [10]])
        self.equal(r["out.1"], "I8", [[7, -7], [2, -2], [3, -3], [0, 0], [1, -1]])

    def test_usage(self):
        self.usage("kv_ragged", GOOD, says="--block-size")
        self.usage("kv_ragged", dict(GOOD, indices=tensor("I32", [0])), "--block-size", 2, says="indices")


if __name__ == "__main__":
    unittest.main()
