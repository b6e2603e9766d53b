"""moe_route through `switchyard run`: worked examples, options, outputs, refusals."""
import unittest

from st import INF, NAN, CliTest, Tensor, bf16, f32, tensor


def case(logits, dtype="F32", bias=None, finished=None):
    tensors = {"logits": tensor(dtype, logits)}
    if bias is not None:
        tensors["bias"] = tensor("F32", bias)
    if finished is not None:
        tensors["finished"] = tensor("BOOL", finished)
    return tensors


class Examples(CliTest):
    def test_softmax(self):
        r = self.ok("moe_route", case([[2, 1, 0, -1]]), "--k", 2)
        self.equal(r["ids"], "I32", [[0, 1]])
        self.equal(r["scores"], "F32", [[.643914282, .236882821, .0871443152, .0320586003]])
        self.equal(r["weights"], "F32", [[.643914282, .236882821]])
        self.equal(r["probs"], "F32", [[.643914282, .236882821, 0, 0]])
        self.equal(r["routing_map"], "BOOL", [[1, 1, 0, 0]])
        self.equal(r["counts"], "I64", [1, 1, 0, 0])
        self.assertEqual(sorted(r.outputs), ["counts", "ids", "probs", "routing_map", "scores", "weights"])

    def test_renormalize(self):
        r = self.ok("moe_route", case([[2, 1, 0, -1]]), "--k", 2, "--renormalize")
        self.equal(r["weights"], "F32", [[.731058598, .268941432]])
        r = self.ok("moe_route", case([[2, 1, 0, -1]]), "--k", 2, "--renormalize", "--eps", 1e-20, "--scale", 2)
        self.equal(r["weights"], "F32", [[2 * f32(.731058598), 2 * f32(.268941432)]])

    def test_ties(self):
        r = self.ok("moe_route", case([[1, 1, 1, 1]]), "--k", 2)
        self.equal(r["ids"], "I32", [[0, 1]])
        self.equal(r["weights"], "F32", [[.25, .25]])

    def test_bias(self):
        r = self.ok("moe_route", case([[0, 0, 0]], bias=[0, .1, 0]), "--k", 1, "--score", "sigmoid")
        self.equal(r["ids"], "I32", [[1]])
        self.equal(r["weights"], "F32", [[.5]])

    def test_groups(self):
        options = ("--k", 2, "--score", "none", "--groups", 3, "--top-groups", 1)
        r = self.ok("moe_route", case([[5, 1, 4, 4, 3, 3]]), *options)
        self.equal(r["ids"], "I32", [[0, 1]])
        r = self.ok("moe_route", case([[5, 1, 4, 4, 3, 3]]), *options, "--group-score", "sum2")
        self.equal(r["ids"], "I32", [[2, 3]])

    def test_softmax_after(self):
        r = self.ok("moe_route", case([[2, -5, 1, -1]]), "--k", 2, "--score", "none", "--softmax-after")
        self.equal(r["ids"], "I32", [[0, 2]])
        self.equal(r["weights"], "F32", [[.731058598, .268941432]])
        self.equal(r["scores"], "F32", [[2, -5, 1, -1]])

    def test_slot_order(self):
        r = self.ok("moe_route", case([[1, 4, 2, 3]]), "--k", 3, "--score", "none", "--slot-order", "expert")
        self.equal(r["ids"], "I32", [[1, 2, 3]])
        self.equal(r["weights"], "F32", [[4, 2, 3]])

    def test_finished(self):
        r = self.ok("moe_route", case([[2, 1], [2, 1]], finished=[1, 0]), "--k", 1, "--score", "none")
        self.equal(r["ids"], "I32", [[2], [0]])
        self.equal(r["weights"], "F32", [[0], [2]])
        self.equal(r["routing_map"], "BOOL", [[0, 0], [1, 0]])
        self.equal(r["counts"], "I64", [1, 0])

    def test_capacity(self):
        logits = [[1, 0], [3, 0], [2, 0]]
        options = ("--k", 1, "--score", "none", "--capacity", 1)
        r = self.ok("moe_route", case(logits), *options)
        self.equal(r["routing_map"], "BOOL", [[0, 0], [1, 0], [0, 0]])
        self.equal(r["probs"], "F32", [[0, 0], [3, 0], [0, 0]])
        r = self.ok("moe_route", case(logits), *options, "--drop", "position")
        self.equal(r["routing_map"], "BOOL", [[1, 0], [0, 0], [0, 0]])
        self.equal(r["weights"], "F32", [[1], [3], [2]])
        self.equal(r["counts"], "I64", [3, 0])

    def test_special_logits(self):
        r = self.ok("moe_route", case([[NAN, INF, -INF, -0.0]]), "--k", 4, "--score", "none")
        self.equal(r["ids"], "I32", [[1, 3, 0, 2]])
        self.equal(r["scores"], "F32", [[-INF, 3.4028234663852886e38, -INF, 0]])

    def test_sixteen_bits(self):
        want = self.ok("moe_route", case([[2, 1, 0, -1]]), "--k", 2)
        for dtype, logits in (("F16", [[2, 1, 0, -1]]), ("BF16", [[bf16(x) for x in (2, 1, 0, -1)]])):
            r = self.ok("moe_route", case(logits, dtype), "--k", 2)
            self.assertEqual(r["weights"].data, want["weights"].data)
            self.assertEqual(r["weights"].dtype, "F32")

    def test_no_tokens(self):
        r = self.ok("moe_route", {"logits": Tensor("F32", [0, 3], b"")}, "--k", 2)
        self.equal(r["counts"], "I64", [0, 0, 0])
        self.assertEqual(r["ids"].shape, [0, 2])

    def test_metadata(self):
        r = self.ok("moe_route", case([[0, 3, 1]]), metadata={"switchyard.k": "2", "switchyard.score": "none"})
        self.equal(r["ids"], "I32", [[1, 2]])

    def test_threads_and_tables_agree(self):
        logits = [[((t * 131 + e * 71) % 97) / 9 for e in range(64)] for t in range(300)]
        options = ("--k", 6, "--renormalize", "--capacity", 20)
        files = set()
        for more in (("--threads", 1), ("--threads", 3), ("--threads", 8), ("--isa", "scalar")):
            self.ok("moe_route", case(logits), *options, *more)
            files.add(self.read("out.safetensors"))
        self.assertEqual(len(files), 1)

    def test_the_map_feeds_moe_permute(self):
        routed = self.ok("moe_route", case([[2, 1, 0], [0, 1, 2], [1, 2, 0]]), "--k", 2)
        r = self.ok("moe_permute", {"tokens": tensor("F32", [[10], [20], [30]]), "routing_map": routed["routing_map"],
                                    "probs": routed["probs"]}, "--num-out-tokens", 6)
        self.equal(r["permuted_tokens"], "F32", [[10], [30], [10], [20], [30], [20]])
        self.assertEqual(r["expert_counts"].data, routed["counts"].data)


class Refusals(CliTest):
    def test_missing_logits(self):
        self.refused("moe_route", {"bias": tensor("F32", [0])}, "--k", 1, status="SY_ERR_NULL", says="logits")

    def test_types(self):
        self.refused("moe_route", case([[1, 2]], "F64"), "--k", 1, status="SY_ERR_DTYPE", says="logits")
        tensors = dict(case([[1, 2]]), bias=tensor("F16", [0, 0]))
        self.refused("moe_route", tensors, "--k", 1, status="SY_ERR_DTYPE", says="bias")

    def test_shapes(self):
        self.refused("moe_route", case([1, 2]), "--k", 1, status="SY_ERR_SHAPE", says="logits")
        self.refused("moe_route", case([[1, 2]], bias=[1]), "--k", 1, status="SY_ERR_SHAPE", says="bias")
        self.refused("moe_route", case([[1, 2]], finished=[1, 0]), "--k", 1, status="SY_ERR_SHAPE", says="finished")

    def test_values(self):
        for field, options in {
            "k": ("--k", 3),
            "groups": ("--k", 1, "--groups", 3),
            "top_groups": ("--k", 1, "--groups", 2, "--top-groups", 3),
            "eps": ("--k", 1, "--eps", -1),
            "scale": ("--k", 1, "--scale", "inf"),
            "capacity": ("--k", 1, "--capacity", -1),
        }.items():
            with self.subTest(field):
                self.refused("moe_route", case([[1, 2]]), *options, status="SY_ERR_VALUE", says=field)
        self.refused("moe_route", case([[1, 2]]), "--k", 2, "--groups", 2, "--top-groups", 1, status="SY_ERR_VALUE",
                     says="top_groups is 1 and leaves 1 experts, want at least k = 2")

    def test_usage(self):
        self.usage("moe_route", case([[1, 2]]), says="--k")
        self.usage("moe_route", case([[1, 2]]), "--k", 1, "--score", "tanh", says="softmax, sigmoid, none")
        self.usage("moe_route", case([[1, 2]]), "--k", 1, "--drop", "random", says="prob, position")


if __name__ == "__main__":
    unittest.main()
