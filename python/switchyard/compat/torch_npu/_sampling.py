"""The next token."""

from __future__ import annotations

import torch
from torch import Tensor

import switchyard.torch as ours

from ..._sentences import bad
from ...errors import Status
from ._rejections import none, own_words


@own_words({"min_p": "min_ps", "k_limit": "ks_max", "probs_in": "input_is_logits", "masked_logits": "is_need_logits"})
def npu_top_k_top_p_sample(
    logits: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    q: Tensor | None = None,
    eps: float = 1e-8,
    is_need_logits: bool = False,
    top_k_guess: int = 32,
    min_ps: Tensor | None = None,
    ks_max: int = 1024,
    input_is_logits: bool = True,
    post_sample: str = "qSample",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """The token of each row, and the logits after all filters (empty unless requested): see sample.

    post_sample "None" takes the most likely token, "qSample" the largest probability / (|q| + eps), and "multiNomial"
    draws with torch.multinomial and the generator.
    """
    if post_sample not in ("None", "qSample", "multiNomial"):
        text = f"is {post_sample!r}, want 'None', 'qSample' or 'multiNomial'"
        raise bad(Status.VALUE, "npu_top_k_top_p_sample", "post_sample", text)
    if post_sample != "qSample":
        none("npu_top_k_top_p_sample", f" beside post_sample {post_sample!r}", q=q)
    draws = post_sample == "multiNomial"
    made = ours.sample(
        logits,
        top_k,
        top_p,
        min_ps,
        q=q,
        noise="none" if q is None else "q",
        eps=eps,
        k_limit=min((ks_max + 7) // 8 * 8, 1024),
        top_k_guess=top_k_guess,
        probs_in=not input_is_logits,
        empty_token=0,
        masked_logits=is_need_logits,
        candidates=draws,
    )
    kept = made.masked_logits if made.masked_logits is not None else logits.new_empty(0, dtype=torch.float32)
    if not draws or made.list_prob is None or made.list_token is None:
        return made.token, kept
    weights = made.list_prob
    weights[:, 0].masked_fill_(weights.sum(1) == 0, 1)  # a row without candidates is token 0
    picked = torch.multinomial(weights, 1, replacement=True, generator=generator)
    return made.list_token.gather(1, picked).flatten(), kept
