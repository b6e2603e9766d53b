"""moe_permute_ids through `switchyard run`: there and back, a missing tensor."""
import unittest

from st import CliTest, tensor

TOKENS = [[10, 11], [20, 21], [30, 31]]
IDS = [[2, 0], [1, 2], [0, 2]]


class PermuteIds(CliTest):
    def test_there_and_back(self):
        probs = tensor("F32", [[.75, .25], [.5, .5], [.625, .375]])
        r = self.ok("moe_permute_ids", {"tokens": tensor("F32", TOKENS), "ids": tensor("I32", IDS)})
        back = self.ok("moe_unpermute_ids", {"permuted_tokens": r["permuted_tokens"],
                                             "sorted_indices": r["sorted_indices"], "probs": probs})
        self.equal(back["tokens"], "F32", TOKENS)

    def test_missing_tokens(self):
        self.refused("moe_permute_ids", {"ids": tensor("I32", IDS)}, status="SY_ERR_NULL", says="tokens")


if __name__ == "__main__":
    unittest.main()
