"""sample_overrides and sample_noise: the worked examples of their pages, and what sample makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchyard import sample, sample_noise, sample_overrides

LOGITS = np.array([[0, 1, 2, 3, 2.5, -1]], np.float32)
BIAS = [(3, -np.inf), (0, 10), (2, 0), (0, -4)]


def listed(name: str, tokens: list[int]) -> dict[str, Any]:
    return {f"{name}_indptr": np.array([0, len(tokens)]), f"{name}_token": np.array(tokens, np.int32)}


def biases(pairs: list[tuple[int, float]]) -> dict[str, Any]:
    values = np.array([value for _, value in pairs], np.float32)
    return listed("bias", [token for token, _ in pairs]) | {"bias": values}


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        ({"repetition_penalty": 2, "frequency_penalty": 0.5}, {3: 0.5, 4: 0.75, 5: -2}),
        (
            {"repetition_penalty": 2, "frequency_penalty": 0.5, "presence_penalty": np.array([0.25], np.float32)},
            {3: 0.25, 4: 0.5, 5: -2},
        ),
        ({"presence_penalty": 0.25}, {3: 2.75, 4: 2.25}),
        ({"repetition_penalty": 0.5, "frequency_penalty": -1}, {3: 8, 4: 6, 5: -0.5}),
        (biases(BIAS), {0: 6, 3: -np.inf}),
        (biases(BIAS) | listed("output", [0]) | {"frequency_penalty": 1}, {0: 5, 3: -np.inf}),
        ({}, {}),
    ],
)
def test_examples(asked: dict[str, Any], want: dict[int, float]) -> None:
    got = sample_overrides(LOGITS, **(listed("prompt", [5, 3]) | listed("output", [3, 4, 3]) | asked))
    end = int(got.override_indptr[-1])
    assert got.override_indptr.tolist() == [0, len(want)]
    assert dict(zip(got.override_token[:end].tolist(), got.override_logit[:end].tolist(), strict=True)) == want
    assert not got.override_token[end:].any()
    assert not got.override_logit[end:].any()
    changed = LOGITS.copy()
    changed[0, list(want)] = list(want.values())
    masked = sample(LOGITS, **got._asdict(), masked_logits=True).masked_logits
    np.testing.assert_array_equal(masked, changed, strict=True)


def test_no_lists() -> None:
    got = sample_overrides(LOGITS)
    assert got.override_indptr.tolist() == [0, 0]
    assert got.override_token.shape == got.override_logit.shape == (0,)
    assert sample(LOGITS, **got._asdict()).token.tolist() == [3]


@pytest.mark.parametrize(
    ("asked", "kind", "sentence"),
    [
        ({"prompt_indptr": np.array([0, 0])}, TypeError, "sample_overrides: prompt_token is missing"),
        ({"presence_penalty": "some"}, TypeError, "sample_overrides: presence_penalty is 'some', want a number, or an"),
        (listed("output", [6]), IndexError, "sample_overrides: output_token at row 0, position 0 is 6"),
    ],
)
def test_refused(asked: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        sample_overrides(LOGITS, **asked)


SEED_12 = np.array([1.63547158, 5.14151907, 0.118143849, 0.653757691], np.float32)


@pytest.mark.parametrize("turns", [0, 1, -1])
def test_noise(turns: int) -> None:
    got = sample_noise(n=4, seed=12 + (turns << 64), offset=5 + (turns << 64), stream=2 + (turns << 32))
    np.testing.assert_array_equal(got, SEED_12, strict=True)
    out = np.zeros(4, np.float32)
    assert sample_noise(n=4, seed=12, offset=5, stream=2, out=out) is out
    np.testing.assert_array_equal(out, SEED_12)
    assert sample_noise(n=0).shape == (0,)


def test_noise_of_large_seeds() -> None:
    """All 64 bits count, in sample too."""
    logits = np.zeros((1, 100), np.float32)
    for seed in (0, 1 << 63, -1, (1 << 64) - 2, 1 << 32):
        q = sample_noise(n=100, seed=seed, offset=seed, stream=7)
        by_noise = sample(logits, q=q[None], q_order="vocab", eps=0)
        by_seed = sample(logits, seed=seed, offset=seed, stream=7, noise="race")
        assert by_noise.token.tolist() == by_seed.token.tolist() == [int(q.argmin())]


@pytest.mark.parametrize(
    ("asked", "kind", "sentence"),
    [
        ({"n": -1}, ValueError, "sample_noise: n is -1, want 0 to 17179869180"),
        ({"n": 2.5}, TypeError, "sample_noise: n is 2.5, want an integer"),
        ({"n": 4, "seed": 1.5}, TypeError, "sample_noise: seed is 1.5, want an integer"),
        ({"n": 4, "out": np.zeros(4)}, TypeError, "sample_noise: q is f64, want f32"),
        ({"n": 4, "out": np.zeros(5, np.float32)}, ValueError, r"sample_noise: q has shape \[5\], want \[4\]"),
    ],
)
def test_noise_refused(asked: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        sample_noise(**asked)
