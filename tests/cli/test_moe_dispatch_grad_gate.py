"""moe_dispatch_grad_gate through `switchyard run`: worked examples, types of gates, refusals."""
import unittest

from st import INF, CliTest, Tensor, bf16, tensor

DISPATCH = {
    "indices": tensor("I32", [0, 0, 0, 0, 0]),
    "locations": tensor("I32", [1, 1, 0, 1, -1]),
    "input": tensor("F32", [[1, 2], [3, 4], [5, 6], [8, 10], [7, 7]]),
    "dispatch": tensor("F32", [[1, -1], [2, .5]]),
}
SIZES = ("--capacity", 2, "--num-experts", 1)


class Examples(CliTest):
    def test_gates_of_a_dispatch(self):
        r = self.ok("moe_dispatch_grad_gate", DISPATCH, *SIZES)
        self.equal(r["grad_gates"], "F32", [3, 8, -1, 21, 0])
        self.assertEqual(list(r.outputs), ["grad_gates"])

    def test_gates_of_a_combine(self):
        r = self.ok("moe_dispatch_grad_gate", {
            "indices": tensor("I32", [[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]]),
            "locations": tensor("I32", [[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]]),
            "input": tensor("F32", [[1]] * 5),
            "dispatch": tensor("F32", [[10], [20], [30], [40], [50], [60]]),
        }, "--capacity", 2, "--num-experts", 3)
        self.equal(r["grad_gates"], "F32", [[10, 20, 50, 30, 0], [40, 60, 0, 0, 0]])

    def test_types(self):
        rows = {"indices": tensor("I32", [0]), "locations": tensor("I32", [0])}
        for dtype, ones, row, own, wide in (("F16", [1, 1, 1], [2048, 1, 1], 2050, 2050),
                                            ("BF16", [bf16(1)] * 3, [bf16(256), bf16(1), bf16(1)], bf16(258), 258)):
            tensors = dict(rows, input=tensor(dtype, [row]), dispatch=tensor(dtype, [ones]))
            r = self.ok("moe_dispatch_grad_gate", tensors, "--capacity", 1, "--num-experts", 1)
            self.equal(r["grad_gates"], dtype, [own])
            r = self.ok("moe_dispatch_grad_gate", tensors, "--capacity", 1, "--num-experts", 1, "--f32-gates")
            self.equal(r["grad_gates"], "F32", [wide])


class Semantics(CliTest):
    def test_skipped_choices_are_zero(self):
        low, high = -2**31, 2**31 - 1
        r = self.ok("moe_dispatch_grad_gate", dict(DISPATCH, indices=tensor("I32", [low, high, -1, 1, 0]),
                                                   locations=tensor("I32", [0, 0, 0, 0, 2]),
                                                   dispatch=tensor("F32", [[INF, INF], [INF, INF]])), *SIZES)
        self.equal(r["grad_gates"], "F32", [0, 0, 0, 0, 0])

    def test_empty(self):
        r = self.ok("moe_dispatch_grad_gate", dict(DISPATCH, dispatch=Tensor("F32", [0, 2], b"")),
                    "--capacity", 0, "--num-experts", 1)
        self.equal(r["grad_gates"], "F32", [0] * 5)
        r = self.ok("moe_dispatch_grad_gate", dict(DISPATCH, input=Tensor("F32", [5, 0], b""),
                                                   dispatch=Tensor("F32", [2, 0], b"")), *SIZES)
        self.equal(r["grad_gates"], "F32", [0] * 5)

    def test_threads_change_nothing(self):
        n, width = 2000, 60
        tensors = {"indices": tensor("I32", [i % 3 for i in range(n)]),
                   "locations": tensor("I32", [i % 7 for i in range(n)]),
                   "input": tensor("F32", [[(i * j) % 17 / 7 for j in range(width)] for i in range(n)]),
                   "dispatch": tensor("F32", [[(i + 3 * j) % 19 / 11 for j in range(width)] for i in range(21)])}
        files = set()
        for threads in (1, 2, 3, 8):
            self.ok("moe_dispatch_grad_gate", tensors, "--capacity", 7, "--num-experts", 3, "--threads", threads)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)


class Refusals(CliTest):
    def test_missing_inputs(self):
        for name in DISPATCH:
            with self.subTest(name):
                tensors = {key: t for key, t in DISPATCH.items() if key != name}
                self.refused("moe_dispatch_grad_gate", tensors, *SIZES, status="SY_ERR_NULL", says=name)

    def test_types(self):
        self.refused("moe_dispatch_grad_gate", dict(DISPATCH, dispatch=tensor("F16", [[1, 1], [1, 1]])), *SIZES,
                     status="SY_ERR_DTYPE", says="dispatch is f16, want f32")

    def test_shapes(self):
        self.refused("moe_dispatch_grad_gate", dict(DISPATCH, input=tensor("F32", [[1, 2]] * 4)), *SIZES,
                     status="SY_ERR_SHAPE", says="input has shape [4,2], want [5,2]")
        self.refused("moe_dispatch_grad_gate", DISPATCH, "--capacity", 3, "--num-experts", 1, status="SY_ERR_SHAPE",
                     says="dispatch has shape [2,2], want [3,2]")

    def test_values(self):
        self.refused("moe_dispatch_grad_gate", DISPATCH, "--capacity", -1, "--num-experts", 1, status="SY_ERR_VALUE",
                     says="capacity")

    def test_sizes_are_required(self):
        self.usage("moe_dispatch_grad_gate", DISPATCH, "--capacity", 2, says="--num-experts")


if __name__ == "__main__":
    unittest.main()
