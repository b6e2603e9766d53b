"""local_reduce through `switchyard run`: worked examples, layouts, refusals."""
import unittest

from st import CliTest, tensor

CHOICES = [[0, 2], [1, 0], [3, 2], [2, 0]]
MAPPING = [[1, 0], [1, 0], [0, 1], [0, 1]]
PADDED = [[[11], [12], [-1], [22]], [[-1], [24], [-1], [-1]]]
WEIGHTS = [[2, 1], [.5, 1], [1, 1], [1, .5]]


def case(rows=PADDED, **more):
    return dict({"input": tensor("F32", rows), "expert_metadata": tensor("U16", CHOICES),
                 "expert_mapping": tensor("U16", MAPPING)}, **more)


class Examples(CliTest):
    def test_padded(self):
        r = self.ok("local_reduce", case())
        self.equal(r["output"], "F32", [[11], [36], [0], [22]])
        self.assertEqual(list(r.outputs), ["output"])
        second = [[[33], [-1], [63], [66]], [[-1], [-1], [84], [-1]]]
        self.equal(self.ok("local_reduce", case(second), "--device", 1)["output"], "F32", [[33], [0], [147], [66]])

    def test_keep(self):
        old = tensor("F32", [[7], [7], [7], [7]])
        r = self.ok("local_reduce", case(output=old), "--fill", "keep")
        self.equal(r["output"], "F32", [[11], [36], [7], [22]])

    def test_expert(self):
        rows = [[11], [12], [22], [24]]
        r = self.ok("local_reduce", case(rows), "--layout", "expert")
        self.equal(r["output"], "F32", [[11], [36], [22], [0]])
        rows = [[11], [12], [22], [-1], [24], [-1]]
        r = self.ok("local_reduce", case(rows, weights=tensor("F32", WEIGHTS)), "--layout", "expert", "--align", 2)
        self.equal(r["output"], "F32", [[22], [24], [11], [0]])

    def test_full_shapes(self):
        full = case(expert_metadata=tensor("U16", [[CHOICES[:2], CHOICES[2:]]]))
        self.equal(self.ok("local_reduce", full)["output"], "F32", [[[[11], [36]], [[0], [22]]]])

    def test_positions(self):
        """Two positions, two batch rows: rows by position are not rows by token."""
        one = {"input": tensor("F32", [[1], [2], [3], [4]]), "expert_metadata": tensor("I32", [[[[0], [0]], [[0], [0]]]]),
               "expert_mapping": tensor("U16", [[1]]), "weights": tensor("F32", [[1], [10], [100], [1000]])}
        options = ["--layout", "expert", "--output-concat-dim", 2]
        r = self.ok("local_reduce", one, *options, "--group-size", 2)
        self.equal(r["output"], "F32", [[1], [200], [30], [4000]])
        r = self.ok("local_reduce", one, *options, "--order", "flat")
        self.equal(r["output"], "F32", [[1], [20], [300], [4000]])
        self.refused("local_reduce", one, *options, status="SY_ERR_VALUE", says="group_size is 0")


class Refusals(CliTest):
    def test_contents(self):
        wrong = [[0, 2], [1, 0], [3, 2], [4, 0]]
        self.refused("local_reduce", case(expert_metadata=tensor("U16", wrong)), status="SY_ERR_INDEX",
                     says="token 3, slot 0 is 4, want 0 or more and below 4, or 65535 for none")
        self.refused("local_reduce", case(expert_mapping=tensor("U16", [[1, 0], [7, 0], [0, 1], [0, 1]])),
                     status="SY_ERR_ROUTING", says="at expert 1, device 0 is 7, want 0 or 1")
        self.refused("local_reduce", case([[11], [12]]), "--layout", "expert", status="SY_ERR_CAPACITY",
                     says="input has 2 rows, want at least 4")

    def test_arguments(self):
        self.refused("local_reduce", {"input": tensor("F32", PADDED)}, status="SY_ERR_NULL", says="expert_metadata")
        self.refused("local_reduce", case(), "--device", 2, status="SY_ERR_VALUE", says="device is 2, want 0 to 1")
        self.refused("local_reduce", case(PADDED[:1]), status="SY_ERR_SHAPE", says="has 1 experts, want 2")
        self.refused("local_reduce", case(expert_mapping=tensor("I32", MAPPING)), status="SY_ERR_DTYPE", says="u16")


if __name__ == "__main__":
    unittest.main()
