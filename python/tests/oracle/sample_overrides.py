"""sample_overrides: every rule for every token, one after the other."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arith import Array, narrow, widen
from .moe_rows import Outputs, reject_unless
from .sample import INF, check_lists, per_row
from .sample_verify import Drafts, check_tokens, drafts_of, requests_of, tokens_of


def ends_with(tokens: list[int], last: list[int]) -> bool:
    return len(last) <= len(tokens) and tokens[len(tokens) - len(last) :] == last


@dataclass
class Rules:
    """What changes the logits of one row."""

    prompt: list[int]
    output: list[int]
    biases: list[tuple[int, Any]]
    matched: list[tuple[int, Any]]  # last tokens of sequences
    banned: list[int]
    repetition: float
    frequency: float
    presence: float

    def of(self, i: int, x: Any) -> Any:
        if i in self.prompt + self.output and not math.isnan(self.repetition):
            x = x / np.float32(self.repetition) if x > 0 else x * np.float32(self.repetition)
        if i in self.output and not math.isnan(self.frequency):
            x = x - np.float32(self.frequency) * np.float32(self.output.count(i))
        if i in self.output and not math.isnan(self.presence):
            x = x - np.float32(self.presence)
        for token, amount in self.biases:
            x = x + np.float32(amount) if token == i else x
        for token, amount in self.matched:
            if token == i:
                x = -INF if amount == -INF else x + np.float32(amount)
        return -INF if i in self.banned else x

    def changed(self, logits: Array) -> list[tuple[int, Any]]:
        found = []
        named = {*self.prompt, *self.output, *self.banned, *(i for i, _ in self.biases + self.matched)}
        for i in sorted(named):
            with np.errstate(all="ignore"):
                x = self.of(i, logits[i])
            if not (x == logits[i] or (np.isnan(x) and np.isnan(logits[i]))):
                found.append((i, x))
        return found


def sequences_of(indptr: Array | None, token: Array | None, of_rows: Array | None, v: int) -> list[list[int]]:
    if indptr is None or token is None:
        return []
    if of_rows is not None:
        check_lists(of_rows, len(indptr) - 1)
    ends = indptr.tolist()
    reject_unless(all(a < b for a, b in itertools.pairwise(ends)), "INDEX")
    check_tokens(indptr, token, v)
    return [token[a:b].tolist() for a, b in itertools.pairwise(ends)]


def sample_overrides(
    logits: Array,
    prompt_indptr: Array | None = None,
    prompt_token: Array | None = None,
    output_indptr: Array | None = None,
    output_token: Array | None = None,
    bias_indptr: Array | None = None,
    bias_token: Array | None = None,
    bias: Array | None = None,
    repetition_penalty: Array | None = None,
    frequency_penalty: Array | None = None,
    presence_penalty: Array | None = None,
    cu_lens: Array | None = None,
    draft_token: Array | None = None,
    parent: Array | None = None,
    seq_indptr: Array | None = None,
    seq_token: Array | None = None,
    seq_row_indptr: Array | None = None,
    seq_bias: Array | None = None,
    min_tokens: Array | None = None,
    stop_token: Array | None = None,
    stop_indptr: Array | None = None,
    *,
    history_scope: str = "all",
    max_rows: int = 0,
) -> Outputs:
    v = logits.shape[-1]
    rows = logits.reshape(-1, v)
    b_all = requests_of(logits, cu_lens)
    reject_unless(cu_lens is None or max_rows >= 1, "VALUE")
    drafts, sequences = Drafts(list(range(b_all + 1)), [-1] * b_all, [-1] * b_all), []
    if b_all:
        check_tokens(prompt_indptr, prompt_token, v)
        check_tokens(output_indptr, output_token, v)
        check_tokens(bias_indptr, bias_token, v)
        check_tokens(stop_indptr, stop_token, v)
        sequences = sequences_of(seq_indptr, seq_token, seq_row_indptr, v)
        if draft_token is not None:
            drafts = drafts_of(logits, draft_token, cu_lens, parent)
        most = max(b - a for a, b in itertools.pairwise(drafts.ends))
        reject_unless(cu_lens is None or most <= max_rows, "INDEX")

    def rules(b: int, path: list[int]) -> Rules:
        prompt = tokens_of(prompt_indptr, prompt_token, b)
        output = tokens_of(output_indptr, output_token, b) + path
        history = output if history_scope == "output" else prompt + output
        biases = zip(tokens_of(bias_indptr, bias_token, b), tokens_of(bias_indptr, bias, b), strict=True)
        mine = tokens_of(seq_row_indptr, np.arange(len(sequences)), b)
        matched = [s for s in mine if ends_with(history, sequences[s][:-1])]
        return Rules(
            prompt,
            output,
            list(biases),
            [(sequences[s][-1], -INF if seq_bias is None else seq_bias[s]) for s in matched],
            tokens_of(stop_indptr, stop_token, b) if len(output) < per_row(min_tokens, b, 0) else [],
            *(per_row(x, b, math.nan) for x in (repetition_penalty, frequency_penalty, presence_penalty)),
        )

    found: list[list[tuple[int, Any]]] = [[] for _ in rows]
    for b, (start, end) in enumerate(itertools.pairwise(drafts.ends)):
        for row in range(end - start):
            path = drafts.path(start, row)
            if -1 not in path:
                found[start + row] = rules(b, path).changed(widen(rows[start + row]))
    return {
        "override_indptr": np.cumsum([0, *map(len, found)]).astype(np.int64),
        "override_token": np.array([i for row in found for i, _ in row], np.int32),
        "override_logit": narrow(np.array([x for row in found for _, x in row], np.float32), np.dtype(np.float32)),
    }
