"""compat.torch_npu: the calls of tests/compat/aclnn.txt through torch_npu's functions, gradients, and rejections."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import switchyard  # noqa: E402
from switchyard.compat import torch_npu as npu  # noqa: E402

TESTS = Path(__file__).parents[3] / "tests"
sys.path.insert(0, str(TESTS / "examples"))
import read  # noqa: E402

MAP = [[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]]


def of(*numbers: int) -> Any:
    return torch.tensor(numbers, dtype=torch.int32)


# ---- Calls of the table ----

TYPES = {"i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool, "f16": torch.float16}
TYPES |= {"bf16": torch.bfloat16, "f32": torch.float32}


def tensor_of(field: Any, alternative: int, old: bytes | None = None) -> Any:
    """Its elements, over what ``old`` holds."""
    data = bytearray(field.bytes(alternative, old))
    kind = TYPES[field.type(alternative)]
    return torch.frombuffer(data, dtype=kind).reshape(field.shape) if data else torch.empty(field.shape, dtype=kind)


class Call:
    """A case, or a row that changes it: tensors by name, None for those it has not, numbers, and expected outputs."""

    def __init__(self, case: Any, alternative: int) -> None:
        op, *numbers = case.fields[False, "op"].words
        self.op = op.split("|")[alternative if "|" in op else 0]
        self.numbers = dict(word.split("=") for word in numbers)
        self.fields = {key: field for key, field in case.fields.items() if key[1] != "op"}
        self.alternative = alternative

    def change(self, text: str) -> bool:
        """Whether it can be said in Python: memory and types of outputs are made by the call here."""
        word, *rest = text.split()
        if word == "no":
            for key in ((False, rest[0]), (True, rest[0])):
                self.fields.pop(key, None)
            self.numbers.pop(rest[0], None)
            return True
        out = word == "->"
        name, *rest = rest if out else [word, *rest]
        old = self.fields.get((out, name)) or self.fields.get((not out, name))
        if old is None and rest[0] == "=":
            self.numbers[name] = rest[1]
            return True
        kind = rest.pop(0) if rest[0] in TYPES else old.type(0)
        shape = rest.pop(0) if rest and rest[0] != "=" else ",".join(map(str, old.shape))
        if not shape[0].isdigit() or (rest[:1] != ["="] and "0" not in shape.split(",")):
            return False
        values = " ".join(rest[1:] if rest[:1] == ["="] else [])
        out = out or ((True, name) in self.fields and (False, name) not in self.fields)
        made = self.fields[out, name] = read.Field(f"{'-> ' if out else ''}{name} {kind} {shape}: {values}", text)
        if (not out, name) in self.fields:  # a tensor that is read and written has one shape
            other = self.fields[not out, name] = copy.copy(self.fields[not out, name])
            other.types, other.shape = made.types, made.shape
        return True

    def elsewhere(self) -> Any:
        """Lists of candidates, experts of any number, arrays of scatter, gradients that aclnn leaves out."""
        grads = self.op == "permute_grad" and self.fields[False, "rows"].count() == 0
        return grads or self.number("lists") or self.number("array") or self.numbers.get("experts") == "0"

    def given(self) -> Any:
        tensors = dict.fromkeys(OPS[self.op][0].split())
        for (out, name), field in self.fields.items():
            if not out:
                tensors[name] = tensor_of(field, self.alternative)
        for (out, name), field in self.fields.items():
            if out and name not in tensors:  # memory that a call writes to
                blank = copy.copy(field)
                blank.words = [f"{field.count()}*_"]
                tensors[name] = tensor_of(blank, self.alternative)
        return SimpleNamespace(**tensors)

    def number(self, name: str, default: int = 0) -> int:
        return int(self.numbers.get(name, default))

    def numbers_of(self, name: str) -> list[int]:
        return [int(one) for one in self.numbers[name].split(",")] if name in self.numbers else []

    def expect(self, made: dict[str, Any]) -> None:
        for (out, name), field in self.fields.items():
            if not out:
                continue
            got = made.get(name)
            if all(word.endswith("_") for word in field.words):  # not written, or of no elements
                assert got is None or got.numel() == 0, name
                continue
            old = self.fields.get((False, name))
            want = tensor_of(field, self.alternative, None if old is None else old.bytes(self.alternative))
            got = got.to(want.dtype) if not want.is_floating_point() else got  # int64 where aclnn has int32
            assert (got.dtype, got.shape) == (want.dtype, want.shape), name
            bits = [one.contiguous().flatten().view(torch.uint8) for one in (got, want)]
            assert torch.equal(*bits), name


def unpermute(c: Call, t: Any) -> Any:
    shape = c.numbers_of("restore") or [t.probs.shape[0], t.rows.shape[1]]
    options = {"probs": t.probs, "routing_map": t.map, "drop_and_pad": bool(c.number("pad"))}
    made = npu._npu_moe_token_unpermute_with_routing_map(t.rows, t.index, shape, **options)
    assert torch.equal(npu.npu_moe_token_unpermute_with_routing_map(t.rows, t.index, shape, **options), made[0])
    return made


def init(c: Call, t: Any) -> Any:
    flag = c.number("flag", 2 if c.op == "init_v2" else 1)
    kind = c.number("kind", 1) if c.op == "init_v3" else int(flag == 2 or c.number("drop_pad"))
    made = npu.npu_moe_init_routing_v2(
        t.x,
        t.ids,
        scale=t.scale,
        active_num=c.number("active", -1),
        expert_num=c.number("experts", 4 if c.op == "init_v2" else 6),
        expert_capacity=c.number("capacity", -1),
        drop_pad_mode=c.number("drop_pad"),
        expert_tokens_num_type=kind,
        expert_tokens_num_flag=flag > 0,
        active_expert_range=c.numbers_of("range"),
        row_idx_type=c.number("row_type"),
    )
    return (*made, made[2])


def sample(c: Call, t: Any) -> Any:
    k, p, min_p = (None if one is None else one.flatten() for one in (t.k, t.p, t.min_p))
    options = {"ks_max": c.number("ks_max", 1024), "input_is_logits": bool(c.number("logits_in", 1))}
    token, masked = npu.npu_top_k_top_p_sample(
        t.logits, k, p, t.q, is_need_logits=bool(c.number("need")), min_ps=min_p, **options
    )
    return token.reshape(next(f.shape for (out, name), f in c.fields.items() if name == "token")), masked


def in_place(call: Any, functional: Any, given: Any, written: Any, last: Any, **options: Any) -> Any:
    """Both forms of a call that writes to tensors; the second leaves them as they are."""
    before = [one.clone() for one in written]
    made = functional(*given, *written, *last, **options)
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(before, written, strict=True))
    assert call(*given, *written, *last, **options) is None
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(made, written, strict=True))
    return written


# Inputs, outputs in the order of the results, and the call.
OPS: dict[str, tuple[str, str, Any]] = {
    "permute": ("tokens map probs", "out probs_out index", lambda c, t: npu.npu_moe_token_permute_with_routing_map(
        t.tokens, t.map, probs=t.probs, num_out_tokens=c.number("n"), drop_and_pad=bool(c.number("pad")))),
    "unpermute": ("rows index map probs", "out out_index token_id kept", unpermute),
    "permute_grad": ("rows probs index map", "out probs_out", lambda c, t:
        npu.npu_moe_token_permute_with_routing_map_grad(
            t.rows, t.probs, t.index, t.map, c.number("experts"), c.number("tokens"), bool(c.number("pad")))),
    "unpermute_grad": ("tokens out_index token_id map rows probs", "out probs_out", lambda c, t:
        npu.npu_moe_token_unpermute_with_routing_map_grad(
            t.tokens, t.out_index, t.token_id, t.map, t.rows, t.probs, bool(c.number("pad")), t.tokens.shape)),
    "permute_ids": ("tokens ids", "out index", lambda c, t: npu.npu_moe_token_permute(
        t.tokens, t.ids, c.number("n") or None)),
    "unpermute_ids": ("rows index probs", "out", lambda c, t: [npu.npu_moe_token_unpermute(t.rows, t.index, t.probs)]),
    "permute_ids_grad": ("rows index", "out", lambda c, t: [npu.npu_moe_token_permute_grad(
        torch.empty(t.index.numel() // c.number("k", 2), 2), t.rows, None, t.index)]),
    "unpermute_ids_grad": ("rows grad index probs", "out probs_out", lambda c, t: npu.npu_moe_token_unpermute_grad(
        t.grad if t.rows is None else t.rows, t.grad, t.index, t.probs)),
    "gating": ("logits bias", "weights ids scores", lambda c, t: npu.npu_moe_gating_top_k(
        t.logits, 2, bias=t.bias, k_group=1, group_count=c.number("groups", 1), group_select_mode=c.number("select"),
        norm_type=c.number("norm"), out_flag=bool(c.number("all", 1)), eps=0.0,
        routed_scaling_factor=float(c.numbers.get("scale", 2)))),
    "softmax": ("logits finished", "weights ids scores", lambda c, t: npu.npu_moe_gating_top_k_softmax_v2(
        t.logits, k=2, finished=t.finished, renorm=c.number("renorm"), output_softmax=True)),
    "init_v2": ("x ids scale", "rows at counts scales before", init),
    "init_v3": ("x ids scale", "rows at counts scales before", init),
    "finalize": ("rows index x1 x2 bias scales experts", "out", lambda c, t: [npu.npu_moe_finalize_routing(
        t.rows, t.x1, t.x2, t.bias, t.scales, t.index, t.experts, c.number("mode"))]),
    "re_routing": ("tokens counts scales", "out out_scales source totals", lambda c, t: npu.npu_moe_re_routing(
        t.tokens, t.counts, per_token_scales=t.scales)),
    "sample": ("logits k p q min_p", "token masked", sample),
    "sample_v2": ("logits k p q min_p", "token masked", sample),
    "scatter": ("key slots value", "key_cache value_cache", lambda c, t: in_place(
        npu.npu_scatter_pa_kv_cache, npu.npu_scatter_pa_kv_cache_functional, (t.key, t.value),
        (t.key_cache, t.value_cache), (t.slots,), cache_mode=c.numbers.get("mode"))),
    "gather": ("key_cache value_cache table lengths offsets", "key value", lambda c, t: in_place(
        npu.npu_gather_pa_kv_cache, npu.npu_gather_pa_kv_cache_functional,
        (t.key_cache, t.value_cache, t.table, t.lengths), (t.key, t.value), (), seq_offset=t.offsets,
        is_seq_lens_cumsum=bool(c.number("summed")), cache_mode=c.numbers.get("mode", "Norm"))),
}  # fmt: skip


def calls() -> Any:
    for case in read.read(str(TESTS / "compat" / "aclnn.txt")):
        made = [(str(alternative), Call(case, alternative)) for alternative in range(case.alternatives())]
        for row in (row for line in case.rows if line.startswith("with ") for row in line[5:].split(" | ")):
            call = Call(case, 0)
            if all([call.change(text) for text in row.split(" & ")]):
                made.append((row, call))
        for name, call in made:
            if call.op in OPS and not call.elsewhere():
                yield pytest.param(call, id=f"{case.name}: {name}")


@pytest.mark.parametrize("call", list(calls()))
def test_table(call: Call) -> None:
    _, outputs, run = OPS[call.op]
    call.expect(dict(zip(outputs.split(), run(call, call.given()), strict=False)))


# ---- Gradients ----


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_unpermute_of_a_layer(padded: bool, weighted: bool) -> None:
    draw = torch.Generator().manual_seed(5)
    routing_map = torch.tensor(MAP, dtype=torch.bool)
    slots = npu.npu_moe_token_permute_with_routing_map(
        torch.zeros(4, 6), routing_map, num_out_tokens=6 if padded else 8, drop_and_pad=padded
    )[2]
    rows = torch.randn((slots.shape[0], 6), generator=draw).requires_grad_()
    probs = torch.rand((4, 3), generator=draw).requires_grad_() if weighted else None
    grad = torch.randn((4, 6), generator=draw)
    both = (rows, probs) if weighted else (rows,)
    options = {"probs": probs, "routing_map": routing_map if weighted else None, "drop_and_pad": padded}
    kept = npu._npu_moe_token_unpermute_with_routing_map(rows, slots, [4, 6], **options)
    want = npu.npu_moe_token_unpermute_with_routing_map(rows, slots, [4, 6], **options)
    of_want = torch.autograd.grad(want, both, grad)
    of_kept = torch.autograd.grad(kept[0], both, grad)
    saved = (kept[1], kept[2], options["routing_map"], rows, probs)  # as a layer with a backward pass of its own does
    by_hand = npu.npu_moe_token_unpermute_with_routing_map_grad(grad, *saved, padded, [4, 6])
    assert torch.equal(kept[0], want)
    for got in (of_kept, by_hand):
        assert all(torch.equal(a, b) for a, b in zip(got, of_want, strict=False))
    assert not any(made is not None and made.requires_grad for made in kept[1:])
    assert (kept[3] is not None) == weighted


def test_gradients_by_routing_maps() -> None:
    tokens = torch.tensor([[10.0, 11], [20, 21], [30, 31], [40, 41]], requires_grad=True)
    routing_map = torch.tensor(MAP, dtype=torch.int8)
    probs = torch.tensor(MAP).float().mul(0.25).requires_grad_()
    rows, _, slots = npu.npu_moe_token_permute_with_routing_map(tokens, routing_map, probs=probs, num_out_tokens=8)
    options = {"probs": probs, "routing_map": routing_map}
    npu.npu_moe_token_unpermute_with_routing_map(rows, slots, tokens.shape, **options).sum().backward()
    assert tokens.grad.tolist() == [[0.5, 0.5]] * 4
    assert probs.grad[0].tolist() == [21, 0, 21]


@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("kept", [None, 7, -2, 1000])
def test_gradients_by_expert_numbers(choices: int, kept: int | None) -> None:
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randn((9, 4), generator=draw).requires_grad_()
    indices = torch.randint(0, 5, (9, choices), generator=draw)
    rows, slots = npu.npu_moe_token_permute(tokens, indices, kept)
    order = indices.flatten().argsort(stable=True)[: rows.shape[0]] // choices
    assert torch.equal(rows, tokens[order])
    grad = torch.randn(rows.shape, generator=draw)
    rows.backward(grad)
    want = torch.zeros(9, 4).index_add(0, order, grad)
    np.testing.assert_allclose(tokens.grad, want, rtol=1e-6, atol=1e-6)  # another order of additions
    assert torch.equal(npu.npu_moe_token_permute_grad(tokens.detach(), grad, indices, slots), tokens.grad)
    rows = rows.detach().requires_grad_()
    probs = torch.rand((9, choices), generator=draw).requires_grad_()
    back = npu.npu_moe_token_unpermute(rows, slots, probs=probs)
    both = torch.autograd.grad(back, (rows, probs), torch.ones_like(back))
    made = npu.npu_moe_token_unpermute_grad(rows, torch.ones_like(back), slots, probs)
    assert all(torch.equal(a, b) for a, b in zip(made, both, strict=True))


def test_gradients_of_a_layer() -> None:
    """Through init, re-routing of one rank, and finalize with every input."""
    x, skip = torch.rand((4, 3)).requires_grad_(), torch.rand((4, 3)).requires_grad_()
    scales, bias = torch.rand((4, 2)).requires_grad_(), torch.rand((3, 3)).requires_grad_()
    ids = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1]], dtype=torch.int32)
    options = {"expert_num": 3, "expert_tokens_num_type": 1, "expert_tokens_num_flag": True}
    rows, at, counts, _ = npu.npu_moe_init_routing_v2(x, ids, **options)
    rows = npu.npu_moe_re_routing(rows, counts[None])[0]
    out = npu.npu_moe_finalize_routing(rows, skip, None, bias, scales, at, ids, 2)
    want = skip + (scales[..., None] * (x[:, None] + bias[ids.long()])).sum(1)
    both = [torch.autograd.grad(made, (x, skip, scales, bias), torch.ones(4, 3)) for made in (out, want)]
    for got, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)  # torch adds in another order


# ---- What the table does not have ----


def test_defaults() -> None:
    tokens, ids = torch.eye(3), of(0, 1, 2).reshape(3, 1)
    rows, weights, slots = npu.npu_moe_token_permute_with_routing_map(tokens, torch.eye(3, dtype=torch.bool))
    assert weights is None
    assert torch.equal(rows, tokens)
    assert slots.tolist() == [0, 1, 2]
    _, _, counts, scales = npu.npu_moe_init_routing_v2(tokens, ids, expert_num=3)
    assert counts.numel() == scales.numel() == 0
    counts = npu.npu_moe_init_routing_v2(tokens, ids, expert_num=3, expert_tokens_num_flag=True)[2]
    assert counts.tolist() == [1, 2, 3]
    assert npu.npu_moe_gating_top_k(tokens, 1, k_group=1)[2].numel() == 0
    assert npu.npu_moe_re_routing(tokens, torch.ones(1, 3, dtype=torch.int32), tokens_dtype=290)[1].numel() == 0


@pytest.mark.parametrize("capacity", [0, 3])
def test_init_routing_of_nothing(capacity: int) -> None:
    x, ids = torch.zeros(0, 5, dtype=torch.uint8), torch.zeros(0, 2, dtype=torch.int32)
    options = {"expert_capacity": capacity, "drop_pad_mode": int(capacity > 0), "expert_tokens_num_type": 1}
    rows, at, counts, _ = npu.npu_moe_init_routing_v2(
        x, ids, expert_num=4, expert_tokens_num_flag=True, x_dtype=290, **options
    )
    assert rows.shape == ((4, 3, 5) if capacity else (0, 5))
    assert not rows.any()
    assert (at.shape, counts.tolist(), counts.dtype) == ((0,), [0] * 4, torch.int64)


def test_init_routing_scales_with_capacity() -> None:
    ids, scale = torch.tensor([[1, 0], [1, 2], [1, 0]], dtype=torch.int32), torch.tensor([0.1, 0.2, 0.3])
    options = {"expert_capacity": 2, "drop_pad_mode": 1, "expert_tokens_num_type": 1}
    scales = npu.npu_moe_init_routing_v2(torch.ones(3, 1), ids, scale=scale, expert_num=4, **options)[3]
    np.testing.assert_array_equal(scales, np.float32([0.1, 0.3, 0.1, 0.2, 0.2, 0, 0, 0]))


def test_gating_equals_the_library() -> None:
    """With the numbers that the table leaves at their defaults."""
    x = torch.randn((20, 32), generator=torch.Generator().manual_seed(11))
    options = {"k_group": 2, "group_count": 4, "norm_type": 1, "eps": 0.25, "routed_scaling_factor": 2.5}
    made = npu.npu_moe_gating_top_k(x, 6, out_flag=True, **options)
    groups = {"groups": 4, "top_groups": 2, "score": "sigmoid", "scores": True}
    want = switchyard.moe_route(x, k=6, **groups, renormalize=True, eps=0.25, scale=2.5)
    for got, wanted in zip(made, (want.weights, want.ids, want.scores), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("shape", [(10, 12), (2, 5, 12)])
def test_gating_by_softmax(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(4))
    finished = torch.arange(10).reshape(shape[:-1]) % 3 == 0
    want = switchyard.moe_route(x.reshape(10, 12), k=3, scores=True)
    ids_of_rows = torch.where(finished.reshape(10, 1), 12, want.ids).reshape(*shape[:-1], 3)
    y, ids, columns = npu.npu_moe_gating_top_k_softmax(x, finished, 3)
    assert torch.equal(y, want.weights.reshape(ids.shape))
    assert torch.equal(ids, ids_of_rows)
    assert columns.reshape(10, 3).tolist() == [[t, 10 + t, 20 + t] for t in range(10)]
    assert columns.shape == ids.shape
    *_, scores = npu.npu_moe_gating_top_k_softmax_v2(x, k=3, finished=finished, output_softmax=True)
    assert torch.equal(scores, want.scores.reshape(shape))
    after, ids, nothing = npu.npu_moe_gating_top_k_softmax_v2(x, k=3, renorm=1, output_softmax=True)
    want = switchyard.moe_route(x.reshape(10, 12), k=3, softmax_after=True)
    assert torch.equal(after, want.weights.reshape(ids.shape))
    assert nothing.numel() == 0


def drawn() -> Any:
    draw = np.random.default_rng(3)
    logits = torch.from_numpy(draw.standard_normal((5, 40)).astype(np.float32)).half()
    top_k, top_p = of(3, 0, 40, 7, 1), torch.tensor([0.9, 0.5, 1, 0.2, 0.9]).half()
    return logits, top_k, top_p, torch.from_numpy(draw.exponential(size=(5, 40)).astype(np.float32))


@pytest.mark.parametrize("ks_max", [1024, 2, 13, 5000])
def test_sample_equals_the_library(ks_max: int) -> None:
    logits, top_k, top_p, q = drawn()
    made = npu.npu_top_k_top_p_sample(logits, top_k, top_p, q, 0.5, True, ks_max=ks_max)
    limit = {1024: 1024, 2: 8, 13: 16, 5000: 1024}[ks_max]
    options = {"k_limit": limit, "empty_token": 0, "masked_logits": True}
    want = switchyard.sample(logits, top_k, top_p, q=q, eps=0.5, **options)
    assert torch.equal(made[0], want.token)
    assert torch.equal(made[1], want.masked_logits)
    for post_sample in ("qSample", "None"):  # without q: the most likely
        token, kept = npu.npu_top_k_top_p_sample(
            logits, top_k, top_p, is_need_logits=True, post_sample=post_sample, ks_max=ks_max
        )
        assert torch.equal(token, logits.argmax(dim=1))
        assert torch.equal(kept, want.masked_logits)


def test_sample_by_a_generator() -> None:
    logits, top_k, top_p, _ = drawn()
    logits[4] = -float("inf")
    min_ps = torch.full((5,), 0.05).half()
    listed = switchyard.sample(logits, top_k, top_p, min_ps, k_limit=1024, empty_token=0, candidates=True)
    weights = listed.list_prob.clone()
    assert not weights[4].any()
    weights[4, 0] = 1
    seen = set()
    for seed in range(30):
        token, again = (
            npu.npu_top_k_top_p_sample(
                logits, top_k, top_p, min_ps=min_ps, post_sample="multiNomial",
                generator=torch.Generator().manual_seed(seed),
            )[0]
            for _ in range(2)
        )  # fmt: skip
        assert torch.equal(token, again)
        picked = torch.multinomial(weights, 1, True, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(token, listed.list_token.gather(1, picked)[:, 0])
        assert token[4] == 0
        seen.add(tuple(token.tolist()))
    assert len(seen) > 5


@pytest.mark.parametrize("mode", ["Norm", "PA_NZ"])
def test_scatter_of_other_rows(mode: str) -> None:
    """Rows that are not contiguous, and none."""
    rows = [torch.randn((4, 2, 16)), torch.randn((4, 2, 32))]
    shapes = [(3, 4, 2, 16), (3, 4, 2, 32)] if mode == "Norm" else [(3, 4, 4, 8), (3, 8, 4, 8)]
    want = [torch.zeros(shape) for shape in shapes]
    made = [torch.zeros(shape) for shape in shapes]
    npu.npu_scatter_pa_kv_cache(*rows, *want, of(7, -1, 0, 10), cache_mode=mode)
    turned = [source.transpose(1, 2).contiguous().transpose(1, 2) for source in rows]
    npu.npu_scatter_pa_kv_cache(*turned, *made, of(7, -1, 0, 10), cache_mode=mode)
    npu.npu_scatter_pa_kv_cache(*[source[:0] for source in rows], *made, of(), cache_mode=mode)
    assert all(torch.equal(a, b) and a.any() for a, b in zip(made, want, strict=True))


# ---- Rejections ----

X, IDS, EYE, ONE = torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.int64), torch.eye(2), of(0, 1).reshape(2, 1)
CACHE, KEY = torch.zeros(2, 2, 1, 3), torch.zeros(1, 2, 16)
CACHES = {"key_cache": torch.zeros(3, 4, 2, 16), "value_cache": torch.zeros(3, 4, 2, 16)}
ROWS, COUNTS = torch.zeros(7, 2), torch.tensor([[2, 0, 1], [1, 2, 1]], dtype=torch.int32)
INIT, FINALIZE, SCATTER = npu.npu_moe_init_routing_v2, npu.npu_moe_finalize_routing, npu.npu_scatter_pa_kv_cache
PADDED = {"expert_num": 2, "drop_pad_mode": 1, "expert_tokens_num_type": 1}
LOGITS = {"logits": torch.zeros(1, 8).half(), "top_k": of(1), "top_p": torch.ones(1).half()}
SAMPLE, Q = npu.npu_top_k_top_p_sample, torch.ones(1, 8)


@pytest.mark.parametrize(("sentence", "call", "arguments", "options"), [
    ("^npu_moe_gating_top_k: x is i32, want f", npu.npu_moe_gating_top_k, (X.int(), 2), {}),
    ("^npu_moe_gating_top_k: k is 9", npu.npu_moe_gating_top_k, (X, 9), {}),
    ("renorm is 1, want 0", npu.npu_moe_gating_top_k, (X, 2), {"renorm": 1}),
    ("norm_type is 2, want 0 or 1", npu.npu_moe_gating_top_k, (X, 2), {"norm_type": 2}),
    ("group_select_mode is 2, want 0 or 1", npu.npu_moe_gating_top_k, (X, 2), {"group_select_mode": 2}),
    ("input_ids is a Tensor, want None", npu.npu_moe_gating_top_k, (X, 2), {"input_ids": X, "tid2eid": X}),
    ("^npu_moe_gating_top_k_softmax: x is i32", npu.npu_moe_gating_top_k_softmax, (X.int(),), {"k": 2}),
    ("finished has shape", npu.npu_moe_gating_top_k_softmax, (X, torch.ones(1, dtype=torch.bool), 2), {}),
    ("renorm is 2", npu.npu_moe_gating_top_k_softmax_v2, (X,), {"renorm": 2}),
    ("^npu_moe_token_permute: indices is f32", npu.npu_moe_token_permute, (X, IDS.float()), {}),
    ("padded_mode is True, want False", npu.npu_moe_token_permute, (X, IDS), {"padded_mode": True}),
    ("padded_mode is True, want False", npu.npu_moe_token_unpermute, (X, of(0, 1, 2, 3)), {"padded_mode": True}),
    ("padded_mode is True", npu.npu_moe_token_permute_grad, (X, X, IDS, of(0, 1, 2, 3)), {"padded_mode": True}),
    ("padded_mode is True", npu.npu_moe_token_unpermute_grad, (X, X, of(0, 1, 2, 3)), {"padded_mode": True}),
    ("^npu_moe_re_routing: expert_token_num_per_rank is f32", npu.npu_moe_re_routing, (X, torch.ones(2, 2)), {}),
    ("adds up to 6, want the 7 rows of tokens", npu.npu_moe_re_routing, (ROWS, COUNTS - of(1, 0, 0) * ONE), {}),
    ("idx_type is 1, want 0", npu.npu_moe_re_routing, (ROWS, COUNTS), {"idx_type": 1}),
    ("expert_token_num_type is 0", npu.npu_moe_re_routing, (ROWS, COUNTS), {"expert_token_num_type": 0}),
    ("quant_mode is 1, want -1", INIT, (EYE, ONE), {"expert_num": 2, "quant_mode": 1}),
    ("offset is a Tensor", INIT, (EYE, ONE), {"expert_num": 2, "offset": X[0]}),
    ("expert_num is -1, want the number of experts", INIT, (EYE, ONE), {}),
    ("expert_idx has 1 at position 1, want 0 to 0", INIT, (EYE, ONE), {"expert_num": 1}),
    (r"active_expert_range is \[1, 3", INIT, (EYE, ONE), {"expert_num": 2, "active_expert_range": [1, 3]}),
    (r"active_expert_range is \[0, 1, 2", INIT, (EYE, ONE), {"expert_num": 2, "active_expert_range": [0, 1, 2]}),
    (r"active_expert_range is \[1", INIT, (EYE, ONE), {"expert_num": 2, "active_expert_range": [1]}),
    ("scale has shape", INIT, (EYE, ONE), {"expert_num": 2, "scale": torch.ones(1)}),
    ("scale has shape", INIT, (EYE, ONE), {"expert_num": 2, "scale": torch.ones(2, 2)}),
    ("expert_capacity is -1, want 1 or more", INIT, (EYE, ONE), PADDED),
    ("row_idx_type is 1, want 0", INIT, (EYE, ONE), {**PADDED, "row_idx_type": 1}),
    (r"active_expert_range is \[0, 1\], want all", INIT, (EYE, ONE), {**PADDED, "active_expert_range": [0, 1]}),
    ("expanded_src_to_dst_row has 2 at position 1, want -1 to 1", FINALIZE, (EYE, *[None] * 4, of(0, 2), None), {}),
    ("drop_pad_mode is 4", FINALIZE, (EYE, *[None] * 4, of(0, 1), None, 4), {}),
    ("export_for_source_row is None beside bias", FINALIZE, (EYE, None, None, EYE, None, of(0, 1), None), {}),
    ("export_for_source_row has 2 at position 1", FINALIZE, (EYE, None, None, EYE, None, of(0, 1), ONE * 2), {}),
    ("skip1 is torch.float16", FINALIZE, (EYE, EYE.half(), None, None, None, of(0, 1), None), {}),
    ("has 2 entries, want a multiple of the 3", FINALIZE, (EYE, *[None] * 4, of(0, 1), None, 0, 3), {}),
    ("^npu_top_k_top_p_sample: logits is i32", SAMPLE, (X.int(), of(1, 1, 1, 1), X[:, 0]), {}),
    ("q is a Tensor beside post_sample 'None', want None", SAMPLE, (), {**LOGITS, "q": Q, "post_sample": "None"}),
    ("q is a Tensor beside post_sample 'multi", SAMPLE, (), {**LOGITS, "q": Q, "post_sample": "multiNomial"}),
    ("post_sample is 'max', want 'None', 'qSample'", SAMPLE, (), {**LOGITS, "post_sample": "max"}),
    ("^npu_scatter_pa_kv_cache: slot_mapping ", SCATTER, (X[:, None], X[:, None], CACHE, CACHE.clone(), X[:, 0]),
     {"cache_mode": "Norm"}),
    ("cache_mode is 'NZ'", SCATTER, (KEY, KEY), {**CACHES, "slot_mapping": of(0), "cache_mode": "NZ"}),
    ("seq_lens is a Tensor, want None", SCATTER, (KEY, KEY), {**CACHES, "slot_mapping": of(0), "seq_lens": of(1)}),
    ("slot_mapping at position 0 is 12", SCATTER, (KEY, KEY),
     {**CACHES, "slot_mapping": of(12), "cache_mode": "Norm"}),
    ("key has shape", SCATTER, (torch.zeros(1, 1, 15), KEY), {**CACHES, "slot_mapping": of(0)}),
])  # fmt: skip
def test_rejections(sentence: str, call: Any, arguments: Any, options: Any) -> None:
    with pytest.raises(switchyard.Error, match=sentence):
        call(*arguments, **options)
