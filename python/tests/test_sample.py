"""sample: the worked examples of its page, numbers for all rows, what is asked for, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import switchyard
from switchyard import Sample, sample

inf, nan = np.inf, np.nan
Q5 = [0.05, 0.9, 0.3, 1.2, 2]

# logits; what is asked; the list of candidates; masked logits (None: not told); token
EXAMPLES: list[tuple[list[float], dict[str, Any], list[int], list[float] | None, int]] = [
    ([1, 3, 3, -2, 0], {}, [0, 1, 2, 3, 4], [1, 3, 3, -2, 0], 1),
    ([2, 5, 3, 3, 1, 3], {"top_k": 3}, [1, 2, 3], [-inf, 5, 3, 3, -inf, -inf], 1),
    ([2, 5, 3, 3, 1, 3], {"top_k": 2, "ties": "all"}, [1, 2, 3, 5], [-inf, 5, 3, 3, -inf, 3], 1),
    ([2, 1, 0, -1, 1], {"top_p": 0.5}, [0], None, 0),
    ([2, 1, 0, -1, 1], {"top_p": 0.6}, [0, 1], None, 0),
    ([2, 1, 0, -1, 1], {"top_p": 0.75}, [0, 1, 4], None, 0),
    ([2, 1, 0, -1, 1], {"top_p": 0.9}, [0, 1, 4], None, 0),
    ([0, 0, 0, 0], {"top_p": 0.51}, [0, 1, 2], None, 0),
    ([0, 0, 0, 0], {"top_p": 0}, [0], None, 0),
    ([0, 0, 0, -1], {"top_p": 0, "ties": "all"}, [0, 1, 2], None, 0),
    ([0, 1, 2, 3, 2.5], {"q": Q5}, [0, 1, 2, 3, 4], [0, 1, 2, 3, 2.5], 2),
    ([0, 1, 2, 3, 2.5], {"q": Q5, "top_k": 3}, [3, 4, 2], [-inf, -inf, 2, 3, 2.5], 3),
    ([0, 1, 2, 3, 2.5], {"q": Q5, "top_k": 3, "q_order": "vocab"}, [3, 4, 2], None, 2),
    ([0, 1, 2, 3, 2.5], {"q": [1.2, 0.35, 0.3, 0.9, 0.05], "top_p": 0.9}, [3, 4, 2], None, 4),
    ([0, 2, -1, 3, 2.5], {"min_p": 0.3, "q": [0.9, 0.2, 0.7, 0.1, 0.5]}, [1, 3, 4], [-inf, 2, -inf, 3, 2.5], 3),
    ([0, 2, -1, 3, 2.5], {"top_k": 4, "top_p": 0.9, "min_p": 0.5}, [3, 4], None, 3),
    ([0.05, 0.4, 0.1, 0.3, 0.15], {"probs_in": True, "top_p": 0.6, "q": [1, 0.5, 2, 1, 1]}, [1, 3], None, 3),
    ([1, nan, 2, -inf], {}, [0, 1, 2, 3], [1, -inf, 2, -inf], 2),
    ([1, inf, 2, inf], {"top_p": 0.4}, [1], [-inf, inf, -inf, -inf], 1),
    ([-inf] * 4, {"top_k": 2}, [0, 1], [-inf] * 4, -1),
    ([-inf] * 4, {"top_k": 2, "empty_token": 0}, [0, 1], [-inf] * 4, 0),
    ([0, 1, 2, 3, 2.5], {"top_k": 2, "allow_bits": 0b10111}, [4, 2], [-inf, -inf, 2, -inf, 2.5], 4),
    ([0, 1, 2, 3, 2.5], {"top_k": 2, "override": {1: 4, 3: -inf}}, [1, 4], [-inf, 4, -inf, -inf, 2.5], 1),
]


def arrays(asked: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the operator takes them."""
    made = dict(asked)
    if "q" in made:
        made["q"] = np.array([made["q"]], np.float32)
    if "allow_bits" in made:
        made["allow_bits"] = np.array([[made["allow_bits"]]], np.uint32)
    if "override" in made:
        override = made.pop("override")
        made["override_indptr"] = np.array([0, len(override)])
        made["override_token"] = np.array(list(override), np.int32)
        made["override_logit"] = np.array(list(override.values()), np.float32)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("logits", "asked", "listed", "masked", "token"), EXAMPLES)
def test_examples(logits: Any, asked: Any, listed: Any, masked: Any, token: int, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    row = np.array([logits], dtype)
    if "probs_in" in asked and dtype != "float32":
        pytest.skip("these probabilities are not exact in 16 bits")
    got = sample(row, **arrays(asked), masked_logits=True, candidates=True)
    assert got.token is not None and got.list_token is not None and got.list_prob is not None
    assert got.token.tolist() == [token]
    assert got.list_token[0, : len(listed)].tolist() == listed
    assert not got.list_token[0, len(listed) :].any()
    assert not got.list_prob[0, len(listed) :].any()
    if masked is not None:
        np.testing.assert_array_equal(got.masked_logits, np.array([masked], np.float32), strict=True)


def test_batch() -> None:
    """Four kinds of row at once, parameters of rows as arrays of every shape."""
    logits = np.array(
        [[0, 1, 2, 3, 2.5, -1], [4, 4, 4, 4, 1, 1], [1, 2, 3, 4, 5, 6], [0.5, 0.25, 0.125, 0, -0.125, -0.25]],
        np.float32,
    )
    q = np.array([[0.7, 0.2, 0.9, 0.1, 0.5, 0.3]], np.float32).repeat(4, axis=0)
    k, p = np.array([4, 3, 2000, 0]), np.array([0.75, 0.5, 0.9, 1], np.float32)
    for top_k, top_p in [(k, p), (k[:, None], p[:, None]), (k.astype(np.int32), p)]:
        got = sample(logits, top_k, top_p, q=q, k_limit=1024)
        np.testing.assert_array_equal(got.token, [4, 1, 4, 3])
        np.testing.assert_array_equal(got.kept, np.array([2, 2, 3, 6], np.int32), strict=True)
        np.testing.assert_array_equal(got.row_flags, np.zeros(4, np.uint32), strict=True)


@pytest.mark.parametrize(("seed", "noise", "token"), [(1, "cdf", 2), (1, "race", 0), (12, "auto", 0), (12, "race", 2)])
def test_seeds(seed: int, noise: Any, token: int) -> None:
    logits = np.array([[2, 1, 0, -1]], np.float32)
    for value in (seed, seed - (1 << 64), seed + (5 << 64), np.int32(seed), np.array([seed])):
        assert sample(logits, seed=value, offset=5, stream=2, noise=noise).token == [token]  # type: ignore[arg-type]
    got = sample(logits, seed=np.array([seed]), offset=np.array([5]), stream=np.array([2]), noise=noise)
    assert got.token == [token]


def test_a_seed_for_each_row_needs_no_stream() -> None:
    """The same seed draws the same token alone, in a batch and in any row; one seed for all rows draws by row."""
    logits = np.zeros((6, 500), np.float32)
    for noise in ("cdf", "race"):
        seeds = np.array([5, 6, 7, 5, 6, 7])
        drawn = sample(logits, seed=seeds, noise=noise).token  # type: ignore[arg-type]
        assert drawn[:3].tolist() == drawn[3:].tolist()
        assert sample(logits, seed=seeds[:, None], noise=noise).token.tolist() == drawn.tolist()  # type: ignore[arg-type]
        for b, seed in enumerate(seeds.tolist()):
            for alone in (seed, np.array([seed])):
                assert sample(logits[:1], seed=alone, noise=noise).token == drawn[b]  # type: ignore[arg-type]
        for one in (5, np.array([5])):
            by_row = sample(logits, seed=one, noise=noise).token  # type: ignore[arg-type]
            assert by_row[0] == drawn[0] and len(set(by_row.tolist())) > 1


def test_large_seeds_differ() -> None:
    """All 64 bits of a seed count, also the upper ones."""
    logits = np.zeros((64, 1000), np.float32)
    drawn = {np.asarray(sample(logits, seed=seed).token).tobytes() for seed in (0, 1 << 32, 1 << 63, -1, (1 << 64) - 2)}
    assert len(drawn) == 5


def test_logprob() -> None:
    logits, allow_bits = np.array([[0, 1, 2, 3, 2.5]], np.float32), np.array([[0b111]], np.uint32)
    raw = sample(logits, allow_bits=allow_bits, logprob="raw").logprob
    final = sample(logits, allow_bits=allow_bits, logprob="final").logprob
    np.testing.assert_allclose(raw, [-1.769892], rtol=1e-6)  # the page gives seven digits
    np.testing.assert_allclose(final, [-0.4076060], rtol=1e-6)


def test_what_is_asked_for() -> None:
    logits = np.zeros((2, 3), np.float32)
    got = sample(logits)
    assert got[3:] == (None, None, None, None)
    assert [a.dtype for a in got[:3]] == [np.int64, np.int32, np.uint32]  # type: ignore[union-attr]
    out = Sample(None, None, None, np.empty((2, 3), np.float32), None, None, None)
    again = sample(logits, top_k=1, out=out)
    assert again is out
    np.testing.assert_array_equal(out.masked_logits, [[0, -inf, -inf]] * 2)


def test_numbers_hold_for_all_rows() -> None:
    logits = np.random.default_rng(1).standard_normal((32, 200)).astype(np.float32)
    ones = np.ones(32, np.float32)
    by_number = sample(logits, 20, 0.8, 0.05, 0.7, seed=3, offset=4, candidates=True)
    by_row = sample(
        logits,
        np.full(32, 20),
        ones * np.float32(0.8),
        ones * np.float32(0.05),
        ones * np.float32(0.7),
        seed=np.full(32, 3),
        offset=np.full(32, 4),
        stream=np.arange(32),
        candidates=True,
    )
    for a, b in zip(by_number, by_row, strict=True):
        if a is not None:
            np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize(
    ("asked", "kind", "sentence"),
    [
        ({"top_k": 0.5}, TypeError, "sample: top_k is 0.5, want an integer of 64 bits, or an array"),
        (
            {"top_k": 1 << 63},
            TypeError,
            "sample: top_k is 9223372036854775808, want an integer of 64 bits, or an array",
        ),
        ({"top_p": "most"}, TypeError, "sample: top_p is 'most', want a number, or an array"),
        ({"seed": 1.5}, TypeError, "sample: seed is 1.5, want an integer, or an array"),
        ({"noise": "gumbel"}, ValueError, "sample: noise is 'gumbel', want auto, none, q, race or cdf"),
        ({"noise": "race"}, ValueError, "sample: noise is RACE but seed is missing, want a seed"),
        ({"empty_token": 1}, ValueError, "sample: empty_token is 1, want -1 or 0"),
        ({"eps": -1.0}, ValueError, "sample: eps is -1, want a finite number of 0 or more"),
        ({"top_k": np.array([1, 2, 3])}, ValueError, r"sample: top_k has shape \[3\], want \[1\], \[2\] or \[2,1\]"),
        ({"logits": np.zeros((2, 0), np.float32)}, ValueError, "sample: logits has"),
        ({"logits": np.zeros(2, np.float32)}, ValueError, "sample: logits has rank 1"),
        ({"out": Sample(*[None] * 7)}, TypeError, "sample: token is missing and so is every other output"),
    ],
)
def test_refused(asked: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        sample(**({"logits": np.zeros((2, 4), np.float32)} | asked))
    assert isinstance(caught.value, switchyard.Error)


def test_infinite_numbers() -> None:
    """What float32 cannot hold is an infinity, without a warning."""
    logits = np.array([[1, 2]], np.float32)
    assert sample(logits, temperature=1e300, seed=1).kept == [2]
    assert sample(logits, temperature=nan).token == [1]
