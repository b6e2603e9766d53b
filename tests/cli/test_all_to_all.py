"""all_to_all_dispatch and all_to_all_combine through files: the worked examples (in one process and in several, with the
same bytes), random cases against the definitions, layouts, sums, devices with different numbers of tokens or experts."""
import random
import unittest

from mesh import NONE, Mesh, MeshTest, combine, dispatch, index_tensor, live_slots, local_experts, mapping_tensor
from st import Tensor, f32, main, tensor

STAR = 9999  # a row that nobody may read


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


TWO_HOSTS = [[0], [0], [1], [1]]  # E1 to E3
SPREAD = [[3], [0], [1], [2]]  # E4, E5


class Examples(MeshTest):
    """E1 to E10. Numbers in rows are of one token each; STAR marks what is never read."""

    def dispatch(self, mesh, hosts, x, idx, *options):
        return self.everywhere(mesh.devices, "all_to_all_dispatch",
                               {"input": f32_rows(x), "expert_indices": index_tensor(idx),
                                "expert_mapping": mapping_tensor(hosts, mesh.devices)}, *mesh.options(), *options)

    def combine(self, mesh, hosts, y, metadata, *options):
        return self.everywhere(mesh.devices, "all_to_all_combine",
                               {"input": f32_rows(y), "expert_metadata": index_tensor(metadata),
                                "expert_mapping": mapping_tensor(hosts, mesh.devices)}, *mesh.options(), *options)

    def check(self, got, values):
        self.equal(got, "F32", rows(values))

    X1 = [[[[11, 12]]], [[[21, 22]]]]
    IDX1 = [[[[[0, 2], [1, 0]]]], [[[[3, 2], [2, 0]]]]]
    M1 = [[[[0, 2], [1, 0]], [[3, 2], [2, 0]]]]

    def test_e1_dispatch(self):
        r = self.dispatch(Mesh(1, 2), TWO_HOSTS, self.X1, self.IDX1, "--masks", "--counts")
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

    def test_e2_combine_slots(self):
        y = [[[[11, 12], [STAR, 22]], [[STAR, 24], [STAR, STAR]]], [[[33, STAR], [63, 66]], [[STAR, STAR], [84, STAR]]]]
        r = self.combine(Mesh(1, 2), TWO_HOSTS, y, [self.M1, self.M1], "--masks")
        self.check(r["output"], [[[[11, 24]], [[33, 12]]], [[[84, 66]], [[63, 22]]]])
        self.equal(r["written"], "U8", [[[1, 1], [1, 1]], [[1, 1], [1, 1]]])

    def test_e2_with_a_table_that_lacks_the_one(self):
        y = [[[[11, 12], [STAR, 22]], [[STAR, 24], [STAR, STAR]]], [[[33, STAR], [63, 66]], [[STAR, STAR], [84, STAR]]]]
        r = self.combine(Mesh(1, 2), TWO_HOSTS, y, [self.M1[0], self.M1[0]], "--masks")
        self.check(r["output"], [[[[11, 24]], [[33, 12]]], [[[84, 66]], [[63, 22]]]])
        self.equal(r["written"], "U8", [[[1, 1], [1, 1]], [[1, 1], [1, 1]]])

    def test_e3_combine_partial(self):
        y = [[[[11, 36], [STAR, 22]]], [[[33, STAR], [147, 66]]]]
        r = self.combine(Mesh(1, 2), TWO_HOSTS, y, [self.M1, self.M1], "--local-reduce")
        self.check(r["output"], [[[[11, 0]], [[33, 36]]], [[[0, 66]], [[147, 22]]]])
        self.assertEqual(list(r.outputs), ["output"])

    def test_e3_without_dimensions_of_one(self):
        y = [[[11, 36], [STAR, 22]], [[33, STAR], [147, 66]]]
        r = self.combine(Mesh(1, 2), TWO_HOSTS, y, [self.M1[0], self.M1[0]], "--local-reduce")
        self.check(r["output"], [[[[11, 0]], [[33, 36]]], [[[0, 66]], [[147, 22]]]])

    M4 = [[[[0, 1]], [[3, 2]]]]
    Y4 = [[[[20], [STAR]]], [[[STAR], [60]]], [[[STAR], [80]]], [[[10], [STAR]]]]
    T4 = [[[[10], [0]]], [[[0], [20]]], [[[0], [20]]], [[[10], [0]]]]

    def test_e4_columns(self):
        mesh = Mesh(2, 2, 0)
        r = self.dispatch(mesh, SPREAD, [[[[10]]], [[[10]]], [[[20]]], [[[20]]]],
                          [[[[[0, 1]]]], [[[[0, 1]]]], [[[[3, 2]]]], [[[[3, 2]]]]])
        self.check(r["tokens"], self.T4)
        self.equal(r["metadata"], "U16", [self.M4] * 4)
        r = self.combine(mesh, SPREAD, self.Y4, [self.M4] * 4)
        self.check(r["output"], [[[[0]], [[20]]], [[[10]], [[0]]], [[[80]], [[0]]], [[[0]], [[60]]]])

    def test_e5_rows(self):
        mesh = Mesh(2, 2, 1)
        r = self.dispatch(mesh, SPREAD, [[[[10]]], [[[20]]], [[[10]]], [[[20]]]],
                          [[[[[0, 1]]]], [[[[3, 2]]]], [[[[0, 1]]]], [[[[3, 2]]]]])
        self.check(r["tokens"], self.T4)
        r = self.combine(mesh, SPREAD, self.Y4, [self.M4] * 4)
        self.check(r["output"], [[[[0]], [[20]]], [[[0]], [[60]]], [[[10]], [[0]]], [[[80]], [[0]]]])

    def test_e6_dimension_two(self):
        mesh, hosts = Mesh(2, 2, 1), [[e // 2] for e in range(8)]
        idx = [[[[[1, 0, 6]]]], [[[[3, 5, 2]]]]] * 2
        metadata = [[[[1, 0, 6], [3, 5, 2]]]]
        r = self.dispatch(mesh, hosts, [[[[10]]], [[[20]]]] * 2, idx, "--output-concat-dim", 2)
        self.check(r["tokens"], [[[[10, 0]]], [[[0, 20]]], [[[0, 20]]], [[[10, 0]]]])
        self.equal(r["metadata"], "U16", [metadata] * 4)
        y = [[[[10, STAR]], [[20, STAR]]], [[[STAR, 60]], [[STAR, 80]]], [[[STAR, STAR]], [[STAR, 120]]],
             [[[70, STAR]], [[STAR, STAR]]]]
        r = self.combine(mesh, hosts, y, [metadata] * 4, "--output-shard-dim", 2)
        self.check(r["output"], [[[[20]], [[10]], [[0]]], [[[80]], [[0]], [[60]]], [[[0]], [[0]], [[70]]],
                                 [[[0]], [[120]], [[0]]]])
        y = [[[[30, STAR]]], [[[STAR, 140]]], [[[STAR, 120]]], [[[70, STAR]]]]
        r = self.ok("all_to_all_combine",
                    {"input": f32_rows(y), "expert_metadata": index_tensor([metadata] * 4),
                     "expert_mapping": mapping_tensor(hosts, 4)}, *mesh.options(), "--output-shard-dim", 2, "--local-reduce")
        self.check(r["output"], [[[[0]], [[30]], [[0]]], [[[0]], [[0]], [[140]]], [[[0]], [[0]], [[70]]],
                                 [[[0]], [[120]], [[0]]]])

    def test_e7_orders(self):
        mesh, hosts = Mesh(1, 2, 1), [[0], [1]]
        x, idx = [[[[11]], [[12]]], [[[21]], [[22]]]], [[[[[0]]], [[[1]]]], [[[[0]]], [[[0]]]]]
        for order, metadata, tokens, y in (
                ("concat", [[[0], [0]], [[1], [0]]], [[[11, 21], [0, 22]], [[0, 0], [12, 0]]],
                 [[[11, 21], [STAR, 22]], [[STAR, STAR], [24, STAR]]]),
                ("flat", [[[0], [1]], [[0], [0]]], [[[11, 0], [21, 22]], [[0, 12], [0, 0]]],
                 [[[11, STAR], [21, 22]], [[STAR, 24], [STAR, STAR]]])):
            with self.subTest(order):
                more = ("--order", order)
                r = self.dispatch(mesh, hosts, x, idx, "--output-concat-dim", 2, *more)
                self.equal(r["metadata"], "U16", [[metadata]] * 2)
                self.check(r["tokens"], [[t] for t in tokens])
                r = self.ok("all_to_all_combine",
                            {"input": f32_rows([[v] for v in y]), "expert_metadata": index_tensor([[metadata]] * 2),
                             "expert_mapping": mapping_tensor(hosts, 2)}, *mesh.options(), "--output-shard-dim", 2, *more)
                self.check(r["output"], [[[[11], [24]]], [[[21], [22]]]])

    def test_e8_corners(self):
        mesh, hosts = Mesh(1, 2), [[0, 1], [1], [], [0]]
        idx = [[[[[0, 0], [2, NONE]]]], [[[[1, 2], [3, 0]]]]]
        r = self.dispatch(mesh, hosts, self.X1, idx, "--counts")
        self.check(r["tokens"], [[[[11, 0], [0, 22]]], [[[11, 0], [21, 22]]]])
        self.equal(r["rows_to"], "I64", [[1, 1], [1, 2]])
        metadata = [[[[0, 0], [2, NONE]], [[1, 2], [3, 0]]]]
        y = [[[[11, STAR], [STAR, 22]], [[STAR, STAR], [STAR, 88]]], [[[11, STAR], [STAR, 22]], [[STAR, STAR], [42, STAR]]]]
        r = self.combine(mesh, hosts, y, [metadata] * 2, "--masks")
        self.check(r["output"], [[[[11, 0]], [[0, 0]]], [[[42, 88]], [[0, 22]]]])
        self.equal(r["written"], "U8", [[[1, 0], [0, 0]], [[1, 1], [0, 1]]])
        self.rejected_everywhere(2, "all_to_all_combine",
                                {"input": f32_rows([y[0][:1], y[1][:1]]), "expert_metadata": index_tensor([metadata] * 2),
                                 "expert_mapping": mapping_tensor(hosts, 2)}, "--mesh", "1x2", "--local-reduce",
                                status="SY_ERR_ROUTING", says="expert_mapping")

    def test_e9_replicas(self):
        mesh, hosts = Mesh(1, 2), [[0, 1], [1], [], [0]]
        idx = [[[[[0, 0], [2, NONE]]]], [[[[1, 2], [3, 0]]]]]
        metadata = [[[[0, 0], [2, NONE]], [[1, 2], [3, 0]]]]
        both, other = [[[11, 0], [0, 22]]], [[STAR, STAR], [42, STAR]]
        for rule, rows_to, there in (("first", [[1, 0], [1, 1]], 0), ("hash", [[1, 0], [1, 2]], 1)):
            with self.subTest(rule):
                more = ("--replica", rule)
                r = self.dispatch(mesh, hosts, self.X1, idx, "--counts", *more)
                self.check(r["tokens"], [both, [[[0, 0], [21, 22 * there]]]])
                self.equal(r["rows_to"], "I64", rows_to)
                of_0 = [[11, STAR], [STAR, STAR if there else 22]], [[STAR, STAR], [STAR, 22 if there else STAR]]
                y = [[of_0[0], [[STAR, STAR], [STAR, 88]]], [of_0[1], other]]
                r = self.combine(mesh, hosts, y, [metadata] * 2, "--masks", *more)
                self.check(r["output"], [[[[11, 0]], [[0, 0]]], [[[42, 88]], [[0, 22]]]])
        r = self.combine(mesh, hosts, [[[[11, STAR], [STAR, 110]]], [[[STAR, STAR], [42, STAR]]]], [metadata] * 2,
                         "--replica", "first", "--local-reduce")
        self.check(r["output"], [[[[11, 0]], [[0, 0]]], [[[42, 0]], [[0, 110]]]])


    def test_e10_codes(self):
        r = self.dispatch(Mesh(1, 2), [[0, 1], [1], [], [0]], self.X1, [[[[[0, 0], [2, NONE]]]], [[[[1, 2], [3, 0]]]]],
                          "--row-format", "int8_token")
        tokens = [[[[11, 0], [0, 22]]], [[[11, 0], [21, 22]]]]
        self.equal(r["tokens"], "I8", codes(tokens))
        self.equal(r["scale_tokens"], "F32", scales(tokens))

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
        one = self.dispatch(Mesh(1, 2), [[0, 1], [1], [], [0]], self.X1, idx, "--row-format", "int8_token")
        files = {"expert_mapping": mapping_tensor([[0, 1], [1], [], [0]], 2)}
        for d in range(2):
            files.update({f"input.{d}": f32_rows(self.X1[d]), f"expert_indices.{d}": index_tensor(idx[d])})
        r = self.ok("all_to_all_dispatch", files, "--mesh", "1x2", "--row-format", "int8_token")
        for d in range(2):
            for name, kind in (("tokens", "I8"), ("scale_tokens", "F32")):
                self.equal(r[f"{name}.{d}"], kind, one[name].nested()[d])


class Case:
    """A random problem: experts with no, one or several holders, unused and repeated slots, rows of any bits."""

    def __init__(self, seed, tokens=None, single=False):
        rng = self.rng = random.Random(seed)
        self.mesh = Mesh(rng.randint(1, 3), rng.randint(1, 3), rng.choice((None, 0, 1)))
        self.batch, self.run = rng.randint(1, 3), rng.randint(1, 3)
        self.k, self.experts, self.width = rng.randint(1, 4), rng.randint(1, 9), rng.randint(1, 5)
        self.dim, self.flat = rng.choice((1, 2)), rng.choice((False, True))
        d = self.mesh.devices
        held = (1,) if single else (0, 1, 1, 1, 2)
        self.hosts = [sorted(rng.sample(range(d), min(d, rng.choice(held)))) for _ in range(self.experts)]
        counts = tokens(rng, d) if tokens else [self.batch * self.run] * d
        self.chosen = [[[rng.choice([NONE, *range(self.experts), rng.randrange(self.experts)]) for _ in range(self.k)]
                        for _ in range(n)] for n in counts]
        self.rows = [[self.row() for _ in range(n)] for n in counts]
        self.where = {"batch": self.batch, "dim": self.dim, "flat": self.flat}
        if tokens:
            self.where = {}

    def row(self):
        """bf16 bits: numbers, both zeros, subnormals, infinities, NaNs with payloads."""
        return [self.rng.choice((self.rng.randrange(65536), 0x8000, 0x7fc1, 0xff81, 0x0001)) for _ in range(self.width)]

    def group_extents(self, d=0):
        g = len(self.mesh.group(d))
        return [1, self.batch * g, self.run] if self.dim == 1 else [1, self.batch, self.run * g]

    def options(self, dim):
        more = [f"--output-{dim}-dim", self.dim] + (["--order", "flat"] if self.flat else [])
        return self.mesh.options() + more

    def mapping(self):
        return mapping_tensor(self.hosts, self.mesh.devices, self.rng.randrange(3))


class Random(MeshTest):
    def test_dispatch(self):
        for seed in range(40):
            case = Case(seed)
            d, rng = case.mesh.devices, random.Random(seed)
            form = rng.choice(([case.batch, 1, case.run], [case.batch, case.run, 1],
                               *([[case.batch * case.run]] * (case.dim == 1 or case.flat or case.batch == 1))))
            dtype, keep = rng.choice(("U16", "I32", "I64")), rng.random() < 0.4
            want = dispatch(case.mesh, case.hosts, case.rows, case.chosen, **case.where)
            out = case.group_extents() if len(form) == 3 else [len(want[0][0])]
            tensors = {"input": tensor("BF16", case.rows, [d, *form, case.width]),
                       "expert_indices": index_tensor(case.chosen, dtype, [d, *form, case.k]),
                       "expert_mapping": case.mapping()}
            if keep:
                tensors["tokens"] = tensor("BF16", [7] * (d * len(want[0][0]) * case.width), [d, *out, case.width])
            placeholder = [7 if keep else 0] * case.width
            with self.subTest(seed=seed):
                r = self.ok("all_to_all_dispatch", tensors, *case.options("concat"), "--masks", "--counts",
                            *(("--fill", "keep") if keep else ()))
                self.equal(r["tokens"], "BF16", [[placeholder if t is None else t for t in sent] for sent, _, _ in want],
                           [d, *out, case.width])
                got = index_tensor([table for _, table, _ in want], dtype, [d, *out, case.k])
                self.assertEqual((r["metadata"].shape, r["metadata"].data), (got.shape, got.data))
                self.equal(r["present"], "U8", [[int(t is not None) for t in sent] for sent, _, _ in want])
                self.check_counts(r, case, want)

    def check_counts(self, r, case, want):
        for d, (sent, table, where) in enumerate(want):
            group = case.mesh.group(d)
            came = [sum(t is not None and p == q for t, (p, _) in zip(sent, where)) for q in range(len(group))]
            went = [sum(t is not None and group[p] == d for t, (p, _) in zip(want[q][0], want[q][2])) for q in group]
            self.assertEqual((r["rows_from"].nested()[d], r["rows_to"].nested()[d]), (came, went))
            counts = [sum(e in chosen for chosen in table) for e in local_experts(case.hosts, d)]
            got = r["expert_counts"].nested()[d]
            self.assertEqual((got[:len(counts)], any(got[len(counts):])), (counts, False))

    def results(self, case, local_reduce):
        """What every device holds, and the stacked input of it: NaN where nobody reads."""
        d, wide = case.mesh.devices, case.rng.random
        most = 1 if local_reduce else max(len(local_experts(case.hosts, q)) for q in range(d))
        total = [sum(len(case.chosen[s]) for s in case.mesh.group(q)) for q in range(d)]
        held = [[[[0x7fff if wide() < 0.1 else case.rng.randrange(0x7f00) for _ in range(case.width)]
                  for _ in range(total[q])] for _ in range(most)] for q in range(d)]

        def holder(q):
            mine = local_experts(case.hosts, q)
            return lambda e, t: held[q][0 if e is None else mine.index(e)][t]
        return held, [holder(q) for q in range(d)], most

    def test_combine(self):
        seen = 0
        for seed in range(100, 150):
            local_reduce = seed % 3 == 0
            case = Case(seed, single=local_reduce)
            held, results, most = self.results(case, local_reduce)
            if most == 0:
                continue
            seen += 1
            d, rng = case.mesh.devices, random.Random(seed)
            short = rng.random() < 0.3 and (case.dim == 1 or case.flat or case.batch == 1)
            want = combine(case.mesh, case.hosts, results, case.chosen, local_reduce=local_reduce, **case.where)
            tables = [table for _, table, _ in dispatch(case.mesh, case.hosts, case.rows, case.chosen, **case.where)]
            extents = [len(tables[0])] if short else case.group_extents()[1:]
            home = [case.batch * case.run] if short else [case.batch, case.run]
            tensors = {"input": tensor("BF16", held, [d, most, *extents, case.width]),
                       "expert_metadata": index_tensor(tables, "U16", [d, *([] if short or seed % 4 == 0 else [1]), *extents,
                                                                       case.k]),
                       "expert_mapping": case.mapping()}
            keep = rng.random() < 0.4
            if keep:
                tensors["output"] = tensor("BF16", [9] * (d * case.k * case.batch * case.run * case.width),
                                           [d, case.k, *home, case.width])
            placeholder = [9 if keep else 0] * case.width
            with self.subTest(seed=seed):
                r = self.ok("all_to_all_combine", tensors, *case.options("shard"), "--masks",
                            *(["--local-reduce"] if local_reduce else []), *(["--fill", "keep"] if keep else []))
                self.equal(r["output"], "BF16", [[[placeholder if x is None else x for x in slot] for slot in mine]
                                                 for mine in want], [d, case.k, *home, case.width])
                self.equal(r["written"], "U8", [[[int(x is not None) for x in slot] for slot in mine] for mine in want])
        self.assertGreater(seen, 30)


class Empty(MeshTest):
    def test_no_tokens(self):
        mapping = mapping_tensor([[0], [1], []], 2)
        for lead, out in (([0, 1, 3], [1, 0, 3]), ([2, 1, 0], [1, 4, 0]), ([0], [0])):
            for layout in ("padded", "packed", "expert"):
                with self.subTest((lead, layout)):
                    r = self.ok("all_to_all_dispatch",
                                {"input": Tensor("F32", [2, *lead, 4], b""), "expert_mapping": mapping,
                                 "expert_indices": Tensor("U16", [2, *lead, 2], b"")}, "--mesh", "2x1", "--counts",
                                "--layout", layout)
                    self.assertEqual(r["metadata"].shape, [2, *out, 2])
                    self.assertEqual(r["tokens"].shape, [2, *(out if layout == "padded" else [0]), 4])
                    self.equal(r["rows_to"], "I64", [[0, 0], [0, 0]])
            r = self.ok("all_to_all_combine",
                        {"input": Tensor("F32", [2, 1, *out[-2:], 4], b""), "expert_mapping": mapping,
                         "expert_metadata": Tensor("U16", [2, *out, 2], b"")}, "--mesh", "2x1")
            self.assertEqual(r["output"].shape, [2, 2, *[n for n in lead if n != 1 or len(lead) == 1], 4])

    def test_a_device_without_experts(self):
        """It has no rows to give, and its tokens come home all the same."""
        tensors = {"expert_mapping": mapping_tensor([[1]], 2), "input.0": Tensor("F32", [0, 2, 1], b""),
                   "input.1": tensor("F32", [[[5.0], [6.0]]]),
                   "expert_metadata.0": index_tensor([[0], [0]]), "expert_metadata.1": index_tensor([[0], [0]])}
        r = self.everywhere(2, "all_to_all_combine", tensors, "--mesh", "1x2")
        self.equal(r["output.0"], "F32", [[[5.0]]])
        self.equal(r["output.1"], "F32", [[[6.0]]])


class Layouts(MeshTest):
    def problem(self, seed, single=False):
        case = Case(seed, single=single)
        case.where, case.dim, case.flat = {}, 1, False
        d = case.mesh.devices
        tensors = {"input": tensor("BF16", case.rows, [d, len(case.rows[0]), case.width]),
                   "expert_indices": index_tensor(case.chosen), "expert_mapping": case.mapping()}
        return case, tensors, dispatch(case.mesh, case.hosts, case.rows, case.chosen)

    def test_packed(self):
        for seed in range(300, 308):
            case, tensors, want = self.problem(seed)
            with self.subTest(seed=seed):
                r = self.ok("all_to_all_dispatch", tensors, *case.mesh.options(), "--layout", "packed")
                self.assertEqual(sorted(r.outputs), ["metadata", "src", "tokens"])
                for d, (sent, _, where) in enumerate(want):
                    packed = [(row, list(at)) for row, at in zip(sent, where) if row is not None]
                    rest = len(sent) - len(packed)
                    self.assertEqual(r["tokens"].nested()[d], [row for row, _ in packed] + [[0] * case.width] * rest)
                    self.assertEqual(r["src"].nested()[d], [at for _, at in packed] + [[-1, -1]] * rest)

    def test_expert_there_and_back(self):
        """Rows by expert with padding, planes beside them; identity experts bring every live slot its token."""
        for seed in range(320, 328):
            case, tensors, want = self.problem(seed)
            d, align = case.mesh.devices, 1 + seed % 3
            tensors["plane.0"] = tensor("I64", [[[100 * q + n] for n in range(len(mine))] for q, mine in enumerate(case.rows)])
            with self.subTest(seed=seed):
                r = self.ok("all_to_all_dispatch", tensors, *case.mesh.options(), "--layout", "expert", "--align", align)
                self.assertEqual(sorted(r.outputs), ["expert_offsets", "metadata", "plane_tokens.0", "src", "tokens"])
                for q, (_, table, where) in enumerate(want):
                    rows, src, offsets, group = [], [], [0], case.mesh.group(q)
                    for e in local_experts(case.hosts, q):
                        for (p, n), chosen in zip(where, table):
                            if e in chosen:
                                rows.append(case.rows[group[p]][n])
                                src.append([p, n, chosen.index(e)])
                        pad = -len(rows) % align
                        rows += [[0] * case.width] * pad
                        src += [[-1, -1, -1]] * pad
                        offsets.append(len(rows))
                    self.assertEqual(r["tokens"].nested()[q][:len(rows)], rows)
                    self.assertEqual(r["src"].nested()[q][:len(src)], src)
                    self.assertTrue(all(v == -1 for row in r["src"].nested()[q][len(src):] for v in row))
                    self.assertEqual(r["expert_offsets"].nested()[q][:len(offsets)], offsets)
                    planes = [[0] if p < 0 else [100 * group[p] + n] for p, n, _ in src]
                    self.assertEqual(r["plane_tokens.0"].nested()[q][:len(src)], planes)
                if r["tokens"].shape[1] == 0:
                    continue
                back = self.ok("all_to_all_combine",
                               {"input": r["tokens"], "expert_metadata": r["metadata"], "expert_mapping": case.mapping()},
                               *case.mesh.options(), "--layout", "expert", "--align", align)
                self.check_round_trip(back["output"].nested(), case)
                self.assertEqual(back["output"].shape, [d, case.k, len(case.rows[0]), case.width])

    def test_expert_rows(self):
        """The same number of rows for every expert, there and back; one fewer than the fullest needs is rejected."""
        for seed in range(330, 334):
            case, tensors, want = self.problem(seed)
            counts = [[sum(e in chosen for chosen in table) for e in local_experts(case.hosts, q)]
                      for q, (_, table, _) in enumerate(want)]
            most = max(n for own in counts for n in own)
            options = (*case.mesh.options(), "--layout", "expert", "--expert-rows")
            with self.subTest(seed=seed):
                r = self.ok("all_to_all_dispatch", tensors, *options, most)
                for q, own in enumerate(counts):
                    src = [row[0] >= 0 for row in r["src"].nested()[q][:most * len(own)]]
                    self.assertEqual(src, [i < n for n in own for i in range(most)])
                back = self.ok("all_to_all_combine",
                               {"input": r["tokens"], "expert_metadata": r["metadata"], "expert_mapping": case.mapping()},
                               *options, most)
                self.check_round_trip(back["output"].nested(), case)
                r = self.run_op("all_to_all_dispatch", tensors, *options, most - 1)  # 0 would permit any number
                self.assertIn(f"is {most - 1}, want at least {most}, the rows of expert", r.err)

    def check_round_trip(self, output, case):
        for q, mine in enumerate(case.chosen):
            group = set(case.mesh.group(q))
            for n, chosen in enumerate(mine):
                for k in range(case.k):
                    here = k in live_slots(chosen) and group & set(case.hosts[chosen[k]])
                    self.assertEqual(output[q][k][n], case.rows[q][n] if here else [0] * case.width)


class Numbered(MeshTest):
    """One tensor per device: token counts and expert counts that differ."""

    def ragged(self, seed):
        return Case(seed, tokens=lambda rng, d: [rng.choice((0, 1, 2, 5)) for _ in range(d)])

    def test_ragged_dispatch_and_combine(self):
        seen = set()
        for seed in range(400, 412):
            case = self.ragged(seed)
            d, more = case.mesh.devices, [*case.mesh.options(), "--max-tokens", 5]
            tensors = {"expert_mapping": case.mapping()}
            for q in range(d):
                n = len(case.rows[q])
                seen.add(n)
                tensors[f"input.{q}"] = tensor("BF16", case.rows[q], [n, case.width])
                tensors[f"expert_indices.{q}"] = index_tensor(case.chosen[q], "I32", [n, case.k])
            want = dispatch(case.mesh, case.hosts, case.rows, case.chosen)
            with self.subTest(seed=seed):
                r = self.ok("all_to_all_dispatch", tensors, *more)
                self.assertEqual(sorted(r.outputs), sorted(f"{n}.{q}" for n in ("metadata", "tokens") for q in range(d)))
                for q, (sent, table, _) in enumerate(want):
                    self.equal(r[f"tokens.{q}"], "BF16", [t or [0] * case.width for t in sent], [len(sent), case.width])
                    self.equal(r[f"metadata.{q}"], "I32", table, [len(sent), case.k])
                self.combine_back(case, want, r, more)
        self.assertEqual(seen, {0, 1, 2, 5})

    def combine_back(self, case, want, r, more):
        """Experts that hand their tokens back; the old contents of the outputs tell how many are at home."""
        tensors = {"expert_mapping": case.mapping()}
        for q in range(case.mesh.devices):
            n = len(case.rows[q])
            held = [[t or [0x7fff] * case.width for t in want[q][0]] for _ in local_experts(case.hosts, q)]
            tensors[f"input.{q}"] = tensor("BF16", held, [len(held), len(want[q][0]), case.width])
            tensors[f"expert_metadata.{q}"] = r[f"metadata.{q}"]
            tensors[f"output.{q}"] = Tensor("BF16", [case.k, n, case.width], b"\1" * (2 * case.k * n * case.width))
        back = self.ok("all_to_all_combine", tensors, *more)
        slots = combine(case.mesh, case.hosts, [lambda e, t, q=q: want[q][0][t] for q in range(case.mesh.devices)],
                        case.chosen)
        for q, mine in enumerate(slots):
            n = len(case.rows[q])
            self.equal(back[f"output.{q}"], "BF16", [x or [0] * case.width for slot in mine for x in slot],
                       [case.k, n, case.width])

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
