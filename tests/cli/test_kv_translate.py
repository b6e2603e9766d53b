"""kv_translate and kv_slots through `switchyard run`: the worked examples, types, padding, refusals."""
import unittest

from st import CliTest, Tensor, tensor


def case(indices, table, index_type="I32", table_type="I32", **more):
    return dict({"indices": tensor(index_type, indices), "block_table": tensor(table_type, table)}, **more)


class Translate(CliTest):
    FOUR = dict(req_id=tensor("I32", [0, 1, 0]), seq_lens=tensor("I32", [5, 3, 5]), counts=tensor("I64", [4, 2, 4]))
    TABLE4 = [[4, 1, 3], [5, 0, -1]]
    INDICES4 = [[4, 0, -1, 3], [2, 1, 99, 99], [0, 3, -1, -1]]
    SLOTS4 = [[6, 8, -1, 3], [0, 11, -1, -1], [8, 3, -1, -1]]

    def translate(self, tensors, size, *options):
        return self.ok("kv_translate", tensors, "--block-size", size, *options)

    def test_1_seed(self):
        r = self.translate(case([0, 4, 3], [0, 2, 1]), 2)
        self.assertEqual(sorted(r.outputs), ["slots", "valid"])
        self.equal(r["slots"], "I32", [0, 2, 5])
        self.equal(r["valid"], "I32", [3])

    def test_3_partial_block(self):
        tensors = case([3, 0, 8, 5, 9, 0], [2, 0, 1, 2])
        self.equal(self.translate(tensors, 3, "--num-rows", 7)["slots"], "I32", [0, 6, 5, 2, 6, 6])
        self.refused("kv_translate", case([3, 0, 1, -1], [2, 0, 1, 2]), "--block-size", 3, "--num-rows", 7,
                     status="SY_ERR_INDEX", says="ROW_RANGE")

    def test_4_batched(self):
        for pad in ("zero", "skip"):
            for dtype in ("I32", "I64"):
                r = self.translate(case(self.INDICES4, self.TABLE4, index_type=dtype, **self.FOUR), 2, "--pad", pad)
                self.equal(r["slots"], dtype, self.SLOTS4)
                self.equal(r["valid"], dtype, [3, 2, 2])

    def test_4_padding_is_refused_by_default(self):
        self.refused("kv_translate", case(self.INDICES4, self.TABLE4, **self.FOUR), "--block-size", 2,
                     status="SY_ERR_INDEX", says="indices at batch 0, position 2 is -1")

    def test_4_index_past_its_sequence(self):
        indices = [[4, 0, -1, 3], [2, 3, 99, 99], [0, 3, -1, -1]]
        self.refused("kv_translate", case(indices, self.TABLE4, **self.FOUR), "--block-size", 2, "--pad", "zero",
                     status="SY_ERR_INDEX", says="batch 1, position 1 is 3")

    def test_4_unmapped_block(self):
        for options in ((), ("--num-rows", 12)):
            self.refused("kv_translate", case([4], [5, 0, -1]), "--block-size", 2, *options, status="SY_ERR_INDEX",
                         says="BLOCK_RANGE")

    def test_5_wraps(self):
        self.refused("kv_translate", case([0, 4], [0, 1073741825]), "--block-size", 4, status="SY_ERR_INDEX",
                     says="1073741825")
        self.refused("kv_translate", case([0, 4294967299], [0, 1], index_type="I64"), "--block-size", 4,
                     status="SY_ERR_INDEX", says="4294967299")
        r = self.translate(case([0, 4], [0, 1073741825], index_type="I64"), 4)  # room enough in 64 bits
        self.equal(r["slots"], "I64", [0, 4294967300])

    def test_11_shared(self):
        tensors = case([0, 1, 2, 3, 4, 7, 9], [0, 1, 2])
        for rank, want in enumerate(([0, 1, -1, -1, 2, -1, 5], [-1, -1, 0, 1, -1, 3, -1])):
            r = self.translate(tensors, 2, "--world", 2, "--rank", rank, "--interleave", 2)
            self.equal(r["slots"], "I32", want)
            self.equal(r["valid"], "I32", [sum(slot >= 0 for slot in want)])
        self.refused("kv_translate", tensors, "--block-size", 2, "--world", 2, "--rank", 2, status="SY_ERR_VALUE",
                     says="rank is 2, want 0 to 1")

    def test_leading_dimensions(self):
        r = self.translate(case([[[0, 1], [2, 3]], [[4, 5], [0, 0]]], [[2, 1, 0]] * 4), 2)
        self.assertEqual((r["slots"].shape, r["valid"].shape), ([2, 2, 2], [4]))
        self.assertEqual(r["slots"].values(), [4, 5, 2, 3, 0, 1, 4, 4])

    def test_nothing_asked_for(self):
        r = self.translate({"indices": Tensor("I32", [2, 0], b""), "block_table": tensor("I32", [[0], [1]])}, 2)
        self.equal(r["valid"], "I32", [0, 0])

    def test_refusals(self):
        good = case([[0, 4, 3]], [[0, 2, 1]])
        for name in ("indices", "block_table"):
            tensors = {n: t for n, t in good.items() if n != name}
            self.refused("kv_translate", tensors, "--block-size", 2, status="SY_ERR_NULL", says=name)
        self.refused("kv_translate", dict(good, indices=tensor("U32", [[0]])), "--block-size", 2, status="SY_ERR_DTYPE")
        self.refused("kv_translate", good, "--block-size", 0, status="SY_ERR_VALUE", says="block_size")
        self.refused("kv_translate", good, "--block-size", 2, "--num-rows", -1, status="SY_ERR_VALUE", says="num_rows")
        self.usage("kv_translate", good, says="--block-size")
        self.usage("kv_translate", dict(good, cache=tensor("F32", [[0]])), "--block-size", 2, says="cache")


class Slots(CliTest):
    def test_8_positions(self):
        r = self.ok("kv_slots", {"position": tensor("I32", [0, 1, 2, 3]), "block_table": tensor("I32", [2, 0, 1])},
                    "--block-size", 2)
        self.equal(r["slots"], "I32", [4, 5, 0, 1])

    def test_two_sequences(self):
        tensors = {"batch": tensor("I64", [[0, 1], [1, 0]]), "position": tensor("I64", [[2, 0], [1, -1]]),
                   "block_table": tensor("I32", [[2, 0], [1, -1]])}
        r = self.ok("kv_slots", tensors, "--block-size", 2, "--pad", "skip")
        self.equal(r["slots"], "I64", [[0, 2], [3, -1]])
        self.refused("kv_slots", tensors, "--block-size", 2, status="SY_ERR_INDEX", says="position of token 3 is -1")

    def test_slots_then_scatter(self):
        slots = self.ok("kv_slots", {"position": tensor("I32", [3, 0]), "block_table": tensor("I32", [2, 0, 1])},
                        "--block-size", 2)["slots"]
        r = self.ok("kv_scatter", {"cache": tensor("F32", [[0]] * 6), "src": tensor("F32", [[7], [8]]), "slots": slots})
        self.equal(r["cache"], "F32", [[0], [7], [0], [0], [8], [0]])

    def test_refusals(self):
        good = {"batch": tensor("I32", [0, 1]), "position": tensor("I32", [0, 1]),
                "block_table": tensor("I32", [[0], [1]])}
        self.refused("kv_slots", dict(good, batch=tensor("I32", [0, 2])), "--block-size", 2, status="SY_ERR_INDEX",
                     says="batch of token 1 is 2")
        self.refused("kv_slots", dict(good, position=tensor("I32", [0, 2])), "--block-size", 2, status="SY_ERR_INDEX",
                     says="position of token 1 is 2")
        self.refused("kv_slots", good, "--block-size", 2, "--num-rows", 2, status="SY_ERR_INDEX", says="block 1")
        self.refused("kv_slots", {n: t for n, t in good.items() if n != "batch"}, "--block-size", 2,
                     status="SY_ERR_SHAPE", says="give batch")
        self.refused("kv_slots", {"block_table": good["block_table"]}, "--block-size", 2, status="SY_ERR_NULL",
                     says="position")
        self.usage("kv_slots", good, says="--block-size")


if __name__ == "__main__":
    unittest.main()
