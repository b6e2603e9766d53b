"""vLLM 0.32's samplers, whose methods are replaced: tokens come from switchyard.sample and sample_verify.

vLLM has no hook for a whole sampler, so that attributes of its classes and modules are set. vLLM's own methods run
where a batch has what is not here: processors of logits of others, thinking budgets, an engine that returns logits or
processed log-probabilities, and profiling runs, which have no requests.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from vllm.v1.outputs import LogprobsTensors, SamplerOutput
from vllm.v1.sample import logits_processor
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.structured_output import utils as structured

from .. import sample
from ._state import State, sorted_bits
from .rows import Rows

_BUILTIN = (*logits_processor.BUILTIN_LOGITS_PROCESSORS, Rows)
_RUNNER = "vllm.v1.worker.gpu_model_runner"  # it has names of functions that are replaced
_stock = {
    "forward": Sampler.forward,
    "gather_logprobs": Sampler.gather_logprobs,
    "verify": RejectionSampler.forward,
    "build_logitsprocs": logits_processor.build_logitsprocs,
    "apply_grammar_bitmask": structured.apply_grammar_bitmask,
}
steps = {"switchyard": 0, "stock": 0}  # for tests


def install(active: bool = True) -> None:
    """Replace the methods, or put vLLM's back."""
    ours: dict[str, Any] = {
        "forward": _forward,
        "gather_logprobs": staticmethod(_gather_logprobs),
        "verify": _verify,
        "build_logitsprocs": _build_logitsprocs,
        "apply_grammar_bitmask": _apply_grammar_bitmask,
    }
    stock = {**_stock, "gather_logprobs": staticmethod(_stock["gather_logprobs"])}
    chosen = ours if active else stock
    for name in ("forward", "gather_logprobs"):
        setattr(Sampler, name, chosen[name])
    RejectionSampler.forward = chosen["verify"]
    for module, name in ((logits_processor, "build_logitsprocs"), (structured, "apply_grammar_bitmask")):
        setattr(module, name, chosen[name])
        if _RUNNER in sys.modules:
            setattr(sys.modules[_RUNNER], name, chosen[name])


def _state(metadata: Any, mode: str) -> tuple[State | None, Any]:
    """The rows of the batch, if all that it needs is here; and their processor."""
    rows = next((each for each in metadata.logitsprocs.argmax_invariant if isinstance(each, Rows)), None)
    if rows is None or rows.state is None:
        return None, rows
    holder = metadata.thinking_budget_state_holder
    others = any(not isinstance(each, _BUILTIN) for each in metadata.logitsprocs.all)
    if others or (holder is not None and holder.has_tracked_requests()):
        return None, rows
    return (None if rows.state.wants_logprobs and mode != "raw_logprobs" else rows.state), rows


def _forward(
    self: Any,
    logits: Tensor,
    sampling_metadata: Any,
    predict_bonus_token: bool = False,
    logprobs_mode_override: Any = None,
) -> SamplerOutput:
    mode = logprobs_mode_override or self.logprobs_mode
    state, _ = _state(sampling_metadata, mode)
    if state is None or predict_bonus_token or len(state) != len(logits):
        steps["stock"] += 1
        _mask(logits)
        return _stock["forward"](self, logits, sampling_metadata, predict_bonus_token, logprobs_mode_override)
    steps["switchyard"] += 1
    # Seeds come from the rows. vLLM moves the generators of rows whose prompt is not complete back by set_offset, which
    # those of the CPU do not have: without generators it has nothing to move.
    sampling_metadata.generators.clear()
    drawn = state.sample(logits, getattr(logits, "switchyard_bits", None))
    scores = None
    if state.wants_logprobs:
        tokens, values = drawn.token[:, None], [_some(drawn.logprob)[:, None]]
        if state.wants_scored:
            tokens = state.scored_tokens(drawn.token)
            values.append(_some(drawn.score_logprob))
        elif drawn.top_token is not None:
            tokens = torch.cat((tokens, drawn.top_token), 1)
            values.append(_some(drawn.top_logprob))
        scores = LogprobsTensors(tokens.int(), torch.cat(values, 1), _some(drawn.rank))
    return SamplerOutput(sampled_token_ids=drawn.token.int()[:, None], logprobs_tensors=scores)


def _verify(
    self: Any, metadata: Any, draft_probs: Tensor | None, logits: Tensor, sampling_metadata: Any
) -> SamplerOutput:
    """The tokens of decoding without drafts; draft_probs are not needed."""
    state, rows = _state(sampling_metadata, self.sampler.logprobs_mode)
    lengths = [1 + count for count in metadata.num_draft_tokens]
    # With asynchronous scheduling the outputs contain drafts that may not be accepted: lengths are no step numbers.
    if state is None or rows.is_async or self.synthetic_mode or len(state) != len(lengths) or state.wants_scored:
        steps["stock"] += 1
        _mask(logits)
        return _stock["verify"](self, metadata, draft_probs, logits, sampling_metadata)
    steps["switchyard"] += 1
    sampling_metadata.generators.clear()
    drafts = torch.full((len(logits),), -1, dtype=torch.int32, device=logits.device)
    drafts[metadata.target_logits_indices.long() + 1] = metadata.draft_token_ids.int()
    made = state.verify(logits, lengths, drafts, getattr(logits, "switchyard_bits", None))
    width = metadata.max_spec_len + 1
    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    begin = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    place = (row * width + torch.arange(len(logits)) - begin[row]).to(logits.device)  # of each slot

    def spread(values: Tensor, fill: float) -> Tensor:
        shape = (len(lengths) * width, *values.shape[1:])
        return torch.full(shape, fill, dtype=values.dtype, device=values.device).index_copy_(0, place, values)

    scores = None
    if made.logprob is not None:
        tokens, values = made.token.clamp_min(0)[:, None], made.logprob[:, None]
        if made.top_token is not None:
            tokens, values = torch.cat((tokens, made.top_token), 1), torch.cat((values, _some(made.top_logprob)), 1)
        scores = LogprobsTensors(spread(tokens.int(), 0), spread(values, 0.0), spread(_some(made.rank), 0))
    token = spread(made.token.int(), -1).view(len(lengths), width)
    return SamplerOutput(sampled_token_ids=token, logprobs_tensors=scores)


def _gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
    """The most likely tokens of log-probabilities, those of prompts too, and the ranks of given ones."""
    made = sample(logprobs, given_token=token_ids, logprob="raw", top_logprobs=num_logprobs, rank=True)
    tokens = token_ids[:, None] if made.top_token is None else torch.cat((token_ids[:, None], made.top_token), 1)
    return LogprobsTensors(tokens.int(), logprobs.gather(1, tokens.clamp_min(0)), _some(made.rank))


def _build_logitsprocs(vllm_config: Any, device: Any, is_pin_memory: bool, is_pooling_model: bool, *more: Any) -> Any:
    """With speculative decoding vLLM leaves out the processors of plugins."""
    made = _stock["build_logitsprocs"](vllm_config, device, is_pin_memory, is_pooling_model, *more)
    if not is_pooling_model and not any(isinstance(each, Rows) for each in made.all):
        made.argmax_invariant.append(Rows(vllm_config, device, is_pin_memory))
    return made


def _apply_grammar_bitmask(scheduler_output: Any, grammar_output: Any, input_batch: Any, logits: Tensor) -> None:
    """Keep the masks for sample, which reads them as they are, beside the logits."""
    bits = None
    if any(isinstance(each, Rows) and each.state is not None for each in input_batch.logitsprocs.argmax_invariant):
        drafts = scheduler_output.scheduled_spec_decode_tokens
        names = grammar_output.structured_output_request_ids
        bits = sorted_bits(grammar_output.grammar_bitmask, names, input_batch.req_ids, drafts)
    if bits is None or bits.shape != (len(logits), -(-logits.shape[1] // 32)):
        _stock["apply_grammar_bitmask"](scheduler_output, grammar_output, input_batch, logits)
        return
    bits = bits if bits.flags.writeable else bits.copy()  # PyTorch has no tensors that only may be read
    vars(logits)["switchyard_bits"] = torch.from_numpy(bits).to(logits.device)


def _mask(logits: Tensor) -> None:
    """The masks in the logits themselves, for vLLM's own methods."""
    bits = vars(logits).pop("switchyard_bits", None)
    if bits is not None:
        flags = (bits[:, :, None] >> torch.arange(32, device=bits.device)) & 1
        logits.masked_fill_(flags.flatten(1)[:, : logits.shape[1]] == 0, -torch.inf)


def _some(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
