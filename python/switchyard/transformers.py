"""Switchyard's operators in Hugging Face transformers: an implementation of experts, and sampling for generate.

Importing this module registers the experts: ``model.set_experts_implementation("switchyard")``, with the bits of
"eager", or ``"switchyard_fast"``, with grouped matrix products.
"""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

try:
    import transformers as _transformers
except ModuleNotFoundError as _error:
    if _error.name != "transformers":
        raise
    _text = "switchyard.transformers needs transformers 5 or newer, and there is none: pip install 'transformers>=5'"
    raise ModuleNotFoundError(_text, name="transformers") from None
from . import torch as _sy  # names what is missing where there is no PyTorch, without which transformers has no experts

try:
    from transformers.integrations.moe import ExpertsInterface
except ImportError:
    _text = f"switchyard.transformers needs transformers 5 or newer, and there is {_transformers.__version__}"
    raise ImportError(_text, name="transformers") from None

import torch as _torch
from torch import Tensor
from transformers.generation import logits_process as _stock

from . import _words
from ._numbers import low_bits
from ._sentences import bad, shown
from .errors import Status

__all__ = ["Sampler", "experts_forward", "fast_experts_forward", "generate"]


def experts_forward(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Run the experts of a layer: each on its tokens, in one group; then the weighted sum of each token's rows.

    ``model.set_experts_implementation("switchyard")`` makes a model call it. In float32 the result and all gradients
    have the bits of transformers' "eager" implementation: rows of an expert are in its order (by choice, then by
    token), every expert makes the same PyTorch calls on the same shapes, and sums run over experts in the same order.

    Args:
        module: the experts: a module of a class that transformers decorates with ``use_experts_implementation``.
        hidden_states: [T, H] float32, float16 or bfloat16.
        top_k_index: [T, K]: the experts of each token; num_experts and above: none.
        top_k_weights: [T, K]: their weights.

    Returns:
        [T, H], of the type of ``hidden_states``.
    """
    return _forward(module, hidden_states, top_k_index, top_k_weights, fast=False)


def fast_experts_forward(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Run the experts of a layer with one grouped matrix product for all of them, in the place of one for each.

    ``model.set_experts_implementation("switchyard_fast")`` makes a model call it. Rows are moved and summed as by
    :func:`experts_forward`, but products and so the bits are those of ``torch.nn.functional.grouped_mm``. Where PyTorch
    has none for a layer (before 2.10, GPUs before Ampere, rows that are no multiple of 16 bytes), it is
    :func:`experts_forward`.

    Args:
        module: as in experts_forward, and so are ``hidden_states``, ``top_k_index`` and ``top_k_weights``.
        hidden_states: [T, H].
        top_k_index: [T, K].
        top_k_weights: [T, K].

    Returns:
        [T, H], of the type of ``hidden_states``.
    """
    return _forward(module, hidden_states, top_k_index, top_k_weights, fast=True)


def _forward(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor, fast: bool) -> Tensor:
    if _torch.compiler.is_compiling():
        home = getattr(module, "_switchyard_home", None)
        trains = _torch.is_grad_enabled() and (top_k_weights.requires_grad or _trains(module, hidden_states))
        if home is not None and home.number >= 0 and not trains:
            made: Tensor = _opaque(hidden_states, top_k_index, top_k_weights, home.number, fast)
            return made
    return (_fast if fast else _experts)(module, hidden_states, top_k_index, top_k_weights)


class _Home:
    """The number of a module, by which the operator finds it; that of a copy is another."""

    modules: ClassVar[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
    numbers: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(self, module: Any = None) -> None:
        self.number = -1 if module is None else next(self.numbers)
        if module is not None:
            self.modules[self.number] = module

    def __deepcopy__(self, memo: Any) -> _Home:
        return _Home()

    def __reduce__(self) -> Any:
        return _Home, ()


@_torch.library.custom_op("switchyard::experts", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
def _opaque(hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor, number: int, fast: bool) -> Tensor:
    """The experts in a compiled graph: one operator, whose reads of numbers of rows are no break of the graph."""
    with _torch.no_grad():
        return (_fast if fast else _experts)(_Home.modules[number], hidden_states, top_k_index, top_k_weights)


@_opaque.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _like(hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor, number: int, fast: bool) -> Tensor:
    return hidden_states.new_empty(hidden_states.shape)


def _experts(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    count, choices = top_k_index.shape
    if count == 0 or choices == 0:
        return _torch.zeros_like(hidden_states)
    ids = top_k_index.t().to(_torch.int32).contiguous()  # as moe_locations has it: all tokens of choice 0 first
    slots = _sy.moe_locations(ids, num_experts=module.num_experts)
    counts = slots.counts.tolist()
    missing = sum(counts) < count * choices
    begin = slots.counts.cumsum(0) - slots.counts
    row = slots.locations + begin[ids.long().clamp(0, module.num_experts - 1)].to(_torch.int32)
    row = (_torch.where(slots.locations < 0, -1, row) if missing else row).t()
    order = top_k_index.argsort(dim=-1, stable=True)
    row = row.gather(1, order)  # [T, K]: the rows of each token, experts ascending
    weights = top_k_weights.gather(1, order)

    exact = hidden_states.dtype == _torch.float32 == weights.dtype
    apart = exact and _torch.is_grad_enabled() and (weights.requires_grad or _trains(module, hidden_states))
    given = _sy.moe_permute_ids(
        hidden_states.detach() if apart else hidden_states,
        row,
        weights if apart else None,
        num_experts=count * choices if missing else 0,
        allow_missing=missing,
    )
    rows = given.permuted_tokens
    if apart and hidden_states.requires_grad:
        views = [hidden_states.view_as(hidden_states) for _ in range(choices)]
        rows = _Rows.apply(rows, row, *views)  # type: ignore[no-untyped-call]
    rows = _run(module, rows, counts, given.permuted_probs)
    if apart:
        return _sy.moe_unpermute_ids(rows, row.reshape(-1), num_tokens=count)
    return _sy.moe_unpermute_ids(rows, row.reshape(-1), weights).to(hidden_states.dtype)


class _Rows(_torch.autograd.Function):
    """The rows of the experts, with a gradient for each choice of a token instead of their sum.

    Autograd runs the latest nodes first: what a model did with its hidden states after the experts, then the views here
    from the last choice, the token's highest expert, to the first. So it adds to the gradient of a token what eager
    adds, in that order.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, row: Tensor, *views: Tensor) -> Tensor:
        ctx.save_for_backward(row)
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        parts = []
        for choice in ctx.saved_tensors[0].unbind(1):
            part = grad.index_select(0, choice.clamp_min(0)).add_(0.0)  # eager adds to zeros: no -0
            parts.append(part.masked_fill_(choice[:, None] < 0, 0.0))
        return None, None, *parts


def _trains(module: Any, hidden_states: Tensor) -> bool:
    return hidden_states.requires_grad or any(parameter.requires_grad for parameter in module.parameters())


def _run(module: Any, rows: Tensor, counts: list[int], weights: Tensor | None) -> Tensor:
    """The rows that the experts make, in the order of theirs; times their weights if these are given."""
    names = _names(module)
    into, out = (_of_each(getattr(module, name)) for name in names)
    bias_in, bias_out = ([None] * len(into) for _ in names)
    if module.has_bias:
        bias_in, bias_out = (_of_each(getattr(module, f"{name}_bias")) for name in names)
    counts = [*counts, rows.shape[0] - sum(counts)]  # the last: choices without an expert
    made = []
    parts = rows.split_with_sizes(counts)
    for e, part in enumerate(parts[:-1]):
        if counts[e] == 0:
            continue
        inner = _linear(part, into[e], bias_in[e], module.is_transposed)
        inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
        outer = _linear(inner, out[e], bias_out[e], module.is_transposed)
        if getattr(module, "has_post_expert_norm", False):
            outer = module.post_expert_norm(outer)
        made.append(outer)
    if not made:
        return rows[:0]
    if weights is not None:
        shares = [share for share in weights.split_with_sizes(counts)[:-1] if len(share)]
        made = [outer * share[:, None] for outer, share in zip(made, shares, strict=True)]
    return _torch.cat(made)


def _names(module: Any) -> tuple[str, str]:
    return "gate_up_proj" if module.has_gate else "up_proj", "down_proj"


def _of_each(parameter: Tensor) -> Any:
    """The parameter of each expert: indexed one by one, or with one gradient for all of them."""
    return parameter.unbind(0) if parameter.requires_grad and _torch.is_grad_enabled() else parameter


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None, is_transposed: bool) -> Tensor:
    if not is_transposed:
        return _torch.nn.functional.linear(rows, weight, bias)
    return rows @ weight if bias is None else rows @ weight + bias


def _fast(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    into, out = (getattr(module, name) for name in _names(module))
    if not top_k_index.numel() or not _has_product(module, hidden_states, into, out):
        return _experts(module, hidden_states, top_k_index, top_k_weights)
    ids = top_k_index.clamp(max=module.num_experts)
    given = _sy.moe_permute_ids(hidden_states, ids, num_experts=module.num_experts, allow_missing=True)
    offsets: Any = given.expert_offsets
    ends = offsets[1:].to(_torch.int32)
    bias_in = bias_out = None
    if module.has_bias:
        expert = _torch.searchsorted(ends, _torch.arange(ids.numel(), device=ids.device), right=True)
        # Rows of no expert have a row of zeros: their gradients are not numbers, and must reach no bias.
        tables = (_torch.nn.functional.pad(getattr(module, f"{name}_bias"), (0, 0, 0, 1)) for name in _names(module))
        bias_in, bias_out = (table[expert] for table in tables)
    inner = _product(given.permuted_tokens, into, bias_in, ends, module.is_transposed)
    inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    outer = _product(inner, out, bias_out, ends, module.is_transposed)
    return _sy.moe_unpermute_ids(outer, given.sorted_indices, top_k_weights).to(hidden_states.dtype)


def _has_product(module: Any, hidden_states: Tensor, into: Tensor, out: Tensor) -> bool:
    """Whether PyTorch's grouped product takes these experts, and all their rows can be one tensor."""
    if not hasattr(_torch.nn.functional, "grouped_mm") or getattr(module, "has_post_expert_norm", False):
        return False
    if into.device.type == "cuda" and _torch.cuda.get_device_capability(into.device) < (8, 0):
        return False
    if _torch.compiler.is_compiling():
        if into.dtype != _torch.bfloat16:  # the only type that it is traced with
            return False
    elif _torch.__version__ < "2.11" and (into.data_ptr() | out.data_ptr()) % 16:  # in a file mapped to memory
        return False
    same = hidden_states.dtype == into.dtype == out.dtype
    return same and all(size * into.element_size() % 16 == 0 for size in (*into.shape[1:], *out.shape[1:]))


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None, ends: Tensor, is_transposed: bool) -> Tensor:
    made: Tensor = _torch.nn.functional.grouped_mm(rows, weight if is_transposed else weight.mT, offs=ends)
    return made if bias is None else made + bias


# The stages of transformers' list that sample replaces, and those that it has no equivalent of.
_REPLACED = ("TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper")
_NOT_MAPPED = ("typical_p", "epsilon_cutoff", "eta_cutoff", "top_h", "watermarking_config")


class Sampler:
    """A logits processor that draws the tokens of a batch with :func:`switchyard.sample`.

    It goes last in the list of a greedy ``generate``: it raises the logit of the token that it draws to +inf, which
    the largest logit then finds. :func:`generate` makes one from a GenerationConfig. Each use in a ``generate`` counts
    its steps from 0: with the same seed a request gets the same tokens in any batch and in any row of it.

    Args:
        seeds: a seed for each request, from 0 to 2^64 - 1; or one, with which rows draw different numbers.
        temperature: as in sample, and so are ``top_k``, ``top_p``, ``min_p`` and ``noise``.
        sequences: rows of each request, next to each other, as ``num_return_sequences`` makes them.
        scores: the processor returns -inf, and the log-probability of the token that it draws.
    """

    def __init__(
        self,
        seeds: int | Sequence[int],
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        noise: _words.SampleNoise = "cdf",
        sequences: int = 1,
        scores: bool = False,
    ) -> None:
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        self._given: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self._noise: _words.SampleNoise = noise
        self._scores = scores
        self._sequences = sequences
        self._seeds = [seeds] if isinstance(seeds, int) else list(seeds)
        self._one = isinstance(seeds, int)
        self._rows: tuple[Tensor, Tensor] | None = None  # seed and stream of each
        self._begin = self._last = -1  # lengths of the sequences, in the first and in the last step

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        length = input_ids.shape[1]
        if self._rows is None or length != self._last + 1:
            self._rows = self._of_rows(scores)
            self._begin = length
        self._last = length
        if self._noise != "none":
            seed, stream = self._rows
            self._given.update(seed=seed, stream=stream, offset=length - self._begin)
        drawn = _sy.sample(
            scores,
            **self._given,
            noise=self._noise,
            empty_token=0,
            logprob="final" if self._scores else "none",
        )
        token = drawn.token[:, None]
        if drawn.logprob is not None:
            return _torch.full_like(scores, -_torch.inf).scatter_(1, token, drawn.logprob[:, None])
        if (drawn.row_flags.to(_torch.int64) & 3).any():  # NaN or +inf: another token might be the largest
            return _torch.full_like(scores, -_torch.inf).scatter_(1, token, 0.0)
        return scores.scatter(1, token, _torch.inf)

    def _of_rows(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        rows, requests = scores.shape[0], len(self._seeds)
        numbers = [low_bits("transformers.generate", "seeds", seed) for seed in self._seeds]
        if self._one:
            numbers, streams = numbers * rows, list(range(rows))
        elif requests == rows:
            streams = [0] * rows
        elif requests * self._sequences == rows:
            streams = list(range(self._sequences)) * requests
            numbers = [number for number in numbers for _ in range(self._sequences)]
        else:
            want = f"{rows}" if self._sequences == 1 else f"{rows} or {rows // self._sequences}"
            raise bad(
                Status.SHAPE, "transformers.generate", "seeds", f"has {requests} numbers, want {want}, or one int"
            )
        made = [_torch.tensor(values, dtype=_torch.int64, device=scores.device) for values in (numbers, streams)]
        return made[0], made[1]


def generate(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    seeds: int | Sequence[int] | None = None,
    noise: _words.SampleNoise = "cdf",
    **model_kwargs: Any,
) -> Any:
    """Generate text with tokens drawn by :func:`switchyard.sample`: ``model.generate(custom_generate=generate)``.

    ``model.generate(ids, do_sample=True, top_p=0.9, custom_generate=switchyard.transformers.generate, seeds=[1, 2])``
    takes ``temperature``, ``top_k``, ``top_p`` and ``min_p`` from its GenerationConfig; penalties, biases and other
    processors of logits stay transformers' own. The loop around the model is transformers' own too.

    Args:
        model: the first five arguments are passed by ``model.generate``.
        input_ids: [B, n]: the prompts.
        logits_processor: transformers' list.
        stopping_criteria: transformers' list.
        generation_config: with the parameters of sample. Without ``do_sample`` the largest logit is taken.
        seeds: a seed for each request, or one for all; None: one from PyTorch's generator.
        noise: how sample draws.
        **model_kwargs: passed on to the model.

    Returns:
        What ``model.generate`` returns. With ``output_scores`` a score is the log-probability of the token that was
        drawn, among the candidates, and -inf for all others.
    """
    config = copy.copy(generation_config)
    _reject(config)
    if config.do_sample:
        replaced = tuple(getattr(_stock, name) for name in _REPLACED)
        logits_processor = _stock.LogitsProcessorList(p for p in logits_processor if type(p) not in replaced)
        if seeds is None:
            seeds = int(_torch.randint(1 << 62, ()))
        given = {name: getattr(config, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        sequences = int(getattr(config, "num_return_sequences", None) or 1)
        scores = bool(config.output_scores and config.return_dict_in_generate)
        logits_processor.append(Sampler(seeds, **given, noise=noise, sequences=sequences, scores=scores))
        config.do_sample = False
    return model._sample(input_ids, logits_processor, stopping_criteria, config, **model_kwargs)


def _reject(config: Any) -> None:
    """Settings that sample cannot serve. Their neutral values are transformers' own."""
    beams = getattr(config, "num_beams", None)
    if beams not in (None, 1):
        raise bad(Status.UNSUPPORTED, "transformers.generate", "num_beams", f"is {shown(beams)}, want 1")
    for name in _NOT_MAPPED if config.do_sample else ():
        value = getattr(config, name, None)
        if value is None or value in ((0, 0.0) if name.endswith("cutoff") else (1, 1.0)):
            continue
        raise bad(
            Status.UNSUPPORTED, "transformers.generate", name, f"is {shown(value)}, want None: it has no such stage"
        )


def _set_experts(stock: Any) -> Any:
    """The method of models, with a warning where it changes nothing: it returns without a word there."""

    @functools.wraps(stock)
    def set_experts_implementation(self: Any, experts_implementation: str | dict[str, str]) -> None:
        stock(self, experts_implementation)
        used = [m for m in self.modules() if _is_experts(m) and m.config._experts_implementation in _NAMES]
        for module in used:
            module._switchyard_home = _Home(module)
        if "switchyard" in str(experts_implementation) and not used:
            text = f"{type(self).__name__} has no experts that use the interface of transformers"
            warnings.warn(f"{text}: {experts_implementation!r} changes nothing", UserWarning, stacklevel=2)

    return set_experts_implementation


def _is_experts(module: Any) -> bool:
    return hasattr(module, "is_transposed") and hasattr(module, "has_gate")  # by use_experts_implementation


_NAMES = ("switchyard", "switchyard_fast")
for _name, _function in zip(_NAMES, (experts_forward, fast_experts_forward), strict=True):
    ExpertsInterface.register(_name, _function)
_model = _transformers.PreTrainedModel
_model.set_experts_implementation = _set_experts(_model.set_experts_implementation)
