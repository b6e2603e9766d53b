"""The same work by PyTorch, FlashInfer and NumPy: started by `switchyard bench --peers`, once per operator.

Standard input is a JSON object with op, threads, device, quick, cold_bytes and the shapes of cases; standard output is one
with the versions found and a list of results. Every form is checked before it is timed, in two ways: "as called", into fresh
memory, and with out=, into memory that was there before. Times are medians over inputs and outputs that rotate through
cold_bytes (0: always the same ones), as in the C part. On a CUDA device calls are captured into a CUDA graph, whose replays
are timed; forms with a size that the host must know cannot be, and are timed as a program would call them.
"""
import sys

sys.path[:] = [path for path in sys.path if path]  # with -c Python looks in the current folder first: remove it

import importlib
import json
import math
import random
import re
import statistics
import time

LEAST_SECONDS = 200e-6  # of one timed sample
MOST_SETS = 4096


class Wrong(Exception):
    """A peer's result is wrong; it is not timed."""


def right(condition):
    if not condition:
        raise Wrong


# ---- Timing ----


def seconds_of(call, turn, inner):
    begin = time.perf_counter()
    for i in range(inner):
        call(turn + i)
    return (time.perf_counter() - begin) / inner


def measure(call, quick):
    """Median seconds and spread of call(turn); short calls are repeated within a sample, long ones few times."""
    turn, once = 1, seconds_of(call, 0, 1)
    inner = 1 if once >= LEAST_SECONDS else int(LEAST_SECONDS / max(once, 1e-7)) + 1
    turns = 3 if quick else min(31, max(3, int(1.5 / max(once, LEAST_SECONDS))))
    times = []
    for _ in range(turns):
        times.append(seconds_of(call, turn, inner))
        turn += inner
    times.sort()
    median = statistics.median(times)
    return median, (times[turns * 3 // 4] - times[turns // 4]) / median, turns


def measure_there(torch, call, quick):
    """The same on a CUDA device, and whether the calls were in a graph."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def timed(work):
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    once = min(timed(lambda i=i: call(i)) for i in range(3))
    calls = 2 if quick else min(2000, max(8, int(5e-3 / max(once, 1e-6))))
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for i in range(calls):
                call(i)
        work = graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
        graph = None

        def work():
            for i in range(calls):
                call(i)

    work()
    times = sorted(timed(work) / calls for _ in range(3 if quick else 9))
    median, n = statistics.median(times), len(times)
    return median, (times[n * 3 // 4] - times[n // 4]) / median, n, graph is not None


def sets_of(size, cold_bytes):
    """How many buffers of a size evict the first from the caches before it is used again."""
    return min(MOST_SETS, cold_bytes // max(size, 1) + 1)


# ---- The text of a case ----


NUMBERS = {
    "moe_permute": {"tokens": "T=", "experts": "E=", "k": "K=", "hidden": "H="},
    "moe_route": {"tokens": "T=", "experts": "E=", "k": "K="},
    "moe_dispatch": {"samples": "S=", "capacity": "C=", "hidden": "H=", "experts": "E="},
    "kv_gather": {"sequences": "B=", "tokens": "of ", "k": "k=", "block": "S="},
    "sample": {"batch": "[", "vocab": ",", "top_k": "k=", "top_p": "p=", "min_p": "min_p="},
}


def number(shape, name):
    """4096 of "T=4096", 131072 of "of 128k", 48 and 32000 of "[48,32000]"; 0: there is none."""
    found = re.search((r"(?<!\S)" if name[0].isalpha() else "") + re.escape(name) + r"([\d.]+)(k?)", shape)
    value = float(found[1]) * (1024 if found[2] else 1) if found else 0
    return int(value) if value == int(value) else value


def case_of(op, shape):
    """What the shape of a case says."""
    def says(*words):
        return next((word for word in words if re.search(rf"(?<!\S){word}(?!\S)", shape)), "")

    case = {"shape": shape, "dtype": says("f32", "bf16") or "f16"}
    case.update({name: number(shape, text) for name, text in NUMBERS[op].items()})
    if op == "kv_gather":
        case["row_elements"] = 576
    elif op == "moe_dispatch":
        case["zero"] = bool(says("zero"))
    elif op == "moe_route":
        case.update({word: bool(says(word.replace("_", " "))) for word in ("given", "softmax_after", "bias")})
        case["groups"], case["top_groups"] = (8, 4) if says("groups") else (0, 0)
        case["score"] = "none" if case["softmax_after"] else says("sqrtsoftplus", "sigmoid") or "softmax"
    elif op == "sample":
        case["flat"], case["noise"] = bool(says("flat")), says("greedy") or ("q" if says("q by list", "q by vocab") else "draw")
        case["masked"] = case["min_p"] > 0 or bool(says("half allowed", "few allowed", "overridden", "flags kept", "final", "raw",
                                                        "Zipf", "normal", "equal", "two values"))
    return case


# ---- Inputs without a library ----


def routing(tokens, experts, k, seed=7):
    """k distinct experts per token."""
    draw = random.Random(seed)
    return [sorted(draw.sample(range(experts), k)) for _ in range(tokens)]


def grouped(routes, experts):
    """Tokens in the order of their experts: what a permutation must produce."""
    lists = [[] for _ in range(experts)]
    for token, chosen in enumerate(routes):
        for expert in chosen:
            lists[expert].append(token)
    return [token for tokens in lists for token in tokens]


def slots_of(case, seed=5):
    """(gate, slot) per sample: a slot is how many earlier samples chose the expert."""
    draw, used, found = random.Random(seed), [0] * case["experts"], []
    for _ in range(case["samples"]):
        expert = draw.randrange(case["experts"])
        found.append((draw.random(), expert * case["capacity"] + used[expert]))
        used[expert] += 1
        right(used[expert] <= case["capacity"])
    return found


def paged(case, seed=3):
    """Block table, positions, and the cache rows they select."""
    draw = random.Random(seed)
    per_row = case["tokens"] // case["block"]
    blocks = list(range(case["sequences"] * per_row))
    draw.shuffle(blocks)
    table = [blocks[b * per_row:(b + 1) * per_row] for b in range(case["sequences"])]
    whole = case["k"] == case["tokens"]
    asked = [[j if whole else draw.randrange(case["tokens"]) for j in range(case["k"])] for _ in table]
    rows = [table[b][t // case["block"]] * case["block"] + t % case["block"]
            for b in range(case["sequences"]) for t in asked[b]]
    return table, asked, rows


def paged_turns(case, cold, array):
    """The same as arrays, with other positions every time, so that the rows are cold too; the rows are those of the first."""
    table, asked, rows = paged(case)
    step = 0 if case["k"] == case["tokens"] else 7919
    turns = range(sets_of(2 * case["row_elements"] * len(rows), cold))
    return array(table), [(array(asked) + step * i) % case["tokens"] for i in turns], rows


# ---- PyTorch ----


def torch_type(torch, case):
    return {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[case["dtype"]]


def torch_permute(torch, case, cold):
    tokens, experts, hidden, kind = case["tokens"], case["experts"], case["hidden"], torch_type(torch, case)
    routes = routing(tokens, experts, case["k"])
    order = grouped(routes, experts)
    routing_map = torch.zeros(tokens, experts, dtype=torch.bool)
    routing_map.scatter_(1, torch.tensor(routes), True)
    probs = torch.rand(tokens, experts)
    want_probs = probs.T[routing_map.T]
    n = sets_of(2 * hidden * (tokens + len(order)), cold)
    x = [torch.randn(tokens, hidden).to(kind) for _ in range(n)]
    y = [torch.ones(len(order), hidden, dtype=kind) for _ in range(n)]
    ids = torch.arange(tokens).expand(experts, tokens)
    map_out, probs_out = torch.ones(experts, tokens, dtype=torch.bool), torch.ones(experts, tokens)
    ids_out, row_probs_out = torch.ones(len(order), dtype=torch.int64), torch.ones(len(order))

    def as_called(i):
        by_expert = routing_map.T.contiguous()
        chosen = ids.masked_select(by_expert)
        row_probs = probs.T.contiguous().masked_select(by_expert)
        return x[i % n].index_select(0, chosen), row_probs

    def out(i):
        map_out.copy_(routing_map.T)
        torch.masked_select(ids, map_out, out=ids_out)
        probs_out.copy_(probs.T)
        torch.masked_select(probs_out, map_out, out=row_probs_out)
        torch.index_select(x[i % n], 0, ids_out, out=y[i % n])
        return y[i % n], row_probs_out

    def check(result):
        right(torch.equal(result[0], x[0][torch.tensor(order)]) and torch.equal(result[1], want_probs))

    yield "masked_select, index_select", as_called, out, check


def torch_dispatch(torch, case, cold):
    hidden, kind = case["hidden"], torch_type(torch, case)
    gates, slots = zip(*slots_of(case))
    gates, slots = torch.tensor(gates)[:, None], torch.tensor(slots)
    samples, total = case["samples"], case["experts"] * case["capacity"]
    few = 2 * samples < case["capacity"] and not case["zero"]  # then one array of slots serves all inputs
    width = torch.empty(0, dtype=kind).element_size() * hidden
    n = sets_of(width * (2 * samples if few else samples + total), cold)
    x = [(torch.rand(samples, hidden) - 0.5).to(kind) for _ in range(n)]
    y = [torch.ones(total, hidden, dtype=kind) for _ in range(1 if few else n)]
    to = [slots + i * samples % (case["capacity"] - samples) for i in range(n)] if few else [slots]
    scaled = torch.ones(samples, hidden, dtype=kind)

    def as_called(i):
        into = torch.zeros(total, hidden, dtype=kind) if case["zero"] else y[i % len(y)]
        return into.index_copy_(0, to[i % len(to)], (x[i % n] * gates).to(kind))

    def out(i):
        into = y[i % len(y)].zero_() if case["zero"] else y[i % len(y)]
        torch.mul(x[i % n], gates, out=scaled)
        return into.index_copy_(0, to[i % len(to)], scaled)

    def check(result):
        want = torch.zeros_like(result) if case["zero"] else result.clone()
        for i, slot in enumerate(slots.tolist()):
            want[slot] = (x[0][i].float() * gates[i]).to(kind)
        right(torch.equal(result, want))

    yield ("zeros, " if case["zero"] else "") + "mul, index_copy_", as_called, out, check


def torch_gather(torch, case, cold):
    table, positions, rows = paged_turns(case, cold, torch.tensor)
    elements, block, n = case["row_elements"], case["block"], len(positions)
    cache = torch.randn(case["sequences"] * case["tokens"], elements).to(torch.bfloat16)
    y = [torch.ones(len(rows), elements, dtype=torch.bfloat16) for _ in range(n)]

    def row_ids(i):
        at = positions[i % n]
        return (table.gather(1, at // block) * block + at % block).view(-1)

    def as_called(i):
        return cache.index_select(0, row_ids(i))

    def out(i):
        return torch.index_select(cache, 0, row_ids(i), out=y[i % n])

    def check(result):
        right(torch.equal(result, cache[torch.tensor(rows)]))

    yield "gather, index_select", as_called, out, check


def torch_select(torch, case, bias):
    """The choice of experts from scores: topk, or the topk of the kept groups. Forms into new memory and with out=."""
    tokens, experts, k, groups = case["tokens"], case["experts"], case["k"], case["groups"]
    size = experts // max(groups, 1)
    weights, ids = torch.ones(tokens, k), torch.ones(tokens, k, dtype=torch.int64)
    value, pair = torch.ones(tokens, experts), torch.ones(tokens, groups, 2)
    pair_ids, worth = torch.ones(tokens, groups, 2, dtype=torch.int64), torch.ones(tokens, groups)
    stay_ids = torch.ones(tokens, case["top_groups"], dtype=torch.int64)
    stay_worth, drop = torch.ones(tokens, case["top_groups"]), torch.ones(tokens, groups, 1, dtype=torch.bool)

    def as_called(score):
        if groups == 0:
            return score.topk(k)
        wide = (score + bias).view(tokens, groups, size)
        stay = wide.topk(2)[0].sum(-1).topk(case["top_groups"])[1]
        out = torch.ones(tokens, groups, dtype=torch.bool).scatter_(1, stay, False)
        chosen = wide.masked_fill(out[:, :, None], -torch.inf).view(tokens, experts).topk(k)[1]
        return score.gather(1, chosen), chosen

    def out(score):
        if groups == 0:
            return torch.topk(score, k, out=(weights, ids))
        wide = torch.add(score, bias, out=value).view(tokens, groups, size)
        torch.topk(wide, 2, out=(pair, pair_ids))
        torch.topk(torch.sum(pair, -1, out=worth), case["top_groups"], out=(stay_worth, stay_ids))
        wide.masked_fill_(drop.fill_(True).view(tokens, groups).scatter_(1, stay_ids, False)[:, :, None], -torch.inf)
        torch.topk(value, k, out=(weights, ids))
        return torch.gather(score, 1, ids, out=weights), ids

    return as_called, out


def best_of(values, n):
    """The places of the n largest, in ascending order."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:n]


def routed(case, row, bias):
    """Experts and weights of a row, by sorting doubles."""
    top, groups = max(row), case["groups"]
    score = row
    if case["score"] == "sigmoid":
        score = [1 / (1 + math.exp(-x)) for x in row]
    elif case["score"] == "softmax":
        score = [math.exp(x - top) for x in row]
        score = [s / sum(score) for s in score]
    value = [s + b for s, b in zip(score, bias)]
    if groups > 0:
        size = len(row) // groups
        worth = [sum(sorted(value[g * size:(g + 1) * size])[-2:]) for g in range(groups)]
        stay = best_of(worth, case["top_groups"])
        value = [v if e // size in stay else -math.inf for e, v in enumerate(value)]
    ids = best_of(value, case["k"])
    weights = [math.exp(row[e] - top) if case["softmax_after"] else score[e] for e in ids]
    return ids, [w / sum(weights) for w in weights]


def torch_route(torch, case, cold):
    if case["given"] or case["score"] == "sqrtsoftplus":
        return  # torch has no counterpart
    tokens, experts, kind = case["tokens"], case["experts"], torch_type(torch, case)
    n = sets_of(tokens * experts * torch.empty(0, dtype=kind).element_size(), cold)
    x = [(1.5 * torch.randn(tokens, experts)).to(kind) for _ in range(n)]
    bias = 0.1 * torch.rand(experts) if case["bias"] else torch.zeros(experts)
    score, total = torch.ones(tokens, experts), torch.ones(tokens, 1)
    select, select_out = torch_select(torch, case, bias)
    best, ids = torch.ones(tokens, case["k"], dtype=kind), torch.ones(tokens, case["k"], dtype=torch.int64)
    share = torch.ones(tokens, case["k"])

    def as_called(i):
        if case["softmax_after"]:
            values, chosen = x[i % n].topk(case["k"])
            return values.softmax(-1, dtype=torch.float32), chosen
        logits = x[i % n].float()
        weights, chosen = select(logits.softmax(-1) if case["score"] == "softmax" else logits.sigmoid())
        return weights / weights.sum(-1, keepdim=True), chosen

    def out(i):
        if case["softmax_after"]:
            torch.topk(x[i % n], case["k"], out=(best, ids))
            return torch.softmax(best, -1, dtype=torch.float32, out=share), ids
        if case["score"] == "softmax":
            torch.softmax(x[i % n], -1, dtype=torch.float32, out=score)
        else:
            torch.sigmoid(score.copy_(x[i % n]), out=score)
        weights, chosen = select_out(score)
        return weights.div_(torch.sum(weights, -1, keepdim=True, out=total)), chosen

    def check(result):
        for row, weights, chosen in zip(x[0][:16].tolist(), result[0].tolist(), result[1].tolist()):
            want_ids, want = routed(case, row, bias.tolist())
            right(max(abs(a - b) for a, b in zip(weights, want)) < 1e-5)
            right(all(a == b or abs(row[a] - row[b]) < 1e-2 for a, b in zip(chosen, want_ids)))

    groups = "sigmoid, topk of groups, topk" if case["groups"] > 0 else "softmax, topk"
    yield "topk, softmax" if case["softmax_after"] else groups, as_called, out, check


def torch_logits(torch, case, cold):
    """Logits like a language model's, or N(0,1); a few rows are generated, the other sets are rotated copies."""
    shape, kind = (case["batch"], case["vocab"]), torch_type(torch, case)
    first = torch.randn(shape)
    if not case["flat"]:
        peaks = 20 - 1.5 * torch.log1p(torch.arange(200.0))
        places = torch.randint(case["vocab"], (case["batch"], len(peaks)))
        first = first.mul_(2.5).scatter_(1, places, peaks.expand(case["batch"], -1))
    first = first.to(kind)
    n = sets_of(first.numel() * first.element_size(), cold)
    return [first] + [first.roll(977 * i, 1) for i in range(1, n)]


def is_candidate(case, logits):
    """A check that every token has at least the logit of the last candidate."""
    last = 1 if case["noise"] == "greedy" else case["top_k"] or case["vocab"]

    def check(result):
        picked = logits.gather(1, result.long().view(-1, 1)).float().view(-1).tolist()
        for row, value in zip(logits[:2].float().tolist(), picked):
            right(value >= sorted(row, reverse=True)[last - 1])

    return check


def torch_race(torch, probs, out=None):
    """One token per row with its probability: the largest of prob / exponential noise."""
    noise = torch.empty_like(probs) if out is None else out
    return probs.div_(noise.exponential_()).argmax(-1, keepdim=True)


def torch_top_k(torch, case, x):
    """topk, then softmax, top-p and the race among the k."""
    batch, n, k, p = case["batch"], len(x), case["top_k"], case["top_p"]
    values, ids = torch.ones(batch, k, dtype=x[0].dtype), torch.ones(batch, k, dtype=torch.int64)
    probs, sums, noise = (torch.ones(batch, k) for _ in range(3))
    token = torch.ones(batch, 1, dtype=torch.int64)

    def as_called(i):
        best, where = x[i % n].topk(k)
        share = best.float().softmax(-1)
        if p > 0:
            share.masked_fill_(share.cumsum(-1) - share >= p, 0)
        return where.gather(1, torch_race(torch, share))

    def out(i):
        torch.topk(x[i % n], k, out=(values, ids))
        torch.softmax(values, -1, dtype=torch.float32, out=probs)
        if p > 0:
            torch.cumsum(probs, -1, out=sums)
            probs.masked_fill_(sums.sub_(probs) >= p, 0)
        return torch.gather(ids, 1, torch_race(torch, probs, noise), out=token)

    return "topk path", as_called, out


def torch_sort(torch, case, x):
    """Everything sorted, both cuts as masks, scattered back, and the race over the whole vocabulary."""
    n, k, p, vocab = len(x), case["top_k"], case["top_p"], case["vocab"]
    wide, values, probs, noise = (torch.ones(case["batch"], vocab) for _ in range(4))
    ids = torch.ones(case["batch"], vocab, dtype=torch.int64)

    def cut(ordered, share):
        if k > 0:
            ordered.masked_fill_(ordered < ordered[:, vocab - k, None], -torch.inf)
        if p > 0:
            low = torch.cumsum(torch.softmax(ordered, -1, out=share), -1, out=share) <= 1 - p
            low[:, -1] = False
            ordered.masked_fill_(low, -torch.inf)

    def as_called(i):
        ordered, where = x[i % n].float().sort(-1)
        cut(ordered, torch.empty_like(ordered))
        kept = torch.empty_like(ordered).scatter_(1, where, ordered)
        return torch_race(torch, kept.softmax(-1))

    def out(i):
        wide.copy_(x[i % n])
        torch.sort(wide, -1, out=(values, ids))
        cut(values, probs)
        wide.scatter_(1, ids, values)
        return torch_race(torch, torch.softmax(wide, -1, out=probs), noise)

    return "full sort path", as_called, out


def torch_sample(torch, case, cold):
    if case["noise"] == "q" or case["masked"]:  # the same forms with other inputs: not timed again
        return
    x = torch_logits(torch, case, cold)
    n, k, check = len(x), case["top_k"], is_candidate(case, x[0])
    token = torch.ones(case["batch"], dtype=torch.int64)
    probs, noise = (torch.ones(case["batch"], case["vocab"]) for _ in range(2))
    if case["noise"] == "greedy":
        yield "argmax", lambda i: x[i % n].argmax(-1), lambda i: torch.argmax(x[i % n], -1, out=token), check
        return
    if k > 0:
        yield (*torch_top_k(torch, case, x), check)
    if case["top_p"] > 0:
        yield (*torch_sort(torch, case, x), check)
    if k == 0 and case["top_p"] == 0:
        yield ("softmax path",
               lambda i: torch_race(torch, x[i % n].float().softmax(-1)),
               lambda i: torch_race(torch, torch.softmax(x[i % n], -1, dtype=torch.float32, out=probs), noise), check)


# ---- FlashInfer, on a CUDA device ----


def flashinfer_sample(flashinfer, case, cold):
    """Its draws differ from ours: checked is that every token is a candidate, as for PyTorch."""
    torch = importlib.import_module("torch")
    x, k, p = torch_logits(torch, case, cold), case["top_k"], case["top_p"]
    n, draw, check = len(x), flashinfer.sampling, is_candidate(case, x[0])
    if case["noise"] != "draw" or case["masked"]:
        return
    if k > 0:
        yield "from logits", lambda i: draw.top_k_top_p_sampling_from_logits(x[i % n], k, p or 1.0), None, check
    elif p > 0:
        yield ("softmax, top-p", lambda i: draw.top_p_sampling_from_probs(draw.softmax(x[i % n].float()), p), None, check)
    else:
        yield "from logits", lambda i: draw.sampling_from_logits(x[i % n]), None, check


# ---- NumPy, on one thread ----


def numpy_rows(numpy, rows, elements, n):
    """16-bit rows as bare bits: they are only moved."""
    make = numpy.random.default_rng(11)
    return [make.integers(0, 65536, (rows, elements), numpy.uint16) for _ in range(n)]


def numpy_permute(numpy, case, cold):
    tokens, experts, hidden = case["tokens"], case["experts"], case["hidden"]
    routes = routing(tokens, experts, case["k"])
    order = grouped(routes, experts)
    routing_map = numpy.zeros((tokens, experts), bool)
    numpy.put_along_axis(routing_map, numpy.array(routes), True, 1)
    probs = numpy.random.default_rng(1).random((tokens, experts), numpy.float32)
    want_probs = probs.T[routing_map.T]
    n = sets_of(2 * hidden * (tokens + len(order)), cold)
    x, y = numpy_rows(numpy, tokens, hidden, n), numpy_rows(numpy, len(order), hidden, n)

    def as_called(i):
        chosen = numpy.nonzero(routing_map.T)
        return x[i % n].take(chosen[1], 0), probs.T[chosen]

    def out(i):  # the mode without an intermediate buffer
        chosen = numpy.nonzero(routing_map.T)
        return numpy.take(x[i % n], chosen[1], 0, out=y[i % n], mode="clip"), probs.T[chosen]

    def check(result):
        right(numpy.array_equal(result[0], x[0][order]) and numpy.array_equal(result[1], want_probs))

    yield "nonzero, take", as_called, out, check


def numpy_gather(numpy, case, cold):
    table, positions, rows = paged_turns(case, cold, numpy.array)
    elements, block, n = case["row_elements"], case["block"], len(positions)
    cache = numpy_rows(numpy, case["sequences"] * case["tokens"], elements, 1)[0]
    y = numpy_rows(numpy, len(rows), elements, n)

    def row_ids(i):
        at = positions[i % n]
        return (numpy.take_along_axis(table, at // block, 1) * block + at % block).reshape(-1)

    def check(result):
        right(numpy.array_equal(result, cache[rows]))

    yield ("take_along_axis, take", lambda i: cache.take(row_ids(i), 0),
           lambda i: numpy.take(cache, row_ids(i), 0, out=y[i % n], mode="clip"), check)


def numpy_sample(numpy, case, cold):
    if case["noise"] != "greedy" or case["dtype"] != "f32" or case["masked"]:
        return
    shape = (case["batch"], case["vocab"])
    n = sets_of(4 * shape[0] * shape[1], cold)
    first = numpy.random.default_rng(1).standard_normal(shape, numpy.float32)
    x = [numpy.roll(first, 977 * i, 1) for i in range(n)]
    token = numpy.empty(shape[0], numpy.int64)

    def check(result):
        right([row[t] == max(row) for row, t in zip(x[0].tolist(), result.tolist())] == [True] * shape[0])

    yield "argmax", lambda i: x[i % n].argmax(-1), lambda i: numpy.argmax(x[i % n], -1, out=token), check


# ---- The whole ----

# Module, the devices it is timed on, a maker of forms by operator. PyTorch is first: the others on CUDA use its tensors.
PEERS = {
    "pytorch": ("torch", ("cpu", "cuda"),
                {"moe_permute": torch_permute, "moe_dispatch": torch_dispatch, "kv_gather": torch_gather,
                 "moe_route": torch_route, "sample": torch_sample}),
    "flashinfer": ("flashinfer", ("cuda",), {"sample": flashinfer_sample}),
    "numpy": ("numpy", ("cpu",), {"moe_permute": numpy_permute, "kv_gather": numpy_gather, "sample": numpy_sample}),
}


def load(name, threads):
    try:
        module = importlib.import_module(name)
    except Exception:  # a broken installation is a missing one
        return None
    if name == "torch":
        module.set_num_threads(threads)
        module.manual_seed(1)
    return module


def time_forms(forms, quick, there):
    for label, as_called, out, check in forms:
        for suffix, call in ((", out=", out), (", as called", as_called)):
            if call is None:
                continue
            check(call(0))
            if there:
                median, spread, turns, graph = measure_there(there, call, quick)
                suffix += "" if graph else ", no graph"
            else:
                median, spread, turns = measure(call, quick)
            yield {"form": label + suffix, "seconds": median, "spread": spread, "turns": turns}


def main():
    request = json.load(sys.stdin)
    answer = {"peers": [], "results": [], "trouble": []}
    makers = []
    there, torch = request.get("device", "cpu"), None
    for peer, (module_name, places, by_op) in PEERS.items():
        if there.split(":")[0] not in places:
            continue
        module = load(module_name, request["threads"])
        answer["peers"].append({"name": peer, "version": str(module.__version__) if module else None})
        if module_name == "torch" and module and there != "cpu":
            if not module.cuda.is_available():
                answer["trouble"].append(f"{peer}: it has no CUDA device, left out")
                break
            module.set_default_device(there)
            torch = module
        if module and request["op"] in by_op:
            makers.append((peer, module, by_op[request["op"]]))
    for index, case in enumerate(case_of(request["op"], shape) for shape in request["cases"]):
        for peer, module, maker in makers:
            try:
                forms = maker(module, case, request["cold_bytes"])
                for result in time_forms(forms, request["quick"], torch):
                    answer["results"].append({"case": index, "peer": peer, **result})
            except Wrong:
                answer["trouble"].append(f"{peer}: {case['shape']}: its result is wrong, left out")
            except (MemoryError, RuntimeError) as error:
                reason = (str(error) or type(error).__name__).splitlines()[0]
                answer["trouble"].append(f"{peer}: {case['shape']}: {reason}, left out")
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
