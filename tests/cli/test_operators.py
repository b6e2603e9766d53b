"""Operators through `switchyard run`, beyond the worked examples: one reads the file that another has written, a second name, sizes
beyond memory, outputs by default. Required options and words: test_run.py."""
import unittest

from st import CliTest, f32, tensor

CHOICES = [[0, 1, 2, 0, 1, 2, 0], [1, 2, 0, 2, 0, 1, 1]]


class Chains(CliTest):
    def test_route_permute_and_back(self):
        """The tokens return when the weights of each sum to one, with the map of the first file as it is."""
        tokens = [[f32(t * 1.25 + h / 8) for h in range(7)] for t in range(3)]
        routed = self.ok("moe_route", {"logits": tensor("F32", [[2, 2, 0], [0, 2, 2], [2, 0, 2]])}, "--k", 2, "--renormalize")
        given = {name: routed[name] for name in ("routing_map", "probs")}
        there = self.ok("moe_permute", {"tokens": tensor("F32", tokens), **given}, "--num-out-tokens", 6)
        self.assertEqual(there["expert_counts"].data, routed["counts"].data)
        rows = {name: there[name] for name in ("permuted_tokens", "sorted_indices")}
        self.equal(self.ok("moe_unpermute", {**rows, **given})["tokens"], "F32", tokens)
        form = self.ok("moe_convert_indices", {name: there[name] for name in ("sorted_indices", "expert_offsets")}, "--from", "slot",
                       "--to", "te", "--num-tokens", 3)
        self.equal(form["converted_indices"], "I32", [[2, 0, -1, 1, 0, -1, 2], [4, 3, -1, 2, 1, -1, 2], [5, 1, -1, 2, 0, -1, 2]])


class Single(CliTest):
    GRAD = {"gates": tensor("F32", [1, 2, 4, .5, 1]), "indices": tensor("I32", [0] * 5), "locations": tensor("I32", [1, 1, 0, 1, -1]),
            "expert_out": tensor("F32", [[1, -1], [2, .5]])}

    def test_second_name(self):
        """moe_dispatch_grad_data in a run, in an error and in help."""
        sizes = ("--capacity", 2, "--num-experts", 1)
        for name in ("moe_combine", "moe_dispatch_grad_data"):
            self.equal(self.ok(name, self.GRAD, *sizes)["output"], "F32", [[2, .5], [4, 1], [4, -4], [1, .25], [0, 0]])
        tensors = {name: t for name, t in self.GRAD.items() if name != "indices"}
        self.rejected("moe_dispatch_grad_data", tensors, *sizes, status="SY_ERR_NULL", says="indices is missing")
        text = self.out("help", "moe_dispatch_grad_data")
        self.assertIn("Also known as moe_dispatch_grad_data", text)
        self.assertEqual(text, self.out("help", "moe_combine"))

    def test_sizes_beyond_memory(self):
        self.rejected("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", 2**50, status="SY_ERR_NOMEM",
                     says="counts")
        tensors = {"indices": tensor("I32", [1]), "locations": tensor("I32", [0]), "input": tensor("F32", [[1, 2]])}
        self.rejected("moe_dispatch", tensors, "--capacity", 2**40, "--num-experts", 2**16, status="SY_ERR_NOMEM", says="dispatch")

    def test_outputs_by_default(self):
        cache, table = tensor("F32", [[0, 1], [10, 11]]), tensor("I32", [[0, 2, 1]])
        pair = tensor("I32", [[1, 0]])
        for op, tensors, options, outputs in (
                ("kv_translate", {"indices": tensor("I32", [[0, 4, 3]]), "block_table": table}, ("--block-size", 2), ["slots", "valid"]),
                ("kv_blocks", {"cache": cache, "pairs": pair}, ("--block-size", 1), ["cache"]),
                ("kv_blocks", {"src": cache, "dst": cache, "pairs": pair}, ("--block-size", 1), ["dst"])):
            self.assertEqual(sorted(self.ok(op, tensors, *options).outputs), outputs)

    def test_numbers_of_the_file(self):
        rows = {"permuted_tokens": tensor("F32", [[1, 1]] * 8), "sorted_indices": tensor("I32", [0, 5, 3, 6, 1, 4, 2, 7])}
        r = self.ok("moe_unpermute", rows, metadata={"switchyard.num_tokens": "4"})
        self.equal(r["tokens"], "F32", [[2, 2]] * 4)
        self.usage("kv_gather", {"cache": tensor("F32", [[1], [2]]), "indices": tensor("I32", [0]), "block_table": tensor("I32", [0])},
                   "--block-size", 2, "--out-type", "f32", says="out_type means nothing without format")


if __name__ == "__main__":
    unittest.main()
