"""sample: parameters of rows in all the forms callers have them in, what is asked for, and draws without a seed."""

import importlib.util
import warnings

import numpy as np
import pytest

import switchyard

LOGITS = np.random.default_rng(3).standard_normal((3, 50)).astype(np.float32)
PLAIN = {
    "top_k": np.array([5, 7, 9]),
    "top_p": np.array([0.5, 0.75, 0.9], np.float32),
    "min_p": np.array([0.01, 0.0, 0.2], np.float32),
    "temperature": np.array([0.5, 1, 2], np.float32),
    "seed": np.array([1, 2, 3]),
    "offset": np.array([4, 5, 6]),
    "stream": np.array([0, 1, 2]),
}
NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def drawn(sample, logits, **given):
    made = sample(logits, **{"seed": 7, **given}, logprob="final")
    return [result.tolist() for result in (made.token, made.kept, made.logprob)]


def forms(field):
    yield PLAIN[field].tolist()
    yield tuple(PLAIN[field].tolist())
    yield PLAIN[field].astype(np.float64) if PLAIN[field].dtype == np.float32 else PLAIN[field].astype(np.int32)


@pytest.mark.parametrize("field", PLAIN)
def test_lists_tuples_and_arrays(field):
    want = drawn(switchyard.sample, LOGITS, **{field: PLAIN[field]})
    for form in forms(field):
        assert drawn(switchyard.sample, LOGITS, **{field: form}) == want
    number = PLAIN[field][1].item()
    want = drawn(switchyard.sample, LOGITS, **{field: number})
    assert drawn(switchyard.sample, LOGITS, **{field: np.array(number)}) == want


NUMBERS = (0.0, -0.0, 0.1, 0.8, 1.0, 1e-46, 3.5e38, -1e39, float("inf"), float("-inf"), float("nan"))
INTEGERS = (0, 1, -1, 7, (1 << 63) - 1, -(1 << 63))
SEEDS = (0, 1, 7, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
NO_SEEDS = (-1, -(1 << 63), 1 << 64, (1 << 70) + 5, -(1 << 64), 10**5000)


@pytest.mark.parametrize("field", PLAIN)
@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=NEEDS_TORCH)])
def test_a_number_is_an_array_of_one_element(field, library):
    sample, logits = switchyard.sample, LOGITS
    if library == "torch":
        import torch

        import switchyard.torch as st

        sample, logits = st.sample, torch.from_numpy(LOGITS)
    real = PLAIN[field].dtype == np.float32
    for number in NUMBERS if real else INTEGERS if field == "top_k" else SEEDS:
        with np.errstate(over="ignore"):
            array = np.array([number], np.float32) if real else np.array([number % (1 << 64)], np.uint64).view(np.int64)
        results = []
        for given in (number, array if library == "numpy" else torch.from_numpy(array)):
            try:
                results.append(repr(drawn(sample, logits, **{field: given})))
            except switchyard.Error as error:
                results.append(str(error))
        assert results[0] == results[1], number
    for given in () if real or field == "top_k" else NO_SEEDS:
        for form in (given, [given] * 3):
            with pytest.raises(ValueError, match=f"^sample: {field} is .*, want 0 to 18446744073709551615$"):
                sample(logits, **{"seed": 7, field: form})
    for form in (np.int64(1), np.uint8(1), *(() if library == "torch" else (np.array(1),))):
        assert drawn(sample, logits, **{field: form}) == drawn(sample, logits, **{field: 1.0 if real else 1})


@NEEDS_TORCH
@pytest.mark.parametrize("field", PLAIN)
def test_tensors(field):
    import torch

    import switchyard.torch as st

    logits = torch.from_numpy(LOGITS)
    want = drawn(switchyard.sample, LOGITS, **{field: PLAIN[field]})
    one = drawn(switchyard.sample, LOGITS, **{field: PLAIN[field][1].item()})
    for sample in (switchyard.sample, st.sample):
        for form in (*forms(field), torch.tensor(PLAIN[field].tolist()), torch.tensor(PLAIN[field]).double()):
            if isinstance(form, (list, tuple)) or (isinstance(form, torch.Tensor) and field in ("top_p", "min_p")):
                assert drawn(sample, logits, **{field: form}) == want
        assert drawn(sample, logits, **{field: torch.tensor(PLAIN[field][1].item())}) == one


def test_large_seeds_differ():
    """All 64 bits of a seed count, also the upper ones."""
    seeds = (0, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 64) - 2)
    assert len({switchyard.sample(np.zeros((64, 1000), np.float32), seed=seed).token.tobytes() for seed in seeds}) == 5
    assert len({switchyard.sample_noise(n=4, seed=seed).tobytes() for seed in seeds}) == 5


def test_what_is_asked_for():
    logits = np.zeros((2, 3), np.float32)
    got = switchyard.sample(logits)
    assert got[3:] == (None,) * 8
    assert [a.dtype for a in got[:3]] == [np.int64, np.int32, np.uint32]
    out = switchyard.Sample(None, None, None, np.empty((2, 3), np.float32), None, None, None)
    assert switchyard.sample(logits, top_k=1, out=out) is out
    np.testing.assert_array_equal(out.masked_logits, [[0, -np.inf, -np.inf]] * 2)


def samplers():
    yield pytest.param(lambda **given: switchyard.sample(LOGITS, **given), id="numpy")
    if importlib.util.find_spec("torch") is not None:
        import torch

        import switchyard.torch as st

        yield pytest.param(lambda **given: st.sample(torch.from_numpy(LOGITS), **given), id="torch")


@pytest.mark.parametrize("sample", samplers())
@pytest.mark.parametrize("given", [{"temperature": 0.8}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 5}])
def test_a_filter_without_a_seed_is_warned_of(sample, given):
    with pytest.warns(UserWarning, match="^sample: seed is None, want a seed: .* takes the most likely token"):
        sample(**given)


@pytest.mark.parametrize("sample", samplers())
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 0.8, "seed": 1},
        {"temperature": 0.0},
        {"top_k": 1},
        {"top_p": 0.9, "noise": "none"},
        {"top_p": 0.9, "candidates": True},
        {"top_k": 5, "masked_logits": True},
    ],
)
def test_what_is_meant_is_not_warned_of(sample, given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(**given)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_a_function_that_jax_traces():
    import jax

    for call in (
        lambda x: switchyard.sample(x).token,
        lambda x: switchyard.moe_route(x, k=1).ids,
        lambda x: switchyard.sample(LOGITS, top_p=x[:, 0], seed=1).token,
    ):
        with pytest.raises(
            switchyard.Error, match=r"(logits|top_p) is traced by JAX, want switchyard\.jax\.(sample|moe_route), or"
        ):
            jax.jit(call)(jax.numpy.ones((3, 4)))
