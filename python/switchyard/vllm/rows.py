"""The entry point of vLLM's logits processors: by it vLLM tells which request is in which row. It changes no logit."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from . import parts, version, why_not
from ._state import State


class Rows(LogitsProcessor):  # type: ignore[misc,unused-ignore]
    """The state of a model runner's batch; None where the sampler is vLLM's own."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        enabled = bool(parts()) and not why_not(parts(), version())
        config = vllm_config.model_config
        self.state = State(config.get_vocab_size(), device, config.seed) if enabled else None
        self.is_async = bool(vllm_config.scheduler_config.async_scheduling)

    def is_argmax_invariant(self) -> bool:
        """It changes nothing."""
        return True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return logits

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the rows."""
        if batch_update is not None and self.state is not None:
            moved = [(a, b, way == MoveDirectionality.SWAP) for a, b, way in batch_update.moved]
            self.state.update(batch_update.batch_size, batch_update.removed, batch_update.added, moved)
