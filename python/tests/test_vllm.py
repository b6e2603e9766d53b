"""switchyard.vllm without vLLM: rows against those of a batch that vLLM would have, grammar masks, versions."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
plugin = pytest.importorskip("switchyard.vllm")
state_module = pytest.importorskip("switchyard.vllm._state")
State, sorted_bits, settings_of = state_module.State, state_module.sorted_bits, state_module.settings_of

V = 80
PARAMS: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "logit_bias": None,
    "bad_words_token_ids": None,
    "all_stop_token_ids": set(),
    "min_tokens": 0,
    "allowed_token_ids": None,
    "seed": None,
    "logprobs": None,
    "structured_outputs": None,
}


def params(**given: Any) -> Any:
    return SimpleNamespace(**{**PARAMS, **given})


class Runner:
    """Rows as vLLM's InputBatch keeps them: new requests fill the lowest free rows, the last rows fill the others."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def step(self, rng: np.random.Generator, new: list[Any]) -> tuple[int, list[int], list[Any], list[Any]]:
        """What its BatchUpdate holds."""
        free = sorted(
            int(row) for row in rng.choice(len(self.rows), int(rng.integers(len(self.rows) + 1)), replace=False)
        )
        for row in free:
            self.rows[row] = None
        added = []
        for request in new:
            row = free.pop(0) if free else len(self.rows)
            self.rows[row : row + 1] = [request]
            added.append((row, request.params, request.prompt, request.output))
        removed, moved = sorted(free, reverse=True), []
        for row in sorted(free):
            while self.rows and self.rows[-1] is None:
                self.rows.pop()
            if row < len(self.rows):
                moved.append((len(self.rows) - 1, row, False))
                self.rows[row] = self.rows.pop()
        if len(self.rows) > 1 and rng.random() < 0.5:
            a, b = (int(row) for row in rng.choice(len(self.rows), 2, replace=False))
            self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
            moved.append((a, b, True))
        return len(self.rows), removed, added, moved


def request(number: int, rng: np.random.Generator) -> Any:
    given = {
        "seed": number,
        "temperature": float(rng.choice([0.0, 0.9])),
        "presence_penalty": float(rng.choice([0, 3])),
    }
    if rng.random() < 0.3:
        given |= {"structured_outputs": object(), "min_tokens": 4, "all_stop_token_ids": {2, 3}}
    return SimpleNamespace(params=params(**given), prompt=[number % V], output=[])


@pytest.mark.parametrize("seed", range(6))
def test_rows_follow_the_batch(seed: int) -> None:
    """After any updates every row draws what its request draws alone."""
    rng = np.random.default_rng(seed)
    runner, state, number, steps, moves = Runner(), State(V), 0, 0, 0
    for _ in range(40):
        new = [request(number + i, rng) for i in range(int(rng.integers(3)))]
        number += len(new)
        update = runner.step(rng, new)
        state.update(*update)
        moves += len(update[3])
        assert len(state) == len(runner.rows)
        if not runner.rows:
            continue
        logits = torch.from_numpy(rng.standard_normal((len(runner.rows), V)).astype(np.float32)) * 2
        logits[:, 2] += 5
        drawn = state.sample(logits).token.tolist()
        for row, each in enumerate(runner.rows):
            alone = State(V)
            alone.update(1, [], [(0, each.params, each.prompt, each.output)], [])
            assert alone.sample(logits[row : row + 1]).token.tolist() == drawn[row : row + 1]
            if each.params.structured_outputs is not None and len(each.output) < 4:
                assert drawn[row] not in (2, 3)
                steps += 1
        for each, token in zip(runner.rows, drawn, strict=True):
            each.output.append(token)
    assert moves > 5
    assert steps > 10


def test_a_grammar_that_allows_only_stop_tokens() -> None:
    """They stay allowed below min_tokens; with another token they do not."""
    state = State(V)
    stops = params(temperature=0.0, structured_outputs=object(), min_tokens=2, all_stop_token_ids={5})
    state.update(2, [], [(row, stops, [1], []) for row in range(2)], [])
    bits = np.zeros((2, 3), np.int32)
    bits[:, 0] = 1 << 5
    bits[1, 1] = 1 << 7
    logits = torch.zeros(2, V)
    logits[:, 5] = 9
    kept = torch.from_numpy(bits.copy())
    assert state.sample(logits, kept).token.tolist() == [5, 39]
    assert (kept.numpy() == bits).all()


@pytest.mark.parametrize("seed", range(4))
def test_masks_in_the_order_of_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [f"r{i}" for i in range(6)]
    drafts = {name: [0] * int(rng.integers(3)) for name in rows if rng.random() < 0.5}
    names = [str(name) for name in rng.permutation([*rows[1:4], "elsewhere"])]
    bitmask = rng.integers(0, 1 << 31, (sum(1 + len(drafts.get(name, ())) for name in names), 2)).astype(np.int32)
    made, at = sorted_bits(bitmask, names, rows, drafts), 0
    masks = {}
    for name in names:
        masks[name] = bitmask[at : at + 1 + len(drafts.get(name, ()))]
        at += len(masks[name])
    want = [masks.get(name, np.full((1 + len(drafts.get(name, ())), 2), -1, np.int32)) for name in rows]
    assert (made == np.concatenate(want)).all()
    assert sorted_bits(made, rows, rows, drafts) is made


def test_settings() -> None:
    made = settings_of(
        params(top_k=-1, seed=-1, logprobs=-1, min_tokens=2, all_stop_token_ids={7, V}, logit_bias={}), V
    )
    assert (made.top_k, made.seed, made.logprobs) == (0, 2**64 - 1, V)
    assert (made.stop_tokens, made.bias, made.bad_words) == ([7], None, ())


@pytest.mark.parametrize(
    ("named", "version", "text"),
    [
        ({"sampler"}, "0.32.0", ""),
        ({"sampler"}, "0.32.1+cpu", ""),
        ({"sampler"}, "0.33.0", "there is vLLM 0.33.0, want 0.32.x"),
        ({"sampler"}, "", "there is vLLM of no known version, want 0.32.x"),
        ({"sampler", "moe"}, "0.32.0", 'SWITCHYARD_VLLM names "moe", want sampler'),
    ],
)
def test_versions(named: set[str], version: str, text: str) -> None:
    assert plugin.why_not(named, version) == text


@pytest.mark.parametrize(("value", "lines"), [("", 0), ("off", 0), ("experts", 1)])
def test_registration_prints_one_sentence_or_nothing(value: str, lines: int) -> None:
    code = "import switchyard.vllm as v, sys; v.register(); v.register(); sys.exit(v.__name__ + '.rows' in sys.modules)"
    env = {**os.environ, "SWITCHYARD_VLLM": value}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == lines, done.stderr
    assert lines == 0 or done.stderr == (
        'switchyard: SWITCHYARD_VLLM names "experts", want sampler; vLLM\'s sampler is not replaced\n'
    )
