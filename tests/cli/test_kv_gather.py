"""kv_gather through `switchyard run`: the worked examples of its specification, padding, layouts, refusals."""
import unittest

from st import CliTest, Tensor, tensor


def rows(n, width):
    return [[10 * r + c for c in range(width)] for r in range(n)]


def case(n_rows, width, indices, table, index_type="I32", table_type="I32", **more):
    return dict({"cache": tensor("F32", rows(n_rows, width)), "indices": tensor(index_type, indices),
                 "block_table": tensor(table_type, table)}, **more)


class KvTest(CliTest):
    def gather(self, tensors, size, *options):
        return self.ok("kv_gather", tensors, "--block-size", size, *options)["out"]


class Examples(KvTest):
    WANT1 = [[0, 1, 2, 3], [20, 21, 22, 23], [50, 51, 52, 53]]

    def test_1_seed(self):
        self.equal(self.gather(case(6, 4, [[0, 4, 3]], [[0, 2, 1]]), 2), "F32", [self.WANT1])

    def test_1_without_leading_dimensions(self):
        self.equal(self.gather(case(6, 4, [0, 4, 3], [0, 2, 1]), 2), "F32", self.WANT1)

    def test_1_every_mix_of_index_types(self):
        for index_type in ("I32", "I64"):
            for table_type in ("I32", "I64"):
                with self.subTest((index_type, table_type)):
                    got = self.gather(case(6, 4, [0, 4, 3], [0, 2, 1], index_type, table_type), 2)
                    self.equal(got, "F32", self.WANT1)

    def test_2_vendor_interpreter(self):
        self.equal(self.gather(case(8, 4, [[0, 2, 5, 3]], [[2, 0, 1]]), 2), "F32",
                   [[[40, 41, 42, 43], [0, 1, 2, 3], [30, 31, 32, 33], [10, 11, 12, 13]]])

    def test_3_partial_block_and_odd_size(self):
        self.equal(self.gather(case(7, 2, [3, 0, 8, 5, 9, 0], [2, 0, 1, 2]), 3), "F32",
                   [[0, 1], [60, 61], [50, 51], [20, 21], [60, 61], [60, 61]])

    def test_3_a_row_that_does_not_exist(self):
        self.refused("kv_gather", case(7, 2, [3, 0, 1, -1], [2, 0, 1, 2]), "--block-size", 3, status="SY_ERR_INDEX",
                     says="7")

    FOUR = dict(req_id=tensor("I32", [0, 1, 0]), seq_lens=tensor("I32", [5, 3, 5]), counts=tensor("I64", [4, 2, 4]))
    TABLE4 = [[4, 1, 3], [5, 0, -1]]
    INDICES4 = [[4, 0, -1, 3], [2, 1, 99, 99], [0, 3, -1, -1]]

    def test_4_batched_with_zero_padding(self):
        self.equal(self.gather(case(12, 2, self.INDICES4, self.TABLE4, **self.FOUR), 2, "--pad", "zero"), "F32",
                   [[[60, 61], [80, 81], [0, 0], [30, 31]], [[0, 1], [110, 111], [0, 0], [0, 0]],
                    [[80, 81], [30, 31], [0, 0], [0, 0]]])

    def test_4_padding_is_refused_by_default(self):
        for options in ((), ("--pad", "error")):
            self.refused("kv_gather", case(12, 2, self.INDICES4, self.TABLE4, **self.FOUR), "--block-size", 2, *options,
                         status="SY_ERR_INDEX", says="-1")

    def test_4_skip_keeps_old_rows(self):
        old = [[[7, 8]] * 4] * 3
        tensors = case(12, 2, self.INDICES4, self.TABLE4, out=tensor("F32", old), **self.FOUR)
        self.equal(self.gather(tensors, 2, "--pad=skip"), "F32",
                   [[[60, 61], [80, 81], [7, 8], [30, 31]], [[0, 1], [110, 111], [7, 8], [7, 8]],
                    [[80, 81], [30, 31], [7, 8], [7, 8]]])

    def test_4_zero_overwrites_old_rows(self):
        old = [[[7, 8]] * 4] * 3
        tensors = case(12, 2, self.INDICES4, self.TABLE4, out=tensor("F32", old), **self.FOUR)
        self.equal(self.gather(tensors, 2, "--pad", "zero"), "F32",
                   [[[60, 61], [80, 81], [0, 0], [30, 31]], [[0, 1], [110, 111], [0, 0], [0, 0]],
                    [[80, 81], [30, 31], [0, 0], [0, 0]]])

    def test_4_skip_without_old_rows_starts_from_zero(self):
        tensors = case(12, 2, self.INDICES4, self.TABLE4, **self.FOUR)
        self.equal(self.gather(tensors, 2, "--pad", "skip"), "F32",
                   [[[60, 61], [80, 81], [0, 0], [30, 31]], [[0, 1], [110, 111], [0, 0], [0, 0]],
                    [[80, 81], [30, 31], [0, 0], [0, 0]]])

    def test_4_index_past_its_sequence(self):
        indices = [[4, 0, -1, 3], [2, 3, 99, 99], [0, 3, -1, -1]]
        self.refused("kv_gather", case(12, 2, indices, self.TABLE4, **self.FOUR), "--block-size", 2, "--pad", "zero",
                     status="SY_ERR_INDEX", says="3")

    def test_4_unmapped_block(self):
        for pad in ("error", "zero", "skip"):
            self.refused("kv_gather", case(12, 2, [4], [5, 0, -1]), "--block-size", 2, "--pad", pad,
                         status="SY_ERR_INDEX", says="6")

    def test_5_products_that_wrap_in_32_bits(self):
        self.refused("kv_gather", case(16, 1, [0, 4], [0, 1073741825]), "--block-size", 4, status="SY_ERR_INDEX",
                     says="1073741825")
        self.refused("kv_gather", case(16, 1, [0, 4294967299], [0, 1], index_type="I64"), "--block-size", 4,
                     status="SY_ERR_INDEX", says="4294967299")

    def test_5_negative_index(self):
        self.refused("kv_gather", case(6, 1, [-1], [0, 2, 1]), "--block-size", 2, status="SY_ERR_INDEX")
        self.refused("kv_gather", case(6, 1, [-2], [0, 2, 1]), "--block-size", 2, "--pad", "zero",
                     status="SY_ERR_INDEX")


class Layouts(KvTest):
    def test_blocks_as_a_dimension(self):
        cache = [[[[100 * b + 10 * s + 2 * h + d for d in range(2)] for h in range(3)] for s in range(2)]
                 for b in range(3)]
        tensors = {"cache": tensor("I16", cache), "indices": tensor("I32", [[3, 0]]),
                   "block_table": tensor("I32", [[2, 1]])}
        self.equal(self.gather(tensors, 2), "I16", [[cache[1][1], cache[2][0]]])

    def test_leading_dimensions_of_the_indices_are_kept(self):
        tensors = case(6, 1, [[[0, 1], [2, 3]], [[4, 5], [0, 0]]], [[0, 1, 2]] * 4)
        got = self.gather(tensors, 2)
        self.assertEqual(got.shape, [2, 2, 2, 1])
        self.assertEqual(got.values(), [0, 10, 20, 30, 40, 50, 0, 0])

    def test_bytes_are_not_interpreted(self):
        cache = Tensor("F8_E5M2", [4, 3], bytes([0x7f, 0xff, 0x80, 1, 2, 3, 0x7d, 0x7e, 0xfe, 9, 8, 7]))
        tensors = {"cache": cache, "indices": tensor("I32", [2, 0, 2]), "block_table": tensor("I32", [0, 1])}
        got = self.gather(tensors, 2)
        self.assertEqual(got.data, cache.data[6:9] + cache.data[0:3] + cache.data[6:9])

    def test_nothing_asked_for(self):
        tensors = {"cache": tensor("F32", rows(4, 2)), "indices": Tensor("I32", [1, 0], b""),
                   "block_table": tensor("I32", [[0, 1]])}
        self.assertEqual(self.gather(tensors, 2).shape, [1, 0, 2])

    def test_garbage_beyond_counts_is_not_read(self):
        tensors = case(4, 1, [[1, 2**31 - 1, -7]], [[1, 0]], counts=tensor("I32", [1]))
        self.equal(self.gather(tensors, 2), "F32", [[[30], [0], [0]]])


class Refusals(KvTest):
    GOOD = case(6, 4, [[0, 4, 3]], [[0, 2, 1]])

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

    def test_table_too_short_for_the_sequence(self):
        self.refused("kv_gather", dict(self.GOOD, seq_lens=tensor("I32", [100]), indices=tensor("I32", [[0, 6, 3]])),
                     "--block-size", 2, status="SY_ERR_INDEX")

    def test_block_size_is_required(self):
        self.usage("kv_gather", self.GOOD, says="--block-size")

    def test_pad_words(self):
        self.usage("kv_gather", self.GOOD, "--block-size", 2, "--pad", "ERROR", says="error, zero, skip")


if __name__ == "__main__":
    unittest.main()
