"""Operators of `torch.library`: schema, kernel for the CPU and CUDA devices, fake kernel, errors for other devices."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from typing_extensions import ParamSpec

from .. import _arrays, _functions
from .._binding import Field, core
from .._numbers import is_flag
from .._operator import PLANE, Operator, choose
from .._sentences import bad, shown
from ..errors import Error, Status, rejection

forward_ad: Any = torch.autograd.forward_ad
library = cast("Any", torch.library).Library("switchyard", "DEF")

# Inductor must not pass a transposed intermediate where an operator reads rows.
TAGS = (torch.Tag.needs_fixed_stride_order,)

Call = Callable[..., Any]
Given = tuple[Any, ...]  # values of a call, see define
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")


class Beside(_arrays.Torch):
    """Makes results without data on one device, while a graph is traced."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(torch)
        self.where, self.strided = device, None

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty(shape, dtype=dtype, device=self.where)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.empty(shape, dtype)  # only fakes are made here


_beside: dict[str, Beside] = {}  # by the name of a device
HOST = _arrays.meet_torch(torch)  # makes results of calls without tensors


def tensors(values: tuple[Any, ...]) -> list[Tensor]:
    """All tensors of a call, those in lists too."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(tensors(tuple(value)))
    return found


def beside(values: tuple[Any, ...]) -> Beside:
    """The device of the results: that of the first tensor which is not on the CPU."""
    found = [str(tensor.device) for tensor in tensors(values) if tensor.device.type != "cpu"]
    name = "meta" if "meta" in found else next(iter(found), "cpu")
    if name not in _beside:
        _beside[name] = Beside(torch.device(name))
    return _beside[name]


def reject_device(name: str, values: tuple[Any, ...]) -> None:
    """Rejects tensors on devices for which there are no kernels."""
    for tensor in tensors(values):
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            text = f"{name}: a tensor is on {tensor.device}, want the cpu or a CUDA device"
            raise rejection(Status.DEVICE, f"{text}: there are no kernels for others")


def reject_forward(name: str, values: tuple[Any, ...]) -> None:
    """Rejects tensors with a tangent, which would be lost: results would have a tangent of 0."""
    if any(forward_ad.unpack_dual(t).tangent is not None for t in tensors(values)):
        text = f"{name}: a tensor is a dual tensor of torch.autograd.forward_ad"
        raise rejection(Status.UNSUPPORTED, f"{text}, want reverse mode: forward mode is not supported")


def reject_tracked(name: str, values: tuple[Any, ...]) -> None:
    """Rejects tensors that require a gradient, where the operator writes in place."""
    if forward_ad._current_level >= 0:
        reject_forward(name, values)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors(values)):
        text = f"{name}: a tensor requires a gradient, which would end in memory that is written in place"
        raise rejection(Status.VALUE, f"{text}: want detached tensors, or torch.no_grad()")


def reject_out(name: str, fields: Sequence[str], out: tuple[Any, ...]) -> None:
    """Rejects too many or too few tensors to write to, and what the dispatcher does not write to."""
    if len(out) != len(fields):
        want = f"want {len(fields)}: {', '.join(fields)}; None where one is not wanted"
        raise bad(Status.VALUE, name, "out", f"has {len(out)} tensors, {want}")
    for field, tensor in zip(fields, out, strict=True):
        if not isinstance(tensor, (Tensor, type(None))):
            raise bad(Status.DTYPE, name, field, f"is {shown(tensor)}, want a tensor")
        if tensor is not None and not _compiling() and (why := _arrays.lost(tensor, "")):
            raise bad(Status.VALUE, name, field, why)


def run(operator: Operator[Any], given: Given, out: Any, planes: Given = (), asked: Given = ()) -> Any:
    """Runs an operator. Inputs with strides it cannot read are copied; outputs never are."""
    xp = None if isinstance(given[operator.leader], Tensor) else HOST
    try:
        return operator.run(given, out, planes, asked, xp)
    except Error as error:
        if error.status != Status.STRIDE:
            raise
        compact = tuple(v.contiguous() if isinstance(v, Tensor) else v for v in given)
        return operator.run(compact, out, planes, asked, xp)


def reject_odd(operator: Operator[Any], given: Given, out: Any) -> None:
    """Rejects values of a wrong kind, in the words of the operator, after a call that failed in those of PyTorch."""
    n = len(operator.given)

    def each(field: Field, value: Any) -> Sequence[Any]:
        """The values of several caches, or the one."""
        many = operator.name.startswith("kv_") and field.name in (*PLANE, "src", "dst", "out")
        return value if many and isinstance(value, (tuple, list)) else (value,)

    into = () if out is None else out if isinstance(out, (tuple, list)) else (out,)
    for field, value in (*zip(operator.given, given, strict=False), *zip(operator.outputs, into, strict=False)):
        if field.kind == "tensor" and not field.per_row:
            odd = [one for one in each(field, value) if one is not None and not isinstance(one, Tensor)]
        else:
            odd = [value] if (field.kind == "bool") != is_flag(value) else []
        if odd:
            text = f"is {shown(odd[0])}, want {field.wanted.replace('an array', 'a tensor')}"
            raise bad(Status.DTYPE, operator.name, field.parameter, text)
    first = (each(field, value) for field, value in zip(operator.given, given, strict=False))
    check(operator, tuple(value[0] if value else None for value in first))
    operator.check_asks(given[n:])


def check(operator: Operator[Any], given: tuple[Any, ...]) -> None:
    """Rejects what the operator would reject by type and shape, for tensors without memory."""
    operator.check(tuple(_described(v) if isinstance(v, Tensor) else v for v in given))


def _described(tensor: Tensor, compact: bool = False) -> Any:
    """A tensor without data, with its own strides or with those of a copy."""
    try:
        strides = None if compact else tuple(map(int, tensor.stride()))
        return core.view(0, str(tensor.dtype).removeprefix("torch."), tuple(map(int, tensor.shape)), strides)
    except Exception:
        return tensor  # what is wrong with it is found when it is read


def _flat(xp: Beside, made: tuple[Any, ...]) -> Any:
    """Results as a schema has them: a tensor each, empty for None; a single one without a tuple."""
    flat = tuple(xp.empty((0,), torch.float32) if array is None else array for array in made)
    return flat[0] if len(flat) == 1 else flat


def fake_results(operator: Operator[Any], given: Given) -> tuple[Any, ...]:
    """Results of the right shape and type, without data: by the library, or by rules where sizes are symbols."""
    xp, inputs = beside(given), len(operator.given)
    sizes = (size for tensor in tensors(given) for size in tensor.shape)
    if any(isinstance(size, torch.SymInt) for size in (*given, *sizes)):
        return operator.symbolic(xp, given)
    described = tuple(_described(v, True) if isinstance(v, Tensor) else v for v in given[:inputs])
    return cast("tuple[Any, ...]", operator.make(described, given[inputs:], xp))


_C: Any = torch._C
_keys, _function_modes, _dispatch_modes = _C._dispatch_keys, _C._len_torch_function_stack, _C._len_torch_dispatch_stack
_transforms, _tracing, _grad_enabled = _C._are_functorch_transforms_active, _C._is_tracing, torch.is_grad_enabled
_compiling: Any = torch.compiler.is_dynamo_compiling
_profiler: Any = torch.autograd.profiler
_WRITTEN = frozenset({Tensor, torch.nn.Parameter, type(None)})


@functools.cache
def _plain_keys(kind: str) -> frozenset[int]:
    """Dispatch keys of plain tensors on a kind of device; also in inference mode."""
    made = torch.empty(0, device=kind)
    with torch.inference_mode():
        return frozenset({_keys(made).raw_repr(), _keys(torch.empty(0, device=kind)).raw_repr()})


def undisturbed() -> bool:
    """Whether no mode, transformation or trace is active, which the dispatcher would have to know of calls."""
    return not (
        _compiling()
        or _function_modes()
        or _dispatch_modes()
        or _transforms()
        or _tracing()
        or _profiler._is_profiler_enabled
        or forward_ad._current_level >= 0
    )


def direct(values: Sequence[Any], into: Sequence[Any] = ()) -> bool:
    """Whether the dispatcher would do nothing but call the kernel: no gradient, no mode, no trace, no subclass.

    `into`, the values that are written to, must be tensors or None.
    """
    if not undisturbed() or (into and not _WRITTEN.issuperset(map(type, into))):
        return False
    tracked = _grad_enabled()
    for value in (*values, *into) if into else values:
        if value is None:
            continue
        if type(value) is Tensor:  # last, because reading the keys takes longest
            plain = (value.is_cuda or value.is_cpu) and not (value.is_neg() or value.is_conj())
        elif isinstance(value, Tensor):
            plain = (value.is_cpu or value.is_cuda) and _keys(value).raw_repr() in _plain_keys(value.device.type)
        else:
            continue
        if not plain or (tracked and value.requires_grad):
            return False
    return True


def shortened(operator: Operator[Any], alone: bool, general: Call) -> Call:
    """A function call(given, out, plain) that runs a direct call in C where its values are plain, others by `general`.

    `alone`: the result is one tensor; `plain`: whether the call is `direct`, None: not known.
    """
    tensors_at = [at for at, field in enumerate(operator.table) if field.kind == "tensor"]
    bits = sum(1 << at for at in tensors_at)
    run_direct = operator.direct

    def call(given: Given, out: Any = None, plain: bool | None = None) -> Any:
        if undisturbed() if plain is None else plain:
            try:
                done = run_direct(given, (out,) if alone and out is not None else out, 0 if plain else bits)
            except Error as error:
                if error.status != Status.STRIDE:
                    raise
                done = None
            if done is not None:
                return out if out is not None else done[0] if alone else done
        return general(given, out, plain)

    return call


def register(name: str, schema: str, kernel: Call, fake: Call) -> Any:
    """Defines an operator, and returns it."""
    library.define(f"{name}{schema}", tags=TAGS)

    def checked(*values: Any) -> Any:
        reject_device(name, values)
        return kernel(*values)

    library.impl(name, kernel, "CPU")
    library.impl(name, kernel, "CUDA")
    library.impl(name, checked, "CompositeExplicitAutograd")  # other devices, and calls without any tensor
    torch.library.register_fake(f"switchyard::{name}", fake, lib=library)
    return op(name)


calls: dict[str, Call] = {}  # by operator: what `define` returned
transformed: dict[str, Call] = {}  # by operator: what takes its place while a transformation of torch.func is active


@functools.cache
def op(name: str) -> Call:
    """An operator. What torch.library registers as its gradient is not for the transformations of torch.func."""
    overload = getattr(torch.ops.switchyard, name).default

    def call(*values: Any) -> Any:
        other = None if _compiling() or not _transforms() else transformed.get(name)
        return overload(*values) if other is None else other(*values)

    return call


def schema(field: Field) -> str:
    """The argument of a schema that a field is."""
    kind = {"bool": "bool", "f32": "float", "f64": "float", "enum": "str", "format": "str?"}.get(field.kind, "SymInt")
    if field.kind == "tensor":
        kind = "Tensor?" if field.optional else "Tensor"
    elif isinstance((*field.words, "")[0], int):
        kind = "int"
    name = "mode_" if field.name == "mode" else field.parameter  # torch's functions have a parameter of this name
    return f"{kind} {name}"


def asked(operator: Operator[Any]) -> list[str]:
    """The arguments that are no fields."""
    types = {"rows": "SymInt", "dtype": "ScalarType?"}
    return [f"{types.get(name, 'bool')} {name}" for name in operator.asks]


def element_type(name: str, dtype: Any) -> torch.dtype | None:
    """The type of rows that come out of codes, which may be given by name."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if str(dtype) not in ("bfloat16", "float16", "float32"):
        raise bad(Status.DTYPE, name, "dtype", f"is {shown(dtype)}, want bfloat16, float16 or float32")
    return cast("torch.dtype", getattr(torch, str(dtype)))


def make_word_check(operator: Operator[Any], typed: bool = False) -> Callable[[Given], Given]:
    """A function that rejects what is no word or no flag before it goes to the dispatcher, which would say it in its
    own way, or take it.

    It returns the values; `typed`: the last one is an element type, which may be given by name.
    """
    name = operator.name
    enums = [(at, field.parameter, field.words) for at, field in enumerate(operator.table) if field.kind == "enum"]

    def check(given: Given) -> Given:
        for at, field, words in enums:
            choose(name, field, words, given[at])
        given = operator.check_kinds(given)
        return (*given[:-1], element_type(name, given[-1])) if typed else given

    return check


def define(operator: Operator[Any], returns: type[T], writes: bool = True) -> Callable[..., T]:
    """Defines an operator twice: with new results, and writing into given ones.

    The function that comes back takes all values in the order of the binding's table and then those that the rule asks
    for, `out`, and whether the call is `direct` (None: it finds out).
    """
    name, fields = operator.name, [field.name for field in operator.outputs]
    inputs, arrays = len(operator.given), len(operator.inputs)
    arguments = [*map(schema, operator.given), *asked(operator)]
    alone = returns is cast("Any", Tensor)
    checked = make_word_check(operator, [*operator.asks][-1:] == ["dtype"])

    def make(given: Given) -> Any:
        return run(operator, given[:inputs], None, (), given[inputs:])

    def fake(*given: Any) -> Any:
        reject_device(name, given)
        return _flat(beside(given), fake_results(operator, given))

    new = register(
        name,
        f"({', '.join(arguments)}) -> {'Tensor' if alone else '(' + ', '.join('Tensor' for _ in fields) + ')'}",
        lambda *given: _flat(beside(given), make(given)),
        fake,
    )
    write: Any = None
    written = [f"Tensor({chr(97 + i)}!){'' if alone else '?'} out_{field}" for i, field in enumerate(fields)]
    if writes:
        write = register(
            f"{name}_out",
            f"({', '.join((*arguments, *written))}) -> ()",
            lambda *values: run(operator, values[:inputs], values[-len(fields) :]) and None,
            write_nothing(name),
        )

    def general(given: tuple[Any, ...], out: Any, plain: bool | None) -> Any:
        if not (alone or out is None or isinstance(out, (tuple, list))):
            operator.reject_out(f"is {shown(out)}")
        into = () if out is None else (out,) if alone else tuple(out)
        if plain is None:
            plain = direct(given[:arrays], into)
        if not plain:
            given = checked(given)
        if out is not None:
            reject_out(name, fields, into)
            operator.check_asks(given[inputs:])
            if plain:
                run(operator, given[:inputs], into)
                return out
            reject_tracked(name, (*given, *into))
            write(*given, *into)
            return out
        if plain:
            made = make(given)
            return made[0] if alone else made
        if forward_ad._current_level >= 0:
            reject_forward(name, given)
        made = new(*given)
        if alone:
            return made
        return operator.results(*[m if there else None for m, there in zip(made, operator.present(given), strict=True)])

    calls[name] = call = shortened(operator, alone, general)
    return call


LINES = """
    try:
      {without}
      return body(({values}), {out}{more})
    except Error:
      raise
    except Exception:
      reject_odd(operator, ({values}), {out})
      raise"""


def make(plain: Any, body: Call, doc: str | None) -> Any:
    """A function with the signature of a plain one, of a body(given, out).

    The body gets the values as `define` takes them, and what the call writes to: `out`, or a tuple of the arrays that
    are arguments. Its further parameters are arguments of these names.
    """
    values = _functions.values(plain, _functions.scalar) + _functions.asked(plain)
    more = [name for name in _functions.parameters(body)[2:] if name in _functions.parameters(plain)]
    parts = {"values": values, "out": _functions.written(plain), "more": "".join(f", {name}" for name in more)}
    lines = LINES.format(**parts, without=_functions.without(plain, " and not compiling()"))
    scope = {"Tensor": Tensor, "Error": Error, "reject_odd": reject_odd}
    file = f"{__file__}: switchyard.torch.{plain.__name__}"
    made = _functions.generate(plain, file, lines, scope, body=body, compiling=torch.compiler.is_compiling)
    made.__doc__, made.__module__, made.__qualname__ = doc, "switchyard.torch", plain.__name__
    made.__annotations__ = {at: re.sub(r"\b(A|Array)\b", "Tensor", kind) for at, kind in made.__annotations__.items()}
    return made


def function(plain: F) -> Callable[[Call], F]:
    """A decorator that makes a function with the signature and the types of a plain one from a body."""
    return lambda body: cast("F", make(plain, body, body.__doc__))


def derive(plain: Callable[P, T], returns: type[T], about: str, run: Call | None = None) -> Callable[P, T]:
    """The function for tensors of a plain one, which runs the operator and does nothing else.

    `about` is what its docstring says beyond that. `run`, in the place of `define`, makes the call of the function.
    """
    body = run(plain, returns) if run else define(_functions.operator_of(plain), returns)
    line, name = (inspect.getdoc(plain) or "").partition("\n")[0].rstrip("."), cast("Any", plain).__name__
    doc = f"{line}: :func:`switchyard.{name}`, for tensors.\n\n{inspect.cleandoc(about)}"
    return cast("Callable[P, T]", make(plain, body, doc))


def write_nothing(name: str) -> Call:
    """The fake kernel of an operator that only writes."""

    def fake(*values: Any) -> None:
        reject_device(name, values)

    return fake
