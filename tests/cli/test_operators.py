"""Operators through `switchyard run`, beyond the worked examples: one reads the file that another has written, a second name, the
same file whatever threads and tables, sizes beyond memory, outputs by default. Required options and words: test_run.py."""
import json
import unittest

from st import CliTest, Tensor, f32, tensor

MAP = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
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

    def test_locations_dispatch_and_combine(self):
        """With gates of one every token returns k times; the second dispatch adds to the file of the first."""
        rows, buffer = [[i, -i, i / 2] for i in range(7)], {}
        located = self.ok("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", 3)
        sizes = ("--capacity", max(located["counts"].values()), "--num-experts", 3)
        for chosen, place in zip(CHOICES, located["locations"].nested()):
            tensors = {"indices": tensor("I32", chosen), "locations": tensor("I32", place), "input": tensor("F32", rows)}
            buffer = {"dispatch": self.ok("moe_dispatch", {**tensors, **buffer}, *sizes)["dispatch"]}
        back = self.ok("moe_combine", {"indices": tensor("I32", CHOICES), "locations": located["locations"],
                                       "expert_out": buffer["dispatch"]}, *sizes)
        self.equal(back["output"], "F32", [[2 * x + 0.0 for x in row] for row in rows])

    def test_slots_scatter_and_gather(self):
        table = tensor("I32", [2, 0, 1])
        slots = self.ok("kv_slots", {"position": tensor("I32", [3, 0]), "block_table": table}, "--block-size", 2)["slots"]
        r = self.ok("kv_scatter", {"cache": tensor("F32", [[0]] * 6), "src": tensor("F32", [[7], [8]]), "slots": slots})
        self.equal(r["cache"], "F32", [[0], [7], [0], [0], [8], [0]])
        r = self.ok("kv_gather", {"cache": r["cache"], "indices": tensor("I32", [0, 3, 1]), "block_table": table}, "--block-size", 2)
        self.equal(r["out"], "F32", [[8], [7], [0]])

    def test_packed_rows(self):
        """What a format holds exactly returns as it was."""
        src = [[float((i * 37 + r) % 15 - 7) * 64 for i in range(512)] + [1.0] * 64 for r in range(3)]
        tensors = {"cache": Tensor("U8", [4, 656], bytes(4 * 656)), "src": tensor("F32", src), "slots": tensor("I64", [2, 0, 3])}
        cache = self.ok("kv_scatter", tensors, "--format", "ds32_fp8")["cache"]
        back = self.ok("kv_gather", {"cache": cache, "indices": tensor("I32", [2, 0, 3]), "block_table": tensor("I32", [0])},
                       "--block-size", 4, "--format", "ds32_fp8", "--out-type", "f32")
        self.equal(back["out"], "F32", src)


class EqualFiles(CliTest):
    def check(self, op, tensors, *more):
        tables = self.json("info")["isa_tables"]
        files = set()
        for options in [["--threads", n] for n in (1, 2, 3, 8)] + [["--isa", name] for name in tables]:
            self.ok(op, tensors, *more, *options)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)

    def test_permute(self):
        tokens = [[(7 * t + h) % 97 for h in range(33)] for t in range(257)]
        routing = [[int((t * 5 + e * e) % 11 < 3 and e % 2 == t % 2) for e in range(9)] for t in range(257)]
        self.check("moe_permute", {"tokens": tensor("F32", tokens), "routing_map": tensor("BOOL", routing)},
                   "--num-out-tokens", 257 * max(map(sum, routing)))


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
