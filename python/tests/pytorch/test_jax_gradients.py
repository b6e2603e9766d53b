"""Gradients of switchyard.jax: the bits of switchyard.torch, for the same calls."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import pytest
from cases import CASES, rand, st, torch

jax = pytest.importorskip("jax")
import switchyard.jax as sj  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16]
WORDS = {torch.float16: np.uint16, torch.bfloat16: np.uint16, torch.float32: np.uint32}


class Recorder:
    """Takes the place of switchyard.torch in the cases."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = getattr(st, name)(*args, **kwargs)
            self.calls.append((name, args, kwargs))
            return made

        return call


def recorded(case: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The call that a case makes: its operator, arguments by position and by name."""
    recorder = Recorder()
    monkeypatch.setattr(cases, "st", recorder)
    CASES[case]()
    return recorder.calls[-1]


def differentiable() -> list[str]:
    """The cases that ask for a gradient."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for case in CASES:
            if not case.endswith("_out") and case != "combine_grad":
                _, args, kwargs = recorded(case, patch)
                if any(isinstance(x, torch.Tensor) and x.requires_grad for x in (*args, *kwargs.values())):
                    found.append(case)
    return found


def to_jax(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        return jax.numpy.asarray(plain.view(torch.int16).numpy()).view(jax.numpy.bfloat16)
    return jax.numpy.asarray(plain.numpy())


def same_bits(got: Any, want: Any) -> None:
    """The gradient of torch is None where all of it is 0."""
    if want is None:
        assert not np.asarray(got).any()
        return
    assert str(got.dtype) == str(want.dtype).removeprefix("torch.")
    word = WORDS[want.dtype]
    bits = want.contiguous().view(torch.int16 if word is np.uint16 else torch.int32).numpy().view(word)
    np.testing.assert_array_equal(np.asarray(got).view(word), bits)


def floats(made: Any) -> list[Any]:
    """The results that may have a gradient."""
    made = made if isinstance(made, tuple) else (made,)
    return [x for x in made if x is not None and "float" in str(x.dtype)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", differentiable())
def test_bits(case: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name, args, kwargs = recorded(case, monkeypatch)
    is_leaf = [isinstance(x, torch.Tensor) and x.requires_grad for x in args]
    args = [x.detach().to(dtype).requires_grad_() if leaf else x for x, leaf in zip(args, is_leaf, strict=True)]
    made = floats(getattr(st, name)(*args, **kwargs))
    grads = [rand(*x.shape).to(x.dtype) for x in made]
    leaves = [x for x, leaf in zip(args, is_leaf, strict=True) if leaf]
    wanted = torch.autograd.grad(made, leaves, grads, allow_unused=True)

    def call(*leaves: Any) -> Any:
        given = iter(leaves)
        taken = [next(given) if leaf else to_jax(x) for x, leaf in zip(args, is_leaf, strict=True)]
        return floats(getattr(sj, name)(*taken, **{field: to_jax(x) for field, x in kwargs.items()}))

    given = [to_jax(x) for x in leaves]
    found, back = jax.vjp(call, *given)
    whole = jax.jit(lambda leaves, grads: jax.vjp(call, *leaves)[1](grads))
    for got, want in zip(found, made, strict=True):
        same_bits(got, want.detach())
    taken = [to_jax(x) for x in grads]
    for got in (back(taken), whole(given, taken)):
        for one, want in zip(got, wanted, strict=True):
            same_bits(one, want)


def test_there_is_a_case_of_every_operator_with_a_gradient() -> None:
    from switchyard.jax._gradients import rules

    with pytest.MonkeyPatch.context() as patch:
        assert {recorded(case, patch)[0] for case in differentiable()} == set(rules)
