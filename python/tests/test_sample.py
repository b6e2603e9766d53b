"""sample, sample_overrides and sample_noise: numbers of any size, what is asked for, what is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import switchyard
from switchyard import Sample, sample, sample_noise, sample_overrides

inf, nan = np.inf, np.nan
SEED_12 = np.array([1.63547158, 5.14151907, 0.118143849, 0.653757691], np.float32)


@pytest.mark.parametrize(("seed", "noise", "token"), [(1, "cdf", 2), (1, "race", 0), (12, "auto", 0), (12, "race", 2)])
def test_seeds(seed: int, noise: Any, token: int) -> None:
    logits = np.array([[2, 1, 0, -1]], np.float32)
    for value in (seed, np.int32(seed), np.array([seed]), [seed]):
        assert sample(logits, seed=value, offset=5, stream=2, noise=noise).token == [token]  # type: ignore[arg-type]


def test_large_seeds_differ() -> None:
    """All 64 bits of a seed count, also the upper ones."""
    logits = np.zeros((64, 1000), np.float32)
    drawn = {
        np.asarray(sample(logits, seed=seed).token).tobytes()
        for seed in (0, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 64) - 2)
    }
    assert len(drawn) == 5


def test_what_is_asked_for() -> None:
    logits = np.zeros((2, 3), np.float32)
    got = sample(logits)
    assert got[3:] == (None,) * 8
    assert [a.dtype for a in got[:3]] == [np.int64, np.int32, np.uint32]  # type: ignore[union-attr]
    out = Sample(None, None, None, np.empty((2, 3), np.float32), None, None, None)
    again = sample(logits, top_k=1, out=out)
    assert again is out
    np.testing.assert_array_equal(out.masked_logits, [[0, -inf, -inf]] * 2)


@pytest.mark.parametrize(
    ("asked", "kind", "sentence"),
    [
        ({"top_k": 0.5}, TypeError, "sample: top_k is 0.5, want an integer of 64 bits, or an array"),
        (
            {"top_k": 1 << 63},
            TypeError,
            "sample: top_k is 9223372036854775808, want an integer of 64 bits, or an array",
        ),
        ({"top_p": "0.5"}, TypeError, "sample: top_p is '0.5', want a number, or an array"),
        ({"top_p": "most"}, TypeError, "sample: top_p is 'most', want a number, or an array"),
        ({"seed": 1.5}, TypeError, "sample: seed is 1.5, want an integer, or an array"),
        ({"seed": -1}, ValueError, "sample: seed is -1, want 0 to 18446744073709551615"),
        (
            {"offset": [1, 1 << 64]},
            ValueError,
            "sample: offset is 18446744073709551616, want 0 to 18446744073709551615",
        ),
        ({"noise": "gumbel"}, ValueError, "sample: noise is 'gumbel', want auto, none, q, race or cdf"),
        ({"empty_token": 1}, ValueError, "sample: empty_token is 1, want -1 or 0"),
        ({"eps": -1.0}, ValueError, "sample: eps is -1, want a finite number of 0 or more"),
        ({"out": Sample(*[None] * 7)}, TypeError, "sample: token is missing and so is every other output"),
    ],
)
def test_rejected(asked: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        sample(**({"logits": np.zeros((2, 4), np.float32)} | asked))
    assert isinstance(caught.value, switchyard.Error)


def test_infinite_numbers() -> None:
    """What float32 cannot hold is an infinity, without a warning."""
    logits = np.array([[1, 2]], np.float32)
    assert sample(logits, temperature=1e300, seed=1).kept == [2]
    assert sample(logits, temperature=nan).token == [1]


def test_sample_takes_what_sample_overrides_makes() -> None:
    logits = np.array([[0, 1, 2, 3, 2.5, -1]], np.float32)
    lists = {"output_indptr": np.array([0, 3]), "output_token": np.array([3, 4, 3], np.int32)}
    for given, want in ((lists, [[0, 1, 2, 2.5, 2.25, -1]]), ({}, logits)):
        made = sample_overrides(logits, **given, frequency_penalty=0.25)  # type: ignore[arg-type]
        masked = sample(logits, **made._asdict(), masked_logits=True).masked_logits
        np.testing.assert_array_equal(masked, np.array(want, np.float32), strict=True)


def test_a_penalty_that_is_no_number() -> None:
    with pytest.raises(TypeError, match="sample_overrides: presence_penalty is 'some', want a number, or an"):
        sample_overrides(np.zeros((1, 6), np.float32), presence_penalty="some")  # type: ignore[arg-type]


@pytest.mark.parametrize("turns", [0, 1])
def test_noise(turns: int) -> None:
    got = sample_noise(n=4, seed=12, offset=5, stream=2 + (turns << 32))
    np.testing.assert_array_equal(got, SEED_12, strict=True)


def test_noise_of_large_seeds() -> None:
    """All 64 bits count, in sample too."""
    logits = np.zeros((1, 100), np.float32)
    for seed in (0, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, 1 << 32):
        q = sample_noise(n=100, seed=seed, offset=seed, stream=7)
        by_noise = sample(logits, q=q[None], q_order="vocab", eps=0)
        by_seed = sample(logits, seed=seed, offset=seed, stream=7, noise="race")
        assert by_noise.token.tolist() == by_seed.token.tolist() == [int(q.argmin())]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"n": 2.5}, "sample_noise: n is 2.5, want an integer"),
        ({"n": 4, "seed": 1.5}, "sample_noise: seed is 1.5, want an integer"),
        ({"n": 4, "out": np.zeros(4)}, "sample_noise: q is f64, want f32"),
        ({"n": 4, "seed": 1 << 64}, "sample_noise: seed is 18446744073709551616, want 0 to 18446744073709551615"),
        ({"n": 4, "stream": -1}, "sample_noise: stream is -1, want 0 to 18446744073709551615"),
    ],
)
def test_noise_rejected(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(switchyard.Error, match=sentence):
        sample_noise(**asked)
