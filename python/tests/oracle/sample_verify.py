"""sample_verify: a call of sample for each step, and where rows of drafts come from."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arith import Array
from .moe_rows import Outputs, reject_unless
from .sample import INF, check_lists, check_overrides, per_row, sample


@dataclass
class Drafts:
    """The rows of each request, and of each row the row before it and the token between."""

    ends: list[int]
    parent: list[int]  # of each row of all requests, numbered in its request; -1: a root, or a row of no request
    token: list[int]

    def path(self, start: int, row: int) -> list[int]:
        """The tokens from the root to a row of a request, which begins at start."""
        found: list[int] = []
        while row > 0:
            found.insert(0, self.token[start + row])
            row = self.parent[start + row]
        return found

    def child(self, b: int, row: int, token: int) -> int | None:
        start, end = self.ends[b], self.ends[b + 1]
        rows = range(1, end - start)
        return next((r for r in rows if self.parent[start + r] == row and self.token[start + r] == token), None)


def requests_of(logits: Array, cu_lens: Array | None) -> int:
    return len(logits) if cu_lens is None else len(cu_lens) - 1


def drafts_of(logits: Array, draft_token: Array, cu_lens: Array | None, parent: Array | None) -> Drafts:
    v = logits.shape[-1]
    if cu_lens is None:
        b_all, each = logits.shape[:2]
        ends, n = [b * each for b in range(b_all + 1)], b_all * each
        if draft_token.shape[1] == each - 1:
            draft_token = np.concatenate([np.zeros((b_all, 1), draft_token.dtype), draft_token], axis=1)
    else:
        ends, n = cu_lens.tolist(), len(logits)
        reject_unless(ends[0] == 0 and ends[-1] <= n and all(a <= b for a, b in itertools.pairwise(ends)), "INDEX")
    of, token = [-1] * n, [-1] * n
    for start, end in itertools.pairwise(ends):
        for i in range(start + 1, end):
            of[i] = i - start - 1 if parent is None else int(parent.reshape(-1)[i])
            token[i] = int(draft_token.reshape(-1)[i])
            reject_unless(0 <= of[i] < i - start and -1 <= token[i] < v, "INDEX")
    return Drafts(ends, of, token)


def check_tokens(indptr: Array | None, token: Array | None, v: int) -> None:
    """Lists of tokens, or without indptr one list."""
    if token is None:
        return
    if indptr is not None:
        check_lists(indptr, len(token))
        token = token[int(indptr[0]) : int(indptr[-1])]
    reject_unless(all(0 <= i < v for i in token.tolist()), "INDEX")


def tokens_of(indptr: Array | None, items: Array | None, b: int) -> list[Any]:
    if items is None:
        return []
    return (items if indptr is None else items[int(indptr[b]) : int(indptr[b + 1])]).tolist()


def one_of(values: Array | None, b: int) -> Array | None:
    return None if values is None else values.reshape(-1)[[b if values.size > 1 else 0]]


def edits_of(
    r: int, allow_bits: Array | None, indptr: Array | None, token: Array | None, logit: Array | None
) -> dict[str, Any]:
    """What sample is told of one row."""
    edits: dict[str, Any] = {}
    if indptr is not None and token is not None and logit is not None:
        begin, end = int(indptr[r]), int(indptr[r + 1])
        edits["override_indptr"] = np.array([0, end - begin])
        edits |= {"override_token": token[begin:end], "override_logit": logit[begin:end]}
    if allow_bits is not None:
        words = allow_bits.reshape(-1, allow_bits.shape[-1])
        edits["allow_bits"] = words[[r if len(words) > 1 else 0]]
    return edits


def sample_verify(
    logits: Array,
    draft_token: Array,
    cu_lens: Array | None = None,
    parent: Array | None = None,
    temperature: Array | None = None,
    top_k: Array | None = None,
    top_p: Array | None = None,
    min_p: Array | None = None,
    seed: Array | None = None,
    offset: Array | None = None,
    stream: Array | None = None,
    allow_bits: Array | None = None,
    override_indptr: Array | None = None,
    override_token: Array | None = None,
    override_logit: Array | None = None,
    stop_token: Array | None = None,
    stop_indptr: Array | None = None,
    *,
    logprob_mode: str = "none",
    noise: str = "auto",
    k_limit: int = 0,
    top_logprobs: int = 0,
    **fields: Any,
) -> Outputs:
    v = logits.shape[-1]
    rows = logits.reshape(-1, v)
    b_all, n = requests_of(logits, cu_lens), len(rows)
    reject_unless(k_limit >= 0 and 0 <= top_logprobs <= v, "VALUE")
    reject_unless(noise not in ("race", "cdf") or seed is not None, "VALUE")
    drafts = Drafts([0], [], [])
    if b_all:
        drafts = drafts_of(logits, draft_token, cu_lens, parent)
        check_tokens(stop_indptr, stop_token, v)
        check_overrides(override_indptr, override_token, n, v)

    def step(r: int, b: int, i: int) -> Outputs:
        alone = seed is not None and len(seed) == b_all
        return sample(
            rows[[r]],
            one_of(top_k, b),
            one_of(top_p, b),
            one_of(min_p, b),
            one_of(temperature, b),
            seed=one_of(seed, b),
            offset=np.array([(per_row(offset, b, 0) + i) % 2**64], np.uint64),
            stream=np.array([per_row(stream, b, 0 if alone else b) % 2**32], np.uint64),
            noise=noise,
            logprob_mode=logprob_mode,
            top_logprobs=top_logprobs,
            k_limit=k_limit,
            **edits_of(r, allow_bits, override_indptr, override_token, override_logit),
            **fields,
        )

    of_slots: Outputs = {
        "token": np.full(n, -1, np.int64),
        "row_flags": np.zeros(n, np.uint32),
        "logprob": None if logprob_mode == "none" else np.zeros(n, np.float32),
        "rank": None if logprob_mode == "none" else np.zeros(n, np.int32),
        "top_token": np.full((n, top_logprobs), -1, np.int64) if top_logprobs else None,
        "top_logprob": np.full((n, top_logprobs), -INF, np.float32) if top_logprobs else None,
    }
    path, accept_mask = np.full(n, -1, np.int32), np.zeros(n, np.bool_)
    accepted, count, next_token = np.zeros(b_all, np.int32), np.zeros(b_all, np.int32), np.full(b_all, -1, np.int64)
    for b, (start, end) in enumerate(itertools.pairwise(drafts.ends)):
        row: int | None = 0 if end > start else None
        while row is not None:
            slot = start + int(count[b])
            path[slot] = row
            accept_mask[start + row] = True
            found = step(start + row, b, int(count[b]))
            for name, to in of_slots.items():
                if to is not None:
                    to[slot] = found[name][0]
            count[b] += 1
            x = next_token[b] = int(found["token"][0])
            row = None if found["row_flags"][0] & 4 else drafts.child(b, row, x)
            if row is not None:
                accepted[b] += 1
                accept_mask[start + row] = True
                row = None if x in tokens_of(stop_indptr, stop_token, b) else row
    shaped = of_slots | {"path": path, "accept_mask": accept_mask}
    return {"accepted": accepted, "count": count, "next_token": next_token} | {
        name: None if x is None else x.reshape(*logits.shape[:-1], *x.shape[1:]) for name, x in shaped.items()
    }
