"""Packed rows: --format on kv_gather, kv_ragged and kv_scatter, with and without a tensor `scale`."""
import struct
import unittest

from st import CliTest, Tensor, tensor

AT = {"indices": tensor("I32", [0, 1]), "block_table": tensor("I32", [0])}
Q = [[127, -128, 1, 0, -3, 64, 5, -1], [10, 20, -30, 40, -50, 60, -70, 80]]
SCALES = [[0.0123, 2], [0.5, 0.00371]]
WANT = [[0x3FC8, 0xBFCA, 0x3C4A, 0x0000, 0xC0C0, 0x4300, 0x4120, 0xC000],
        [0x40A0, 0x4120, 0xC170, 0x41A0, 0xBE3E, 0x3E64, 0xBE85, 0x3E98]]
CODES = [0x38, 0x01, 0x7E, 0xC4, 0x80, 0x7F, 0x2A, 0x08]


class Gather(CliTest):
    def test_int8_groups_of_four(self):
        r = self.ok("kv_gather", dict(AT, cache=tensor("I8", Q), scale=tensor("F32", SCALES)), "--block-size", 2,
                    "--format", "int8")
        self.equal(r["out"], "BF16", WANT)

    def test_e4m3_and_one_scale(self):
        r = self.ok("kv_gather", dict(AT, cache=tensor("F8_E4M3", [CODES, CODES]), scale=tensor("F32", [0.1])),
                    "--block-size", 2, "--format", "e4m3")
        self.equal(r["out"], "BF16", [[0x3DCD, 0x394D, 0x4233, 0xBE9A, 0x8000, 0x7FC0, 0x3D00, 0x3ACD]] * 2)

    def test_out_type(self):
        tensors = dict(AT, cache=tensor("F8_E4M3", [[0x38, 0x44]] * 2), scale=tensor("F32", [0.5]))
        for option, dtype, want in (("f32", "F32", [0.5, 1.5]), ("f16", "F16", [0.5, 1.5]), ("bf16", "BF16", [0x3F00, 0x3FC0])):
            r = self.ok("kv_gather", tensors, "--block-size", 2, "--format", "e4m3", "--out-type", option)
            self.equal(r["out"], dtype, [want] * 2)

    def test_type_of_rows_that_are_not_unpacked(self):
        self.usage("kv_gather", dict(AT, cache=tensor("F32", [[1], [2], [3], [4]])), "--block-size", 2, "--out-type", "f32",
                   says="out_type means nothing without format")

    def test_rows_of_656_bytes_have_two_meanings(self):
        row = bytearray(656)
        row[0:2] = b"\x40\x01"
        row[512:516] = struct.pack("<f", 4.0)     # first scale of ds32_fp8, rope 0 and 1 of pto_int8
        row[640:644] = struct.pack("<f", 0.5)     # rope 56 and 57 of ds32_fp8, first scale of pto_int8
        cache = Tensor("U8", [2, 656], bytes(row) * 2)
        fp8 = self.ok("kv_gather", dict(AT, cache=cache), "--block-size", 2, "--format", "ds32_fp8", "--out-type", "f32")
        int8 = self.ok("kv_gather", dict(AT, cache=cache), "--block-size", 2, "--format", "pto_int8", "--out-type", "f32")
        raw = self.ok("kv_gather", dict(AT, cache=cache), "--block-size", 2)
        self.assertEqual([r["out"].shape for r in (fp8, int8, raw)], [[2, 576], [2, 576], [2, 656]])
        self.assertEqual(fp8["out"].values()[:2], [8.0, 2.0 ** -7])
        self.assertEqual(fp8["out"].values()[512 + 57], 0.5)
        self.assertEqual(int8["out"].values()[:2], [32.0, 0.5])
        self.assertEqual(int8["out"].values()[513], 4.0)
        self.assertEqual(raw["out"].data, cache.data)

    def test_refusals(self):
        cache = Tensor("U8", [2, 655], bytes(2 * 655))
        self.refused("kv_gather", dict(AT, cache=cache), "--block-size", 2, "--format", "ds32_fp8", status="SY_ERR_SHAPE",
                     says="rows of 655 bytes, want at least 656")
        self.refused("kv_gather", dict(AT, cache=tensor("I8", Q)), "--block-size", 2, "--format", "int8",
                     status="SY_ERR_NULL", says="scale is missing")
        self.refused("kv_gather", dict(AT, cache=tensor("I8", Q), scale=tensor("F32", [1.0])), "--block-size", 2,
                     status="SY_ERR_VALUE", says="there is no format")
        self.refused("kv_gather", dict(AT, cache=tensor("F32", SCALES), scale=tensor("F32", [1.0])), "--block-size", 2,
                     "--format", "int8", status="SY_ERR_DTYPE", says="cache is f32")
        self.usage("kv_gather", dict(AT, cache=cache), "--block-size", 2, "--format", "fp8", says="ds32_fp8")

    def test_planes(self):
        tensors = dict(AT, **{"cache.0": tensor("I8", Q), "scale.0": tensor("F32", SCALES), "cache.1": tensor("I16", Q),
                              "cache.2": tensor("I8", Q), "scale.2": tensor("F32", [1.0])})
        r = self.ok("kv_gather", tensors, "--block-size", 2, "--format", "int8")
        self.equal(r["out.0"], "BF16", WANT)
        self.equal(r["out.1"], "I16", Q)
        self.assertEqual(r["out.2"].dtype, "BF16")

    def test_ragged(self):
        tensors = {"cache": tensor("I8", Q), "scale": tensor("F32", SCALES), "block_table": tensor("I32", [0]),
                   "cu_lens": tensor("I32", [0, 2])}
        r = self.ok("kv_ragged", tensors, "--block-size", 2, "--format", "int8")
        self.equal(r["out"], "BF16", WANT)


class Scatter(CliTest):
    def test_there_and_back(self):
        """What a format can say exactly comes back as it was."""
        src = [[float((i * 37 + r) % 15 - 7) * 64 for i in range(512)] + [1.0] * 64 for r in range(3)]
        for name, width in (("ds32_fp8", 656), ("pto_int8", 656)):
            cache = Tensor("U8", [4, width], b"\xa5" * 4 * width)
            r = self.ok("kv_scatter", {"cache": cache, "src": tensor("F32", src), "slots": tensor("I64", [2, 0, 3])},
                        "--format", name)
            self.assertEqual(r["cache"].data[width:2 * width], b"\xa5" * width)  # row 1 was not named
            if name == "ds32_fp8":
                back = self.ok("kv_gather", {"cache": r["cache"], "indices": tensor("I32", [2, 0, 3]),
                                             "block_table": tensor("I32", [0])}, "--block-size", 4, "--format", name,
                               "--out-type", "f32")
                self.equal(back["out"], "F32", src)

    def test_blocks(self):
        src = [[float(i % 2) for i in range(512)]]
        cache = Tensor("U8", [2, 2 * 584 + 5], b"\xa5" * 2 * (2 * 584 + 5))
        tensors = {"cache": cache, "src": tensor("F32", src), "slots": tensor("I32", [3])}
        r = self.ok("kv_scatter", tensors, "--format", "ds4_fp8", "--block-size", 2)
        block = r["cache"].data[2 * 584 + 5:]
        self.assertEqual(block[:576], b"\xa5" * 576)
        self.assertEqual(block[576 + 1], 0x78)                      # 1 / 2^-8 = 256
        self.assertEqual(block[576 + 448:1152], b"\x00\x00\x80\x3f" * 32)
        self.assertEqual(block[1152:], b"\xa5" * 8 + bytes([119] * 7 + [0]) + b"\xa5" * 5)
        self.refused("kv_scatter", tensors, "--format", "ds4_fp8", status="SY_ERR_VALUE", says="block_size is 0")

    def test_scales_are_written(self):
        tensors = {"cache": tensor("I8", [[0, 0]] * 2), "src": tensor("F32", [[127.0, -254.0]]),
                   "slots": tensor("I32", [1]), "scale": tensor("F32", [[7.0], [7.0]])}
        r = self.ok("kv_scatter", tensors, "--format", "int8")
        self.equal(r["cache"], "I8", [[0, 0], [64, -127]])
        self.equal(r["scale"], "F32", [[7.0], [2.0]])


if __name__ == "__main__":
    unittest.main()
