"""moe_dispatch_grad_gate through `switchyard run`: gates of f32, threads."""
import unittest

from st import CliTest, bf16, tensor


class DispatchGradGate(CliTest):
    def test_f32_gates(self):
        for dtype, ones, row, want in (("F16", [1, 1, 1], [2048, 1, 1], 2050),
                                       ("BF16", [bf16(1)] * 3, [bf16(256), bf16(1), bf16(1)], 258)):
            tensors = {"indices": tensor("I32", [0]), "locations": tensor("I32", [0]), "input": tensor(dtype, [row]),
                       "dispatch": tensor(dtype, [ones])}
            r = self.ok("moe_dispatch_grad_gate", tensors, "--capacity", 1, "--num-experts", 1, "--f32-gates")
            self.equal(r["grad_gates"], "F32", [want])

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


if __name__ == "__main__":
    unittest.main()
