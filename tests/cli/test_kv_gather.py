"""kv_gather through `switchyard run`: options that are missing or misspelt."""
import unittest

from st import CliTest, tensor


class Usage(CliTest):
    GOOD = {"cache": tensor("F32", [[0] * 4] * 6), "indices": tensor("I32", [[0, 4, 3]]),
            "block_table": tensor("I32", [[0, 2, 1]])}

    def test_block_size_is_required(self):
        self.usage("kv_gather", self.GOOD, says="--block-size")

    def test_words(self):
        self.usage("kv_gather", self.GOOD, "--block-size", 2, "--pad", "ERROR", says="error, zero, skip")
        self.usage("kv_gather", self.GOOD, "--block-size", 2, "--layout", "ndh", says="ndh")


if __name__ == "__main__":
    unittest.main()
