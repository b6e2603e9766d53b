"""Several planes in one file: cache.0, cache.1, ... with out.0, out.1, ... or src.0, src.1, ..."""
import unittest

from st import CliTest, Tensor, tensor

INDICES = {"indices": tensor("I32", [0, 4, 3]), "block_table": tensor("I32", [0, 2, 1])}
KEYS = [[10 * r, 10 * r + 1] for r in range(6)]
VALUES = [[[100 + r], [200 + r]] for r in range(6)]
SCALES = [[r] for r in range(6)]


class Gather(CliTest):
    def gather(self, tensors, *options):
        return self.ok("kv_gather", dict(tensors, **INDICES), "--block-size", 2, *options)

    def test_planes_of_any_type_and_width(self):
        blocks = [[VALUES[0], VALUES[1]], [VALUES[2], VALUES[3]], [VALUES[4], VALUES[5]]]
        r = self.gather({"cache.0": tensor("F32", KEYS), "cache.1": tensor("I16", blocks), "cache.2": tensor("U8", SCALES)})
        self.assertEqual(sorted(r.outputs), ["out.0", "out.1", "out.2"])
        self.equal(r["out.0"], "F32", [KEYS[0], KEYS[2], KEYS[5]])
        self.equal(r["out.1"], "I16", [VALUES[0], VALUES[2], VALUES[5]])
        self.equal(r["out.2"], "U8", [SCALES[0], SCALES[2], SCALES[5]])

    def test_one_numbered_plane(self):
        r = self.gather({"cache.0": tensor("F32", KEYS)})
        self.assertEqual(list(r.outputs), ["out.0"])

    def test_old_contents_of_some(self):
        tensors = dict(INDICES, indices=tensor("I32", [0, -1, 3]))
        tensors.update({"cache.0": tensor("F32", KEYS), "cache.1": tensor("U8", SCALES),
                        "out.1": tensor("U8", [[7], [8], [9]])})
        r = self.ok("kv_gather", tensors, "--block-size", 2, "--pad", "skip")
        self.equal(r["out.0"], "F32", [KEYS[0], [0, 0], KEYS[5]])
        self.equal(r["out.1"], "U8", [SCALES[0], [8], SCALES[5]])

    def test_many_planes(self):
        r = self.gather({f"cache.{i}": tensor("I32", [[100 * i + row] for row in range(6)]) for i in range(256)})
        self.assertEqual(len(r.outputs), 256)
        for i in range(256):
            self.equal(r[f"out.{i}"], "I32", [[100 * i], [100 * i + 2], [100 * i + 5]])

    def test_rejections_name_the_plane(self):
        keys = tensor("F32", KEYS)
        for more, status, says in (
                ({"cache.2": keys}, "SY_ERR_NULL", "cache of plane 1 is missing"),
                ({"cache.1": tensor("F32", KEYS[:4])}, "SY_ERR_SHAPE", "cache of plane 1 has 4 rows, want 6"),
                ({"cache.1": Tensor("F32", [2, 3, 1], bytes(24))}, "SY_ERR_SHAPE", "cache of plane 1 has blocks of 3"),
                ({"cache.1": keys, "out.1": tensor("F16", [[0, 0]] * 3)}, "SY_ERR_DTYPE", "out of plane 1 is f16"),
                ({"cache.1": keys, "out.1": tensor("F32", [[0, 0]] * 2)}, "SY_ERR_SHAPE", "out of plane 1 has shape"),
                ({"out.1": tensor("F32", [[0, 0]] * 3)}, "SY_ERR_NULL", "cache of plane 1 is missing")):
            with self.subTest(says):
                self.rejected("kv_gather", dict({"cache.0": keys}, **more, **INDICES), "--block-size", 2, status=status,
                             says=says)

    def test_names_that_are_no_planes(self):
        keys = tensor("F32", KEYS)
        for name in ("cache.256", "cache.01", "cache.", "cache.-1", "cache.1x", "indices.0", "cache.0.0", "cachE.0"):
            with self.subTest(name):
                self.usage("kv_gather", dict({"cache.0": keys, name: keys}, **INDICES), "--block-size", 2, says=name)
        self.usage("kv_gather", dict({"cache": keys, "cache.0": keys}, **INDICES), "--block-size", 2, says="given twice")

    def test_all_planes_are_numbered_or_none(self):
        keys, old = tensor("F32", KEYS), tensor("F32", [[0, 0]] * 3)
        for tensors, says in (({"cache": keys, "cache.1": keys}, "cache is given together with numbered planes, want cache.0"),
                              ({"cache.0": keys, "cache.1": keys, "out": old}, "out is given together with numbered planes")):
            self.usage("kv_gather", dict(tensors, **INDICES), "--block-size", 2, "--pad", "skip", says=says)


class Scatter(CliTest):
    def test_planes(self):
        tensors = {"cache.0": tensor("F32", [[0, 0]] * 6), "cache.1": tensor("U8", [[[0], [0], [0]]] * 2),
                   "src.0": tensor("F32", [[1, 2], [3, 4], [5, 6]]), "src.1": tensor("U8", [[7], [8], [9]]),
                   "slots": tensor("I64", [5, -1, 0])}
        r = self.ok("kv_scatter", tensors, "--pad", "skip")
        self.assertEqual(sorted(r.outputs), ["cache.0", "cache.1"])
        self.equal(r["cache.0"], "F32", [[5, 6], [0, 0], [0, 0], [0, 0], [0, 0], [1, 2]])
        self.equal(r["cache.1"], "U8", [[[9], [0], [0]], [[0], [0], [7]]])
        self.rejected("kv_scatter", tensors, status="SY_ERR_INDEX", says="position 1 is -1")
        self.rejected("kv_scatter", {n: t for n, t in tensors.items() if n != "src.1"}, "--pad", "skip",
                     status="SY_ERR_NULL", says="src of plane 1 is missing")


class Others(CliTest):
    def test_ragged(self):
        tensors = {"cache.0": tensor("F32", [[10.0 * r] for r in range(8)]), "cache.1": tensor("I8", [[r, -r] for r in range(8)]),
                   "block_table": tensor("I32", [[3, 1], [0, 2]]), "starts": tensor("I32", [1, 0]), "cu_lens": tensor("I32", [0, 3, 5])}
        r = self.ok("kv_ragged", tensors, "--block-size", 2)
        self.assertEqual(sorted(r.outputs), ["out.0", "out.1"])
        self.equal(r["out.0"], "F32", [[70], [20], [30], [0], [10]])
        self.equal(r["out.1"], "I8", [[7, -7], [2, -2], [3, -3], [0, 0], [1, -1]])

    def test_blocks(self):
        cache, flat, pair = tensor("F32", [[[0, 1]], [[10, 11]]]), tensor("I8", [[0], [1]]), tensor("I32", [[1, 0]])
        r = self.ok("kv_blocks", {"cache.0": cache, "cache.1": flat, "pairs": pair}, "--block-size", 1)
        self.assertEqual(sorted(r.outputs), ["cache.0", "cache.1"])
        self.equal(r["cache.0"], "F32", [[[10, 11]], [[10, 11]]])
        self.equal(r["cache.1"], "I8", [[1], [1]])
        r = self.ok("kv_blocks", {"src.0": cache, "src.1": flat, "dst.0": tensor("F32", [[[0, 0]]]), "dst.1": tensor("I8", [[0]]),
                                  "pairs": pair}, "--block-size", 1)
        self.equal(r["dst.0"], "F32", [[[10, 11]]])
        self.equal(r["dst.1"], "I8", [[1]])

    def test_formats_of_planes(self):
        codes = [[127, -128, 1, 0, -3, 64, 5, -1], [10, 20, -30, 40, -50, 60, -70, 80]]
        tensors = {"indices": tensor("I32", [0, 1]), "block_table": tensor("I32", [0]), "cache.0": tensor("I8", codes),
                   "scale.0": tensor("F32", [[0.5], [2]]), "cache.1": tensor("I16", codes), "cache.2": tensor("I8", codes),
                   "scale.2": tensor("F32", [1.0])}
        r = self.ok("kv_gather", tensors, "--block-size", 2, "--format", "int8", "--out-type", "f32")
        self.equal(r["out.0"], "F32", [[q * 0.5 for q in codes[0]], [q * 2.0 for q in codes[1]]])
        self.equal(r["out.1"], "I16", codes)
        self.equal(r["out.2"], "F32", codes)


if __name__ == "__main__":
    unittest.main()
