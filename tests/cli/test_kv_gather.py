"""kv_gather through `switchyard run`: arguments that are rejected."""
import unittest

from st import CliTest, tensor


class Refusals(CliTest):
    GOOD = {"cache": tensor("F32", [[0] * 4] * 6), "indices": tensor("I32", [[0, 4, 3]]),
            "block_table": tensor("I32", [[0, 2, 1]])}

    def test_missing_inputs(self):
        for name in ("cache", "indices", "block_table"):
            with self.subTest(name):
                tensors = {n: t for n, t in self.GOOD.items() if n != name}
                self.refused("kv_gather", tensors, "--block-size", 2, status="SY_ERR_NULL", says=name)

    def test_index_types(self):
        for name, dtype, values in (("indices", "U32", [[0, 4, 3]]), ("block_table", "F32", [[0, 2, 1]]),
                                    ("counts", "I16", [3]), ("req_id", "U64", [0]), ("seq_lens", "I8", [6])):
            with self.subTest(name):
                self.refused("kv_gather", dict(self.GOOD, **{name: tensor(dtype, values)}), "--block-size", 2,
                             status="SY_ERR_DTYPE", says=name)

    def test_block_size(self):
        for size in (0, -1):
            self.refused("kv_gather", self.GOOD, "--block-size", size, status="SY_ERR_VALUE", says="block_size")

    def test_batch_extents(self):
        for name in ("counts", "req_id", "seq_lens"):
            with self.subTest(name):
                self.refused("kv_gather", dict(self.GOOD, **{name: tensor("I32", [0, 0])}), "--block-size", 2,
                             status="SY_ERR_SHAPE", says=name)

    def test_old_contents(self):
        self.refused("kv_gather", dict(self.GOOD, out=tensor("F32", [[[0] * 4] * 2])), "--block-size", 2,
                     status="SY_ERR_SHAPE", says="out")
        self.refused("kv_gather", dict(self.GOOD, out=tensor("F16", [[[0] * 4] * 3])), "--block-size", 2,
                     status="SY_ERR_DTYPE", says="out")

    def test_lengths(self):
        for name, value in (("counts", 4), ("counts", -1), ("seq_lens", -1), ("req_id", 1), ("req_id", -1)):
            with self.subTest((name, value)):
                self.refused("kv_gather", dict(self.GOOD, **{name: tensor("I32", [value])}), "--block-size", 2,
                             status="SY_ERR_INDEX", says=name)

    def test_block_size_is_required(self):
        self.usage("kv_gather", self.GOOD, says="--block-size")

    def test_pad_words(self):
        self.usage("kv_gather", self.GOOD, "--block-size", 2, "--pad", "ERROR", says="error, zero, skip")


if __name__ == "__main__":
    unittest.main()
