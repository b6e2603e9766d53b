"""kv_scatter through `switchyard run`: the worked example, layouts, padding, uniqueness, refusals."""
import unittest

from st import CliTest, Tensor, tensor

SRC = [[1, 2], [3, 4], [5, 6], [7, 8]]


def case(slots, src=None, cache=None, slot_type="I32"):
    return {"cache": tensor("F32", cache or [[0, 0]] * 6), "src": tensor("F32", SRC[:len(slots)] if src is None else src),
            "slots": tensor(slot_type, slots)}


class Examples(CliTest):
    WANT8 = [[5, 6], [0, 0], [7, 8], [0, 0], [0, 0], [1, 2]]

    def test_8_scatter(self):
        for slot_type in ("I32", "I64"):
            r = self.ok("kv_scatter", case([5, -1, 0, 2], slot_type=slot_type), "--pad", "skip")
            self.assertEqual(list(r.outputs), ["cache"])
            self.equal(r["cache"], "F32", self.WANT8)

    def test_8_then_gather(self):
        cache = self.ok("kv_scatter", case([5, -1, 0, 2]), "--pad=skip")["cache"]
        r = self.ok("kv_gather", {"cache": cache, "indices": tensor("I32", [0, 1, 4]),
                                  "block_table": tensor("I32", [2, 0, 1])}, "--block-size", 2)
        self.equal(r["out"], "F32", [[0, 0], [1, 2], [7, 8]])

    def test_padding_is_refused_by_default(self):
        for options in ((), ("--pad", "error")):
            self.refused("kv_scatter", case([5, -1, 0, 2]), *options, status="SY_ERR_INDEX", says="position 1 is -1")

    def test_other_negatives_are_no_padding(self):
        self.refused("kv_scatter", case([5, -2, 0, 2]), "--pad", "skip", status="SY_ERR_INDEX", says="-2")

    def test_slot_past_the_cache(self):
        self.refused("kv_scatter", case([5, 6, 0, 2]), status="SY_ERR_INDEX", says="SLOT_RANGE")
        self.refused("kv_scatter", case([4294967296], slot_type="I64"), status="SY_ERR_INDEX", says="4294967296")

    def test_unique(self):
        tensors = case([5, 1, 5, 1])
        self.refused("kv_scatter", tensors, "--check-unique", status="SY_ERR_INDEX", says="position 2 is 5")
        self.ok("kv_scatter", tensors)
        self.ok("kv_scatter", case([-1, 1, -1, 2]), "--check-unique", "--pad", "skip")


class Layouts(CliTest):
    def test_blocks_and_heads(self):
        cache = [[[[0, 0]] * 2] * 2] * 3
        src = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
        r = self.ok("kv_scatter", {"cache": tensor("I16", cache), "src": tensor("I16", src),
                                   "slots": tensor("I32", [5, 2])})
        zero = [[0, 0], [0, 0]]
        self.equal(r["cache"], "I16", [[zero, zero], [src[1], zero], [zero, src[0]]])

    def test_slots_of_two_dimensions(self):
        r = self.ok("kv_scatter", case([[4, 0], [1, 2]], src=[SRC[:2], SRC[2:]]))
        self.equal(r["cache"], "F32", [[3, 4], [5, 6], [7, 8], [0, 0], [1, 2], [0, 0]])

    def test_bytes_are_not_interpreted(self):
        data = bytes([0x7f, 0xff, 0x80, 1, 2, 3])
        r = self.ok("kv_scatter", {"cache": Tensor("F8_E5M2", [4, 3], bytes(12)), "src": Tensor("F8_E5M2", [2, 3], data),
                                   "slots": tensor("I32", [3, 1])})
        self.assertEqual(r["cache"].data, bytes(3) + data[3:] + bytes(3) + data[:3])

    def test_nothing_to_write(self):
        tensors = {"cache": tensor("F32", [[1, 2]]), "src": Tensor("F32", [0, 2], b""), "slots": Tensor("I32", [0], b"")}
        self.equal(self.ok("kv_scatter", tensors)["cache"], "F32", [[1, 2]])

    def test_metadata(self):
        r = self.ok("kv_scatter", case([5, -1, 0, 2]), metadata={"switchyard.pad": "skip",
                                                                 "switchyard.check_unique": "true"})
        self.equal(r["cache"], "F32", Examples.WANT8)


class Refusals(CliTest):
    def test_missing_inputs(self):
        for name in ("cache", "src", "slots"):
            with self.subTest(name):
                tensors = {n: t for n, t in case([1, 2]).items() if n != name}
                self.refused("kv_scatter", tensors, status="SY_ERR_NULL", says=name)

    def test_types(self):
        self.refused("kv_scatter", case([0, 1], slot_type="U32"), status="SY_ERR_DTYPE", says="slots")
        self.refused("kv_scatter", dict(case([0]), src=tensor("F16", [[1, 2]])), status="SY_ERR_DTYPE", says="src")

    def test_shapes(self):
        self.refused("kv_scatter", case([0, 1], src=SRC), status="SY_ERR_SHAPE", says="src has shape [4,2], want [2,2]")
        self.refused("kv_scatter", case([0], src=[[1, 2, 3]]), status="SY_ERR_SHAPE", says="src")

    def test_pad_words(self):
        for word in ("zero", "none", ""):
            self.usage("kv_scatter", case([0]), f"--pad={word}", says="error, skip")


if __name__ == "__main__":
    unittest.main()
