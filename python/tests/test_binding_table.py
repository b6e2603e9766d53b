"""The library's descriptions against the C header, and the public functions against the descriptions."""

import inspect
import os
import re
import typing
from pathlib import Path
from typing import Any

import pytest

import switchyard
import switchyard.mesh
from switchyard import Status, _binding, _words

HEADER = (Path(__file__).parents[2] / "include" / "switchyard.h").read_text()
MESH = {"all_to_all_dispatch", "all_to_all_combine"}  # functions of a mesh, with fields for every device
IN_PLACE = {"kv_scatter", "kv_blocks"}  # outputs are arguments, nothing is returned
NO_OUT = {"moe_capacity"}  # returns a number

# Where a function needs a number that the description does not, or has a default for one that it does.
NEEDS = inspect.Parameter.empty
DEFAULTS = {
    ("moe_capacity", "samples"): 0,  # not looked at without a factor
    ("moe_convert_indices", "from"): "slot",  # what moe_permute makes
    ("moe_permute_grad", "num_experts"): NEEDS,
    ("moe_permute_grad", "num_tokens"): NEEDS,
}

# Words of an enum that an operator does not take.
NOT_TAKEN = {
    ("kv_scatter", "pad"): {"zero"},  # there is no row to clear
    ("sample_verify", "mode"): {"reject"},
    ("sample_verify", "noise"): {"q"},  # there is no such array
    ("local_reduce", "layout"): {"packed"},  # rows do not tell their experts
}

# ---- The header ----


CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
ENUMS = {
    name: re.findall(r"SY_\w+", body) for name, body in re.findall(r"typedef enum (sy_\w+) \{(.*?)\} \1;", CODE, re.S)
}
STRUCTS = {  # types of fields; tests/cli/test_ops.py compares all of the structs
    name: {field: kind for kind, field in re.findall(r"(\w+) \*?(\w+)(?:\[3\])?;", body)}
    for name, body in re.findall(r"typedef struct sy_(\w+)_args \{(.*?)\n\} sy_\1_args;", CODE, re.S)
}
operators = pytest.mark.parametrize("name", sorted(STRUCTS.keys() - MESH))


def words_of(enum: str) -> list[str]:
    """The constants of an enum without what their names have in common, in lower case."""
    parts = [constant.split("_") for constant in ENUMS[enum]]
    shared = 0
    while len({tuple(part[: shared + 1]) for part in parts}) == 1:
        shared += 1
    return ["_".join(part[shared:]).lower() for part in parts]


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_words_are_in_the_order_of_c(name: str) -> None:
    for field in _binding.table(name):
        if field.kind == "enum" and field.name != "cluster_axis":  # None, 0 or 1
            kind, without = STRUCTS[name][field.name], NOT_TAKEN.get((name, field.name), ())
            words = (-1, 0) if kind == "sy_empty_token" else words_of(kind)
            assert [*field.words] == [None if word in without else word for word in words], field.name


def test_formats_are_those_of_c() -> None:
    caches = re.search(r"A format by its name, in(.*?)and the formats of quantize_rows", HEADER, re.S)
    names = [name for some in re.findall(r"\(([\w, ]+)\)", caches[1]) for name in some.split(", ")]
    assert sorted(filter(None, _binding.words("kv_gather", "format"))) == sorted(names)
    rows = re.search(r"fills a format by its name on the page: (.*?) A format of the caller", HEADER, re.S)
    names = re.findall(r"\b(?:fp8_\w+|mxfp8\w*|int8_\w+|q\d_\d|nvfp4\w*)", rows[1])
    assert [word for word in _binding.words("quantize_rows", "format") if word] == names
    rows = [word for word in _binding.words("moe_permute", "row_format") if word]
    assert rows == names[: len(rows)]


def test_statuses_are_those_of_c() -> None:
    assert [f"SY_{'' if s is Status.OK else 'ERR_'}{s.name}" for s in Status] == ENUMS["sy_status"]
    assert [int(s) for s in Status] == list(range(len(Status)))


# ---- Functions ----


def described_default(name: str, field: _binding.Field) -> Any:
    """The default that the library's description gives a number."""
    if (name, field.name) in DEFAULTS:
        return DEFAULTS[name, field.name]
    if field.flags & 4:  # SY_FIELD_REQUIRED
        return NEEDS
    if field.kind in ("enum", "format"):
        return field.words[0]
    read = {"bool": bool, "f32": float, "f64": float}.get(field.kind, int)
    return read(field.preset or 0)


@operators
def test_parameters_are_those_of_the_description(name: str) -> None:
    """Arrays by position, those that are needed first; numbers and what is asked by keyword, with their defaults."""
    function = getattr(switchyard, name)
    told, hints, table = STRUCTS[name], typing.get_type_hints(function), _binding.table(name)
    given = dict(inspect.signature(function).parameters)
    fields = {field.parameter: field for field in table if not field.written or name in IN_PLACE}
    asked = given.keys() - fields.keys()
    assert asked <= {*function.__globals__["operator"].asks, "out"}
    assert fields.keys() <= given.keys()
    for parameter, field in fields.items():
        found = given[parameter]
        if field.kind == "tensor":
            assert found.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            assert found.default is (None if field.optional else NEEDS), parameter
            continue
        assert found.kind is inspect.Parameter.KEYWORD_ONLY
        want = described_default(name, field)
        assert (type(found.default), found.default) == (type(want), want), parameter
        if field.kind in ("enum", "format") and hints[parameter] is not Any:
            words = [word for word in field.words if word is not None]
            types = (hints[parameter], *typing.get_args(hints[parameter]))
            (listed,) = (one for one in types if typing.get_origin(one) is typing.Literal)
            assert [*typing.get_args(listed)] == words
    arrays = [parameter for parameter in given if parameter in fields and fields[parameter].kind == "tensor"]
    needed = [parameter for parameter in arrays if given[parameter].default is NEEDS]
    order = [field for field in told if field in arrays]
    assert arrays == sorted(needed, key=order.index) + sorted(set(arrays) - set(needed), key=order.index)


@operators
def test_results_are_the_outputs(name: str) -> None:
    outputs = [field.name for field in _binding.table(name) if field.written]
    function = getattr(switchyard, name)
    overloads = typing.get_overloads(function) if hasattr(typing, "get_overloads") else []
    result = typing.get_type_hints(overloads[0] if overloads else function)["return"]
    named = getattr(typing.get_origin(result) or result, "_fields", None)
    assert ("out" in inspect.signature(function).parameters) == (name not in IN_PLACE | NO_OUT)
    if name in IN_PLACE:
        assert result is type(None)
    elif named is not None:
        assert [*named] == outputs
    else:
        assert len(outputs) == 1 + (name == "moe_dispatch")  # which returns both with a row_format


def test_types_of_words() -> None:
    """As the annotations name them, and as type checkers read them in the file that the build writes."""
    path = Path(switchyard.__file__).with_name("_words.pyi")
    if not path.exists() and "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("a build with sanitizers does not write it")
    stub = path.read_text(encoding="utf-8")
    for type_name, words in re.findall(r"^(\w+): TypeAlias = Literal\[(.*)\]$", stub, re.M):
        listed = [word.strip('"') for word in words.split(", ")]
        assert [str(word) for word in typing.get_args(getattr(_words, type_name))] == listed, type_name
    with pytest.raises(AttributeError):
        _words.MoeRouteColour  # noqa: B018


@operators
def test_every_parameter_and_result_is_explained(name: str) -> None:
    function = getattr(switchyard, name)
    arguments, _, results = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\nReturns:\n")
    named = getattr(switchyard, name.title().replace("_", ""), None)
    assert results and all(f"    {field}: " in results for field in getattr(named, "_fields", ()))
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^    {parameter}: ", arguments, re.M), parameter


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_help_lists_the_words(name: str) -> None:
    """Of enums and formats, in the entry of the parameter, once."""
    function = getattr(switchyard.mesh.LocalMesh if name in MESH else switchyard, name)
    for field in _binding.table(name):
        if field.kind in ("enum", "format") and field.name != "cluster_axis":  # None, 0 or 1
            entry = re.search(rf"^( +)(?:\w+, )*{field.parameter}(?:, \w+)*: .*(?:\n\1 +.*)*", function.__doc__, re.M)
            for word in field.words:
                assert entry and (word is None or (f'"{word}"' if isinstance(word, str) else str(word)) in entry[0])


def test_the_other_name_of_combine() -> None:
    assert switchyard.moe_dispatch_grad_data is switchyard.moe_combine
