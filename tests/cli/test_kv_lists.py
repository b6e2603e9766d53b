"""Page lists in place of a block table through `switchyard run`, for the four operators that take them."""
import unittest

from st import CliTest, tensor

LISTS = {"page_indices": tensor("I32", [3, 1, 0]), "indptr": tensor("I32", [0, 2, 3]),
         "last_page_len": tensor("I32", [1, 2])}
CACHE = tensor("F32", [[10.0 * r] for r in range(8)])
INDICES = tensor("I32", [[2, 0], [1, 0]])


def without(*names):
    return {name: t for name, t in LISTS.items() if name not in names}


class Lists(CliTest):
    def test_kv_gather(self):
        for dtype in ("I32", "I64"):
            lists = {name: tensor(dtype, t.values()) for name, t in LISTS.items()}
            r = self.ok("kv_gather", dict(lists, cache=CACHE, indices=INDICES), "--block-size", 2)
            self.equal(r["out"], "F32", [[[20], [60]], [[10], [0]]])

    def test_kv_translate(self):
        r = self.ok("kv_translate", dict(LISTS, indices=INDICES), "--block-size", 2)
        self.equal(r["slots"], "I32", [[2, 6], [1, 0]])
        self.equal(r["valid"], "I32", [2, 2])

    def test_kv_slots(self):
        r = self.ok("kv_slots", dict(LISTS, batch=tensor("I32", [1, 0, 0]), position=tensor("I32", [1, 2, 0])),
                    "--block-size", 2)
        self.equal(r["slots"], "I32", [1, 2, 6])

    def test_kv_ragged(self):
        r = self.ok("kv_ragged", dict(LISTS, cache=CACHE, starts=tensor("I32", [1, 0]), cu_lens=tensor("I32", [0, 2, 4])),
                    "--block-size", 2)
        self.equal(r["out"], "F32", [[70], [20], [0], [10]])

    def test_the_last_page_ends_the_sequence(self):
        indices = tensor("I32", [[3], [0]])
        self.refused("kv_translate", dict(LISTS, indices=indices), "--block-size", 2, status="SY_ERR_INDEX",
                     says="batch 0, position 0 is 3, want 0 or more and below 3")
        r = self.ok("kv_translate", dict(without("last_page_len"), indices=indices), "--block-size", 2)
        self.equal(r["slots"], "I32", [[3], [0]])

    def test_refusals(self):
        def refused(tensors, **wanted):
            self.refused("kv_translate", dict(tensors, indices=INDICES), "--block-size", 2, **wanted)
        refused(without("page_indices", "indptr", "last_page_len"), status="SY_ERR_NULL", says="block_table is missing")
        refused(without("page_indices"), status="SY_ERR_NULL", says="page_indices is missing")
        refused(without("indptr"), status="SY_ERR_NULL", says="indptr is missing")
        refused(dict(LISTS, block_table=tensor("I32", [[0], [0]])), status="SY_ERR_VALUE", says="beside block_table")
        refused(dict(LISTS, seq_lens=tensor("I32", [1, 1])), status="SY_ERR_VALUE", says="beside seq_lens")
        refused(dict(LISTS, indptr=tensor("I32", [0, 3])), status="SY_ERR_SHAPE", says="last_page_len")
        refused(dict(LISTS, indptr=tensor("I32", [0, 3, 2])), status="SY_ERR_INDEX", says="indptr at entry 2 is 2")
        refused(dict(LISTS, indptr=tensor("I32", [0, 2, 4])), status="SY_ERR_INDEX", says="indptr at entry 2 is 4")
        refused(dict(LISTS, last_page_len=tensor("I32", [3, 1])), status="SY_ERR_INDEX", says="last_page_len at batch 0 is 3")
        refused(dict(LISTS, page_indices=tensor("I32", [3, -1, 0])), status="SY_ERR_INDEX",
                says="page_indices gives block -1 for batch 0, position 0")


if __name__ == "__main__":
    unittest.main()
