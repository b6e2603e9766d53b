"""Settings of requests as the tensors of :func:`switchyard.sample`, kept from step to step while requests come and go.

A server holds one :class:`Batch`. It adds a request with its :class:`Settings`, calls :meth:`Batch.sample` with the
logits of each step, appends what was drawn, and removes requests that end. With a seed a request draws the same tokens
alone, in any batch and in any row. Tensors are PyTorch's, on the CPU or on a CUDA device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ._numbers import low_bits
from .ops.sample import Sample, sample
from .ops.sample_overrides import sample_overrides
from .ops.sample_verify import SampleVerify, sample_verify

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as _error:
    if _error.name != "torch":
        raise
    raise ModuleNotFoundError("switchyard.requests needs PyTorch: pip install torch", name="torch") from None

__all__ = ["Batch", "Settings"]

_ROW = np.dtype(
    [("seed", "i8")]
    + [(name, "f4") for name in ("temperature", "top_p", "min_p")]
    + [(name, "f4") for name in ("repetition_penalty", "frequency_penalty", "presence_penalty")]
    + [("top_k", "i4"), ("min_tokens", "i4")]
)
_COLUMNS = tuple(name for name in _ROW.names or () if name != "seed")
_PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
_OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
_GREEDY = 1e-5  # sample's limit of temperatures
_NONE = np.zeros(0, np.int32)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a request asks of its tokens. Every default leaves its stage out.

    Args:
        temperature: below 1e-5 the request is greedy.
        top_k: 0 and below: all.
        top_p: as in sample.
        min_p: as in sample.
        repetition_penalty: as in sample_overrides, over prompt and output.
        frequency_penalty: over the output.
        presence_penalty: over the output.
        bias: what is added to the logits of tokens.
        bad_words: sequences of tokens. The last token of one is banned where the output ends with those before it.
        stop_tokens: banned while the output is shorter than ``min_tokens``.
        min_tokens: number of tokens.
        allowed: the only tokens that may be drawn; None: all.
        seed: 0 to 2^64 - 1; None: the next one of the batch's own.
        logprobs: number of most likely tokens to return with their log-probabilities; 0: of the drawn token alone.
        scored: tokens whose log-probabilities are returned.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: Mapping[int, float] | None = None
    bad_words: Sequence[Sequence[int]] = ()
    stop_tokens: Iterable[int] = ()
    min_tokens: int = 0
    allowed: Iterable[int] | None = None
    seed: int | None = None
    logprobs: int | None = None
    scored: Sequence[int] = ()


class _Request:
    """A row: the lists of its settings as arrays, and its output, of which an array is kept where it is needed."""

    def __init__(self, settings: Settings, prompt: Sequence[int], output: list[int]) -> None:
        self.settings, self.output = settings, output
        self.penalised = any(
            (settings.repetition_penalty != 1, settings.frequency_penalty != 0, settings.presence_penalty != 0)
        )
        # A repetition penalty asks only whether a token occurs.
        self.prompt = np.unique(np.asarray(prompt, np.int32)) if settings.repetition_penalty != 1 else _NONE
        single = [words[0] for words in settings.bad_words if len(words) == 1]
        bias = dict(settings.bias or {})
        self.bias_token = np.array([*bias, *single], np.int32)
        self.bias = np.array([*bias.values(), *[-np.inf] * len(single)], np.float32)
        self.sequences = [np.asarray(words, np.int32) for words in settings.bad_words if len(words) > 1]
        self.stop = np.array(sorted(settings.stop_tokens), np.int32) if settings.min_tokens > 0 else _NONE
        self._kept, self._count = _NONE, 0

    def is_short(self) -> bool:
        return self.stop.size > 0 and len(self.output) < self.settings.min_tokens

    def history(self) -> np.ndarray:
        """The output as far as the row's settings read it."""
        if not (self.penalised or self.sequences):  # at most its length; the tokens may not be known yet
            return np.zeros(len(self.output), np.int32) if self.is_short() else _NONE
        count = len(self.output)
        self._count = min(self._count, count)
        if count > len(self._kept):
            self._kept = np.concatenate((self._kept[: self._count], np.empty(2 * count + 64, np.int32)))
        if new := self.output[self._count :]:
            self._kept[self._count : count] = new
        missing = np.flatnonzero(self._kept[self._count : count] < 0)  # a token that its engine does not know yet
        self._count = count if missing.size == 0 else self._count + int(missing[0])
        return self._kept[: self._count]


class Batch:
    """The requests of a step, by row.

    Args:
        vocabulary: tokens; only ``allowed`` of settings needs it.
        device: where the logits are.
        entropy: of the seeds of requests without one; None: the system's.
        order: "switchyard": penalties before biases, min-p after top-p; "vllm": biases before penalties, min-p first.
    """

    def __init__(
        self,
        vocabulary: int = 0,
        *,
        device: Any = "cpu",
        entropy: int | None = None,
        order: Literal["switchyard", "vllm"] = "switchyard",
    ) -> None:
        self._vocabulary, self._device, self._order = vocabulary, torch.device(device), order
        self._requests: list[_Request | None] = []
        self._table = np.zeros(16, _ROW)
        self._next = np.random.Generator(np.random.PCG64(entropy))
        self._made: dict[str, Any] | None = None  # what does not change while the rows are the same
        self._short: list[int] = []  # rows below min_tokens

    def __len__(self) -> int:
        return len(self._requests)

    def add(
        self, settings: Settings, prompt: Sequence[int] = (), output: list[int] | None = None, row: int | None = None
    ) -> int:
        """Add a request, as the last row or in ``row``, and return its row. Others may append to a given ``output``."""
        row = len(self._requests) if row is None else row
        while row >= len(self._requests):
            self._requests.append(None)
        while row >= len(self._table):
            self._table = np.concatenate((self._table, np.zeros_like(self._table)))
        self._requests[row] = _Request(settings, prompt, [] if output is None else output)
        seed = settings.seed
        bits = (
            low_bits("requests.Batch", "seed", seed) if seed is not None else int(self._next.integers(-(2**63), 2**63))
        )
        self._table[row] = (bits, *(getattr(settings, name) for name in _ROW.names[1:]))  # type: ignore[index]
        self._made = None
        return row

    def remove(self, row: int) -> None:
        """Remove a request. The last row takes its place."""
        last = len(self._requests) - 1
        self.move(last, row)
        self._requests.pop()

    def move(self, source: int, target: int) -> None:
        """Put the request of one row into another, whose request is dropped. The source becomes empty."""
        if source != target:
            self._table[target] = self._table[source]
            self._requests[target], self._requests[source] = self._requests[source], None
        self._made = None

    def swap(self, a: int, b: int) -> None:
        """Exchange two rows."""
        self._table[[a, b]] = self._table[[b, a]]
        self._requests[a], self._requests[b] = self._requests[b], self._requests[a]
        self._made = None

    def truncate(self, count: int) -> None:
        """Drop all rows from ``count`` on."""
        if count < len(self._requests):
            del self._requests[count:]
            self._made = None

    def settings(self, row: int) -> Settings:
        """The settings of a row."""
        return self._request(row).settings

    def output(self, row: int) -> list[int]:
        """The tokens of a row so far."""
        return self._request(row).output

    def append(self, tokens: Sequence[int] | Tensor) -> None:
        """Append a token to the output of each row; below 0: none."""
        drawn = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        for row, token in enumerate(drawn):
            if token >= 0:
                self._request(row).output.append(int(token))

    def sample(self, logits: Tensor, allow_bits: Tensor | None = None, **more: Any) -> Sample[Tensor]:
        """Draw a token for each row of ``logits``; ``more`` as in :func:`switchyard.sample`."""
        return sample(logits, **{**self.arguments(logits, allow_bits), **more})

    def verify(
        self, logits: Tensor, cu_lens: Tensor, draft_token: Tensor, rows: int, allow_bits: Tensor | None = None
    ) -> SampleVerify[Tensor]:
        """Verify drafts as :func:`switchyard.sample_verify` does, at most ``rows`` rows of logits for a request.

        The tokens are those of :meth:`sample`, step by step.
        """
        made = self._static()
        lengths = cu_lens.diff()
        if (own := made["allow_bits"]) is not None:
            own = own.repeat_interleave(lengths, 0)
            allow_bits = own if allow_bits is None else own & allow_bits
        given: dict[str, Any] = {"cu_lens": cu_lens, "draft_token": draft_token}
        drawn = {**made["draw"], **({"offset": self._offset()} if made["draw"] else {})}
        overrides = self._overrides(logits, {**given, "max_rows": rows})
        return sample_verify(
            logits, **given, **drawn, **overrides, **_logprobs(made), allow_bits=allow_bits, **self._rules()
        )

    def arguments(self, logits: Tensor, allow_bits: Tensor | None = None) -> dict[str, Any]:
        """The arguments of :func:`switchyard.sample` for these logits, as a dict.

        Args:
            logits: [B, V].
            allow_bits: [B, ceil(V/32)]: tokens that a grammar allows, in addition to those of the settings.
        """
        made = self._static()
        given: dict[str, Any] = {**made["draw"], **_logprobs(made), **self._overrides(logits, {})}
        if made["score_token"] is not None:
            given["score_token"] = made["score_token"]
        own = made["allow_bits"]
        if own is not None or allow_bits is not None:
            given["allow_bits"] = own if allow_bits is None else allow_bits if own is None else own & allow_bits
        if made["draw"]:
            given.update(offset=self._offset(), **self._rules())
        return given

    # ---- What is made once for the same rows ----

    def _request(self, row: int) -> _Request:
        request = self._requests[row]
        if request is None:
            raise IndexError(f"requests.Batch: row {row} is empty")
        return request

    def _rules(self) -> dict[str, Any]:
        """The order of stages; vLLM keeps all tokens equal to the k-th."""
        if self._order != "vllm":
            return {}
        made = self._static()["draw"]
        return {"ties": "all", "stages": "vllm" if "min_p" in made and "top_p" in made else "default"}

    def _static(self) -> dict[str, Any]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> dict[str, Any]:
        requests = [self._request(row) for row in range(len(self))]
        table = self._table[: len(requests)]
        drawn = table["temperature"] >= _GREEDY
        names = [n for n in ("top_k", "top_p", "min_p") if ((table[n] != _OFF[n]) & drawn).any()]
        draw = {n: self._tensor(table[n]) for n in ("temperature", "seed", *names)} if drawn.any() else {}
        every = [request.settings for request in requests]
        penalties = {n: self._tensor(table[n]) for n in _PENALTIES} if any(r.penalised for r in requests) else {}
        lists: dict[str, Any] = {}
        if penalties:
            lists.update(
                zip(("prompt_indptr", "prompt_token"), self._joined([r.prompt for r in requests]), strict=True)
            )
        if any(r.bias.size for r in requests):
            indptr, token = self._joined([r.bias_token for r in requests])
            bias = self._tensor(np.concatenate([r.bias for r in requests]))
            lists.update(bias_indptr=indptr, bias_token=token, bias=bias)
        if any(r.sequences for r in requests):
            indptr, token = self._joined([words for r in requests for words in r.sequences])
            ends = np.cumsum([0, *(len(r.sequences) for r in requests)])
            lists.update(seq_indptr=indptr, seq_token=token, seq_row_indptr=self._tensor(ends), history_scope="output")
        wanted = [s.logprobs for s in every if s.logprobs is not None]
        scored = max((len(s.scored) for s in every), default=0)
        self._short = [row for row, request in enumerate(requests) if request.is_short()]
        return {
            "draw": draw,
            "penalties": penalties,
            "lists": lists,
            "stop": self._stop(requests),
            "logprobs": max(wanted, default=None),
            "score_token": self._scored(every, scored) if scored else None,
            "allow_bits": self._allowed(every) if any(s.allowed is not None for s in every) else None,
        }

    def _stop(self, requests: list[_Request]) -> dict[str, Any]:
        if not self._short:
            return {}
        indptr, token = self._joined([r.stop if r.is_short() else _NONE for r in requests])
        least = self._tensor(self._table["min_tokens"][: len(requests)])
        return {"stop_indptr": indptr, "stop_token": token, "min_tokens": least}

    def _scored(self, every: list[Settings], width: int) -> Tensor:
        tokens = np.full((len(every), width), -1, np.int32)
        for row, settings in enumerate(every):
            tokens[row, : len(settings.scored)] = settings.scored
        return self._tensor(tokens)

    def _allowed(self, every: list[Settings]) -> Tensor:
        words = -(-self._vocabulary // 32)
        bits = np.full((len(every), words), -1, np.int32)
        for row, settings in enumerate(every):
            if settings.allowed is not None:
                tokens = np.array([*settings.allowed], np.int64)
                if tokens.size and not 0 <= tokens.min() <= tokens.max() < self._vocabulary:
                    raise IndexError(f"requests.Batch: allowed tokens are from 0 to {self._vocabulary - 1}")
                flags = np.zeros(words * 32, np.uint8)
                flags[tokens] = 1
                bits[row] = np.packbits(flags, bitorder="little").view("<i4")
        return self._tensor(bits)

    # ---- What is made in each step ----

    def _offset(self) -> Tensor:
        return self._tensor(np.array([len(self._request(row).output) for row in range(len(self))], np.int64))

    def _overrides(self, logits: Tensor, drafts: dict[str, Any]) -> dict[str, Any]:
        made = self._static()
        if any(not self._request(row).is_short() for row in self._short):
            self._short = [row for row in self._short if self._request(row).is_short()]
            made["stop"] = self._stop([self._request(row) for row in range(len(self))])
        lists = {**made["lists"], **made["stop"]}
        if not lists:
            return {}
        histories = [self._request(row).history() for row in range(len(self))]
        if made["penalties"] or made["stop"] or "seq_indptr" in lists:
            lists.update(zip(("output_indptr", "output_token"), self._joined(histories), strict=True))
        first = self._order == "vllm"
        return sample_overrides(logits, **lists, **made["penalties"], **drafts, bias_first=first)._asdict()

    def _joined(self, lists: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        indptr = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(tokens) for tokens in lists], out=indptr[1:])
        return self._tensor(indptr), self._tensor(np.concatenate(lists) if lists else _NONE)

    def _tensor(self, array: np.ndarray) -> Tensor:
        made = torch.from_numpy(np.array(array, order="C"))
        return made if self._device.type == "cpu" else made.to(self._device)


def _logprobs(made: dict[str, Any]) -> dict[str, Any]:
    if made["logprobs"] is None and made["score_token"] is None:
        return {}
    return {"logprob": "raw", "top_logprobs": made["logprobs"] or 0, "rank": True}
