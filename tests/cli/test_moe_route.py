"""moe_route through `switchyard run`: metadata, threads and tables, together with moe_permute."""
import unittest

from st import CliTest, tensor


class Route(CliTest):
    def test_metadata(self):
        r = self.ok("moe_route", {"logits": tensor("F32", [[0, 3, 1]])},
                    metadata={"switchyard.k": "2", "switchyard.score": "none"})
        self.equal(r["ids"], "I32", [[1, 2]])

    def test_threads_and_tables_agree(self):
        logits = [[((t * 131 + e * 71) % 97) / 9 for e in range(64)] for t in range(300)]
        options = ("--k", 6, "--renormalize", "--capacity", 20)
        files = set()
        for more in (("--threads", 1), ("--threads", 3), ("--threads", 8), ("--isa", "scalar")):
            self.ok("moe_route", {"logits": tensor("F32", logits)}, *options, *more)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)

    def test_the_map_feeds_moe_permute(self):
        routed = self.ok("moe_route", {"logits": tensor("F32", [[2, 1, 0], [0, 1, 2], [1, 2, 0]])}, "--k", 2)
        r = self.ok("moe_permute", {"tokens": tensor("F32", [[10], [20], [30]]), "routing_map": routed["routing_map"],
                                    "probs": routed["probs"]}, "--num-out-tokens", 6)
        self.equal(r["permuted_tokens"], "F32", [[10], [30], [10], [20], [30], [20]])
        self.assertEqual(r["expert_counts"].data, routed["counts"].data)


if __name__ == "__main__":
    unittest.main()
