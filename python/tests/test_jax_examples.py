"""The worked examples of tests/examples inside jax.jit: every bit, every word of a rejection."""

from typing import Any

import numpy as np
import pytest
from test_worked_examples import CASES, asked, expect, given, given_out, identify, takes_out

import switchyard
from switchyard.ops.kv_ragged import _end

jax = pytest.importorskip("jax")
import switchyard.jax as sj  # noqa: E402
from switchyard.jax._launch import wide as wide_types  # noqa: E402

# Of what is found in contents. There local_reduce finds the number of its experts too.
CONTENTS = ("SY_ERR_INDEX", "SY_ERR_ROUTING", "SY_ERR_CAPACITY")


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with wide_types():
        yield


def jitted(name: str, calls: list[dict[str, Any]]) -> list[Any]:
    """Calls inside one jit, whose compilation takes most of the time: arrays are traced, everything else is known."""
    static, arrays = [], []
    for arguments in calls:
        known = {field: value for field, value in arguments.items() if isinstance(value, (int, float, str, type))}
        arrays.append({field: value for field, value in arguments.items() if field not in known})
        if name == "kv_ragged" and "out" not in arguments:  # without it the plain function reads the end of cu_lens
            known.setdefault("rows", _end(arguments.get("cu_lens")))
        static.append(known)
    function = getattr(sj, name)
    made = jax.jit(lambda traced: [function(**t, **known) for t, known in zip(traced, static, strict=True)])(arrays)
    return list(jax.block_until_ready(made))


def results_of(case: Any, made: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Results by name, as NumPy arrays. A cache comes first, then a scale that is changed too."""
    if hasattr(made, "_asdict"):
        named = made._asdict()
    else:
        made = made if isinstance(made, tuple) else (made,)
        names = [field.name for field in case.outputs()]
        named = {name: arguments.get(name) for name in names} | dict(zip(names, made, strict=False))
    if case.op == "moe_capacity":
        named = {"capacity": np.asarray(named["capacity"]).reshape(1)}
    return {name: None if array is None else np.asarray(array) for name, array in named.items()}


def check_rejection(case: Any, arguments: dict[str, Any]) -> None:
    """Arguments are rejected while the function is traced, with the exception of the plain function; contents and `out`
    when it runs, with its sentence.
    """
    try:
        made = jitted(case.op, [arguments])
    except switchyard.Error as error:
        if "out" in arguments and error.fault.argument != case.argument:
            return  # an argument that is wrong too, and found first
        assert str(error) == case.sentence
        assert f"SY_ERR_{error.status.name}" == case.status
        assert error.fault == switchyard.Fault(case.code, case.argument, **case.numbers)
    except (ValueError, IndexError, RuntimeError) as error:
        assert "out" in arguments or case.status in CONTENTS or case.op in ("local_reduce", "moe_place"), (
            "it was not rejected at once"
        )
        assert str(error).endswith(f": {case.sentence}")
    else:
        assert not any(array.size for array in jax.tree.leaves(made))  # which XLA does not compute


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(dict.fromkeys(case for case, _ in CASES)), ids=identify)
def test_example(case: Any) -> None:
    takes, has_old = takes_out(case, getattr(sj, case.op))
    if case.status is not None:
        own = takes and any(field.own for field in case.outputs())
        check_rejection(case, given(case, 0) | ({"out": given_out(case, 0)} if own or has_old else {}))
        return
    fresh = case.inferred and not has_old
    calls = []
    for alternative in range(case.alternatives()):
        arguments = given(case, alternative)
        calls.append(
            arguments | (asked(case, alternative, arguments) if fresh else {"out": given_out(case, alternative)})
        )
    for alternative, made in enumerate(jitted(case.op, calls)):
        results = results_of(case, made, calls[alternative])
        if not fresh:
            results.update({field.name: None for field in case.outputs() if field.none})
        expect(case, alternative, results, is_given=not (fresh and takes))
