"""Random calls of sample, sample_verify, sample_overrides and sample_noise against their oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
from harness import Case, Spec, run_property, tallies
from oracle import sample, sample_overrides, sample_verify
from reader import BF16, F16, F32, I32, I64, Array, Dtype, Reader

FLOATS = (F32, F16, BF16)
U32: Dtype = np.dtype(np.uint32)
U64: Dtype = np.dtype(np.uint64)


def per_row(r: Reader, x: Array) -> Array:
    """One number for each row, or one for all, in each of the shapes that say so."""
    return r.pick(x, x[:1], x.reshape(-1, 1)) if len(x) else x


def knob(r: Reader, rows: int, dtype: Any, values: tuple[float, ...]) -> Any:
    """A number for all rows, or arrays of numbers."""
    if not r.chance(50):
        return None
    if r.chance(30):
        return r.pick(*values)
    with np.errstate(all="ignore"):
        table = np.array(values, np.float32).astype(r.pick(F32, dtype))
    return per_row(r, table[r.ints(0, len(table) - 1, (rows,))])


def counter(r: Reader, rows: int, types: tuple[Any, ...]) -> Any:
    if r.chance(30):
        return r.pick(0, 7, r.number64(), 2**63, 2**64 - 1)
    return per_row(r, np.frombuffer(r.take(8 * rows), np.uint64).astype(r.pick(*types)))


def split(given: dict[str, Any]) -> tuple[dict[str, Array | None], dict[str, Any]]:
    """Arrays, which are laid out in memory, and numbers."""
    numbers = {name: x for name, x in given.items() if x is not None and not isinstance(x, np.ndarray)}
    return {name: x for name, x in given.items() if name not in numbers}, numbers


def arrays_of(given: dict[str, Any]) -> dict[str, Any]:
    """A number for all rows is an array of one."""
    found = dict(given)
    for name, x in given.items():
        if isinstance(x, float):
            with np.errstate(all="ignore"):
                found[name] = np.array([x], np.float32)
        elif isinstance(x, int):
            found[name] = np.array([x % 2**64], np.uint64) if name != "top_k" else np.array([x])
    return found


def lists(r: Reader, rows: int, vocab: int, ascending: bool) -> tuple[Array, Array]:
    """Tokens row after row, behind and before some that belong to nobody."""
    counts = r.ints(0, 5, (rows,))
    if ascending:
        counts = np.minimum(counts, vocab)
    first = r.below(3)
    indptr = np.concatenate([[first], first + np.cumsum(counts)]).astype(r.pick(I64, I32))
    token = r.ints(0, vocab - 1, (int(indptr[-1]) + r.below(3),), r.pick(I32, I64))
    if ascending:
        for b in range(rows):
            order = np.argsort(r.ints(0, 255, (vocab,)) if vocab < 200 else r.ints(0, 2**20, (vocab,)), kind="stable")
            token[indptr[b] : indptr[b + 1]] = np.sort(order[: counts[b]])
    if r.chance(5):
        token = r.spoil(token, 100, (-1, vocab, 2**31 - 1, 0))
    elif r.chance(5):
        indptr = r.spoil(indptr, 100, (-1, len(token) + 1, 0, 2**31 - 1))
    return indptr, token


def logits_of(r: Reader, rows: int, vocab: int, probs_in: bool) -> Array:
    dtype = r.pick(*FLOATS)
    kind = r.pick("plain", "ties", "wild", "plain", "bits")
    x = r.floats((rows, vocab), dtype, kind)
    if kind == "plain" and r.chance(60):  # close to each other, so that many tokens weigh something
        with np.errstate(all="ignore"):
            x = (np.clip(x.astype(np.float32), -2000, 2000) / np.float32(64 if probs_in else 4)).astype(dtype)
    if r.chance(5):
        x[r.below(rows) :] = -np.inf
    if probs_in and r.chance(80):
        with np.errstate(all="ignore"):
            x = np.abs(x) / np.asarray(vocab, dtype)
    return x.astype(dtype)


def extras(r: Reader, rows: int, vocab: int, inputs: dict[str, Any]) -> None:
    if r.chance(25):
        words = r.bits((r.pick(rows, 1), -(-vocab // 32)), r.pick(I32, U32))
        inputs["allow_bits"] = words | r.bits(words.shape, words.dtype) if r.chance(60) else words
    if r.chance(30):
        inputs["override_indptr"], inputs["override_token"] = lists(r, rows, vocab, True)
        inputs["override_logit"] = r.floats(inputs["override_token"].shape, F32)


def sample_case(r: Reader) -> Case:
    b = r.below(4)
    v = r.pick(8, 5, 33, 70, 1, 2, 3, 64, 65, 17)
    if r.chance(2):
        b, v = 1, r.pick(300, 1025, 2100)
    probs_in = r.chance(15)
    logits = logits_of(r, b, v, probs_in) if b else np.zeros((0, v), F32)
    noise = r.pick("auto", "none", "q", "race", "cdf")
    given: dict[str, Any] = {
        "logits": logits,
        "top_k": r.pick(
            per_row(r, r.spoil(r.ints(-1, v + 1, (b,), r.pick(I32, I64)), 4)), r.between(-1, v + 1), None, None
        ),
        "top_p": knob(r, b, logits.dtype, (0.5, 0.9, 0.95, 0.1, 1.0, 0.0, -1.0, 1e-30, 0.999999, np.nan, 2.0, 1e-45)),
        "min_p": knob(r, b, logits.dtype, (0.1, 0.5, 0.0, 0.01, -1.0, 1.0, 2.0, np.nan, 0.9, 1e-45)),
        "temperature": knob(
            r, b, logits.dtype, (0.7, 1.0, 2.0, 0.1, 0.0, -1.0, np.nan, np.inf, 1e-5, 9e-6, 100.0, 1e30)
        ),
        "q": r.floats((b, v), F32) if noise == "q" or r.chance(20) else None,
        "seed": counter(r, b, (I64, U64, I32)) if noise in ("race", "cdf") or r.chance(20) else None,
        "offset": counter(r, b, (I64, U64, I32)) if r.chance(30) else None,
        "stream": counter(r, b, (I32, U32, I64, U64)) if r.chance(30) else None,
    }
    extras(r, b, v, given)
    mode = r.pick("none", "raw", "final")
    if r.chance(25):
        given["given_token"] = r.spoil(r.ints(-1, v - 1, (b,), r.pick(I32, I64)), 4, (-2, v))
    scores = r.below(4) if mode != "none" and r.chance(50) else 0
    if scores:
        given["score_token"] = r.spoil(r.ints(-1, v - 1, (b, scores), r.pick(I32, I64)), 4, (-2, v))
    top = r.pick(min(v, 3), 1, v) if mode != "none" and r.chance(50) else 0
    if r.chance(3):
        given["q"] = given["seed"] = None
    fields: dict[str, Any] = {
        "eps": r.pick(0.0, float(np.float32(1e-8)), 1.0),
        "noise": noise,
        "q_order": r.pick("list", "vocab"),
        "ties": r.pick("exact", "exact", "all"),
        "logprob": mode,
        "empty_token": r.pick(-1, 0),
        "k_limit": r.pick(0, 0, 4, 1024),
        "top_k_guess": r.pick(0, -76, 32),
        "probs_in": probs_in,
        "top_logprobs": top,
    }
    if r.chance(2):
        fields |= r.pick({"eps": -1.0}, {"eps": float("nan")}, {"eps": float("inf")}, {"k_limit": -1})
    made, wide = r.chance(40), r.chance(70)
    masked, candidates, rank = r.chance(50), r.chance(50), mode != "none" and r.chance(50)

    def wanted(asked: bool) -> bool:
        return asked if made else wide or r.chance(50)

    outs: dict[str, Spec] = {
        "token": ((b,), I64),
        "kept": ((b,), I32) if wanted(True) else None,
        "row_flags": ((b,), U32) if wanted(True) else None,
        "masked_logits": ((b, v), F32) if wanted(masked) else None,
        "list_token": ((b, v), I64) if wanted(candidates) else None,
        "list_prob": ((b, v), F32) if wanted(candidates) else None,
        "logprob": ((b,), F32) if mode != "none" else None,
        "rank": ((b,), I32) if rank else None,
        "top_token": ((b, top), I64) if top else None,
        "top_logprob": ((b, top), F32) if top else None,
        "score_logprob": ((b, scores), F32) if scores else None,
    }
    inputs, numbers = split(given)
    asked = {"masked_logits": masked, "candidates": candidates, "rank": rank}
    return Case(inputs, numbers | fields, outs, only_out=not made, asked=asked)


def test_sample() -> None:
    def oracle(logprob: str, empty_token: int, **arguments: Any) -> dict[str, Any]:
        fields = {"eps", "noise", "q_order", "ties", "k_limit", "top_k_guess", "probs_in", "top_logprobs"}
        return sample.sample(
            **arrays_of({name: x for name, x in arguments.items() if name not in fields}),
            **{name: x for name, x in arguments.items() if name in fields},
            logprob_mode=logprob,
            empty_token="zero" if empty_token == 0 else "minus_one",
        )

    run_property("sample", oracle, sample_case)


def drafts_of(r: Reader, vocab: int) -> tuple[dict[str, Any], tuple[int, ...], list[int]]:
    """Arrays of drafts, the shape of their rows, and how many each request has."""
    given: dict[str, Any] = {}
    lens = [r.below(5) for _ in range(r.below(4))]
    if r.chance(50):
        lens = lens[:1] * len(lens)
        shape: tuple[int, ...] = (len(lens), lens[0] if lens else 0)
        draft = shape if r.chance(50) or not lens or lens[0] == 0 else (shape[0], shape[1] - 1)
    else:
        draft = shape = (sum(lens) + (r.below(3) if lens else 0),)
        ends = np.concatenate([[0], np.cumsum(lens)]).astype(r.pick(I32, I64))
        given["cu_lens"] = r.spoil(ends, 4, (-1, shape[0] + 1, 1, 2**31 - 1))
    token = r.ints(-1 if r.chance(30) else 0, vocab - 1, draft, r.pick(I32, I64))
    given["draft_token"] = r.spoil(token, 3, (-2, vocab))
    if r.chance(50):
        of = r.ints(0, 9, shape, r.pick(I32, I64))  # those of roots and of no request are not read
        for start, n in zip(np.cumsum([0, *lens]), lens, strict=False):
            for i in range(1, n):
                of.reshape(-1)[start + i] %= i
        given["parent"] = r.spoil(of, 3, (-1, 4))
    return given, shape, lens


def verify_case(r: Reader) -> Case:
    v = r.pick(2, 3, 4, 8, 3, 2, 33, 1)
    drafts, shape, lens = drafts_of(r, v)
    b, n = len(lens), int(np.prod(shape))
    logits = (logits_of(r, n, v, False) if n else np.zeros((0, v), F32)).reshape(*shape, v)
    noise = r.pick("auto", "none", "race", "cdf", "cdf")
    given: dict[str, Any] = {
        "logits": logits,
        **drafts,
        "top_k": r.pick(per_row(r, r.ints(-1, v + 1, (b,), r.pick(I32, I64))), r.between(-1, v + 1), None, None),
        "top_p": knob(r, b, logits.dtype, (0.5, 0.9, 0.1, 1.0, 0.0, np.nan)),
        "min_p": knob(r, b, logits.dtype, (0.1, 0.5, 0.0, 1.0, np.nan)),
        "temperature": knob(r, b, logits.dtype, (0.7, 1.0, 0.0, 2.0, np.nan, 9e-6)),
        "seed": counter(r, b, (I64, U64, I32)) if noise in ("race", "cdf") and not r.chance(3) else None,
        "offset": counter(r, b, (I64, U64, I32)) if r.chance(50) else None,
        "stream": counter(r, b, (I32, U32, I64, U64)) if r.chance(30) else None,
    }
    extras(r, n, v, given)
    if r.chance(40):
        given["stop_token"] = r.spoil(r.ints(0, v - 1, (r.below(3),), r.pick(I32, I64)), 4, (-1, v))
        if r.chance(50):
            given["stop_indptr"], given["stop_token"] = lists(r, b, v, False)
    mode = r.pick("none", "raw", "final")
    top = r.pick(min(v, 3), 1, v) if mode != "none" and r.chance(50) else 0
    fields: dict[str, Any] = {
        "noise": noise,
        "ties": r.pick("exact", "exact", "all"),
        "logprob": mode,
        "empty_token": r.pick(-1, 0),
        "k_limit": -1 if r.chance(1) else r.pick(0, 0, 4),
        "top_logprobs": top,
    }
    asked = {"accept_mask": r.chance(50), "row_flags": r.chance(50), "rank": mode != "none" and r.chance(50)}
    outs: dict[str, Spec] = {
        "accepted": ((b,), I32),
        "count": ((b,), I32),
        "token": (shape, I64),
        "next_token": ((b,), I64),
        "path": (shape, I32),
        "accept_mask": (shape, np.dtype(np.bool_)) if asked["accept_mask"] else None,
        "row_flags": (shape, U32) if asked["row_flags"] else None,
        "logprob": (shape, F32) if mode != "none" else None,
        "rank": (shape, I32) if asked["rank"] else None,
        "top_token": ((*shape, top), I64) if top else None,
        "top_logprob": ((*shape, top), F32) if top else None,
    }
    inputs, numbers = split(given)
    return Case(inputs, numbers | fields, outs, asked=asked)


def test_sample_verify() -> None:
    accepted = 0

    def oracle(logprob: str, empty_token: int, **arguments: Any) -> dict[str, Any]:
        nonlocal accepted
        fields = {"noise", "ties", "k_limit", "top_logprobs"}
        made = sample_verify.sample_verify(
            **arrays_of({name: x for name, x in arguments.items() if name not in fields}),
            **{name: x for name, x in arguments.items() if name in fields},
            logprob_mode=logprob,
            empty_token="zero" if empty_token == 0 else "minus_one",
        )
        accepted += int(made["accepted"].sum())
        return made

    run_property("sample_verify", oracle, verify_case)
    assert accepted > tallies["sample_verify"].examples // 8


def sequences(r: Reader, rows: int, vocab: int) -> dict[str, Any]:
    lens = [r.between(1, 3) for _ in range(r.below(4))]
    ends = np.concatenate([[0], np.cumsum(lens)]).astype(r.pick(I32, I64))
    few = min(vocab, 3)  # so that they occur
    given: dict[str, Any] = {
        "seq_indptr": r.spoil(ends, 3, (-1, 0, 2**31 - 1)),
        "seq_token": r.spoil(r.ints(0, few - 1, (sum(lens),), r.pick(I32, I64)), 3, (-1, vocab)),
    }
    if r.chance(50):
        mine = np.sort(r.ints(0, len(lens), (rows + 1,), r.pick(I32, I64)))
        given["seq_row_indptr"] = r.spoil(mine, 3, (-1, len(lens) + 1))
    if r.chance(50):
        given["seq_bias"] = r.floats((len(lens),), F32)
    return given


def overrides(r: Reader) -> Case:
    b, v = r.below(4), r.pick(8, 5, 33, 1, 70, 2, 3)
    inputs: dict[str, Any] = {"logits": None}
    shape: tuple[int, ...] = (b,)
    fields: dict[str, Any] = {"history_scope": r.pick("all", "output")}
    drafted = r.chance(40)
    most = 1
    if drafted:
        drafts, shape, lens = drafts_of(r, v)
        inputs |= drafts
        b, most = len(lens), max(lens, default=0)
        if "cu_lens" in drafts:
            most = fields["max_rows"] = max(1, most + (r.pick(-1, 1) if r.chance(10) else 0))
        elif lens:
            most = lens[0]
        else:
            most = shape[1]
    logits = inputs["logits"] = r.floats((*shape, v), r.pick(*FLOATS))
    for name in ("prompt", "output", "bias"):
        if r.chance(70):
            inputs[f"{name}_indptr"], token = lists(r, b, v, False)
            inputs[f"{name}_token"] = token
            if name == "bias":
                inputs["bias"] = r.floats(token.shape, F32)
    inputs["repetition_penalty"] = knob(r, b, logits.dtype, (2.0, 0.5, 1.0, 1.3, 0.0, np.inf, np.nan, -1.0))
    inputs["frequency_penalty"] = knob(r, b, logits.dtype, (0.5, 0.1, 0.0, -1.0, np.inf, np.nan, 1e30))
    inputs["presence_penalty"] = knob(r, b, logits.dtype, (0.25, 0.1, 0.0, -1.0, np.inf, np.nan))
    room = most * sum(len(x) for name, x in inputs.items() if name in ("prompt_token", "output_token", "bias_token"))
    if r.chance(40):
        inputs |= sequences(r, b, v)
    if r.chance(40):
        inputs["stop_token"] = r.ints(0, v - 1, (r.below(3),), r.pick(I32, I64))
        if r.chance(50):
            inputs["stop_indptr"], inputs["stop_token"] = lists(r, b, v, False)
        if "output_token" in inputs:
            inputs["min_tokens"] = r.pick(per_row(r, r.ints(-1, 9, (b,), r.pick(I32, I64))), r.between(0, 9))
    more = len(inputs.get("stop_token", ())) + max(len(inputs.get("seq_indptr", ())) - 1, 0)
    rows = int(np.prod(shape))
    room += rows * (more + (most if drafted else 0))
    outs: dict[str, Spec] = {
        "override_indptr": ((rows + 1,), I64),
        "override_token": ((room,), I32),
        "override_logit": ((room,), F32),
    }
    held = {"override_token": r.bits((room,), I32), "override_logit": r.floats((room,), F32, "bits")}
    given, numbers = split(inputs)
    fresh = {name: np.zeros_like(x) for name, x in held.items()}
    longer = ("override_token", "override_logit")
    return Case(given, numbers | fields, outs, held=held, longer=longer, hints=dict(held), fresh=fresh)


def test_sample_overrides() -> None:
    def oracle(
        override_token: Array, override_logit: Array, history_scope: str, max_rows: int = 0, **arguments: Any
    ) -> dict[str, Any]:
        """What is behind the last override keeps what it holds."""
        made = sample_overrides.sample_overrides(**arrays_of(arguments), history_scope=history_scope, max_rows=max_rows)
        n = len(made["override_token"])
        made["override_token"] = np.concatenate([made["override_token"], override_token[n:]])
        made["override_logit"] = np.concatenate([made["override_logit"], override_logit[n:]])
        return made

    run_property("sample_overrides", oracle, overrides)


def noise_case(r: Reader) -> Case:
    n = r.pick(r.below(70), 0, 1, 4, 5) if not r.chance(3) else r.pick(-1, 2**34 - 3, -(2**63))
    fields = {
        "seed": r.number64() if r.chance(90) else r.pick(0, 2**64 - 1, 2**63),
        "offset": r.pick(0, 5, r.number64(), 2**32, 2**64 - 1),
        "stream": r.pick(0, 2, r.number64() % 2**32, 2**32 - 1, 2**40 + 1),
        "n": n,
    }
    return Case({}, fields, {"q": ((n if 0 <= n < 2**20 else 0,), F32)})


def test_sample_noise() -> None:
    run_property("sample_noise", sample.sample_noise, noise_case)
