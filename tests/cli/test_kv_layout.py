"""Caches with heads through `switchyard run`: planes, words of --layout."""
import unittest

from st import CliTest, tensor

CACHE = [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]], [[[8, 9], [10, 11]], [[12, 13], [14, 15]]]]
AT = {"indices": tensor("I32", [1, 2]), "block_table": tensor("I32", [1, 0])}


class Layout(CliTest):
    def test_planes(self):
        values = [[[[-x for x in row] for row in head] for head in block] for block in CACHE]
        r = self.ok("kv_gather", dict(AT, **{"cache.0": tensor("I8", CACHE), "cache.1": tensor("I8", values)}),
                    "--block-size", 2, "--layout", "hnd")
        self.equal(r["out.0"], "I8", [[[10, 11], [14, 15]], [[0, 1], [4, 5]]])
        self.equal(r["out.1"], "I8", [[[-10, -11], [-14, -15]], [[0, -1], [-4, -5]]])

    def test_words(self):
        self.usage("kv_gather", dict(AT, cache=tensor("I8", CACHE)), "--block-size", 2, "--layout", "ndh", says="ndh")


if __name__ == "__main__":
    unittest.main()
