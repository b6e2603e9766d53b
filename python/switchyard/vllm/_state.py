"""The rows of vLLM's batch as requests of switchyard.requests: nothing here imports vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..ops.sample import Sample
from ..ops.sample_verify import SampleVerify
from ..requests import Batch, Settings


def settings_of(params: Any, vocabulary: int) -> Settings:
    """The settings of vLLM's SamplingParams. A negative seed keeps its 64 bits."""
    structured = params.structured_outputs is not None
    return Settings(
        temperature=params.temperature,
        top_k=max(params.top_k, 0),
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        bias=params.logit_bias or None,
        bad_words=params.bad_words_token_ids or (),
        # With a grammar the stop tokens are banned in its mask, unless they are all that it allows.
        stop_tokens=() if structured else _stops(params, vocabulary),
        min_tokens=0 if structured else params.min_tokens,
        allowed=params.allowed_token_ids,
        seed=None if params.seed is None else params.seed % 2**64,
        logprobs=vocabulary if params.logprobs == -1 else params.logprobs,
        scored=tuple(getattr(params, "logprob_token_ids", None) or ()),
    )


def _stops(params: Any, vocabulary: int) -> list[int]:
    """The stop tokens that a model has: a tokenizer may have more tokens."""
    return sorted(token for token in params.all_stop_token_ids if token < vocabulary)


class State:
    """The batch of a model runner.

    Args:
        vocabulary: tokens.
        device: of the logits.
        entropy: of the seeds of requests without one: the same in all processes of an engine.
    """

    def __init__(self, vocabulary: int, device: Any = "cpu", entropy: int | None = None) -> None:
        self._vocabulary = vocabulary
        self._batch = Batch(vocabulary, device=device, entropy=entropy, order="vllm")
        self._limits: list[tuple[int, list[int]] | None] = []  # min_tokens and stop tokens of rows with a grammar
        self.wants_logprobs = self.wants_scored = False  # a row asks for log-probabilities; it names their tokens

    def update(
        self,
        count: int,
        removed: Iterable[int],
        added: Iterable[tuple[int, Any, Sequence[int] | None, list[int]]],
        moved: Iterable[tuple[int, int, bool]],
    ) -> None:
        """Change rows as vLLM's BatchUpdate says; the third of ``moved``: whether the two rows change places.

        Removed rows are filled by what is added or moved, or are the last.
        """
        for row, params, prompt, output in added:
            # Without token ids, as with embeddings, a prompt cannot be penalised.
            self._batch.add(settings_of(params, self._vocabulary), prompt or (), output, row)
            self._limits.extend([None] * (len(self._batch) - len(self._limits)))
            limited = params.structured_outputs is not None and params.min_tokens > 0
            self._limits[row] = (params.min_tokens, _stops(params, self._vocabulary)) if limited else None
        for a, b, both in moved:
            if both:
                self._batch.swap(a, b)
                self._limits[a], self._limits[b] = self._limits[b], self._limits[a]
            else:
                self._batch.move(a, b)
                self._limits[a], self._limits[b] = None, self._limits[a]
        self._batch.truncate(count)
        del self._limits[count:]
        every = [self._batch.settings(row) for row in range(len(self))]
        self.wants_scored = any(settings.scored for settings in every)
        self.wants_logprobs = self.wants_scored or any(settings.logprobs is not None for settings in every)

    def __len__(self) -> int:
        return len(self._batch)

    def sample(self, logits: Tensor, bits: Tensor | None = None) -> Sample[Tensor]:
        """Draw a token for each row. ``bits``: the masks of grammars, or None."""
        return self._batch.sample(logits, self._stops_in(bits, range(len(self))), empty_token=0)

    def verify(
        self, logits: Tensor, lengths: Sequence[int], drafts: Tensor, bits: Tensor | None
    ) -> SampleVerify[Tensor]:
        """Verify drafts: ``lengths`` rows of logits for each request, ``drafts`` [sum of lengths] with roots."""
        cu_lens = torch.from_numpy(np.cumsum([0, *lengths])).to(logits.device)
        row_of = np.repeat(np.arange(len(lengths)), lengths)
        return self._batch.verify(logits, cu_lens, drafts, max(lengths), self._stops_in(bits, row_of.tolist()))

    def scored_tokens(self, drawn: Tensor) -> Tensor:
        """The drawn token of each row, then those that it names, then zeros."""
        every = [self._batch.settings(row).scored for row in range(len(self))]
        tokens = np.zeros((len(every), max(map(len, every))), np.int64)
        for row, named in enumerate(every):
            tokens[row, : len(named)] = named
        return torch.cat((drawn[:, None], torch.from_numpy(tokens).to(drawn.device)), 1)

    def _stops_in(self, bits: Tensor | None, row_of: Sequence[int]) -> Tensor | None:
        """The masks without the stop tokens of rows below min_tokens, where another token stays."""
        if not any(self._limits):
            return bits
        made = None if bits is None else bits.cpu().numpy().copy()
        for place, row in enumerate(row_of):
            limit = self._limits[row]
            if limit is None or len(self._batch.output(row)) >= limit[0]:
                continue
            if made is None:
                made = np.full((len(row_of), -(-self._vocabulary // 32)), -1, np.int32)
            flags = np.unpackbits(made[place].view(np.uint8), bitorder="little")
            flags[self._vocabulary :] = 0
            flags[limit[1]] = 0
            if flags.any():
                made[place] = np.packbits(flags, bitorder="little").view("<i4")
        return bits if made is None else torch.from_numpy(made).to(bits.device if bits is not None else "cpu")


def sorted_bits(
    bitmask: np.ndarray, names: Sequence[str], rows: Sequence[str], drafts: dict[str, Any]
) -> np.ndarray | None:
    """The masks of grammars in the order of the rows of logits; the array itself where it has that order.

    Args:
        bitmask: as vLLM's scheduler sends it: 1 + drafts masks for each request of ``names``.
        names: requests with a grammar.
        rows: the requests of the batch.
        drafts: draft tokens of a request.
    """
    counts = [1 + len(drafts.get(name, ())) for name in rows]
    if list(names) == list(rows) and len(bitmask) == sum(counts):
        return bitmask
    begin = dict(zip(names, np.cumsum([0, *(1 + len(drafts.get(name, ())) for name in names)]).tolist(), strict=False))
    made = np.full((sum(counts), bitmask.shape[1]), -1, np.int32)
    at = 0
    for name, count in zip(rows, counts, strict=True):
        if name in begin:
            made[at : at + count] = bitmask[begin[name] : begin[name] + count]
        at += count
    return made
