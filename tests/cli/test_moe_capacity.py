"""moe_capacity through `switchyard run`: together with moe_locations."""
import unittest

from st import CliTest, tensor


class Capacity(CliTest):
    def test_counts_of_moe_locations(self):
        located = self.ok("moe_locations", {"indices": tensor("I32", [[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]])},
                          "--num-experts", 3)
        r = self.ok("moe_capacity", {"counts": located["counts"]}, "--samples", 5, "--num-experts", 3, "--k", 2)
        self.equal(r["capacity"], "I64", [4])


if __name__ == "__main__":
    unittest.main()
