"""switchyard.transformers: experts with the bits of the eager ones, and tokens drawn by sample in generate."""

import copy
import warnings
from typing import Any

import pytest

import switchyard

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5", reason="there is no transformers 5")
ours = pytest.importorskip("switchyard.transformers")

COMMON = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "num_experts_per_tok": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
KINDS: dict[str, dict[str, Any]] = {
    "Olmoe": {"num_experts": 8},
    "Mixtral": {"num_local_experts": 5, "num_experts_per_tok": 3},
    "Qwen3Moe": {"num_experts": 8, "moe_intermediate_size": 20, "head_dim": 8, "norm_topk_prob": True},
    "DeepseekV3": {
        "n_routed_experts": 8,
        "moe_intermediate_size": 20,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
        "num_key_value_heads": 4,
    },
    "Qwen2Moe": {  # reads the input of the experts again after them, for the gate of the shared expert
        "num_experts": 8,
        "moe_intermediate_size": 20,
        "shared_expert_intermediate_size": 24,
        "decoder_sparse_step": 1,
    },
    "GptOss": {"num_local_experts": 8, "head_dim": 8},  # transposed weights and biases
}
PROMPTS = torch.randint(3, 97, (3, 9), generator=torch.Generator().manual_seed(2))
DRAW = {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "max_new_tokens": 7}
FILTERS = {name: DRAW[name] for name in ("temperature", "top_k", "top_p", "min_p")}
SEEDS = [5, (1 << 64) - 6, 7 + (1 << 40)]


def model_of(kind: str) -> Any:
    config = getattr(transformers, f"{kind}Config")(**{**COMMON, **KINDS[kind]})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float()
    numbers = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3, generator=numbers)
    return model


def bits(tensor: Any) -> Any:
    return tensor.detach().view(torch.int32)


def passes(model: Any, implementation: str) -> list[Any]:
    """Logits without and with gradients, and the gradients of all parameters."""
    model.set_experts_implementation(implementation)
    ids = torch.cat([PROMPTS, PROMPTS.flip(1)], 1)
    model.zero_grad()
    with torch.no_grad():
        alone = model(ids).logits
    made = model(ids, labels=ids)
    made.loss.backward()
    return [alone, made.logits, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_bits_of_eager(kind: str) -> None:
    model = model_of(kind)
    theirs, found = passes(model, "eager"), passes(model, "switchyard")
    assert len(theirs) == len(found) > 20
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(theirs, found, strict=True))
    assert not torch.equal(theirs[0], passes(model, "grouped_mm")[0])  # the bits do depend on the order of operations


@pytest.mark.parametrize("kind", list(KINDS))
def test_fast_experts_are_near_the_eager_ones(kind: str) -> None:
    model = model_of(kind)
    theirs, found = passes(model, "eager"), passes(model, "switchyard_fast")
    assert len(theirs) == len(found) > 20
    for a, b in zip(theirs, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5 * float(a.detach().abs().max()))


@pytest.mark.parametrize("size", [24, 21])  # rows of 84 bytes have no grouped product: they have the bits of eager
def test_fast_experts_use_one_product_for_all(size: int) -> None:
    config = transformers.OlmoeConfig(**{**COMMON, "intermediate_size": size}, num_experts=8)
    model = transformers.OlmoeForCausalLM(config).requires_grad_(False)
    with torch.profiler.profile() as made:
        model.set_experts_implementation("switchyard_fast")
        found = model(PROMPTS).logits
    products = sum(event.name == "aten::_grouped_mm" for event in made.events())
    if not hasattr(torch.nn.functional, "grouped_mm"):
        size = 21
    assert products == (2 * config.num_hidden_layers if size == 24 else 0)
    model.set_experts_implementation("switchyard")
    assert size == 24 or torch.equal(bits(found), bits(model(PROMPTS).logits))


def test_fast_experts_train_in_one_graph() -> None:
    if not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("PyTorch has no grouped_mm")
    model = model_of("Olmoe").bfloat16()
    model.set_experts_implementation("switchyard_fast")
    gradients = []
    for each in (model, torch.compile(model, fullgraph=True, backend="eager")):
        model.zero_grad()
        each(PROMPTS, labels=PROMPTS, use_cache=False).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(b, a, rtol=0.05, atol=0.02 * float(a.detach().abs().max()))


@pytest.mark.parametrize("name", ["switchyard", "switchyard_fast"])
@pytest.mark.parametrize("kind", ["Olmoe", "Mixtral", "Qwen3Moe", "GptOss"])
def test_a_whole_model_compiles(kind: str, name: str) -> None:
    """In one graph, with the bits of the experts that are not compiled; of a copy the experts are its own."""
    torch.compiler.reset()  # each model has a graph of its own, and one class at most eight
    model = model_of(kind)
    model.set_experts_implementation(name)
    other = copy.deepcopy(model)
    other.set_experts_implementation(name)
    for parameter in other.parameters():
        parameter.data.mul_(0.9)
    with torch.no_grad():
        for each in (model, other):
            compiled = torch.compile(each, fullgraph=True, backend="eager")
            assert torch.equal(
                bits(compiled(PROMPTS, use_cache=False).logits), bits(each(PROMPTS, use_cache=False).logits)
            )
    assert model.model.layers[0].mlp.experts._switchyard_home.number >= 0
    assert copy.deepcopy(model).model.layers[0].mlp.experts._switchyard_home.number < 0


def test_a_model_without_the_interface() -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON))
    with pytest.warns(UserWarning, match=r"^LlamaForCausalLM has no experts .* 'switchyard' changes nothing$"):
        model.set_experts_implementation("switchyard")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_experts_implementation("eager")
        model_of("Olmoe").set_experts_implementation("switchyard")


def test_choices_without_an_expert() -> None:
    """An id of num_experts is a choice of another process; -1 rows, experts without rows, no rows at all."""
    layer = model_of("Olmoe").model.layers[0].mlp.experts
    hidden = torch.randn(6, 32, requires_grad=True)
    ids = torch.tensor([[8, 1], [2, 8], [8, 8], [7, 1], [1, 2], [2, 7]])
    weights = torch.rand(6, 2, requires_grad=True)
    for some in (ids, torch.full_like(ids, 8)):
        made = []
        for implementation in ("eager", "switchyard"):
            layer.config._experts_implementation = implementation
            hidden.grad = weights.grad = None
            out = layer(hidden, some, weights)
            (out * out).sum().backward() if (some < 8).any() else None
            made.append([out, hidden.grad, weights.grad])
        assert all(a is b is None or torch.equal(bits(a), bits(b)) for a, b in zip(*made, strict=True))
    assert layer(hidden[:0], ids[:0], weights[:0]).shape == (0, 32)


@pytest.mark.parametrize("kind", ["Olmoe", "GptOss"])
def test_fast_choices_without_an_expert(kind: str) -> None:
    """Rows of no expert are not written by the product: no number of theirs is in a result or a gradient."""
    layer = model_of(kind).model.layers[0].mlp.experts
    hidden = torch.randn(6, 32, requires_grad=True)
    ids = torch.tensor([[8, 1], [2, 8], [9, 8], [7, 1], [1, 2], [2, 7]])
    weights = torch.rand(6, 2, requires_grad=True)
    made = []
    for run in (ours.experts_forward, ours.fast_experts_forward):
        layer.zero_grad()
        hidden.grad = weights.grad = None
        torch.full((64, 96), torch.nan)  # what is freed here may be the rows that are not written
        out = run(layer, hidden, ids, weights)
        (out * out).sum().backward()
        made.append([out, hidden.grad, weights.grad, *(parameter.grad for parameter in layer.parameters())])
    assert len(made[0]) > 4
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5 * float(a.detach().abs().max()))


def test_half_precision_rounds_once() -> None:
    """Sums are float32: with one choice the result is eager's, with several it is nearer to the float32 layer."""
    layer = model_of("Olmoe").model.layers[0].mlp.experts
    hidden = torch.randn(40, 32)
    weights, ids = torch.rand(40, 8).softmax(-1).topk(4)
    with torch.no_grad():
        exact = ours.experts_forward(layer, hidden, ids, weights)
        given = (hidden.bfloat16(), ids, weights.bfloat16())
        layer.bfloat16()
        found = ours.experts_forward(layer, *given)
        layer.config._experts_implementation = "eager"
        theirs = layer(*given)
        one = (given[0], ids[:, :1], torch.ones_like(given[2][:, :1]))
        assert torch.equal(layer(*one), ours.experts_forward(layer, *one))
    assert found.dtype == torch.bfloat16
    assert (found.float() - exact).abs().mean() < (theirs.float() - exact).abs().mean()


@pytest.fixture(scope="module")
def model() -> Any:
    return model_of("Olmoe").eval()


def written(model: Any, prompts: Any, seeds: Any, **more: Any) -> Any:
    given = {**DRAW, "custom_generate": ours.generate, "attention_mask": torch.ones_like(prompts), **more}
    return model.generate(prompts, seeds=seeds, **given)


def test_generate_draws_with_sample(model: Any) -> None:
    more = {"output_logits": True, "output_scores": True, "return_dict_in_generate": True}
    made = written(model, PROMPTS, SEEDS, **more)
    tokens = made.sequences[:, PROMPTS.shape[1] :]
    assert len(tokens.unique()) > 10
    for step, (logits, scores) in enumerate(zip(made.logits, made.scores, strict=True)):
        drawn = switchyard.sample(logits.numpy(), seed=SEEDS, offset=step, logprob="final", **FILTERS)
        assert drawn.token.tolist() == tokens[:, step].tolist()
        assert (scores > -torch.inf).sum(1).tolist() == [1, 1, 1]
        assert scores.amax(1).tolist() == drawn.logprob.tolist()
    again = written(model, PROMPTS, SEEDS, output_logits=True, return_dict_in_generate=True)
    assert torch.equal(again.sequences, made.sequences)
    assert all(torch.equal(a, b) for a, b in zip(again.logits, made.logits, strict=True))


def test_a_request_is_the_same_alone_and_in_a_batch(model: Any) -> None:
    together = written(model, PROMPTS, SEEDS)
    for row in (0, 2):
        assert torch.equal(written(model, PROMPTS[row : row + 1], [SEEDS[row]])[0], together[row])
    order = [2, 0, 1]
    assert torch.equal(written(model, PROMPTS[order], [SEEDS[i] for i in order]), together[order])
    twice = written(model, PROMPTS, SEEDS, num_return_sequences=2)
    assert torch.equal(twice[::2], together) and not torch.equal(twice[1::2], together)
    listed = ours.Sampler(SEEDS, **FILTERS)  # used twice: it counts steps anew
    for _ in range(2):
        given = {
            "do_sample": False,
            "max_new_tokens": DRAW["max_new_tokens"],
            "attention_mask": torch.ones_like(PROMPTS),
        }
        assert torch.equal(model.generate(PROMPTS, logits_processor=[listed], **given), together)


def test_one_seed_and_no_seed(model: Any) -> None:
    same = PROMPTS[:1].expand(3, -1)
    rows = written(model, same, 11)
    assert len({tuple(row) for row in rows.tolist()}) == 3
    assert torch.equal(rows, written(model, same, 11))
    torch.manual_seed(4)
    first = written(model, same, None)
    torch.manual_seed(4)
    assert torch.equal(first, written(model, same, None)) and not torch.equal(first, written(model, same, None))


def test_other_processors_stay(model: Any) -> None:
    greedy = written(model, PROMPTS, None, do_sample=False, repetition_penalty=1.5)
    mask = torch.ones_like(PROMPTS)
    theirs = model.generate(PROMPTS, do_sample=False, max_new_tokens=7, repetition_penalty=1.5, attention_mask=mask)
    assert torch.equal(greedy, theirs)
    banned = sorted(set(written(model, PROMPTS, SEEDS)[:, 9:].flatten().tolist()))
    free = written(model, PROMPTS, SEEDS, suppress_tokens=banned)[:, 9:].flatten().tolist()
    assert not set(free) & set(banned)


def test_nan_and_infinite_logits() -> None:
    logits = torch.tensor([[0.0, torch.nan, 3, 1], [0, torch.inf, torch.inf, 1], [-torch.inf] * 4])
    before = logits.clone()
    token = ours.Sampler([1, 2, 3])(torch.zeros(3, 5), logits).argmax(1)
    assert token.tolist() == switchyard.sample(logits.numpy(), seed=[1, 2, 3], empty_token=0).token.tolist()
    assert torch.equal(logits.nan_to_num(), before.nan_to_num())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"seeds": [1, 2]}, r"seeds has 2 numbers, want 3, or one int$"),
        ({"seeds": [1, 2], "num_return_sequences": 2}, r"seeds has 2 numbers, want 6 or 3, or one int$"),
        ({"seeds": [1.5, 2, 3]}, r"seeds is 1.5, want an integer$"),
        ({"typical_p": 0.5}, r"typical_p is 0.5, want None: "),
        ({"epsilon_cutoff": 0.1}, r"epsilon_cutoff is 0.1, want None: "),
        ({"num_beams": 2}, r"num_beams is 2, want 1$"),
    ],
)
def test_rejections(model: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(switchyard.Error, match=rf"^transformers.generate: {text}"):
        written(model, PROMPTS, given.pop("seeds", SEEDS), **given)
