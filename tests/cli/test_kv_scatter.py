"""kv_scatter through `switchyard run`: followed by kv_gather, metadata, words of options."""
import unittest

from st import CliTest, tensor

CASE = {"cache": tensor("F32", [[0, 0]] * 6), "src": tensor("F32", [[1, 2], [3, 4], [5, 6], [7, 8]]),
        "slots": tensor("I32", [5, -1, 0, 2])}


class Scatter(CliTest):
    def test_then_gather(self):
        cache = self.ok("kv_scatter", CASE, "--pad=skip")["cache"]
        r = self.ok("kv_gather", {"cache": cache, "indices": tensor("I32", [0, 1, 4]),
                                  "block_table": tensor("I32", [2, 0, 1])}, "--block-size", 2)
        self.equal(r["out"], "F32", [[0, 0], [1, 2], [7, 8]])

    def test_metadata(self):
        r = self.ok("kv_scatter", CASE, metadata={"switchyard.pad": "skip", "switchyard.check_unique": "true"})
        self.assertEqual(list(r.outputs), ["cache"])
        self.equal(r["cache"], "F32", [[5, 6], [0, 0], [7, 8], [0, 0], [0, 0], [1, 2]])

    def test_pad_words(self):
        for word in ("zero", "none", ""):
            self.usage("kv_scatter", CASE, f"--pad={word}", says="error, skip")


if __name__ == "__main__":
    unittest.main()
