"""kv_ragged through `switchyard run`: the worked example, types, starts and requests, refusals."""
import unittest

from st import CliTest, tensor

CACHE = [[10.0 * r] for r in range(8)]
GOOD = {"cache": tensor("F32", CACHE), "block_table": tensor("I32", [[3, 1], [0, 2]]),
        "starts": tensor("I32", [1, 0]), "cu_lens": tensor("I32", [0, 3, 5])}


def without(*names):
    return {name: t for name, t in GOOD.items() if name not in names}


class Ragged(CliTest):
    def test_12_ragged(self):
        for dtype in ("I32", "I64"):
            r = self.ok("kv_ragged", dict(GOOD, starts=tensor(dtype, [1, 0]), cu_lens=tensor(dtype, [0, 3, 5])),
                        "--block-size", 2)
            self.assertEqual(sorted(r.outputs), ["out"])
            self.equal(r["out"], "F32", [[70], [20], [30], [0], [10]])

    def test_from_the_first_token(self):
        r = self.ok("kv_ragged", without("starts"), "--block-size", 2)
        self.equal(r["out"], "F32", [[60], [70], [20], [0], [10]])

    def test_blocks_and_wider_rows(self):
        cache = tensor("I8", [[[[8 * p + 4 * s, 8 * p + 4 * s + 1]] for s in range(2)] for p in range(3)])
        r = self.ok("kv_ragged", {"cache": cache, "block_table": tensor("I64", [2, 0]), "cu_lens": tensor("I64", [0, 3])},
                    "--block-size", 2)
        self.equal(r["out"], "I8", [[[16, 17]], [[20, 21]], [[0, 1]]])

    def test_requests(self):
        r = self.ok("kv_ragged", dict(GOOD, req_id=tensor("I64", [1, 1])), "--block-size", 2)
        self.equal(r["out"], "F32", [[10], [40], [50], [0], [10]])

    def test_sequence_lengths(self):
        for dtype in ("I32", "I64"):
            r = self.ok("kv_ragged", dict(GOOD, seq_lens=tensor(dtype, [4, 2])), "--block-size", 2)
            self.equal(r["out"], "F32", [[70], [20], [30], [0], [10]])

    def test_planes(self):
        tensors = {("cache.0" if name == "cache" else name): t for name, t in GOOD.items()}
        r = self.ok("kv_ragged", dict(tensors, **{"cache.1": tensor("I8", [[r, -r] for r in range(8)])}), "--block-size", 2)
        self.assertEqual(sorted(r.outputs), ["out.0", "out.1"])
        self.equal(r["out.0"], "F32", [[70], [20], [30], [0], [10]])
        self.equal(r["out.1"], "I8", [[7, -7], [2, -2], [3, -3], [0, 0], [1, -1]])

    def test_nothing(self):
        r = self.ok("kv_ragged", dict(GOOD, cu_lens=tensor("I32", [0, 0, 0])), "--block-size", 2)
        self.equal(r["out"], "F32", [], shape=[0, 1])

    def test_refusals(self):
        for cu_lens, says in (([1, 3, 5], "cu_lens at entry 0 is 1, want 0"), ([0, 3, 2], "cu_lens at entry 2 is 2"),
                              ([0, 9, 5], "cu_lens at entry 2 is 5, want 9 or more"), ([0, 3, -1], "cu_lens at entry 2 is -1")):
            self.refused("kv_ragged", dict(GOOD, cu_lens=tensor("I32", cu_lens)), "--block-size", 2,
                         status="SY_ERR_INDEX", says=says)
        self.refused("kv_ragged", dict(GOOD, starts=tensor("I32", [2, 0])), "--block-size", 2, status="SY_ERR_INDEX",
                     says="starts leads to token 4 for batch 0, position 2")
        self.refused("kv_ragged", dict(GOOD, seq_lens=tensor("I32", [3, 2])), "--block-size", 2, status="SY_ERR_INDEX",
                     says="starts leads to token 3 for batch 0, position 2, want 0 or more and below 3")
        self.refused("kv_ragged", dict(GOOD, block_table=tensor("I32", [[3, 4], [0, 2]])), "--block-size", 2,
                     status="SY_ERR_INDEX", says="block 4 for batch 0, position 1")
        self.refused("kv_ragged", dict(GOOD, req_id=tensor("I32", [0, 2])), "--block-size", 2, status="SY_ERR_INDEX",
                     says="REQ_RANGE")
        self.refused("kv_ragged", without("cu_lens"), "--block-size", 2, status="SY_ERR_NULL", says="cu_lens")
        self.refused("kv_ragged", dict(GOOD, cu_lens=tensor("F32", [0, 3, 5])), "--block-size", 2, status="SY_ERR_DTYPE",
                     says="cu_lens")
        self.refused("kv_ragged", GOOD, "--block-size", 0, status="SY_ERR_VALUE", says="block_size")
        self.usage("kv_ragged", GOOD, says="--block-size")
        self.usage("kv_ragged", dict(GOOD, indices=tensor("I32", [0])), "--block-size", 2, says="indices")


if __name__ == "__main__":
    unittest.main()
