"""moe_locations through `switchyard run`: worked examples, importance, files without rows, refusals."""
import unittest

from st import INF, NAN, CliTest, Tensor, tensor

CHOICES = [[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]]


class Examples(CliTest):
    def test_two_choices(self):
        r = self.ok("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", 3)
        self.equal(r["locations"], "I32", [[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]])
        self.equal(r["counts"], "I64", [4, 4, 2])
        self.assertEqual(sorted(r.outputs), ["counts", "locations"])

    def test_by_importance(self):
        for dtype, scores in (("F32", [.5, .6, .7, .5, .8]), ("F16", [.5, .6, .7, .5, .8]),
                              ("BF16", [0x3f00, 0x3f1a, 0x3f33, 0x3f00, 0x3f4d])):
            r = self.ok("moe_locations", {"indices": tensor("I32", CHOICES), "importance": tensor(dtype, scores)},
                        "--num-experts", 3)
            self.equal(r["locations"], "I32", [[2, 1, 0, 0, 0], [3, 1, 2, 3, 1]])
            self.equal(r["counts"], "I64", [4, 4, 2])

    def test_one_choice_keeps_its_rank(self):
        r = self.ok("moe_locations", {"indices": tensor("I32", [1, 1, 0, 1])}, "--num-experts", 2)
        self.equal(r["locations"], "I32", [0, 1, 0, 2])

    def test_dispatch_takes_the_locations(self):
        """Two experts per token, capacity 2: token 4 finds no room in either."""
        r = self.ok("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", 3)
        places, old = r["locations"].nested(), tensor("F32", [[0]] * 6)
        for indices, locations in zip(CHOICES, places):
            sent = self.ok("moe_dispatch", {"indices": tensor("I32", indices), "locations": tensor("I32", locations),
                                            "input": tensor("F32", [[1], [2], [3], [4], [5]]), "dispatch": old},
                           "--capacity", 2, "--num-experts", 3)
            old = sent["dispatch"]
        self.equal(old, "F32", [[1], [2], [4], [1], [3], [2]])


class Semantics(CliTest):
    def test_outside_indices(self):
        r = self.ok("moe_locations", {"indices": tensor("I32", [-1, 0, 2, -2**31, 2**31 - 1, 0])}, "--num-experts", 2)
        self.equal(r["locations"], "I32", [-1, 0, -1, -1, -1, 1])
        self.equal(r["counts"], "I64", [2, 0])

    def test_special_importance(self):
        r = self.ok("moe_locations", {"indices": tensor("I32", [0] * 6),
                                      "importance": tensor("F32", [NAN, -0.0, 0.0, -INF, INF, NAN])},
                    "--num-experts", 1)
        self.equal(r["locations"], "I32", [4, 1, 2, 3, 0, 5])

    def test_empty(self):
        r = self.ok("moe_locations", {"indices": Tensor("I32", [2, 0], b"")}, "--num-experts", 2)
        self.assertEqual(r["locations"].shape, [2, 0])
        self.equal(r["counts"], "I64", [0, 0])
        r = self.ok("moe_locations", {"indices": tensor("I32", [0, 1])}, "--num-experts", 0)
        self.equal(r["locations"], "I32", [-1, -1])
        self.assertEqual(r["counts"].shape, [0])

    def test_threads_change_nothing(self):
        indices = tensor("I32", [[(i * i + t) % 11 for i in range(40000)] for t in range(3)])
        files = set()
        for threads in (1, 2, 3, 8):
            self.ok("moe_locations", {"indices": indices}, "--num-experts", 10, "--threads", threads)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)

    def test_metadata(self):
        r = self.ok("moe_locations", {"indices": tensor("I32", [1, 1])}, metadata={"switchyard.num_experts": "2"})
        self.equal(r["counts"], "I64", [0, 2])


class Refusals(CliTest):
    def test_missing_indices(self):
        self.refused("moe_locations", {}, "--num-experts", 2, status="SY_ERR_NULL", says="indices")

    def test_types(self):
        self.refused("moe_locations", {"indices": tensor("I64", [0])}, "--num-experts", 2, status="SY_ERR_DTYPE",
                     says="indices")
        self.refused("moe_locations", {"indices": tensor("I32", [0]), "importance": tensor("F64", [0])},
                     "--num-experts", 2, status="SY_ERR_DTYPE", says="importance")

    def test_shapes(self):
        self.refused("moe_locations", {"indices": tensor("I32", [[[0]]])}, "--num-experts", 2, status="SY_ERR_SHAPE",
                     says="rank 3")
        self.refused("moe_locations", {"indices": tensor("I32", CHOICES), "importance": tensor("F32", [1, 2])},
                     "--num-experts", 2, status="SY_ERR_SHAPE", says="[2], want [5]")

    def test_negative_experts(self):
        self.refused("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", -1, status="SY_ERR_VALUE",
                     says="num_experts is -1")

    def test_experts_beyond_memory(self):
        self.refused("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", 2**50,
                     status="SY_ERR_NOMEM", says="counts")

    def test_experts_are_required(self):
        self.usage("moe_locations", {"indices": tensor("I32", CHOICES)}, says="--num-experts")


if __name__ == "__main__":
    unittest.main()
