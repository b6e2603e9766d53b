"""all_to_all_dispatch and all_to_all_combine through files: in one process and in several, with the same bytes; stacked tensors and
numbered ones; codes; outputs of each layout. What the operators compute, the worked examples among it, is tested in C
(tests/case, tests/mesh_examples.c)."""
from mesh import NONE, MeshTest, index_tensor, mapping_tensor
from st import Tensor, f32, main, tensor

STAR = 9999  # a row that no device reads


def rows(values):
    """Rows of two elements, v and -v; 0 stands for a row of zero bytes, though -0.0 is none."""
    if isinstance(values, list):
        return [rows(v) for v in values]
    return [float(values), float(-values) if values else 0.0]


def f32_rows(values):
    return tensor("F32", rows(values))


def codes(values):
    """Of int8_token; the scales of such rows are apart."""
    return [codes(v) for v in values] if isinstance(values, list) else [127, -127] if values else [0, 0]


def scales(values):
    return [scales(v) for v in values] if isinstance(values, list) else [f32(values / 127)]


TWO_HOSTS = [[0], [0], [1], [1]]  # E1, E2


class Examples(MeshTest):
    """On two devices. Numbers in rows are of one token each."""

    def dispatch(self, hosts, x, idx, *options):
        return self.everywhere(2, "all_to_all_dispatch",
                               {"input": f32_rows(x), "expert_indices": index_tensor(idx),
                                "expert_mapping": mapping_tensor(hosts, 2, form=2)}, "--mesh", "1x2", *options)

    def combine(self, hosts, y, metadata, *options):
        return self.everywhere(2, "all_to_all_combine",
                               {"input": f32_rows(y), "expert_metadata": index_tensor(metadata),
                                "expert_mapping": mapping_tensor(hosts, 2, form=1)}, "--mesh", "1x2", *options)

    def check(self, got, values):
        self.equal(got, "F32", rows(values))

    X1 = [[[[11, 12]]], [[[21, 22]]]]
    IDX1 = [[[[[0, 2], [1, 0]]]], [[[[3, 2], [2, 0]]]]]
    M1 = [[[[0, 2], [1, 0]], [[3, 2], [2, 0]]]]

    def test_e1_dispatch(self):
        r = self.dispatch(TWO_HOSTS, self.X1, self.IDX1, "--masks", "--counts")
        self.check(r["tokens"], [[[[11, 12], [0, 22]]], [[[11, 0], [21, 22]]]])
        self.equal(r["metadata"], "U16", [self.M1, self.M1])
        self.equal(r["present"], "U8", [[1, 1, 0, 1], [1, 0, 1, 1]])
        self.equal(r["rows_to"], "I64", [[2, 1], [1, 2]])
        self.equal(r["rows_from"], "I64", [[2, 1], [1, 2]])
        self.equal(r["expert_counts"], "I64", [[3, 1], [3, 1]])

    def test_outputs_are_tokens_and_metadata(self):
        tensors = {"input": f32_rows(self.X1), "expert_indices": index_tensor(self.IDX1),
                   "expert_mapping": mapping_tensor(TWO_HOSTS, 2)}
        r = self.ok("all_to_all_dispatch", tensors, "--mesh", "1x2")
        self.assertEqual(sorted(r.outputs), ["metadata", "tokens"])
        self.assertEqual(r["tokens"].shape, [2, 1, 2, 2, 2])
        old = {"tokens": f32_rows([[[[7] * 2] * 2]] * 2)}
        r = self.ok("all_to_all_dispatch", {**tensors, **old}, "--mesh", "1x2", "--fill", "keep")
        self.check(r["tokens"], [[[[11, 12], [7, 22]]], [[[11, 7], [21, 22]]]])

    def test_layouts(self):
        """Rows of E1 without gaps, and by expert, each from a multiple of two."""
        none = [-1, -1, -1]
        want = {"packed": ([[11, 12, 22], [11, 21, 22]], [[[0, 0], [0, 1], [1, 1]], [[0, 0], [1, 0], [1, 1]]]),
                "expert": ([[11, 12, 22, 0, 12, 0], [11, 21, 22, 0, 21, 0]],
                           [[[0, 0, 0], [0, 1, 1], [1, 1, 1], none, [0, 1, 0], none],
                            [[0, 0, 1], [1, 0, 1], [1, 1, 0], none, [1, 0, 0], none]])}
        for layout, (tokens, src) in want.items():
            more = ("--layout", layout, *(("--align", 2) if layout == "expert" else ()))
            with self.subTest(layout):
                r = self.dispatch(TWO_HOSTS, self.X1, self.IDX1, *more)
                self.assertEqual(sorted(set(r.outputs) - {"expert_offsets"}), ["metadata", "src", "tokens"])
                for d in range(2):
                    self.assertEqual(r["tokens"].nested()[d][:len(tokens[d])], rows(tokens[d]))
                    self.assertEqual(r["src"].nested()[d][:len(src[d])], src[d])
        self.equal(r["expert_offsets"], "I64", [[0, 4, 6]] * 2)
        hosts = {"expert_mapping": mapping_tensor(TWO_HOSTS, 2)}  # experts that return what they get
        r = self.ok("all_to_all_combine", {"input": r["tokens"], "expert_metadata": r["metadata"], **hosts}, "--mesh", "1x2", *more)
        self.check(r["output"], [[[[11, 12]], [[11, 12]]], [[[21, 22]], [[21, 22]]]])

    def test_e2_combine_slots(self):
        y = [[[[11, 12], [STAR, 22]], [[STAR, 24], [STAR, STAR]]], [[[33, STAR], [63, 66]], [[STAR, STAR], [84, STAR]]]]
        r = self.combine(TWO_HOSTS, y, [self.M1, self.M1], "--masks")
        self.check(r["output"], [[[[11, 24]], [[33, 12]]], [[[84, 66]], [[63, 22]]]])
        self.equal(r["written"], "U8", [[[1, 1], [1, 1]], [[1, 1], [1, 1]]])

    def test_e10_codes_come_home(self):
        hosts, table = [[0, 1], [1], [], [0]], [[[[0, 0], [2, NONE]], [[1, 2], [3, 0]]]] * 2
        y = [[[[11, 7], [7, 22]], [[7, 7], [7, 88]]], [[[11, 7], [7, 22]], [[7, 7], [42, 7]]]]
        files = {"input": tensor("I8", codes(y)), "input_scales": tensor("F32", scales(y)),
                 "expert_metadata": index_tensor(table), "expert_mapping": mapping_tensor(hosts, 2)}
        more = ("--mesh", "1x2", "--row-format", "int8_token")
        slots = [[[[11, 0]], [[0, 0]]], [[[42, 88]], [[0, 22]]]]
        r = self.everywhere(2, "all_to_all_combine", files, *more)
        self.assertEqual(sorted(r.outputs), ["output", "output_scales"])
        self.equal(r["output"], "I8", codes(slots))
        self.equal(r["output_scales"], "F32", scales(slots))
        r = self.everywhere(2, "all_to_all_combine", files, *more, "--sum", "--out-type", "f32")
        self.assertEqual(list(r.outputs), ["output"])
        self.check(r["output"], [[[11, 0]], [[42, 110]]])
        self.assertEqual(self.ok("all_to_all_combine", files, *more, "--sum")["output"].dtype, "BF16")

    def test_codes_of_numbered_devices(self):
        idx = [[[[[0, 0], [2, NONE]]]], [[[[1, 2], [3, 0]]]]]
        one = self.dispatch([[0, 1], [1], [], [0]], self.X1, idx, "--row-format", "int8_token")
        tokens = [[[[11, 0], [0, 22]]], [[[11, 0], [21, 22]]]]
        self.equal(one["tokens"], "I8", codes(tokens))
        self.equal(one["scale_tokens"], "F32", scales(tokens))
        files = {"expert_mapping": mapping_tensor([[0, 1], [1], [], [0]], 2)}
        for d in range(2):
            files.update({f"input.{d}": f32_rows(self.X1[d]), f"expert_indices.{d}": index_tensor(idx[d])})
        r = self.ok("all_to_all_dispatch", files, "--mesh", "1x2", "--row-format", "int8_token")
        for d in range(2):
            for name, kind in (("tokens", "I8"), ("scale_tokens", "F32")):
                self.equal(r[f"{name}.{d}"], kind, one[name].nested()[d])


class Numbered(MeshTest):
    """One tensor per device: token counts and expert counts that differ."""

    def test_a_device_without_experts(self):
        """It has no rows to give, and its tokens come home all the same."""
        tensors = {"expert_mapping": mapping_tensor([[1]], 2), "input.0": Tensor("F32", [0, 2, 1], b""),
                   "input.1": tensor("F32", [[[5.0], [6.0]]]),
                   "expert_metadata.0": index_tensor([[0], [0]]), "expert_metadata.1": index_tensor([[0], [0]])}
        r = self.everywhere(2, "all_to_all_combine", tensors, "--mesh", "1x2")
        self.equal(r["output.0"], "F32", [[[5.0]]])
        self.equal(r["output.1"], "F32", [[[6.0]]])

    def test_ragged_combine_wants_its_counts(self):
        tensors = {"expert_mapping": mapping_tensor([[0], [1]], 2)}
        for q in range(2):
            tensors[f"input.{q}"] = tensor("F32", [[[1.0], [2.0], [3.0]]])
            tensors[f"expert_metadata.{q}"] = index_tensor([[0], [1], [0]])
        self.rejected("all_to_all_combine", tensors, "--mesh", "1x2", "--max-tokens", 3, status="SY_ERR_NULL", says="output")
        tensors.update({"weights.0": tensor("F32", [[0.5]]), "weights.1": tensor("F32", [[2.0], [4.0]])})
        r = self.ok("all_to_all_combine", tensors, "--mesh", "1x2", "--max-tokens", 3, "--sum")
        self.equal(r["output.0"], "F32", [[0.5]])
        self.equal(r["output.1"], "F32", [[4.0], [12.0]])

    def test_uneven_experts(self):
        """Stacked with room for the most, or numbered with what each has: the same rows come home."""
        hosts, metadata = [[1], [0], [1], [1]], [[0, 1], [2, 3], [1, 3], [0, 2]]
        wide = [[[[10 * l + t] for t in range(4)] for l in range(1, 4)], [[[100 * l + t] for t in range(4)] for l in range(1, 4)]]
        common = {"expert_mapping": mapping_tensor(hosts, 2)}
        r = self.ok("all_to_all_combine", {"input": tensor("I32", wide), "expert_metadata": index_tensor([metadata] * 2),
                                           **common}, "--mesh", "1x2")
        self.equal(r["output"], "I32", [[[[100], [201]], [[10], [301]]], [[[12], [103]], [[302], [203]]]])
        tensors = dict(common, **{"input.0": tensor("I32", wide[0][:1]), "input.1": tensor("I32", wide[1]),
                                  "expert_metadata.0": index_tensor(metadata), "expert_metadata.1": index_tensor(metadata)})
        n = self.everywhere(2, "all_to_all_combine", tensors, "--mesh", "1x2")
        self.assertEqual(n["output.0"].data + n["output.1"].data, r["output"].data)
        for most in (2, 4):
            bad = tensor("I32", [[[[0]] * 4] * most] * 2)
            self.rejected("all_to_all_combine", {"input": bad, "expert_metadata": index_tensor([metadata] * 2), **common},
                         "--mesh", "1x2", status="SY_ERR_SHAPE", says="input")

    def test_devices_that_differ(self):
        """Without --max-tokens every device has as many tokens; rows have one type everywhere."""
        op, mapping = "all_to_all_dispatch", mapping_tensor([[0], [1], [2]], 3)
        for rows, types, layout in (
            ((2, 2, 3), ("F32",) * 3, ()), ((3, 2, 2), ("F32",) * 3, ()), ((2, 3, 2), ("F32",) * 3, ("--layout", "packed")),
            ((2, 2, 2), ("BF16", "F16", "BF16"), ()), ((2, 2, 2), ("F16", "F16", "F32"), ("--layout", "expert")),
        ):
            with self.subTest((rows, types, layout)):
                tensors = {"expert_mapping": mapping}
                for d, dtype in enumerate(types):
                    tensors[f"input.{d}"] = Tensor(dtype, [rows[d], 2], bytes(rows[d] * (8 if dtype == "F32" else 4)))
                    tensors[f"expert_indices.{d}"] = index_tensor([[0, 1]] * rows[d])
                self.rejected_everywhere(3, op, tensors, "--mesh", "1x3", *layout, status="SY_ERR_MISMATCH",
                                        says="tokens" if len(set(types)) == 1 else "type")

    def test_names(self):
        one = {"input.0": tensor("F32", [[1.0]]), "input.1": tensor("F32", [[2.0]]),
               "expert_indices.0": index_tensor([[0]]), "expert_indices.1": index_tensor([[1]]),
               "expert_mapping": mapping_tensor([[0], [1]], 2)}
        r = self.ok("all_to_all_dispatch", one, "--mesh", "2x1")
        self.equal(r["tokens.1"], "F32", [[0.0], [2.0]])
        op = "all_to_all_dispatch"
        self.rejected_everywhere(2, op, {n: t for n, t in one.items() if n != "input.1"}, "--mesh", "2x1",
                                status="SY_ERR_NULL", says="input of device 1 is missing")
        for name, says in (("input.2", "input.2 is of a device that a mesh of 2x1 has not"), ("input.01", "takes no tensor input.01"),
                           ("expert_mapping.0", "takes no tensor expert_mapping.0"), ("input", "want input.0"),
                           ("tokens", "tokens is given together with numbered tensors, want tokens.0"), ("rows_to.0", "takes no tensor")):
            with self.subTest(name):
                self.usage(op, dict(one, **{name: one["input.0"]}), "--mesh", "2x1", says=says)


if __name__ == "__main__":
    main()
