"""moe_locations through `switchyard run`: together with moe_dispatch, threads, metadata, errors of the command line."""
import unittest

from st import CliTest, tensor

CHOICES = [[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]]


class Locations(CliTest):
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

    def test_experts_beyond_memory(self):
        self.rejected("moe_locations", {"indices": tensor("I32", CHOICES)}, "--num-experts", 2**50,
                     status="SY_ERR_NOMEM", says="counts")

    def test_experts_are_required(self):
        self.usage("moe_locations", {"indices": tensor("I32", CHOICES)}, says="--num-experts")


if __name__ == "__main__":
    unittest.main()
