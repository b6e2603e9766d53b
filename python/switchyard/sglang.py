"""Switchyard's sampler in SGLang: ``--sampling-backend switchyard``, by SGLang's general plugins.

Tested on stored batches, not in a running SGLang: docs/vllm.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .ops.sample import sample

__all__ = ["draw", "register"]


def draw(probs: Tensor, info: Any, positions: Tensor) -> Tensor:
    """Draw a token for each row of probabilities, with the filters of SGLang's SamplingBatchInfo.

    Top-k, top-p and min-p are of the same probabilities, as in SGLang's samplers. A draw uses the seed of its request
    and the position; without seeds (deterministic inference is off) they are from PyTorch's generator.
    """
    seed = info.sampling_seed
    if seed is None:
        seed = torch.randint(1 << 62, (len(probs),), device=probs.device)
    given: dict[str, Any] = {}
    if info.need_top_k_sampling:
        given["top_k"] = info.top_ks.reshape(-1)
    if info.need_top_p_sampling:
        given["top_p"] = info.top_ps.reshape(-1)
    if info.need_min_p_sampling:
        given["min_p"] = info.min_ps.reshape(-1)
    given.update(seed=seed.to(torch.int64), offset=positions.to(torch.int64))
    drawn: Tensor = sample(probs, probs_in=True, empty_token=0, **given).token
    return drawn


def register() -> None:
    """Add the backend "switchyard". SGLang calls this in each of its processes, as a general plugin."""
    from sglang.srt.layers.sampler import Sampler, register_sampler_backend

    class SwitchyardSampler(Sampler):  # type: ignore[misc,unused-ignore]
        """SGLang's sampler, which applies penalties and grammars and returns log-probabilities, with another draw."""

        def _sample_from_probs(self, probs: Tensor, sampling_info: Any, positions: Tensor, simple: bool) -> Any:
            if sampling_info.sampling_mask_batch_indices is not None:  # of the candidates: its own sampler has them
                return super()._sample_from_probs(probs, sampling_info, positions, simple)
            return draw(probs, sampling_info, positions), None

    register_sampler_backend("switchyard", SwitchyardSampler)
