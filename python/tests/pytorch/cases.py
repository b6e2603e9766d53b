"""Calls of every operator of switchyard.torch, with inputs that opcheck may change, trace and differentiate."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import calls
import numpy as np
import pytest

import switchyard

torch = pytest.importorskip("torch.library", reason="torch is not installed") and __import__("torch")
import switchyard.torch as st  # noqa: E402
from switchyard.torch import _gradients  # noqa: E402

Tensor = Any

MAP = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
IDS = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 0]])
CHOICES = torch.tensor([[0, 0, 2, 1, 0], [1, 2, 1, 0, 1]], dtype=torch.int32)
PLACES = torch.tensor([[0, 1, 0, 0, 2], [1, 1, 2, 3, 3]], dtype=torch.int32)


def rand(*shape: int, grad: bool = False, dtype: Any = None) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype or torch.float32)
    return numbers.requires_grad_(grad)


def i32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def empties(made: Any) -> Any:
    """Memory for results like these."""
    if isinstance(made, torch.Tensor):
        return torch.zeros_like(made)
    return type(made)(*[None if tensor is None else torch.zeros_like(tensor) for tensor in made])


def to_torch(array: Any) -> Any:
    """An array of NumPy as a tensor; other values as they are."""
    if not isinstance(array, np.ndarray):
        return array
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array.copy())
    return torch.from_numpy(array.view(f"u{array.itemsize}").copy()).view(getattr(torch, array.dtype.name))


def tensors(case: calls.Case) -> dict[str, Any]:
    """The arguments of an example; floating-point inputs of operators with a gradient require one."""
    given = {field: to_torch(array) for field, array in case.arrays.items()}
    if case.operator in _gradients.rules and not case.numbers.get("row_format"):
        flows = [operator_of(case.operator).given[at].name for at in operator_of(case.operator).flows]
        for field in given.keys() & {*flows}:
            if given[field].dtype in _gradients.DIFFERENTIABLE:
                given[field].requires_grad_()
    return given


def operator_of(name: str) -> Any:
    return getattr(switchyard, name).__globals__["operator"]


def example(case: calls.Case, out: bool = False) -> Any:
    function, given = getattr(st, case.operator), {**tensors(case), **case.numbers}
    if not out:
        return function(**given)
    made = function(**given)
    plain = {f: x.detach() if isinstance(x, torch.Tensor) else x for f, x in given.items()}
    return function(**{**plain, "out": empties(made)})


def penalised() -> tuple[Tensor, ...]:
    return rand(3, 10), torch.tensor([0, 2, 2, 3]), i32(1, 4, 9), torch.tensor([0, 0, 1, 2]), i32(3, 9)


# What no example is: several caches, other sizes, seeds beyond 63 bits, the operators of gradients.
CASES: dict[str, Callable[[], Any]] = {
    "moe_permute_gradients": lambda: st.moe_permute(
        rand(4, 3, grad=True), MAP, rand(4, 3, grad=True), num_out_tokens=12, drop_and_pad=True, zero_pad=True
    ),
    "moe_unpermute_ids_added": lambda: st.moe_unpermute_ids(
        rand(5, 3, grad=True),
        i32(3, 1, 7, 2, 6, -1, 9, 4),
        rand(4, 2, grad=True),
        rand(3, 3, grad=True),
        i32(0, 2, 1, -1, 1, 1, 2, 0).reshape(4, 2),
        rand(4, 3, grad=True),
        rand(4, 3, grad=True),
        row_begin=2,
        num_rows=10,
        by_choice=True,
    ),
    "moe_dispatch_shared": lambda: st.moe_dispatch(
        i32(1, 0, 1, 1), i32(0, 0, 0, 5), rand(4, 3, grad=True), rand(4, grad=True), num_experts=2, capacity=2
    ),
    "moe_combine_shared": lambda: st.moe_combine(
        torch.zeros(2, 5, dtype=torch.int32), PLACES, rand(4, 3, grad=True), num_experts=1, capacity=4
    ),
    "combine_grad": lambda: torch.ops.switchyard.moe_combine_grad(rand(5, 4), rand(2, 5), CHOICES, PLACES, 3, 2),
    "moe_capacity": lambda: st.moe_capacity(torch.tensor([4, 4, 2]), num_experts=3),
    "kv_gather_planes": lambda: st.kv_gather(
        (rand(3, 2, 2, 4).half(), rand(6, 1)), torch.tensor([4, -1]), i32(0, 2, 1), block_size=2, pad="zero"
    ),
    "kv_ragged_rows": lambda: st.kv_ragged(
        [rand(6, 1), rand(6, 3)], torch.tensor([0, 3, 4]), i32(2, 0, 1, 0).view(2, 2), block_size=2, rows=7
    ),
    "kv_scatter_planes": lambda: st.kv_scatter(
        [rand(3, 2, 2, 4), torch.zeros(6, 4, dtype=torch.int8)],
        [rand(2, 2, 4), rand(2, 4)],
        torch.tensor([5, -1]),
        [None, torch.ones(6, 1)],
        pad="skip",
        format=[None, "int8"],
    ),
    "kv_blocks_planes": lambda: st.kv_blocks(
        i32(0, 2, 1, 0).view(2, 2), src=(rand(3, 2, 4), rand(3, 2, 1)), dst=(rand(3, 2, 4), rand(3, 2, 1))
    ),
    "sample_overridden": lambda: st.sample(rand(3, 10), **st.sample_overrides(*penalised())._asdict(), seed=1 << 63),
    "sample_noise": lambda: st.sample_noise(n=9, seed=(1 << 64) - 1, offset=3),
    "sample_noise_out": lambda: st.sample_noise(n=9, stream=5, out=torch.zeros(9)),
}


def add_examples() -> None:
    """Those that give an operator a tensor which none before them gave it, or a flag where there is a gradient.

    The first comes once more, with `out`.
    """
    seen = set()
    for name, case in calls.every():
        flags = [field for field, value in case.numbers.items() if value is True and case.operator in _gradients.rules]
        new = {(case.operator, field) for field in (*case.arrays, *flags)} - seen
        if not new:
            continue
        if not case.changes and not any(operator == case.operator for operator, _ in seen):
            CASES[f"{name}_out"] = lambda case=case: example(case, True)
        seen |= new
        CASES[name] = lambda case=case: example(case)


add_examples()


class Recorder:
    """Keeps calls of switchyard.torch, in its place."""

    def __init__(self) -> None:
        self.calls = []
        self.module = st

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, dict(inspect.signature(function).bind(*args, **kwargs).arguments)))
            return function(*args, **kwargs)

        return call


def differentiable() -> dict[str, tuple[str, dict[str, Any], list[str]]]:
    """The cases that ask for a gradient: operator, arguments by name, and those with a gradient."""
    found = {}
    for case, run in CASES.items():
        if not case.endswith("_out") and case != "combine_grad":
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(globals(), "st", recorder := Recorder())
                run()
            name, values = recorder.calls[-1]
            leaves = [field for field, x in values.items() if isinstance(x, torch.Tensor) and x.requires_grad]
            if leaves:
                found[case] = name, values, leaves
    return found


DIFFERENTIABLE = differentiable()


def floats(made: Any) -> list[Any]:
    """The results that may have a gradient."""
    made = made if isinstance(made, tuple) else (made,)
    return [x for x in made if x is not None and "float" in str(x.dtype)]
