"""Packed rows through `switchyard run`: formats of planes, words of --format and --out-type, packed and unpacked again."""
import unittest

from st import CliTest, Tensor, tensor

AT = {"indices": tensor("I32", [0, 1]), "block_table": tensor("I32", [0])}
Q = [[127, -128, 1, 0, -3, 64, 5, -1], [10, 20, -30, 40, -50, 60, -70, 80]]


class Formats(CliTest):
    def test_usage(self):
        self.usage("kv_gather", dict(AT, cache=tensor("F32", [[1], [2], [3], [4]])), "--block-size", 2, "--out-type", "f32",
                   says="out_type means nothing without format")
        self.usage("kv_gather", dict(AT, cache=tensor("I8", Q)), "--block-size", 2, "--format", "fp8", says="ds32_fp8")

    def test_planes(self):
        tensors = dict(AT, **{"cache.0": tensor("I8", Q), "scale.0": tensor("F32", [[0.5], [2]]), "cache.1": tensor("I16", Q),
                              "cache.2": tensor("I8", Q), "scale.2": tensor("F32", [1.0])})
        r = self.ok("kv_gather", tensors, "--block-size", 2, "--format", "int8", "--out-type", "f32")
        self.equal(r["out.0"], "F32", [[q * 0.5 for q in Q[0]], [q * 2.0 for q in Q[1]]])
        self.equal(r["out.1"], "I16", Q)
        self.equal(r["out.2"], "F32", Q)

    def test_there_and_back(self):
        """What a format holds exactly comes back as it was."""
        src = [[float((i * 37 + r) % 15 - 7) * 64 for i in range(512)] + [1.0] * 64 for r in range(3)]
        tensors = {"cache": Tensor("U8", [4, 656], bytes(4 * 656)), "src": tensor("F32", src), "slots": tensor("I64", [2, 0, 3])}
        cache = self.ok("kv_scatter", tensors, "--format", "ds32_fp8")["cache"]
        back = self.ok("kv_gather", {"cache": cache, "indices": tensor("I32", [2, 0, 3]), "block_table": AT["block_table"]},
                       "--block-size", 4, "--format", "ds32_fp8", "--out-type", "f32")
        self.equal(back["out"], "F32", src)


if __name__ == "__main__":
    unittest.main()
