"""moe_permute_ids through `switchyard run`: worked examples, kept rows, windows, refusals."""
import unittest

from st import CliTest, Tensor, tensor

TOKENS = [[10, 11], [20, 21], [30, 31]]
IDS = [[2, 0], [1, 2], [0, 2]]
ROWS = [[10, 11], [30, 31], [20, 21], [10, 11], [20, 21], [30, 31]]
PLACES = [3, 0, 2, 4, 1, 5]


def case(dtype="I32", **more):
    return dict({"tokens": tensor("F32", TOKENS), "ids": tensor(dtype, IDS)}, **more)


class Examples(CliTest):
    def test_all_rows(self):
        for dtype in ("I32", "I64"):
            r = self.ok("moe_permute_ids", case(dtype), "--num-experts", 3)
            self.equal(r["permuted_tokens"], "F32", ROWS)
            self.equal(r["sorted_indices"], "I32", PLACES)
            self.equal(r["expert_counts"], "I64", [2, 1, 3])
            self.equal(r["expert_offsets"], "I64", [0, 2, 3, 6])
            self.assertEqual(len(r.outputs), 4)

    def test_unknown_experts(self):
        r = self.ok("moe_permute_ids", case())
        self.equal(r["permuted_tokens"], "F32", ROWS)
        self.assertEqual(sorted(r.outputs), ["permuted_tokens", "sorted_indices"])
        wild = case(ids=tensor("I64", [[2**62, -1], [0, -2**63], [0, 7]]))
        self.equal(self.ok("moe_permute_ids", wild)["sorted_indices"], "I32", [5, 1, 2, 0, 3, 4])

    def test_probs(self):
        probs = tensor("F16", [[.75, .25], [.5, .125], [.625, .375]])
        r = self.ok("moe_permute_ids", case(probs=probs))
        self.equal(r["permuted_probs"], "F16", [.25, .625, .5, .75, .125, .375])

    def test_kept_rows_and_windows(self):
        for options, want in {
            ("--num-out-tokens", 4): ROWS[:4],
            ("--num-out-tokens", 60): ROWS,
            ("--num-out-tokens", -2): ROWS[:4],
            ("--window", "--row-begin", 2, "--row-end", 5): ROWS[2:5],
            ("--num-out-tokens", 5, "--window", "--row-begin", 3, "--row-end", 5): ROWS[3:5],
        }.items():
            r = self.ok("moe_permute_ids", case(), *options)
            self.equal(r["permuted_tokens"], "F32", want)
            self.equal(r["sorted_indices"], "I32", PLACES)

    def test_there_and_back(self):
        probs = tensor("F32", [[.75, .25], [.5, .5], [.625, .375]])
        r = self.ok("moe_permute_ids", case())
        back = self.ok("moe_unpermute_ids", {"permuted_tokens": r["permuted_tokens"],
                                             "sorted_indices": r["sorted_indices"], "probs": probs})
        self.equal(back["tokens"], "F32", TOKENS)

    def test_missing_experts(self):
        ids = tensor("I64", [[2, 3], [-1, 2], [0, -1]])
        r = self.ok("moe_permute_ids", case(ids=ids), "--num-experts", 3, "--allow-missing")
        self.equal(r["permuted_tokens"], "F32", [[30, 31], [10, 11], [20, 21], [0, 0], [0, 0], [0, 0]])
        self.equal(r["sorted_indices"], "I32", [1, -1, -1, 2, 0, -1])
        self.equal(r["expert_counts"], "I64", [1, 0, 2])
        self.equal(r["expert_offsets"], "I64", [0, 1, 1, 3])
        back = self.ok("moe_unpermute_ids", {name: r[name] for name in ("permuted_tokens", "sorted_indices")},
                       "--num-tokens", 3)
        self.equal(back["tokens"], "F32", TOKENS)
        self.refused("moe_permute_ids", case(ids=ids), "--num-experts", 3, status="SY_ERR_INDEX",
                     says="ids at token 0, slot 1 is 3")
        self.refused("moe_permute_ids", case(ids=ids), "--allow-missing", status="SY_ERR_VALUE",
                     says="num_experts is 0 while allow_missing is set, want the number of experts")

    def test_empty(self):
        r = self.ok("moe_permute_ids", {"tokens": Tensor("F32", [0, 2], b""), "ids": Tensor("I32", [0, 2], b"")})
        self.assertEqual(r["permuted_tokens"].shape, [0, 2])


class Refusals(CliTest):
    def test_contents(self):
        self.refused("moe_permute_ids", case(), "--num-experts", 2, status="SY_ERR_INDEX",
                     says="ids at token 0, slot 0 is 2, want 0 or more and below 2")

    def test_arguments(self):
        self.refused("moe_permute_ids", {"ids": tensor("I32", IDS)}, status="SY_ERR_NULL", says="tokens")
        self.refused("moe_permute_ids", case(ids=tensor("F32", IDS)), status="SY_ERR_DTYPE", says="ids")
        self.refused("moe_permute_ids", case(ids=tensor("I32", IDS[:2])), status="SY_ERR_SHAPE", says="ids")
        self.refused("moe_permute_ids", case(), "--num-out-tokens", -7, status="SY_ERR_VALUE", says="num_out_tokens")
        self.refused("moe_permute_ids", case(), "--window", "--row-end", 7, status="SY_ERR_VALUE", says="row_end")
        self.refused("moe_permute_ids", case(), "--row-begin", 1, status="SY_ERR_VALUE", says="row_begin")


if __name__ == "__main__":
    unittest.main()
