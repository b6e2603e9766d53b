"""moe_combine through `switchyard run`: worked examples, its second name, rounding, refusals."""
import struct
import unittest

from st import INF, CliTest, Tensor, tensor

TWO = {
    "gates": tensor("F32", [[.5, .75, .25, .5, 1], [.5, .25, .75, .5, 0]]),
    "indices": tensor("I32", [[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]]),
    "locations": tensor("I32", [[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]]),
    "expert_out": tensor("F32", [[10], [20], [30], [40], [50], [60]]),
}
TWO_SIZES = ("--capacity", 2, "--num-experts", 3)
GRAD = {
    "gates": tensor("F32", [1, 2, 4, .5, 1]),
    "indices": tensor("I32", [0, 0, 0, 0, 0]),
    "locations": tensor("I32", [1, 1, 0, 1, -1]),
    "expert_out": tensor("F32", [[1, -1], [2, .5]]),
}
GRAD_SIZES = ("--capacity", 2, "--num-experts", 1)


class Examples(CliTest):
    def test_two_choices(self):
        r = self.ok("moe_combine", TWO, *TWO_SIZES)
        self.equal(r["output"], "F32", [[25], [30], [12.5], [15], [0]])
        self.assertEqual(list(r.outputs), ["output"])

    def test_data_gradient(self):
        want = [[2, .5], [4, 1], [4, -4], [1, .25], [0, 0]]
        for name in ("moe_combine", "moe_dispatch_grad_data"):
            self.equal(self.ok(name, GRAD, *GRAD_SIZES)["output"], "F32", want)

    def test_alias_is_named_when_it_is_refused(self):
        tensors = {name: t for name, t in GRAD.items() if name != "indices"}
        self.refused("moe_dispatch_grad_data", tensors, *GRAD_SIZES, status="SY_ERR_NULL", says="indices is missing")

    def test_without_gates(self):
        tensors = {name: t for name, t in GRAD.items() if name != "gates"}
        self.equal(self.ok("moe_combine", tensors, *GRAD_SIZES)["output"], "F32",
                   [[2, .5], [2, .5], [1, -1], [2, .5], [0, 0]])

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


class Semantics(CliTest):
    def test_extreme_indices_are_skipped(self):
        low, high = -2**31, 2**31 - 1
        r = self.ok("moe_combine", {"indices": tensor("I32", [low, high, 0, 0, 1]),
                                    "locations": tensor("I32", [0, 0, low, high, 1]),
                                    "expert_out": tensor("F32", [[1], [2], [3], [4]])},
                    "--capacity", 2, "--num-experts", 2)
        self.equal(r["output"], "F32", [[0], [0], [0], [0], [4]])

    def test_zero_gate_does_not_hide_infinity(self):
        r = self.ok("moe_combine", {"indices": tensor("I32", [0]), "locations": tensor("I32", [0]),
                                    "gates": tensor("F32", [0]), "expert_out": tensor("F32", [[INF, -1]])},
                    "--capacity", 1, "--num-experts", 1)
        self.assertEqual(struct.unpack("<2I", r["output"].data), (0x7fc00000, 0x80000000))

    def test_16_bits_are_rounded_once(self):
        r = self.ok("moe_combine", {"indices": tensor("I32", [[0], [0], [0]]),
                                    "locations": tensor("I32", [[0], [1], [2]]),
                                    "expert_out": tensor("F16", [[2048], [1], [1]])},
                    "--capacity", 3, "--num-experts", 1)
        self.equal(r["output"], "F16", [[2050]])

    def test_empty(self):
        r = self.ok("moe_combine", {"indices": tensor("I32", [[0, 0]]), "locations": tensor("I32", [[0, 0]]),
                                    "expert_out": Tensor("BF16", [0, 3], b"")}, "--capacity", 0, "--num-experts", 4)
        self.equal(r["output"], "BF16", [[0, 0, 0], [0, 0, 0]])
        r = self.ok("moe_combine", {"indices": Tensor("I32", [2, 0], b""), "locations": Tensor("I32", [2, 0], b""),
                                    "expert_out": tensor("F32", [[1, 2]])}, "--capacity", 1, "--num-experts", 1)
        self.assertEqual(r["output"].shape, [0, 2])

    def test_help_knows_both_names(self):
        text = self.cli("help", "moe_dispatch_grad_data").stdout
        self.assertIn("Also known as moe_dispatch_grad_data", text)
        self.assertEqual(text, self.cli("help", "moe_combine").stdout)


class Refusals(CliTest):
    def test_missing_inputs(self):
        for name in ("indices", "locations", "expert_out"):
            with self.subTest(name):
                tensors = {key: t for key, t in TWO.items() if key != name}
                self.refused("moe_combine", tensors, *TWO_SIZES, status="SY_ERR_NULL", says=name)

    def test_types(self):
        self.refused("moe_combine", dict(TWO, indices=tensor("I64", [[0] * 5] * 2)), *TWO_SIZES,
                     status="SY_ERR_DTYPE", says="indices")
        self.refused("moe_combine", dict(TWO, gates=tensor("F16", [[0] * 5] * 2)), *TWO_SIZES,
                     status="SY_ERR_DTYPE", says="gates")

    def test_shapes(self):
        self.refused("moe_combine", dict(TWO, gates=tensor("F32", [1] * 5)), *TWO_SIZES, status="SY_ERR_SHAPE",
                     says="gates has shape [5], want [2,5]")
        self.refused("moe_combine", TWO, "--capacity", 3, "--num-experts", 3, status="SY_ERR_SHAPE",
                     says="expert_out has shape [6,1], want [9,1]")

    def test_values(self):
        self.refused("moe_combine", TWO, "--capacity", -1, "--num-experts", 3, status="SY_ERR_VALUE", says="capacity")
        self.refused("moe_combine", TWO, "--capacity", 2**62, "--num-experts", 4, status="SY_ERR_OVERFLOW")

    def test_sizes_are_required(self):
        self.usage("moe_combine", TWO, "--capacity", 2, says="--num-experts")
        self.usage("moe_combine", TWO, "--num-experts", 3, says="--capacity")


if __name__ == "__main__":
    unittest.main()
