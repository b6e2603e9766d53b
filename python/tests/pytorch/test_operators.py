"""Every operator of switchyard.torch: torch's own checks, and the signatures and results of the plain functions."""

from __future__ import annotations

import inspect
import typing
import warnings
from typing import Any

import pytest
from cases import CASES, MAP, rand, st, torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import switchyard
from switchyard.torch import _library

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def not_traced_by_2_4(op: Any) -> bool:
    """PyTorch 2.4 compiles no operator that writes into a list of tensors, and knows no uint16."""
    return "!)[]" in str(op._schema) or "local_reduce" in op._schema.name


class Recorder(TorchDispatchMode):
    """Keeps the operators that run, with copies of what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "switchyard":
            self.calls.append((func, torch.utils._pytree.tree_map_only(torch.Tensor, copied, args)))
        return func(*args, **(kwargs or {}))


def copied(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def recorded(case: str) -> list[tuple[Any, tuple[Any, ...]]]:
    with Recorder() as recorder:
        CASES[case]()
    return recorder.calls


def opcheck(op: Any, args: Any) -> None:
    if op._schema.name in ("switchyard::moe_map_from_ids", "switchyard::moe_ids_from_map"):
        # opcheck adds up all results, and cannot add a float to the integers that come first here. Their gradients in
        # a compiled graph are tested with the others.
        torch.library.opcheck(op, args, test_utils=TESTS[:3])
        args = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, args)
    tests = TESTS[:3] if torch.__version__.startswith("2.4.") and not_traced_by_2_4(op) else TESTS
    assert set(torch.library.opcheck(op, args, test_utils=tests).values()) == {"SUCCESS"}


@pytest.mark.parametrize("case", CASES)
def test_opcheck(case: str) -> None:
    opcheck(*recorded(case)[-1])


def test_every_operator_is_checked() -> None:
    checked = {recorded(case)[-1][0]._schema.name for case in CASES}
    assert checked == {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("switchyard::")}


def operators() -> list[str]:
    return [
        name
        for name in switchyard.__all__
        if name.partition("_")[0] in ("moe", "kv", "sample", "local", "quantize", "dequantize")
        and inspect.isroutine(getattr(switchyard, name))
    ]


def test_every_function_is_there() -> None:
    assert sorted(name for name in st.__all__ if inspect.isroutine(getattr(st, name))) == sorted(operators())


@pytest.mark.parametrize("name", operators())
def test_signature_is_that_of_the_plain_function(name: str) -> None:
    plain, here = (inspect.signature(getattr(module, name)).parameters for module in (switchyard, st))
    assert list(plain) == list(here)
    for field in plain:
        assert (plain[field].kind, plain[field].default) == (here[field].kind, here[field].default), field


@pytest.mark.parametrize("name", operators())
def test_annotations_are_those_of_tensors(name: str) -> None:
    """What help() and editors show: the plain function's, with tensors for arrays, and a docstring of its own."""
    plain, here = getattr(switchyard, name), getattr(st, name)
    hints = typing.get_type_hints(here)
    assert list(hints) == list(typing.get_type_hints(plain))
    assert not any(word in str(hint) for hint in hints.values() for word in ("SupportsDLPack", "~A"))
    assert (here.__name__, here.__module__) == (plain.__name__, "switchyard.torch")
    assert here.__doc__ and here.__doc__ != plain.__doc__
    assert f"def {plain.__name__}(" in inspect.getsource(here)


@pytest.mark.parametrize("case", [case for case in CASES if case != "combine_grad" and "sample_noise" not in case])
def test_results_are_those_of_the_plain_function(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines with the plain functions in place of these give the same bits."""
    with torch.no_grad():
        ours = CASES[case]()
        for name in operators():
            monkeypatch.setattr(st, name, getattr(switchyard, name))
        theirs = CASES[case]()
    assert type(ours) is type(theirs)
    flat, wanted = (list(made) if isinstance(made, tuple) else [made] for made in (ours, theirs))
    assert len(flat) == len(wanted)
    for got, want in zip(flat, wanted, strict=True):
        same_bits(got, want)


def same_bits(got: Any, want: Any) -> None:
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert bytes(got.detach().contiguous().view(torch.uint8).flatten()) == bytes(
        want.detach().contiguous().view(torch.uint8).flatten()
    )


def test_plain_tensors_need_no_dispatcher() -> None:
    """A call that the dispatcher has no part in goes straight to the kernel, and gives what torch.ops gives."""
    plain, tracked = rand(4, 3), rand(4, 3, grad=True)
    assert _library.direct((plain, None, 3)) and _library.direct((torch.nn.Parameter(plain, requires_grad=False),))
    assert not _library.direct((plain, tracked))
    with torch.no_grad():
        assert _library.direct((plain, tracked))
    with torch.inference_mode():
        assert _library.direct((plain, torch.ones(2)))
    assert not _library.direct((torch.ones(2, dtype=torch.cfloat).conj(),))
    assert not _library.direct((torch.ones(2, dtype=torch.cfloat).conj().imag,))
    assert not _library.direct((torch.empty(2, device="meta"),))
    assert _library.direct((), [plain, None]) and not _library.direct((), [plain, plain.numpy()])
    assert not _library.direct((plain, MAP, tracked)) and not _library.direct((plain,), (tracked,))
    assert st.moe_permute(plain, MAP.to("meta"), num_out_tokens=8).permuted_tokens.is_meta  # not direct, found later
    with torch.device("meta"):
        assert not _library.direct((plain,))
        assert switchyard.moe_permute(plain, MAP, num_out_tokens=8).permuted_tokens.is_cpu  # where the arguments are
    with torch.autograd.forward_ad.dual_level():
        assert not _library.direct((plain,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        see = lambda x: (x + 1, setattr(_library, "seen", _library.direct((x,))))[0]  # noqa: E731
        torch.jit.trace(see, plain, check_trace=False)
    assert _library.__dict__.pop("seen") is False
    with FakeTensorMode():
        assert not _library.direct((plain,))
    torch.func.vmap(lambda x: (x, setattr(_library, "seen", _library.direct((x,))))[0])(plain)
    assert _library.__dict__.pop("seen") is False
    with torch.profiler.profile() as profile:
        made = st.moe_permute(plain, MAP, num_out_tokens=8)
    assert any(event.key == "switchyard::moe_permute" for event in profile.key_averages())
    for got, want in zip(st.moe_permute(plain, MAP, num_out_tokens=8), made, strict=True):
        assert got is want is None or torch.equal(got, want)


@pytest.mark.parametrize("module", [switchyard, st])
@pytest.mark.parametrize("fast", [True, False])
def test_results_are_compact(module: Any, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the strides of torch.empty, also without elements, and also where PyTorch has no faster function."""
    monkeypatch.setattr(_library.HOST, "strided", _library.HOST.strided if fast else None)
    made = [
        *module.moe_permute(rand(4, 3), MAP, rand(4, 3), num_out_tokens=8),
        *module.moe_permute(rand(4, 0), MAP, num_out_tokens=8),
    ]
    made = [t for t in made if t is not None]
    made.append(module.kv_gather(rand(4, 2, 3, 5), torch.zeros(1, 2).long(), torch.zeros(1, 4).long(), block_size=2))
    assert [t.stride() for t in made] == [torch.empty(t.shape).stride() for t in made]


class Subclass(torch.Tensor):
    pass


def test_numbers_beside_results_of_a_subclass() -> None:
    """The dispatcher takes tensors only: numbers become such where the call is not direct."""
    logits = rand(3, 10)
    want = st.sample(logits, top_k=5, top_p=0.9, seed=7)
    out = switchyard.Sample(*[None if made is None else torch.zeros_like(made).as_subclass(Subclass) for made in want])
    assert st.sample(logits, top_k=5, top_p=0.9, seed=7, out=out) is out
    assert torch.equal(out.token.as_subclass(torch.Tensor), want.token)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [name for name in CASES if not name.endswith("_out")])
def test_fake_results_are_where_the_arguments_are(case: str) -> None:
    """Without a CUDA device: tensors that only pretend to be there."""
    op, args = recorded(case)[-1]

    def there(tensor: Any) -> Any:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")

    with FakeTensorMode():
        given = torch.utils._pytree.tree_map_only(torch.Tensor, there, args)
        made = op(*given)
    results = [made] if isinstance(made, torch.Tensor) else list(made or ())
    given = [value for value in torch.utils._pytree.tree_leaves(given) if isinstance(value, torch.Tensor)]
    assert all(tensor.device == (given or results)[0].device for tensor in results)
    assert not given or given[0].device == torch.device("cuda", 0)


def test_calls_that_differ_in_a_flag() -> None:
    """Results of a call must not be those of an earlier one with another flag."""
    logits = rand(4, 8)
    for flag in (False, True, False):
        assert (st.sample(logits, masked_logits=flag).masked_logits is None) == (not flag)
        assert (switchyard.moe_route(logits, k=2, scores=flag).scores is None) == (not flag)


def test_words_of_other_classes() -> None:
    """Words whose methods run code: none of it runs, the characters count."""
    cache, ids, table = rand(6, 2), torch.tensor([0, -1, 3]), torch.tensor([0, 2, 1])
    want = switchyard.kv_gather(cache, ids, table, block_size=2, pad="zero")

    class Swap(str):
        __slots__ = ()
        __eq__ = str.__eq__

        def __hash__(self) -> int:
            cache.set_(torch.ones(6, 2))
            return str.__hash__(self)

    class Other(str):
        __slots__ = ()
        __hash__ = str.__hash__
        asked = 0

        def __eq__(self, word: object) -> bool:
            Other.asked += 1
            return Other.asked == 1

    assert torch.equal(switchyard.kv_gather(cache, ids, table, block_size=2, pad=Swap("zero")), want)
    with pytest.raises(switchyard.Error):
        switchyard.kv_gather(cache, ids, table, block_size=2, pad=Other("none"))


def test_slots_with_a_lazy_sign() -> None:
    cache = torch.zeros(8, 2)
    with pytest.raises(IndexError, match="slots at position 0 is -1"):
        st.kv_scatter(cache, torch.ones(2, 2), torch._neg_view(torch.tensor([1, 5])))
    assert not cache.any()
