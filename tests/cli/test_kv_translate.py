"""kv_translate and kv_slots through `switchyard run`: outputs by default, options, slots followed by kv_scatter."""
import unittest

from st import CliTest, tensor


class Translate(CliTest):
    GOOD = {"indices": tensor("I32", [[0, 4, 3]]), "block_table": tensor("I32", [[0, 2, 1]])}

    def test_outputs(self):
        r = self.ok("kv_translate", self.GOOD, "--block-size", 2)
        self.assertEqual(sorted(r.outputs), ["slots", "valid"])

    def test_usage(self):
        self.usage("kv_translate", self.GOOD, says="--block-size")
        self.usage("kv_translate", dict(self.GOOD, cache=tensor("F32", [[0]])), "--block-size", 2, says="cache")
        self.usage("kv_slots", {"position": tensor("I32", [0])}, says="--block-size")

    def test_slots_then_scatter(self):
        slots = self.ok("kv_slots", {"position": tensor("I32", [3, 0]), "block_table": tensor("I32", [2, 0, 1])},
                        "--block-size", 2)["slots"]
        r = self.ok("kv_scatter", {"cache": tensor("F32", [[0]] * 6), "src": tensor("F32", [[7], [8]]), "slots": slots})
        self.equal(r["cache"], "F32", [[0], [7], [0], [0], [8], [0]])


if __name__ == "__main__":
    unittest.main()
