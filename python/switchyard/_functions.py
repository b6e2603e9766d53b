"""Functions of operators, made from declarations.

A declaration, in `ops`, is a function without a body: a signature and a docstring. Its parameters are values of the
call by name; their order in the call, and which are numbers of rows, is in the library's description. The functions for
PyTorch and JAX have the same signature, and another body.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from . import _numbers
from ._binding import Field

if TYPE_CHECKING:
    from ._operator import Operator

SEEDS = ("seed", "offset", "stream")  # integers without a sign


def parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = function.__code__
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def operator_of(function: Any) -> Operator[Any]:
    """The operator that a function of `ops` calls."""
    found: Operator[Any] = function.__globals__["operator"]
    return found


# ---- Parts of a function's text ----


def signature(function: Any) -> str:
    """The parameters, without defaults."""
    names, positional = parameters(function), function.__code__.co_argcount
    keywords = ("*", *names[positional:]) if names[positional:] else ()
    return ", ".join((*names[:positional], *keywords))


def values(function: Any, each: Callable[[Field], str]) -> str:
    """The inputs and scalars of a call, in its order; None for those that are no parameters."""
    names = parameters(function)
    listed = (each(field) if field.parameter in names else "None" for field in operator_of(function).given)
    return "".join(f"{value}, " for value in listed)


def scalar(field: Field) -> str:
    """A value, where numbers of rows stay as they are; a seed of all is read to the bits of its type."""
    name = field.parameter
    if field.per_row or name not in SEEDS:
        return name
    return f"_numbers.low_bits(operator.name, {name!r}, {name}){' & 0xFFFFFFFF' if field.kind == 'u32' else ''}"


def converted(field: Field) -> str:
    """A value where numbers of rows become an array, or stay one number for all."""
    name = field.parameter
    if not field.per_row:
        return scalar(field)
    kind = "seed_bits" if name in SEEDS else "real" if "f32" in field.types else "whole"
    return f"None if {name} is None else _numbers.{kind}(operator.name, {name!r}, {name})"


def asked(function: Any) -> str:
    """What a call is asked beyond its fields."""
    names = parameters(function)
    return "".join(f"{name if name in names else None}, " for name in operator_of(function).asks)


def written(function: Any) -> str:
    """What a call writes to: `out`, or a tuple of the arrays that are parameters."""
    names = parameters(function)
    arrays = (field.name for field in operator_of(function).outputs if field.name in names)
    return "out" if "out" in names else f"({''.join(f'{name}, ' for name in arrays)})"


def without(function: Any, unless: str = "") -> str:
    """Calls of the functions that are about arguments which are left out."""
    missing = operator_of(function).without.items()
    lines = (f"if {name} is None{unless}: {to.__name__}({', '.join(parameters(to))})" for name, to in missing)
    return "; ".join(lines) or "pass"


# ---- Functions ----


def declare(function: Any) -> None:
    """Gives a declaration the code that calls its operator."""
    old, given, more = function.__code__, values(function, converted), asked(function)
    call = f"operator(({given}), out, {more})"
    if operator_of(function).results is tuple:
        call = f"operator(({given}), None if out is None else (out,), {more})[0]"
    text = f"def {old.co_name}({signature(function)}):\n {without(function)}\n return {call}"
    made = compile(text, old.co_filename, "exec").co_consts
    function.__globals__.setdefault("_numbers", _numbers)
    function.__code__ = next(code for code in made if isinstance(code, CodeType)).replace(
        co_firstlineno=old.co_firstlineno
    )


def generate(plain: Any, file: str, lines: str, scope: Mapping[str, Any], **captured: Any) -> Any:
    """A function with the signature of a plain one, these lines, and captured variables.

    Its text is kept, for tracebacks and inspect.getsource.
    """
    text = f"def make({', '.join(captured)}):\n  def {plain.__name__}({signature(plain)}):\n{lines}\n"
    text += f"  return {plain.__name__}\n"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {**plain.__globals__, **scope}
    exec(compile(text, file, "exec"), names)
    made = names["make"](**captured)
    made.__defaults__, made.__kwdefaults__ = plain.__defaults__, plain.__kwdefaults__
    made.__annotations__ = dict(plain.__annotations__)
    return made
