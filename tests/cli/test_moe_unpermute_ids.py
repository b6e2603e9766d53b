"""moe_unpermute_ids through `switchyard run`: worked examples, windows, refusals."""
import unittest

from st import CliTest, tensor

ROWS = [[10], [30], [20], [10], [20], [30]]
PLACES = [3, 0, 2, 4, 1, 5]


def case(**more):
    return dict({"permuted_tokens": tensor("F32", ROWS), "sorted_indices": tensor("I32", PLACES)}, **more)


class Examples(CliTest):
    def test_weighted(self):
        probs = tensor("F32", [[.75, .25], [.5, .5], [1, 2]])
        r = self.ok("moe_unpermute_ids", case(probs=probs))
        self.equal(r["tokens"], "F32", [[10], [20], [90]])
        self.assertEqual(list(r.outputs), ["tokens"])

    def test_without_weights(self):
        self.equal(self.ok("moe_unpermute_ids", case(), "--num-tokens", 3)["tokens"], "F32", [[20], [40], [60]])
        self.equal(self.ok("moe_unpermute_ids", case())["tokens"], "F32", [[10], [10], [20], [20], [30], [30]])

    def test_window(self):
        window = case(permuted_tokens=tensor("F32", ROWS[2:5]))
        r = self.ok("moe_unpermute_ids", window, "--num-tokens", 3, "--row-begin", 2)
        self.equal(r["tokens"], "F32", [[10], [40], [0]])

    def test_missing_slots(self):
        r = self.ok("moe_unpermute_ids", case(sorted_indices=tensor("I32", [3, -1, 2, -1, -1, -1])), "--num-tokens", 3)
        self.equal(r["tokens"], "F32", [[10], [20], [0]])


class Refusals(CliTest):
    def test_contents(self):
        self.refused("moe_unpermute_ids", case(sorted_indices=tensor("I32", [3, 0, 2, 6, 1, 5])), "--num-tokens", 3,
                     status="SY_ERR_ROUTING", says="sorted_indices has 6 at 3, want -1 to 5")

    def test_arguments(self):
        self.refused("moe_unpermute_ids", {"sorted_indices": tensor("I32", PLACES)}, status="SY_ERR_NULL")
        self.refused("moe_unpermute_ids", case(permuted_tokens=tensor("I32", ROWS)), status="SY_ERR_DTYPE")
        self.refused("moe_unpermute_ids", case(), "--num-tokens", 4, status="SY_ERR_SHAPE",
                     says="6 slots, want a multiple of 4 tokens")
        self.refused("moe_unpermute_ids", case(), "--row-begin", -1, status="SY_ERR_VALUE", says="row_begin")


if __name__ == "__main__":
    unittest.main()
