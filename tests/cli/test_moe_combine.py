"""moe_combine through `switchyard run`: its second name, together with moe_locations and moe_dispatch."""
import unittest

from st import CliTest, tensor

GRAD = {
    "gates": tensor("F32", [1, 2, 4, .5, 1]),
    "indices": tensor("I32", [0, 0, 0, 0, 0]),
    "locations": tensor("I32", [1, 1, 0, 1, -1]),
    "expert_out": tensor("F32", [[1, -1], [2, .5]]),
}
SIZES = ("--capacity", 2, "--num-experts", 1)


class Combine(CliTest):
    def test_second_name(self):
        """moe_dispatch_grad_data in a run, in an error and in help."""
        for name in ("moe_combine", "moe_dispatch_grad_data"):
            self.equal(self.ok(name, GRAD, *SIZES)["output"], "F32", [[2, .5], [4, 1], [4, -4], [1, .25], [0, 0]])
        tensors = {name: t for name, t in GRAD.items() if name != "indices"}
        self.rejected("moe_dispatch_grad_data", tensors, *SIZES, status="SY_ERR_NULL", says="indices is missing")
        text = self.cli("help", "moe_dispatch_grad_data").stdout
        self.assertIn("Also known as moe_dispatch_grad_data", text)
        self.assertEqual(text, self.cli("help", "moe_combine").stdout)

    def test_there_and_back(self):
        """moe_locations, moe_dispatch and moe_combine with gates of one: every token comes back k times."""
        indices = [[0, 1, 2, 0, 1, 2, 0], [1, 2, 0, 2, 0, 1, 1]]
        rows = [[i, -i, i / 2] for i in range(7)]
        located = self.ok("moe_locations", {"indices": tensor("I32", indices)}, "--num-experts", 3)
        capacity = max(located["counts"].values())
        places, buffer = located["locations"].nested(), None
        for chosen, place in zip(indices, places):
            tensors = {"indices": tensor("I32", chosen), "locations": tensor("I32", place),
                       "input": tensor("F32", rows)}
            if buffer:
                tensors["dispatch"] = buffer
            buffer = self.ok("moe_dispatch", tensors, "--capacity", capacity, "--num-experts", 3)["dispatch"]
        back = self.ok("moe_combine", {"indices": tensor("I32", indices), "locations": located["locations"],
                                       "expert_out": buffer}, "--capacity", capacity, "--num-experts", 3)
        self.equal(back["output"], "F32", [[2 * x + 0.0 for x in row] for row in rows])


if __name__ == "__main__":
    unittest.main()
