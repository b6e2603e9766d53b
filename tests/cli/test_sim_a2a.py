"""`switchyard sim-a2a`: rows of an exchange, counted again in Python and by formula, and the model of its time."""
import json
import math
import random
import re

from st import CliTest, Tensor, encode, main, tensor

NONE = 65535


def hit_rate(experts, k, local):
    """How probable it is that k different experts include one of `local`."""
    return 1 - math.comb(experts - local, k) / math.comb(experts, k)


RULES = ("all", "first", "round_robin", "hash", "balanced", "local")


def server(rule, hosts, p, i, turn, node):
    """The device that serves a choice of an expert, of those that host it."""
    same = [q for q in hosts if node > 1 and q // node == p // node]
    if rule == "local":
        return p if p in hosts else (same or hosts)[p % len(same or hosts)]
    return hosts[{"round_robin": i, "hash": i * 2654435769 % 2**32, "balanced": turn}.get(rule, 0) % len(hosts)]


def count(hosts, tokens, rule="all", node=1):
    """Rows from device to device: dispatch, and combine by slots. hosts[e]: devices; tokens[p]: lists of experts."""
    d, i, turn = len(tokens), 0, [0] * len(hosts)
    there, back = [[0] * d for _ in range(d)], [[0] * d for _ in range(d)]
    for p, mine in enumerate(tokens):
        for chosen in mine:
            live = [e for e in dict.fromkeys(chosen) if e != NONE and hosts[e]]
            serving = {e: server(rule, hosts[e], p, i, turn[e], node) for e in live}
            for q in {q for e in live for q in (hosts[e] if rule == "all" else [serving[e]])}:
                there[p][q] += 1
            for e in live:
                back[serving[e]][p] += 1
                turn[e] += 1
            i += 1
    return there, back


def off_diagonal(rows):
    """Rows out of and into each device."""
    n = range(len(rows))
    return [sum(rows[p][q] for q in n if q != p) for p in n], [sum(rows[q][p] for q in n if q != p) for p in n]


def interleaved(tokens, batches):
    """The order of tokens concatenated along dimension 2: batch, then device, then token."""
    s = len(tokens[0]) // batches
    return [row for b in range(batches) for mine in tokens for row in mine[b * s:(b + 1) * s]]


class Simulator(CliTest):
    def sim(self, *arguments):
        return self.out("sim-a2a", *arguments)

    def json(self, *arguments):
        return super().json("sim-a2a", *arguments)


class Formula(Simulator):
    # D: hit rate, remote devices, remote slots, MB for 128 tokens: dispatch, in fp8, combine, padded
    VOLUMES = {8: (0.662, 4.63, 7.00, 8.50, 4.38, 12.85, 14.7), 16: (0.408, 6.12, 7.50, 11.22, 5.79, 13.76, 29.4),
               32: (0.227, 7.04, 7.75, 12.92, 6.66, 14.22, 58.7), 64: (0.120, 7.56, 7.88, 13.86, 7.15, 14.45, 117.4),
               128: (0.062, 7.83, 7.94, 14.37, 7.41, 14.57, 234.9), 256: (0.031, 7.97, 7.97, 14.62, 7.54, 14.62, 469.8)}
    # D: microseconds of dispatch, in fp8, combine, metadata
    TIMES = {8: (174, 92, 261, 6), 64: (298, 164, 310, 15), 256: (371, 229, 371, 26)}

    def test_the_table(self):
        rows = [re.findall(r"[\d.]+", line) for line in self.sim("--table").splitlines() if re.match(r"\| \d", line)]
        self.assertEqual([int(row[0]) for row in rows], sorted(self.VOLUMES))
        for row in rows:
            d, values = int(row[0]), [float(v) for v in row]
            self.assertEqual(tuple(values[2:9]), self.VOLUMES[d])
            if d in self.TIMES:
                self.assertEqual(tuple(values[9:]), self.TIMES[d])

    def test_against_the_binomials(self):
        for experts, k, devices in ((256, 8, 8), (64, 6, 16), (16, 16, 4), (10, 3, 4), (4, 2, 8), (7, 1, 1)):
            (row,) = self.json("--table", "--devices", devices, "--experts", experts, "--k", k, "--tokens", 3,
                               "--hidden", 100)["rows"]
            local = [sum(e * devices // experts == q for e in range(experts)) for q in range(devices)]
            hit = sum(hit_rate(experts, k, n) for n in local) / devices
            self.near([row["hit_rate"], row["remote_devices"], row["remote_slots"]],
                      [hit, (devices - 1) * hit, k * (1 - 1 / devices)], 1e-12)
            self.near([row["dispatch_bytes"], row["dispatch_fp8_bytes"], row["combine_bytes"], row["padded_bytes"]],
                      [3 * (devices - 1) * hit * 200, 3 * (devices - 1) * hit * 104, 3 * k * (1 - 1 / devices) * 200,
                       devices * 3 * 200], 1e-6)

    def test_the_model(self):
        (row,) = self.json("--table", "--devices", 4, "--experts", 8, "--k", 2, "--tokens", 50, "--hidden", 500,
                           "--latency", 7, "--message", 0.5, "--bandwidth", 0.25)["rows"]
        self.near([row["dispatch_us"], row["combine_us"], row["metadata_us"]],
                  [7 + 3 * 0.5 + row["dispatch_bytes"] / 250, 7 + 3 * 0.5 + row["combine_bytes"] / 250,
                   2 * 7 + 3 * 50 * 2 * 2 / 250], 1e-9)


    def test_nodes(self):
        """Bytes inside a node and outside move at the same time; a mesh of one node has its latency."""
        options = ("--table", "--experts", 16, "--k", 2, "--tokens", 50, "--hidden", 500, "--latency", 7, "--message", 0.5,
                   "--bandwidth", 0.25, "--node", 4, "--node-latency", 3, "--node-bandwidth", 0.5)
        for devices in (4, 8):
            (row,) = self.json(*options, "--devices", devices)["rows"]
            near = 3 / (devices - 1)
            for what in ("dispatch", "combine"):
                volume = row[what + "_bytes"]
                self.near([row[what + "_us"]], [(3 if devices == 4 else 7) + (devices - 1) * 0.5 +
                                                max(near * volume / 500, (1 - near) * volume / 250)], 1e-9)
            self.near([row["metadata_us"]], [2 * 3 + 3 * 200 / 500 if devices == 4 else 3 * 7 + 7 * 200 / 250], 1e-9)
        got = self.json("--devices", 8, "--preset", "h100", "--node", 4, "--message", 0, "--tokens", 64)
        rows, most = got["dispatch_rows"], 0
        for p in range(8):
            by = {near: [sum(way(q) for q in range(8) if q != p and (q // 4 == p // 4) == near)
                         for way in (lambda q, p=p: rows[p][q], lambda q, p=p: rows[q][p])] for near in (True, False)}
            most = max(most, 5 + 14336e-3 * max(max(by[True]) / 450, max(by[False]) / 50))
        self.near([got["dispatch"]["us"]], [most], 1e-9)

    def test_presets(self):
        written = {"h100": ("--node", 8, "--latency", 5, "--node-latency", 2, "--node-bandwidth", 450),
                   "b200": ("--node", 8, "--latency", 5, "--node-latency", 2, "--node-bandwidth", 900),
                   "gb200": ("--node", 72, "--latency", 5, "--node-latency", 2, "--node-bandwidth", 900)}
        for name, options in written.items():
            self.assertEqual(self.sim("--devices", 64, "--preset", name), self.sim("--devices", 64, *options))
        self.assertIn("in nodes of 8 devices 2 us, 450 GB/s; the slowest", self.sim("--devices", 16, "--preset", "h100"))
        self.assertIn("in nodes of 8 devices 2 us, 450 GB/s; MB and us", self.sim("--table", "--preset", "h100"))
        self.assertNotIn("nodes", self.sim("--devices", 16))
        self.mistake("sim-a2a", "--preset", "a100", says="--preset is a100, want h100, b200 or gb200")


class Drawn(Simulator):
    def test_uniform_routing_meets_the_formula(self):
        for devices, tokens in ((8, 4000), (64, 500), (1024, 40)):
            got = self.json("--devices", devices, "--tokens", tokens)
            n = devices * tokens  # each of at most 8 parts: a standard error below 2/sqrt(n)
            self.near([got["remote_devices"], got["remote_slots"]],
                      [got["remote_devices_uniform"], got["remote_slots_uniform"]], 8 / math.sqrt(n))
            self.assertEqual("dispatch_rows" in got, devices <= 16)

    def test_all_experts_of_every_token(self):
        got = self.json("--devices", 4, "--experts", 8, "--k", 8, "--tokens", 5)
        self.assertEqual(got["dispatch_rows"], [[5] * 4] * 4)
        self.assertEqual(got["combine_slots_rows"], [[10] * 4] * 4)
        self.assertEqual(got["dispatch"]["imbalance_in"], 1)

    def test_skew_crowds_the_first_device(self):
        got = self.json("--devices", 8, "--skew", 2, "--seed", 3, "--matrix")
        into = off_diagonal(got["dispatch_rows"])[1]
        self.assertEqual(max(into), into[0])
        self.assertEqual(got["dispatch"]["rows_in_max"], into[0])
        self.assertGreater(got["dispatch"]["imbalance_in"], 1.3)
        self.assertLess(got["remote_devices"], got["remote_devices_uniform"])
        self.assertEqual(got["combine_local_reduce"]["rows_out_max"], into[0])

    def test_replicas_share_the_load(self):
        """As the exchange measured in docs/ops/all_to_all_dispatch.md: 256 experts in 288 places."""
        options = ("--devices", 32, "--skew", 0.6, "--tokens", 64, "--places", 288)
        got = {rule: self.json(*options, "--replica", rule) for rule in RULES}
        self.assertGreater(got["all"]["remote_devices"], 10)
        for rule in RULES[1:]:
            self.assertLess(got[rule]["remote_devices"], 7.2)
            self.assertEqual(got[rule]["combine_slots"]["rows_in_mean"], got[rule]["remote_slots"] * 64)
            self.assertIsNone(got[rule]["remote_devices_uniform"])
        self.assertGreater(got["first"]["dispatch"]["imbalance_in"], 2)
        for rule in RULES[2:]:
            self.assertLess(got[rule]["dispatch"]["imbalance_in"], 1.1)
        self.assertLess(got["local"]["remote_devices"], min(got[rule]["remote_devices"] for rule in RULES[1:5]))
        self.assertGreater(self.json(*options[:6])["dispatch"]["imbalance_in"], 1.5)

    def test_a_seed_is_a_routing(self):
        one, again, other = (self.sim("--devices", 8, "--seed", seed) for seed in (5, 5, 6))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_one_device_sends_nothing(self):
        got = self.json("--devices", 1, "--experts", 4, "--k", 2)
        self.assertEqual((got["remote_devices"], got["dispatch"]["rows_out_max"], got["dispatch"]["us"]), (0, 0, 0))
        self.assertEqual(got["dispatch_rows"], [[128]])

    def test_no_tokens(self):
        got = self.json("--devices", 2, "--tokens", 0)
        self.assertEqual((got["dispatch_rows"], got["remote_slots"]), ([[0, 0], [0, 0]], 0))

    def test_text_and_json_say_the_same(self):
        got, text = self.json("--devices", 8), self.sim("--devices", 8)
        line = next(line for line in text.splitlines() if line.startswith("  dispatch"))
        self.assertEqual([float(v) for v in line.split()[1:3]],
                         [round(got["dispatch"]["rows_out_mean"], 1), got["dispatch"]["rows_out_max"]])
        self.assertIn(f"{got['dispatch']['us']:.1f}", line)


class File(Simulator):
    def routing(self, seed, devices=4, experts=10, k=3, tokens=6):
        """Experts with no, one and several holders, unused slots, repeated ones."""
        rng = random.Random(seed)
        hosts = [sorted(rng.sample(range(devices), rng.choice((0, 1, 1, 2)))) for _ in range(experts)]
        hosts[0], hosts[1] = [], [0, devices - 1]
        chosen = [[[rng.choice([NONE, *range(experts)]) for _ in range(k)] for _ in range(tokens)]
                  for _ in range(devices)]
        self.assertTrue(any(len(set(row)) < k for mine in chosen for row in mine), seed)
        return hosts, chosen, tensor("U16", [[int(q in h) for q in range(devices)] for h in hosts])

    def check(self, got, hosts, chosen, rule="all", node=1):
        there, back = count(hosts, chosen, rule, node)
        self.assertEqual((got["dispatch_rows"], got["combine_slots_rows"]), (there, back))
        out, into = off_diagonal(there)
        self.assertEqual((got["dispatch"]["rows_out_max"], got["dispatch"]["rows_in_max"]), (max(out), max(into)))
        self.near([got["dispatch"]["bytes_in_mean"], got["remote_devices"]],
                  [sum(into) / len(into) * 32, sum(out) / (len(out) * len(chosen[0]))])
        worst = max(2 + min(len(out) - 1, o) * 0.3 + max(o, i) * 32 / 50e3 for o, i in zip(out, into))
        if node == 1:
            self.near([got["dispatch"]["us"]], [worst], 1e-9)
        if rule == "all":
            self.assertIsNone(got["combine_local_reduce"])
        else:
            self.assertEqual(got["combine_local_reduce"]["rows_in_max"], max(out))

    def test_indices_and_metadata_in_all_their_shapes(self):
        for seed in range(4):
            hosts, chosen, mapping = self.routing(seed)
            flat = [row for mine in chosen for row in mine]
            for name, values, shape, more in (
                    ("expert_indices", chosen, [4, 6, 3], ()),
                    ("expert_indices", chosen, [4, 2, 1, 3, 3], ()),
                    ("expert_metadata", flat, [24, 3], ()),
                    ("expert_metadata", [flat] * 4, [4, 24, 3], ()),
                    ("expert_metadata", flat, [1, 8, 3, 3], ()),
                    ("expert_metadata", [flat] * 4, [4, 1, 8, 3, 3], ()),
                    ("expert_metadata", [flat] * 4, [4, 8, 3, 3], ()),
                    ("expert_metadata", interleaved(chosen, 2), [1, 2, 12, 3], ("--output-concat-dim", 2))):
                with self.subTest((seed, name, shape)):
                    self.write("a", encode({name: tensor("U16", values, shape), "expert_mapping": mapping}))
                    self.check(self.json("a", "--hidden", 16, *more), hosts, chosen)
                    if more:  # another order of tokens, the same turns
                        self.check(self.json("a", "--hidden", 16, "--replica", "balanced", *more), hosts, chosen,
                                   "balanced")

    def test_a_real_exchange_sends_these_rows(self):
        for seed, rule in enumerate(RULES, 20):
            hosts, chosen, mapping = self.routing(seed)
            tensors = {"expert_indices": tensor("U16", chosen, [4, 6, 3]), "expert_mapping": mapping,
                       "input": Tensor("U8", [4, 6, 1], bytes(24))}
            real = self.ok("all_to_all_dispatch", tensors, "--mesh", "2x2", "--counts", "--replica", rule, "--node-size", 2)
            got = self.json("in.safetensors", "--hidden", 16, "--replica", rule, "--node", 2)
            self.check(got, hosts, chosen, rule, 2)
            self.assertEqual(real["rows_to"].nested(), got["dispatch_rows"])
            self.assertEqual(real["rows_from"].nested(), [list(column) for column in zip(*got["dispatch_rows"])])
            metadata = {"expert_metadata": real["metadata"], "expert_mapping": mapping}
            self.write("b", encode(metadata))
            self.assertEqual(self.json("b", "--hidden", 16, "--replica", rule, "--node", 2), got)

    def test_other_types(self):
        hosts, chosen, mapping = self.routing(9)
        signed = [[[-1 if e == NONE else e for e in row] for row in mine] for mine in chosen]
        for dtype in ("I32", "I64"):
            self.write("a", encode({"expert_indices": tensor(dtype, signed), "expert_mapping": mapping}))
            self.check(self.json("a", "--hidden", 16), hosts, chosen)

    def test_files_that_are_no_routing(self):
        good = {"expert_indices": tensor("U16", [[[0, 1]], [[1, 2]]]),
                "expert_mapping": tensor("U16", [[1, 0], [0, 1], [0, 1]])}
        for change, says in (
                ({"expert_mapping": None}, "want expert_mapping"),
                ({"expert_mapping": tensor("I32", [[1, 0], [0, 1], [0, 1]])}, "want expert_mapping"),
                ({"expert_mapping": tensor("U16", [[1, 0], [0, 1], [0, 2]])}, "expert 2, device 1 is 2, want 0 or 1"),
                ({"expert_mapping": Tensor("U16", [0, 2], b"")}, "0 experts"),
                ({"expert_indices": None}, "want one of expert_indices and expert_metadata"),
                ({"expert_metadata": tensor("U16", [[0, 1]])}, "want one of"),
                ({"expert_indices": tensor("U16", [[[0, 1]]])}, "2 devices"),
                ({"expert_indices": tensor("F32", [[[0, 1]], [[1, 2]]])}, "is F32"),
                ({"expert_indices": tensor("U16", [[[0, 1]], [[1, 3]]])}, "token 1, slot 1 is 3"),
                ({"expert_indices": tensor("I32", [[[0, -2]], [[1, 0]]])}, "token 0, slot 1 is -2"),
                ({"expert_indices": None, "expert_metadata": tensor("U16", [[0, 1]] * 3)}, "3 tokens")):
            with self.subTest(says):
                tensors = {n: t for n, t in dict(good, **change).items() if t}
                self.write("a", encode(tensors))
                self.mistake("sim-a2a", "a", says=says)


class Usage(Simulator):
    def test_mistakes(self):
        for arguments, says in (
                (("--devices", 0), "--devices is 0"), (("--devices", 1025), "--devices is 1025"),
                (("--devices", "8,16"), "need --table"), (("--tokens", "1,2"), "need --table"),
                (("--devices", "8,,16", "--table"), "8,,16"), (("--k", 300), "--k is 300"), (("--k", 0), "--k is 0"),
                (("--skew", -1), "--skew is -1"), (("--skew", "nan"), "--skew is nan"), (("--type", "f32"), "--type is f32"),
                (("--bandwidth", 0), "--bandwidth is 0"), (("--frob", 1), "no option --frob"), (("--k",), "needs a value"),
                (("--replica", "any"), "--replica is any, want one of all, first, round_robin, hash, balanced, local"),
                (("--replica", "hash"), "--replica needs a file or --places"), (("--table", "--places", 288), "uniform"),
                (("--devices", 8, "--places", 250), "--places is 250: moe_place: num_physical is 250, want 256 or more"),
                (("--devices", 8, "--places", 258), "--places is 258: moe_place: devices is 8, want a divisor"),
                (("--devices", 8, "--places", 264, "--replica", "local", "--node", 3), "want a divisor of 8 devices"),
                (("--table", "--skew", 1), "uniform"), (("a", "--devices", 4), "contains a routing; remove --table, --devices"),
                (("a", "--table"), "contains a routing"), (("a", "b"), "one word too many"), (("a",), "a: ")):
            with self.subTest(arguments):
                self.mistake("sim-a2a", *arguments, says=says)


if __name__ == "__main__":
    main()
