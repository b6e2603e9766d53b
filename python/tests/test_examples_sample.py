"""Worked examples of sample and its companions, their numbers typed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import switchyard

sy: Any = switchyard  # calls by dictionaries of arguments, which types cannot follow

F = np.float32
INF = np.inf
NONE = -INF
ROW = [0, 1, 2, 3, 2.5]
OTHER = [0, 2, -1, 3, 2.5]


def sample(row: Any, **asked: Any) -> Any:
    if "q" in asked:
        asked["q"] = np.array([asked["q"]], F)
    return sy.sample(np.array([row], F), masked_logits=True, candidates=True, **asked)


def listed(found: Any, n: int) -> list[int]:
    """The first n candidates; nothing may stand behind them."""
    assert not found.list_token[0, n:].any() and not found.list_prob[0, n:].any()
    tokens: list[int] = found.list_token[0, :n].tolist()
    return tokens


def probs(found: Any, *wanted: float) -> None:
    """To the seven digits they are printed with."""
    assert found.list_prob[0, : len(wanted)].tolist() == pytest.approx(wanted, abs=6e-8)


def test_nothing_on() -> None:
    found = sample([1, 3, 3, -2, 0])
    assert found.token.tolist() == [1]
    assert found.masked_logits.tolist() == [[1, 3, 3, -2, 0]]


def test_top_k_with_ties() -> None:
    row = [2, 5, 3, 3, 1, 3]
    found = sample(row, top_k=3)
    assert listed(found, 3) == [1, 2, 3]
    probs(found, 0.7869861, 0.1065070, 0.1065070)
    assert found.masked_logits.tolist() == [[NONE, 5, 3, 3, NONE, NONE]]
    assert found.token.tolist() == [1]
    everyone = sample(row, top_k=2, ties="all")
    assert listed(everyone, 4) == [1, 2, 3, 5]


@pytest.mark.parametrize(("p", "kept"), [(0.5, [0]), (0.6, [0, 1]), (0.75, [0, 1, 4]), (0.9, [0, 1, 4])])
def test_top_p(p: float, kept: list[int]) -> None:
    row = [2, 1, 0, -1, 1]
    found = sample(row, top_p=p)
    assert listed(found, len(kept)) == kept
    probs(sample(row), 0.5205944, 0.1915160, 0.0704548, 0.0259189, 0.1915160)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"top_p": 0.5}, [0, 1]),
        ({"top_p": 0.51}, [0, 1, 2]),
        ({"top_k": 3, "top_p": 0.5}, [0, 1]),
        ({"top_p": 0}, [0]),
        ({"top_k": 3, "top_p": -1}, [0]),
    ],
)
def test_reaching_p_ends_the_set(asked: dict[str, Any], kept: list[int]) -> None:
    found = sample([0, 0, 0, 0], **asked)
    assert listed(found, len(kept)) == kept


def test_ties_at_p_zero() -> None:
    assert listed(sample([0, 0, 0, -1], top_p=0, ties="all"), 3) == [0, 1, 2]


def test_q_by_position() -> None:
    found = sample(ROW, q=[0.05, 0.9, 0.3, 1.2, 2])
    probs(found, 0.0230546, 0.0626688, 0.1703514, 0.4630632, 0.2808620)
    assert found.token.tolist() == [2]


def test_q_by_rank() -> None:
    q = [0.05, 0.9, 0.3, 1.2, 2]
    found = sample(ROW, top_k=3, q=q)
    assert listed(found, 3) == [3, 4, 2]
    probs(found, 0.5064804, 0.3071959, 0.1863237)
    assert found.token.tolist() == [3]
    assert found.masked_logits.tolist() == [[NONE, NONE, 2, 3, 2.5]]
    assert sample(ROW, top_k=3, q=q, q_order="vocab").token.tolist() == [2]


def test_one_softmax() -> None:
    found = sample(ROW, top_p=0.9, q=[1.2, 0.35, 0.3, 0.9, 0.05])
    assert listed(found, 3) == [3, 4, 2]
    probs(found, 0.4630632, 0.2808620, 0.1703514)
    assert found.token.tolist() == [4]


def test_one_batch_of_four_kinds() -> None:
    logits = np.array(
        [[0, 1, 2, 3, 2.5, -1], [4, 4, 4, 4, 1, 1], [1, 2, 3, 4, 5, 6], [0.5, 0.25, 0.125, 0, -0.125, -0.25]], F
    )
    found = sy.sample(
        logits,
        np.array([4, 3, 2000, 0]),
        np.array([0.75, 0.5, 0.9, 1], F),
        q=np.array([[0.7, 0.2, 0.9, 0.1, 0.5, 0.3]] * 4, F),
        k_limit=1024,
        masked_logits=True,
        candidates=True,
    )
    assert found.token.tolist() == [4, 1, 4, 3]
    assert found.list_token.tolist() == [[3, 4, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [5, 4, 3, 0, 0, 0], [0, 1, 2, 3, 4, 5]]
    assert found.masked_logits.tolist() == [
        [NONE, NONE, NONE, 3, 2.5, NONE],
        [4, 4, NONE, NONE, NONE, NONE],
        [NONE, NONE, NONE, 4, 5, 6],
        [0.5, 0.25, 0.125, 0, -0.125, -0.25],
    ]


def test_min_p_alone_keeps_the_order_of_tokens() -> None:
    found = sample(OTHER, min_p=0.3, q=[0.9, 0.2, 0.7, 0.1, 0.5])
    assert listed(found, 3) == [1, 3, 4]
    probs(found, 0.1801112, 0.4895930, 0.2969532)
    assert found.token.tolist() == [3]


def test_lists() -> None:
    found = sample(OTHER, top_k=4, top_p=0.9)
    assert listed(found, 3) == [3, 4, 1]
    probs(found, 0.4940230, 0.2996401, 0.1817409)
    both = sample(OTHER, top_k=4, top_p=0.9, min_p=0.5)
    assert listed(both, 2) == [3, 4]
    probs(both, 0.4940230, 0.2996401)
    one = sample(OTHER, top_k=4, top_p=-1)
    assert listed(one, 1) == [3]
    probs(one, 1)
    everything = sample(OTHER)
    assert listed(everything, 5) == [0, 1, 2, 3, 4]
    probs(everything, 0.0243754, 0.1801112, 0.0089672, 0.4895930, 0.2969532)


def test_probabilities_in() -> None:
    row = [0.05, 0.4, 0.1, 0.3, 0.15]
    found = sample(row, probs_in=True, top_p=0.6, q=[1, 0.5, 2, 1, 1])
    assert listed(found, 2) == [1, 3]
    assert found.masked_logits.tolist() == [[0, F(0.4), 0, F(0.3), 0]]
    assert found.token.tolist() == [3]
    short = sample(row, probs_in=True, top_k=2, top_p=0.9)
    assert listed(short, 2) == [1, 3]
    assert short.token.tolist() == [1]


def test_special_rows() -> None:
    nan = sample([1, np.nan, 2, NONE])
    assert (nan.token[0], nan.kept[0], nan.row_flags[0]) == (2, 2, 1)
    assert nan.masked_logits.tolist() == [[1, NONE, 2, NONE]]
    inf = sample([1, INF, 2, INF], q=[0.1, 0.9, 0.1, 0.5])
    assert (inf.token[0], inf.row_flags[0]) == (3, 2)
    assert listed(sample([1, INF, 2, INF], top_p=0.4), 1) == [1]
    empty = sample([NONE] * 4, top_k=2)
    assert (empty.token[0], empty.kept[0], empty.row_flags[0]) == (-1, 0, 4)
    assert sample([NONE] * 4, empty_token=0).token.tolist() == [0]
    zeros = sample([-0.0, 0, -0.0, 0], top_k=3)
    assert listed(zeros, 3) == [0, 1, 2]
    assert zeros.token.tolist() == [0]
    assert listed(sample([-300, -301, -302, -400], top_p=0.9), 2) == [0, 1]


def test_integers_behind_the_probabilities() -> None:
    row = [2, 1, 0, -1]
    found = sample(row, top_p=0.9, logprob="raw")
    assert listed(found, 3) == [0, 1, 2]
    total = 1099511627776 + 404487733248 + 148802715648 + 54741458944
    assert total == 1707543535616
    whole = sample(row)
    weights = np.array([1, 404487733248 / 2**40, 148802715648 / 2**40, 54741458944 / 2**40], F)
    assert whole.list_prob[0].tobytes() == (weights / (F(total) * F(2.0**-40))).tobytes()
    probs(whole, 0.643914273, 0.236882829, 0.0871443194, 0.032058603)
    assert found.logprob.tolist() == [F(-0.440189689)]
    assert listed(sample(row, top_p=0.5), 1) == [0]
    assert listed(sample(row, top_p=0.9, temperature=0.5), 2) == [0, 1]
    assert listed(sample(row, top_p=0.9, temperature=2), 4) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("seed", "noise", "token"), [(1, "cdf", 2), (1, "race", 0), (12, "race", 2), (12, "cdf", 0), (1, "auto", 2)]
)
def test_draws(seed: int, noise: Any, token: int) -> None:
    assert sample([2, 1, 0, -1], seed=seed, offset=5, stream=2, noise=noise).token.tolist() == [token]


@pytest.mark.parametrize(
    ("seed", "wanted"),
    [(1, [1.44216263, 1.13107944, 1.08627951, 1.87793005]), (12, [1.63547158, 5.14151907, 0.118143849, 0.653757691])],
)
def test_noise(seed: int, wanted: list[float]) -> None:
    q = sy.sample_noise(n=4, seed=seed, offset=5, stream=2)
    assert q.tobytes() == np.array(wanted, F).tobytes()
    drawn = sample([2, 1, 0, -1], q=q, q_order="vocab", eps=0.0)
    assert drawn.token.tolist() == sample([2, 1, 0, -1], seed=seed, offset=5, stream=2, noise="race").token.tolist()


def test_allowed_tokens_and_overrides() -> None:
    bits = np.array([[0b10111]], np.int32)
    allowed = sample(ROW, top_k=2, allow_bits=bits)
    assert listed(allowed, 2) == [4, 2]
    assert allowed.masked_logits.tolist() == [[NONE, NONE, 2, NONE, 2.5]]
    assert sample(ROW, allow_bits=np.zeros((1, 1), np.int32)).token.tolist() == [-1]
    changed = {
        "override_indptr": np.array([0, 2]),
        "override_token": np.array([1, 3], np.int32),
        "override_logit": np.array([4, NONE], F),
    }
    found = sample(ROW, top_k=2, **changed)
    assert listed(found, 2) == [1, 4]
    assert found.masked_logits.tolist() == [[NONE, 4, NONE, NONE, 2.5]]
    both = sample(ROW, top_k=2, allow_bits=np.array([[0b11101]], np.int32), **changed)
    assert listed(both, 2) == [4, 2]


def test_two_log_probabilities() -> None:
    row = np.array([ROW], F)
    bits = np.array([[0b00111]], np.int32)
    assert sy.sample(row, allow_bits=bits, logprob="raw").logprob[0] == pytest.approx(-1.769892, abs=6e-7)
    assert sy.sample(row, allow_bits=bits, logprob="final").logprob[0] == pytest.approx(-0.4076060, abs=6e-8)
    changed = {
        "override_indptr": np.array([0, 3]),
        "override_token": np.array([0, 3, 4], np.int32),
        "override_logit": np.array([4, NONE, NONE], F),
    }
    assert sy.sample(row, **changed, logprob="raw").logprob[0] == pytest.approx(-3.769892, abs=6e-7)
    assert sy.sample(row, **changed, logprob="final").logprob[0] == pytest.approx(-0.1698460, abs=6e-8)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"repetition_penalty": 2, "frequency_penalty": 0.5}, {3: 0.5, 4: 0.75, 5: -2}),
        ({"repetition_penalty": 2, "frequency_penalty": 0.5, "presence_penalty": 0.25}, {3: 0.25, 4: 0.5, 5: -2}),
        ({"presence_penalty": 0.25}, {3: 2.75, 4: 2.25}),
        ({"repetition_penalty": 0.5, "frequency_penalty": -1}, {3: 8, 4: 6, 5: -0.5}),
        ({}, {}),
    ],
)
def test_penalties(asked: dict[str, Any], wanted: dict[int, float]) -> None:
    lists = {"prompt_token": [5, 3], "output_token": [3, 4, 3]}
    found = sy.sample_overrides(
        np.array([[0, 1, 2, 3, 2.5, -1]], F),
        **{name: np.array(tokens, np.int32) for name, tokens in lists.items()},
        prompt_indptr=np.array([0, 2]),
        output_indptr=np.array([0, 3]),
        **asked,
    )
    n = int(found.override_indptr[-1])
    assert dict(zip(found.override_token[:n].tolist(), found.override_logit[:n].tolist(), strict=True)) == wanted


@pytest.mark.parametrize(("output", "frequency", "first"), [([], 0.0, 6), ([0], 1.0, 5)])
def test_biases_and_bans(output: list[int], frequency: float, first: float) -> None:
    found = sy.sample_overrides(
        np.array([[0, 1, 2, 3, 2.5, -1]], F),
        output_indptr=np.array([0, len(output)]),
        output_token=np.array(output, np.int32),
        bias_indptr=np.array([0, 4]),
        bias_token=np.array([3, 0, 2, 0], np.int32),
        bias=np.array([NONE, 10, 0, -4], F),
        frequency_penalty=frequency,
    )
    assert found.override_indptr.tolist() == [0, 2]
    assert found.override_token[:2].tolist() == [0, 3]
    assert found.override_logit[:2].tolist() == [first, NONE]
