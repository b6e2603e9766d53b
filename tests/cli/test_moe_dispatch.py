"""moe_dispatch through `switchyard run`: threads, more slots than memory."""
import unittest

from st import CliTest, tensor


class Dispatch(CliTest):
    def test_threads_do_not_change_duplicates(self):
        n, files = 4000, set()
        tensors = {"indices": tensor("I32", [i % 3 for i in range(n)]),
                   "locations": tensor("I32", [(i * 7) % 5 for i in range(n)]),
                   "input": tensor("F32", [[i, -i, i / 2] for i in range(n)])}
        for threads in (1, 2, 3, 8):
            self.ok("moe_dispatch", tensors, "--capacity", 5, "--num-experts", 3, "--threads", threads)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)

    def test_slots_beyond_memory(self):
        tensors = {"indices": tensor("I32", [1]), "locations": tensor("I32", [0]), "input": tensor("F32", [[1, 2]])}
        self.rejected("moe_dispatch", tensors, "--capacity", 2**40, "--num-experts", 2**16, status="SY_ERR_NOMEM",
                     says="dispatch")


if __name__ == "__main__":
    unittest.main()
