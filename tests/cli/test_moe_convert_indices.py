"""moe_convert_indices through `switchyard run`: worked examples, what moe_permute makes, refusals."""
import unittest

from st import CliTest, tensor

SLOTS = [0, 5, 3, 6, 1, 4, 2, 7]
ROWS = [0, 2, 3, 1, 2, 0, 1, 3]
TE = [[5, 0, -1, 2, 0, -1, 2], [6, 3, -1, 2, 1, -1, 2], [4, 1, -1, 1, 0, -1, 2], [7, 2, -1, 2, 0, -1, 2]]
FORMS = {"slot": SLOTS, "row": ROWS, "te": TE}
OFFSETS = [0, 3, 5, 8]


class Examples(CliTest):
    def test_every_pair(self):
        for source, given in FORMS.items():
            for target, want in FORMS.items():
                if source == target:
                    continue
                with self.subTest(f"{source} to {target}"):
                    r = self.ok("moe_convert_indices",
                                {"sorted_indices": tensor("I32", given), "expert_offsets": tensor("I64", OFFSETS)},
                                "--from", source, "--to", target, "--num-tokens", 4, "--num-rows", 8)
                    self.equal(r["converted_indices"], "I32", want)
                    self.assertEqual(list(r.outputs), ["converted_indices"])

    def test_what_moe_permute_makes(self):
        tokens = {"tokens": tensor("F32", [[1], [2], [3], [4]]),
                  "routing_map": tensor("BOOL", [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]])}
        packed = self.ok("moe_permute", tokens, "--num-out-tokens", 8)
        r = self.ok("moe_convert_indices", {name: packed[name] for name in ("sorted_indices", "expert_offsets")},
                    "--from", "slot", "--to", "te", "--num-tokens", 4)
        self.equal(r["converted_indices"], "I32", TE)
        capacity = self.ok("moe_permute", tokens, "--num-out-tokens", 6, "--drop-and-pad")
        self.equal(capacity["sorted_indices"], "I32", [0, 2, 1, 2, 0, 1])
        r = self.ok("moe_convert_indices", {"sorted_indices": capacity["sorted_indices"]}, "--from", "row", "--to",
                    "slot", "--num-tokens", 4, "--k", 2)
        self.equal(r["converted_indices"], "I32", [0, 4, 2, 5, 1, 3, -1, -1])

    def test_short_tokens(self):
        r = self.ok("moe_convert_indices", {"sorted_indices": tensor("I32", [0, 2, 1, -1, -1, -1])}, "--from", "slot",
                    "--to", "row", "--num-tokens", 3)
        self.equal(r["converted_indices"], "I32", [0, 1, 0, -1, -1, -1])


class Refusals(CliTest):
    def refuse(self, tensors, *options, **more):
        self.refused("moe_convert_indices", tensors, "--num-tokens", 4, *options, **more)

    def test_arguments(self):
        slots = {"sorted_indices": tensor("I32", SLOTS)}
        self.refuse({}, "--from", "slot", "--to", "row", status="SY_ERR_NULL", says="sorted_indices")
        self.refuse(slots, "--from", "slot", "--to", "te", status="SY_ERR_NULL", says="expert_offsets")
        self.refuse(slots, "--from", "slot", "--to", "slot", status="SY_ERR_VALUE", says="to is the same form")
        self.refuse(slots, "--from", "te", "--to", "slot", status="SY_ERR_SHAPE", says="rank 1, want 2")
        self.refuse({"sorted_indices": tensor("I64", SLOTS)}, "--from", "slot", "--to", "row", status="SY_ERR_DTYPE")
        self.usage("moe_convert_indices", slots, "--from", "slot", "--to", "row", says="--num-tokens")
        self.usage("moe_convert_indices", slots, "--from", "slot", "--to", "csr", "--num-tokens", 4, says="slot, row, te")

    def test_contents(self):
        self.refuse({"sorted_indices": tensor("I32", [0, 5, 3, 8, 1, 4, 2, 7])}, "--from", "slot", "--to", "row",
                    status="SY_ERR_ROUTING", says="sorted_indices has 8 at 3, want -1 to 7")
        self.refuse({"sorted_indices": tensor("I32", [0, 5, 3, 5, 1, 4, 2, 7])}, "--from", "slot", "--to", "row",
                    status="SY_ERR_ROUTING", says="row 5 at 3, as it has at 1")
        self.refuse({"sorted_indices": tensor("I32", [0, 0, 0, 1, 2, 3, 3, 1])}, "--from", "row", "--to", "slot",
                    status="SY_ERR_ROUTING", says="gives token 0 3 rows, want at most k = 2")
        self.refuse({"sorted_indices": tensor("I32", ROWS), "expert_offsets": tensor("I64", [0, 5, 3, 8])}, "--from",
                    "row", "--to", "te", status="SY_ERR_INDEX", says="expert_offsets has 3 at 2, want 5 to 8")


if __name__ == "__main__":
    unittest.main()
