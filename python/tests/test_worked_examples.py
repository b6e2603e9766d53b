"""The worked examples of tests/examples, with new results and with given ones: every bit, every word of a rejection."""

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import switchyard
from switchyard import _arrays

ml_dtypes = pytest.importorskip("ml_dtypes")
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "examples"))
import read  # noqa: E402

TYPES = {short: np.dtype(getattr(ml_dtypes, name, name)).type for short, name in _arrays.TYPES.items()}
# Names that differ from the library's: a word of Python's, a field that its output gives its name.
NAMES = {
    ("moe_convert_indices", "from"): "from_",
    ("sample", "logprob_mode"): "logprob",
    ("sample_verify", "logprob_mode"): "logprob",
}
# What asks for an output that is not named like it.
SWITCHES = {"list_token": "candidates", "list_prob": "candidates"}

CASES = list(read.every("python"))


def array_of(field: Any, alternative: int, data: bytes) -> Any:
    return np.frombuffer(bytearray(data), np.uint8).view(TYPES[field.type(alternative)]).reshape(field.shape)


def given(case: Any, alternative: int) -> dict[str, Any]:
    """Arguments of the call, without outputs that only have old contents."""
    parameters = inspect.signature(getattr(switchyard, case.op)).parameters
    names = {field: NAMES.get((case.op, field.name), field.name) for field in case.inputs()}
    return {
        name: array_of(field, alternative, field.bytes(alternative)) if field.types else field.scalar()
        for field, name in names.items()
        if name in parameters and name != "out"
    }


def asked(case: Any, alternative: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a call without `out` needs to make the outputs that the case lists."""
    parameters = inspect.signature(getattr(switchyard, case.op)).parameters
    listed = [field for field in case.outputs() if not field.none]
    more = {SWITCHES.get(f.name, f.name): True for f in listed}
    more = {name: True for name in more if name in parameters and name not in arguments and name != "out"}
    if "format" in arguments and "dtype" in parameters:
        more["dtype"] = TYPES[listed[0].type(alternative)]
    return more


def results_of(case: Any, made: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Results by name: a named tuple, one array alone, a number, or an argument that was changed."""
    if hasattr(made, "_asdict"):
        return dict(made._asdict())
    listed = [field.name for field in case.outputs()]
    changed = {name: arguments[name] for name in listed if name in arguments}
    return changed or {listed[0]: made if isinstance(made, np.ndarray) else np.array([made])}


def expect(case: Any, alternative: int, results: dict[str, Any], is_given: bool) -> None:
    for field in case.outputs():
        got = results[field.name]
        if field.none:
            assert got is None, f"{field.name}: {got!r}, want none"
            continue
        assert got is not None, f"{field.name} is None"
        if alternative > 0 and got.dtype != TYPES[field.type(alternative)]:
            continue  # a type that only a given output has
        zeros = bytes(read.SIZES[field.type(alternative)] * field.count())  # what new results hold
        old = case.old(field.name, alternative) if is_given else zeros
        want = array_of(field, alternative, field.bytes(alternative, old))
        assert (got.dtype, got.shape) == (want.dtype, want.shape), field.name
        assert got.tobytes() == want.tobytes(), f"{field.name}: {got!r}, want {want!r}"


def given_out(case: Any, alternative: int) -> Any:
    """The value of `out`: one array, or the operator's named tuple with None for what the case does not list."""
    made = {}
    for field in case.outputs():
        old = case.fields.get((False, field.name))
        if old is not None:
            made[field.name] = array_of(old, alternative, old.bytes(alternative))
        elif not field.none:
            size = read.SIZES[field.type(alternative)] * field.count()
            made[field.name] = array_of(field, alternative, bytes([read.POISON]) * size)
    kind = getattr(switchyard, "".join(word.title() for word in case.op.split("_")), None)
    alone = kind is None or (case.op == "moe_dispatch" and len(made) == 1)  # which has a tuple for codes only
    return next(iter(made.values())) if alone else kind(*(made.get(name) for name in kind._fields))


def check_rejection(case: Any, arguments: dict[str, Any], out: dict[str, Any]) -> None:
    before = bytes_of(out)
    with pytest.raises(switchyard.Error) as caught:
        getattr(switchyard, case.op)(**arguments, **out)
    error = caught.value
    assert bytes_of(out) == before
    assert str(error) == case.sentence
    assert f"SY_ERR_{error.status.name}" == case.status
    assert error.fault == switchyard.Fault(case.code, case.argument, **case.numbers)


def bytes_of(out: dict[str, Any]) -> list[bytes]:
    made = out.get("out", ())
    return [
        array.tobytes() for array in (made if isinstance(made, tuple) else (made,)) if isinstance(array, np.ndarray)
    ]


def identify(value: Any) -> str | None:
    return f"{value.op}: {value.name}" if isinstance(value, read.Case) else None


def takes_out(case: Any, function: Any) -> tuple[bool, bool]:
    """Whether a function has `out`, and whether the case has old contents for it."""
    takes = "out" in inspect.signature(function).parameters
    return takes, takes and any((False, field.name) in case.fields for field in case.outputs())


def check(case: Any, alternative: int, there: Any = lambda values: values, host: Any = lambda made: made) -> None:
    """Makes the calls of a case with arguments that `there` takes elsewhere, and results that `host` brings back."""
    function = getattr(switchyard, case.op)
    arguments = there(given(case, alternative))
    takes, has_old = takes_out(case, function)
    if case.status is not None:
        own = takes and any(field.own for field in case.outputs())
        check_rejection(case, arguments, {"out": there(given_out(case, alternative))} if own or has_old else {})
        return
    if case.inferred and not has_old:
        made = function(**arguments, **asked(case, alternative, arguments))
        results = results_of(case, host(made), {name: host(value) for name, value in arguments.items()})
        expect(case, alternative, results, is_given=not takes)
    if takes:
        out = there(given_out(case, alternative))
        made = function(**there(given(case, alternative)), out=out)
        assert made is out
        results = results_of(case, host(made), {})
        results.update({field.name: None for field in case.outputs() if field.none})
        expect(case, alternative, results, is_given=True)
    changed = {field.name for field in case.outputs()}
    for name, before in given(case, alternative).items():
        if isinstance(before, np.ndarray) and name not in changed:
            assert host(arguments[name]).tobytes() == before.tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("case", "alternative"), CASES, ids=identify)
def test_example(case: Any, alternative: int) -> None:
    check(case, alternative)
