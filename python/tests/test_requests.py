"""switchyard.requests: what a changing batch draws against what each request draws from logits changed by hand."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import switchyard

torch = pytest.importorskip("torch")
requests = pytest.importorskip("switchyard.requests")
Batch, Settings = requests.Batch, requests.Settings

V = 200
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def some_settings(rng: np.random.Generator) -> Any:
    """Settings of which each stage is left out half of the time."""
    give = lambda value: value if rng.random() < 0.5 else None  # noqa: E731
    tokens = lambda count: [int(t) for t in rng.choice(12, count, replace=False)]  # noqa: E731
    values = {
        "temperature": give(float(rng.choice([0.0, 0.3, 1.5]))),
        "top_k": give(int(rng.choice([-1, 1, 5, 50, V + 1]))),
        "top_p": give(float(rng.choice([0.3, 0.9, 1.0]))),
        "min_p": give(float(rng.choice([0.02, 0.3]))),
        "repetition_penalty": give(1.7),
        "frequency_penalty": give(0.6),
        "presence_penalty": give(-0.4),
        "bias": give({int(t): float(b) for t, b in zip(tokens(3), [4.5, -2.25, 1.1], strict=True)}),
        "bad_words": give([tokens(1), tokens(2), [3, 3]]),
        "stop_tokens": give(tokens(3)),
        "min_tokens": give(int(rng.integers(1, 6))),
        "allowed": give(tokens(10)),
        "seed": int(rng.integers(0, 2**63)) * 2 + 1,
        "logprobs": give(int(rng.integers(0, 4))),
        "scored": give(tokens(2)),
    }
    return Settings(**{name: value for name, value in values.items() if value is not None})


def peaked(rng: np.random.Generator, rows: int, dtype: Any = torch.float32) -> Any:
    """Logits whose largest are among the first tokens, which the settings concern."""
    logits = rng.standard_normal((rows, V)) * 2
    logits[:, :12] += 4
    return torch.from_numpy(logits.astype(np.float32)).to(dtype)


def by_definition(logits: np.ndarray, settings: Any, prompt: list[int], output: list[int], order: str) -> np.ndarray:
    """A row's logits after penalties, biases and bans, one token after the other in float32."""
    made = logits.astype(np.float32).copy()
    banned = {words[-1] for words in settings.bad_words if output[len(output) - len(words) + 1 :] == words[:-1]
              and len(output) >= len(words) - 1}  # fmt: skip
    if len(output) < settings.min_tokens:
        banned |= set(settings.stop_tokens)
    for token in range(V):
        x, bias = made[token], np.float32((settings.bias or {}).get(token, 0))
        if order == "vllm":
            x = x + bias
        if token in prompt or token in output:
            r = np.float32(settings.repetition_penalty)
            x = x / r if x > 0 else x * r
        if token in output:
            x = x - np.float32(settings.frequency_penalty) * np.float32(output.count(token))
            x = x - np.float32(settings.presence_penalty)
        made[token] = -np.inf if token in banned else x if order == "vllm" else x + bias
    return made


def drawn_alone(logits: Any, settings: Any, made: np.ndarray, step: int, order: str) -> Any:
    """The token of one row whose logits have been changed by hand."""
    if settings.allowed is not None:
        forbidden = np.ones(V, bool)
        forbidden[list(settings.allowed)] = False
        made = np.where(forbidden, -np.inf, made)
    if order == "vllm" and settings.min_p > 0 and settings.temperature >= 1e-5:  # cut by hand, before the others
        weights = np.exp((made.astype(np.float64) - made.max()) / settings.temperature)
        made = np.where(weights < settings.min_p, np.float32(-np.inf), made)
        settings = dataclasses.replace(settings, min_p=0.0)
    given = {name: getattr(settings, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    ties: Any = "all" if order == "vllm" else "exact"
    seed = np.array([settings.seed], np.uint64)
    return switchyard.sample(np.ascontiguousarray(made)[None], **given, seed=seed, offset=step, ties=ties).token[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ["switchyard", "vllm"])
@pytest.mark.parametrize("seed", range(4))
def test_steps_of_a_changing_batch(seed: int, order: Any, device: str) -> None:
    """Requests come, go and change rows; in each step every row draws what it draws alone."""
    rng = np.random.default_rng(seed)
    batch, prompts = Batch(V, order=order, device=device), {}
    counts = dict.fromkeys(("penalised", "banned", "short", "bias and penalty", "min-p and top-p", "drawn"), 0)
    for _ in range(40):
        for _ in range(int(rng.integers(0, 3))):
            settings, prompt = some_settings(rng), [int(t) for t in rng.integers(0, 12, int(rng.integers(0, 6)))]
            prompts[batch.add(settings, prompt)] = prompt
        if len(batch) > 5 or (len(batch) and rng.random() < 0.2):
            row = int(rng.integers(len(batch)))
            prompts[row] = prompts[len(batch) - 1]
            batch.remove(row)
        if len(batch) > 1:
            a, b = (int(row) for row in rng.integers(0, len(batch), 2))
            batch.swap(a, b)
            prompts[a], prompts[b] = prompts[b], prompts[a]
        if not len(batch):
            continue
        logits = peaked(rng, len(batch), torch.bfloat16 if rng.random() < 0.3 else torch.float32)
        drawn = batch.sample(logits.to(device))
        token = drawn.token.cpu()
        for row in range(len(batch)):
            settings, output = batch.settings(row), batch.output(row)
            made = by_definition(logits[row].float().numpy(), settings, prompts[row], output, order)
            assert int(token[row]) == drawn_alone(logits[row], settings, made, len(output), order), (row, settings)
            counts["penalised"] += settings.repetition_penalty != 1 and bool(output)
            counts["banned"] += any(len(words) > 1 and words[:-1] == output[-1:] for words in settings.bad_words)
            counts["short"] += 0 < len(output) < settings.min_tokens and bool(settings.stop_tokens)
            counts["bias and penalty"] += (
                bool(set(settings.bias or {}) & set(output)) and settings.frequency_penalty != 0
            )
            counts["min-p and top-p"] += settings.min_p > 0 and settings.top_p < 1 and settings.temperature > 0
            counts["drawn"] += settings.temperature > 0
            if settings.logprobs is not None:
                raw = torch.log_softmax(logits[row].double(), 0)
                assert float(drawn.logprob[row]) == pytest.approx(float(raw[token[row]]), abs=2e-6)
                best = drawn.top_logprob[row, : settings.logprobs].tolist() if settings.logprobs else []
                assert best == pytest.approx(raw.topk(settings.logprobs).values.tolist(), abs=2e-6)
            for place, one in enumerate(settings.scored):
                raw = torch.log_softmax(logits[row].double(), 0)
                assert float(drawn.score_logprob[row, place]) == pytest.approx(float(raw[one]), abs=2e-6)
        batch.append(drawn.token)
    assert all(count > 4 for count in counts.values()), counts


def test_a_request_draws_the_same_tokens_alone_and_in_a_batch() -> None:
    rng = np.random.default_rng(5)
    every = [some_settings(rng) for _ in range(8)]
    steps = [peaked(rng, 8) for _ in range(10)]
    batch = Batch(V)
    for settings in every:
        batch.add(settings, [1, 2])
    for logits in steps:
        batch.append(batch.sample(logits).token)
    for row, settings in enumerate(every):
        alone = Batch(V)
        alone.add(settings, [1, 2])
        for logits in steps:
            alone.append(alone.sample(logits[row : row + 1]).token)
        assert alone.output(0) == batch.output(row)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ["switchyard", "vllm"])
def test_tokens_of_drafts_are_those_without(order: Any, device: str) -> None:
    """It returns what sample draws step by step, with penalties, biases and bans that count the drafts."""
    rows, steps, accepted = 8, 8, 0
    counts = dict.fromkeys(("min-p and top-p", "bias and penalty"), 0)
    for seed in range(25):  # 200 requests
        rng = np.random.default_rng(seed)
        table = peaked(rng, V).to(device)  # the model: logits of the next token by the last
        every = [dataclasses.replace(some_settings(rng), logprobs=None, scored=()) for _ in range(rows)]
        plain, fast = Batch(V, order=order, device=device), Batch(V, order=order, device=device)
        for settings in every:
            plain.add(settings, [1, 2])
            fast.add(settings, [1, 2])
            counts["min-p and top-p"] += settings.min_p > 0 and settings.top_p < 1 and settings.temperature > 0
            counts["bias and penalty"] += bool(settings.bias) and settings.frequency_penalty != 0
        for _ in range(steps):
            plain.append(plain.sample(table[[(plain.output(row) or [2])[-1] for row in range(rows)]]).token)
        while any(len(fast.output(row)) < steps for row in range(rows)):
            drafts, lengths = [], []
            for row in range(rows):
                done = fast.output(row)
                guesses = plain.output(row)[len(done) : len(done) + int(rng.integers(0, 4))]
                if guesses and rng.random() < 0.4:
                    guesses[-1] = (guesses[-1] + 1) % V
                drafts += [(done or [2])[-1], *guesses]
                lengths.append(1 + len(guesses))
            cu_lens, draft = torch.tensor(np.cumsum([0, *lengths])), torch.tensor(drafts)
            made = fast.verify(table[draft], cu_lens.to(device), draft.to(device), max(lengths))
            for row in range(rows):
                count = int(made.count[row])
                accepted += count - 1
                fast.output(row).extend(made.token[cu_lens[row] : cu_lens[row] + count].tolist())
        for row in range(rows):
            assert fast.output(row)[:steps] == plain.output(row), (seed, every[row])
    assert accepted > 400
    assert all(count > 20 for count in counts.values()), counts


def test_an_output_that_its_engine_appends_to() -> None:
    """Tokens that are not known yet, -1, count as steps and not as history."""
    mine: list[int] = []
    batch, other = Batch(V), Batch(V)
    settings = Settings(temperature=0.0, presence_penalty=50.0, stop_tokens=[7], min_tokens=3)
    batch.add(settings, output=mine)
    other.add(Settings(stop_tokens=[7], min_tokens=3, seed=1), output=mine)
    logits = torch.zeros(1, V)
    logits[0, 3], logits[0, 7] = 9, 10
    assert batch.sample(logits).token.tolist() == [3]
    mine.append(-1)
    assert batch.sample(logits).token.tolist() == [3]
    mine[:] = [3, 3]
    assert batch.sample(logits).token.tolist() not in ([3], [7])
    assert other.arguments(logits)["offset"].tolist() == [2]
    mine.append(-1)
    assert batch.sample(logits).token.tolist() == [7]


def test_rejections() -> None:
    with pytest.raises(switchyard.Error, match=r"^requests.Batch: seed is -1, want 0 to 18446744073709551615$"):
        Batch(V).add(Settings(seed=-1))
    batch = Batch(V)
    batch.add(Settings(allowed=[V]))
    with pytest.raises(IndexError, match=f"allowed tokens are from 0 to {V - 1}$"):
        batch.sample(torch.zeros(1, V))
    batch = Batch(V)
    batch.add(Settings(), row=1)
    with pytest.raises(IndexError, match=r"row 0 is empty$"):
        batch.sample(torch.zeros(2, V))


def test_seeds_of_requests_without_one() -> None:
    """They come from the entropy of the batch, in the order of arrival."""
    logits = torch.zeros(1, V).expand(6, V).contiguous()
    drawn = []
    for entropy in (1, 1, 2):
        batch = Batch(V, entropy=entropy)
        for _ in range(6):
            batch.add(Settings())
        drawn.append(batch.sample(logits).token.tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 3
