"""Gradients of switchyard.jax: the bits of switchyard.torch, for the same calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import DIFFERENTIABLE, floats, rand, st, torch

jax = pytest.importorskip("jax")
import switchyard.jax as sj  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16]
WORDS = {torch.float16: np.uint16, torch.bfloat16: np.uint16, torch.float32: np.uint32}


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


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_bits(case: str, dtype: Any) -> None:
    name, values, fields = DIFFERENTIABLE[case]
    leaves = [values[field].detach().to(dtype).requires_grad_() for field in fields]
    values = values | dict(zip(fields, leaves, strict=True))
    made = floats(getattr(st, name)(**values))
    grads = [rand(*x.shape).to(x.dtype) for x in made]
    wanted = torch.autograd.grad(made, leaves, grads, allow_unused=True)

    def call(*leaves: Any) -> Any:
        others = {field: to_jax(x) for field, x in values.items() if field not in fields}
        return floats(getattr(sj, name)(**others, **dict(zip(fields, leaves, strict=True))))

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

    assert {name for name, *_ in DIFFERENTIABLE.values()} == set(rules)
