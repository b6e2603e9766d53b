"""moe_convert_indices through `switchyard run`: what moe_permute makes."""
import unittest

from st import CliTest, tensor


class ConvertIndices(CliTest):
    def test_what_moe_permute_makes(self):
        tokens = {"tokens": tensor("F32", [[1], [2], [3], [4]]),
                  "routing_map": tensor("BOOL", [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]])}
        packed = self.ok("moe_permute", tokens, "--num-out-tokens", 8)
        r = self.ok("moe_convert_indices", {name: packed[name] for name in ("sorted_indices", "expert_offsets")},
                    "--from", "slot", "--to", "te", "--num-tokens", 4)
        self.equal(r["converted_indices"], "I32", [[5, 0, -1, 2, 0, -1, 2], [6, 3, -1, 2, 1, -1, 2],
                                                   [4, 1, -1, 1, 0, -1, 2], [7, 2, -1, 2, 0, -1, 2]])
        capacity = self.ok("moe_permute", tokens, "--num-out-tokens", 6, "--drop-and-pad")
        self.equal(capacity["sorted_indices"], "I32", [0, 2, 1, 2, 0, 1])
        r = self.ok("moe_convert_indices", {"sorted_indices": capacity["sorted_indices"]}, "--from", "row", "--to",
                    "slot", "--num-tokens", 4, "--k", 2)
        self.equal(r["converted_indices"], "I32", [0, 4, 2, 5, 1, 3, -1, -1])


if __name__ == "__main__":
    unittest.main()
