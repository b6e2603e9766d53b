"""moe_dispatch through `switchyard run`: the worked examples of its specification, old contents, rounding, refusals."""
import math
import struct
import unittest

from st import CliTest, Tensor, f32_bits, tensor


def case(indices, locations, rows, gates=None, dispatch=None, dtype="F32", gate_type="F32"):
    tensors = {"indices": tensor("I32", indices), "locations": tensor("I32", locations), "input": tensor(dtype, rows)}
    if gates is not None:
        tensors["gates"] = tensor(gate_type, gates)
    if dispatch is not None:
        tensors["dispatch"] = tensor(dtype, dispatch)
    return tensors


A = dict(gates=[0.5, 2, 1, -1], indices=[1, 0, 1, 0], locations=[0, 0, 1, 2], rows=[[1, 2], [3, 4], [5, 6], [7, 8]])
A_SIZES = ("--capacity", 3, "--num-experts", 2)


class Examples(CliTest):
    def test_a_old_contents_are_kept(self):
        r = self.ok("moe_dispatch", case(**A, dispatch=[[9, 9]] * 6), *A_SIZES)
        self.equal(r["dispatch"], "F32", [[6, 8], [9, 9], [-7, -8], [.5, 1], [5, 6], [9, 9]])
        self.assertEqual(list(r.outputs), ["dispatch"])

    def test_a_without_old_contents(self):
        r = self.ok("moe_dispatch", case(**A), *A_SIZES)
        self.equal(r["dispatch"], "F32", [[6, 8], [0, 0], [-7, -8], [.5, 1], [5, 6], [0, 0]])

    def test_a_zero_unwritten(self):
        r = self.ok("moe_dispatch", case(**A, dispatch=[[9, 9]] * 6), *A_SIZES, "--zero-unwritten")
        self.equal(r["dispatch"], "F32", [[6, 8], [0, 0], [-7, -8], [.5, 1], [5, 6], [0, 0]])

    def test_a_unique_slots(self):
        r = self.ok("moe_dispatch", case(**A, dispatch=[[9, 9]] * 6), *A_SIZES, "--unique-slots", "--threads", 2)
        self.equal(r["dispatch"], "F32", [[6, 8], [9, 9], [-7, -8], [.5, 1], [5, 6], [9, 9]])

    def test_b_skipped_samples(self):
        r = self.ok("moe_dispatch",
                    case([-1, 3, 1, 0, 2, 0, 1], [0, 0, -1, 2, -2, -1, 1],
                         [[10, 11], [12, 13], [14, 15], [16, 17], [18, 19], [20, 21], [22, 23]],
                         gates=[1, 1, 1, 1, 1, 1, 3]), "--capacity", 2, "--num-experts", 3)
        self.equal(r["dispatch"], "F32", [[0, 0], [0, 0], [0, 0], [66, 69], [0, 0], [0, 0]])

    def test_c_last_sample_wins(self):
        r = self.ok("moe_dispatch",
                    case([0] * 5, [1, 1, 0, 1, -1], [[1, 2], [3, 4], [5, 6], [8, 10], [7, 7]], gates=[1, 2, 4, .5, 1],
                         dispatch=[[100, 100]] * 2), "--capacity", 2, "--num-experts", 1)
        self.equal(r["dispatch"], "F32", [[20, 24], [4, 5]])

    def test_e_two_calls_make_two_choices(self):
        x = [[1], [2], [3], [4], [5]]
        first = self.ok("moe_dispatch", case([0, 0, 2, 1, 0], [0, 1, 0, 0, 2], x), "--capacity", 2, "--num-experts", 3)
        second = case([1, 2, 1, 0, 1], [1, 1, 2, 3, 3], x)
        second["dispatch"] = first["dispatch"]
        r = self.ok("moe_dispatch", second, "--capacity", 2, "--num-experts", 3)
        self.equal(r["dispatch"], "F32", [[1], [2], [4], [1], [3], [2]])

    def test_f_separate_buffers(self):
        r = self.ok("moe_dispatch", case([0, 0, 0], [1, 0, 1], [[1], [10], [100]], gates=[2, 3, 1],
                                         dispatch=[[1], [10], [100]]), "--capacity", 3, "--num-experts", 1)
        self.equal(r["dispatch"], "F32", [[30], [100], [100]])

    def test_g_special_values(self):
        inf, nan, tiny = math.inf, math.nan, 1.4e-45
        r = self.ok("moe_dispatch", case([0] * 5, [0, 1, 2, 3, 4], [[inf], [1], [nan], [tiny], [10]],
                                         gates=[0, -0.0, 1, 1, 3e38]), "--capacity", 5, "--num-experts", 1)
        bits = list(struct.unpack("<5I", r["dispatch"].data))
        self.assertEqual(bits, [0x7fc00000, 0x80000000, 0x7fc00000, 0x00000001, f32_bits(inf)])

    def test_h_f16_rounding(self):
        for gate_type in ("F32", "F16"):
            tensors = case([0], [0], [[0]], gates=[3], dtype="F16", gate_type=gate_type)
            tensors["input"] = Tensor("F16", [1, 1], struct.pack("<H", 0x2e66))
            r = self.ok("moe_dispatch", tensors, "--capacity", 1, "--num-experts", 1)
            self.assertEqual((r["dispatch"].dtype, r["dispatch"].data), ("F16", struct.pack("<H", 0x34cc)))

    def test_h_bf16_rounding(self):
        for gate_type, three in (("F32", 3), ("BF16", 0x4040)):
            r = self.ok("moe_dispatch", case([0], [0], [[0x3dcd]], gates=[three], dtype="BF16", gate_type=gate_type),
                        "--capacity", 1, "--num-experts", 1)
            self.equal(r["dispatch"], "BF16", [[0x3e9a]])


class Semantics(CliTest):
    def test_extreme_indices_are_skipped(self):
        low, high = -2**31, 2**31 - 1
        r = self.ok("moe_dispatch", case([low, high, 0, 0], [0, 0, low, high], [[1], [2], [3], [4]]),
                    "--capacity", 2, "--num-experts", 2)
        self.equal(r["dispatch"], "F32", [[0], [0], [0], [0]])

    def test_zero_gate_times_minus_one(self):
        r = self.ok("moe_dispatch", case([0], [0], [[-1]], gates=[0]), "--capacity", 1, "--num-experts", 1)
        self.equal(r["dispatch"], "F32", [[-0.0]])

    def test_empty_dimensions(self):
        empty = {"indices": Tensor("I32", [0], b""), "locations": Tensor("I32", [0], b""),
                 "input": Tensor("F32", [0, 2], b"")}
        r = self.ok("moe_dispatch", empty, "--capacity", 2, "--num-experts", 1)
        self.equal(r["dispatch"], "F32", [[0, 0], [0, 0]])
        r = self.ok("moe_dispatch", case(**A), "--capacity", 0, "--num-experts", 2)
        self.assertEqual(r["dispatch"].shape, [0, 2])
        r = self.ok("moe_dispatch", case(**A), "--capacity", 3, "--num-experts", 0)
        self.assertEqual(r["dispatch"].shape, [0, 2])

    def test_empty_samples_still_clear_old_contents(self):
        empty = {"indices": Tensor("I32", [0], b""), "locations": Tensor("I32", [0], b""),
                 "input": Tensor("F32", [0, 2], b""), "dispatch": tensor("F32", [[7, 7], [7, 7]])}
        r = self.ok("moe_dispatch", empty, "--capacity", 2, "--num-experts", 1)
        self.equal(r["dispatch"], "F32", [[7, 7], [7, 7]])
        r = self.ok("moe_dispatch", empty, "--capacity", 2, "--num-experts", 1, "--zero-unwritten")
        self.equal(r["dispatch"], "F32", [[0, 0], [0, 0]])

    def test_threads_do_not_change_duplicates(self):
        n = 4000
        tensors = case([i % 3 for i in range(n)], [(i * 7) % 5 for i in range(n)], [[i, -i, i / 2] for i in range(n)])
        files = set()
        for threads in (1, 2, 3, 8):
            self.ok("moe_dispatch", tensors, "--capacity", 5, "--num-experts", 3, "--threads", threads)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)


class Refusals(CliTest):
    def test_missing_inputs(self):
        for name in ("indices", "locations", "input"):
            with self.subTest(name):
                tensors = case(**A)
                del tensors[name]
                self.refused("moe_dispatch", tensors, *A_SIZES, status="SY_ERR_NULL", says=name)

    def test_index_type(self):
        tensors = dict(case(**A), indices=tensor("I64", [1, 0, 1, 0]))
        self.refused("moe_dispatch", tensors, *A_SIZES, status="SY_ERR_DTYPE", says="indices")

    def test_input_type(self):
        tensors = dict(case(**A), input=tensor("F64", [[1, 2]] * 4))
        self.refused("moe_dispatch", tensors, *A_SIZES, status="SY_ERR_DTYPE", says="input")

    def test_gate_type(self):
        tensors = dict(case(**A), gates=tensor("F16", [1, 1, 1, 1]))
        self.refused("moe_dispatch", tensors, *A_SIZES, status="SY_ERR_DTYPE", says="gates")

    def test_lengths(self):
        tensors = dict(case(**A), locations=tensor("I32", [0, 0, 1]))
        self.refused("moe_dispatch", tensors, *A_SIZES, status="SY_ERR_SHAPE", says="locations")

    def test_old_contents_of_a_wrong_shape(self):
        self.refused("moe_dispatch", case(**A, dispatch=[[9, 9]] * 5), *A_SIZES, status="SY_ERR_SHAPE", says="dispatch")

    def test_old_contents_of_a_wrong_type(self):
        tensors = dict(case(**A), dispatch=tensor("F16", [[9, 9]] * 6))
        self.refused("moe_dispatch", tensors, *A_SIZES, status="SY_ERR_DTYPE", says="dispatch")

    def test_type_of_old_contents_is_judged_before_values(self):
        tensors = dict(case(**A), dispatch=tensor("F16", [[9, 9]] * 6))
        self.refused("moe_dispatch", tensors, "--capacity", -3, "--num-experts", 2, status="SY_ERR_DTYPE")

    def test_negative_sizes(self):
        self.refused("moe_dispatch", case(**A), "--capacity", -3, "--num-experts", 2, status="SY_ERR_VALUE",
                     says="capacity")
        self.refused("moe_dispatch", case(**A), "--capacity", 3, "--num-experts", -2, status="SY_ERR_VALUE",
                     says="num_experts")

    def test_slots_beyond_64_bits(self):
        self.refused("moe_dispatch", case(**A), "--capacity", 2**62, "--num-experts", 4, status="SY_ERR_OVERFLOW")

    def test_slots_beyond_memory(self):
        self.refused("moe_dispatch", case(**A), "--capacity", 2**40, "--num-experts", 2**16, status="SY_ERR_NOMEM",
                     says="dispatch")

    def test_sizes_are_required(self):
        self.usage("moe_dispatch", case(**A), "--capacity", 3, says="--num-experts")
        self.usage("moe_dispatch", case(**A), "--num-experts", 3, says="--capacity")


if __name__ == "__main__":
    unittest.main()
