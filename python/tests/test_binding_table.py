"""The binding's tables and the public functions, held against the C header: same names, same kinds, same enums."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import switchyard
import switchyard.mesh
from switchyard import Status, _binding, _caches, _row_formats

HEADER = (Path(__file__).parents[2] / "include" / "switchyard.h").read_text()

MESH = {"all_to_all_dispatch", "all_to_all_combine"}  # functions of a mesh, with fields for every device

# Where a function's parameters are not the fields of the struct.
RENAMED = {
    "moe_convert_indices": {"from": "from_"},  # a word of Python's own
    "sample": {"logprob_mode": "logprob"},  # the output is asked for by how it is meant
    "sample_verify": {"logprob_mode": "logprob"},
}
ASKED = {  # what a caller may say about results
    "dequantize_rows": {"dtype"},
    "kv_gather": {"dtype"},
    "kv_ragged": {"dtype", "rows"},
    "moe_route": {"scores"},
    "sample": {"masked_logits", "candidates", "rank"},
    "sample_verify": {"accept_mask", "row_flags", "rank"},
}
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

# Tensors that the header does not call optional: another one may stand for them, or only some calls need them.
ONE_OF_SEVERAL = {
    "kv_blocks": {"cache", "src", "dst"},
    "kv_gather": {"block_table", "indptr", "scale"},
    "kv_ragged": {"block_table", "indptr", "scale"},
    "kv_scatter": {"scale"},
    "kv_slots": {"block_table", "indptr"},
    "kv_translate": {"block_table", "indptr"},
    "moe_convert_indices": {"expert_offsets"},
    "sample": {"override_indptr", "override_token", "override_logit"},
    "sample_overrides": {"prompt_token", "output_token", "bias_token", "bias", "cu_lens", "seq_token"},
    "sample_verify": {"cu_lens", "override_indptr", "override_token", "override_logit"},
}

KINDS = {  # what is said to be wanted
    "DLTensor": "an array",
    "bool": "True or False",
    "int": "an integer of 32 bits",
    "int64_t": "an integer of 64 bits",
    "uint32_t": "an integer of 32 bits, not negative",
    "uint64_t": "an integer of 64 bits",
    "float": "a number",
    "double": "a number",
    "sy_kv_format": "ds32_fp8, pto_int8, ds4_fp8, indexer_fp8, e4m3, e5m2, int8, q8_0, q4_0, nvfp4 or nvfp4_amax",
    "sy_row_format": "fp8_128, fp8_128_deepep, fp8_128_deepgemm, fp8_128_ue8m0, mxfp8, mxfp8_floor or int8_token",
}

QUANTIZED = {  # operators that take more formats
    (name, "format"): KINDS["sy_row_format"].replace(" or", ",") + ", q8_0, q4_0, nvfp4 or nvfp4_amax"
    for name in ("quantize_rows", "dequantize_rows")
}


class Field(NamedTuple):
    kind: str  # the type without const and *
    role: str  # of tensors: in, out, in/out
    optional: bool


def parse_enums() -> dict[str, list[str]]:
    found = {}
    for name, body in re.findall(r"typedef enum (sy_\w+) \{(.*?)\} \1;", HEADER, re.S):
        constants = re.findall(r"SY_\w+", re.sub(r"/\*.*?\*/", "", body, flags=re.S))
        found[name] = constants
    return found


def parse_fields(body: str) -> dict[str, Field]:
    fields = {}
    for declaration, note in re.findall(r"([^;]+);\s*(?:/\*(.*?)\*/)?", body, re.S):
        kind, *names = re.findall(r"\w+", re.sub(r"/\*.*?\*/|\bconst\b|\[.*?\]", "", declaration, flags=re.S))
        role = re.match(r"\s*(in/out|in|out)\b", note)
        for name in names:
            fields[name] = Field(kind, role[1] if role else "", "optional" in note.lower())
    return fields


def parse_structs() -> dict[str, dict[str, Field]]:
    structs = re.findall(r"typedef struct sy_(\w+)_args \{(.*?)\n\} sy_\1_args;", HEADER, re.S)
    return {name: parse_fields(body) for name, body in structs if name not in MESH}


ENUMS = parse_enums()
STRUCTS = {
    name: {field: told for field, told in fields.items() if field not in ("planes", "num_planes", "plane_bytes")}
    for name, fields in parse_structs().items()
}
operators = pytest.mark.parametrize("name", sorted(STRUCTS))


def words_of(enum: str) -> list[str]:
    """The constants of an enum without what their names have in common, in lower case."""
    parts = [constant.split("_") for constant in ENUMS[enum]]
    shared = 0
    while len({tuple(part[: shared + 1]) for part in parts}) == 1:
        shared += 1
    return ["_".join(part[shared:]).lower() for part in parts]


def parts_of(name: str) -> tuple[list[str], list[str], list[str]]:
    """Fields of an operator: inputs, numbers, outputs, each in the order of the struct."""
    fields = STRUCTS[name].items()
    inputs = [field for field, told in fields if told.kind == "DLTensor" and told.role == "in"]
    outputs = [field for field, told in fields if told.kind == "DLTensor" and told.role in ("out", "in/out")]
    return inputs, [field for field, told in fields if told.kind != "DLTensor"], outputs


def parameters_of(name: str) -> dict[str, inspect.Parameter]:
    """Parameters of the function, by the name of the field."""
    fields = {python: c for c, python in RENAMED.get(name, {}).items()}
    given = inspect.signature(getattr(switchyard, name)).parameters
    return {fields.get(p, p): found for p, found in given.items() if p not in {"out", *ASKED.get(name, ())}}


def test_the_header_was_understood() -> None:
    assert len(STRUCTS) >= 28
    assert STRUCTS["moe_convert_indices"]["to"].kind == "sy_index_form"
    assert parts_of("moe_dispatch") == (
        ["gates", "indices", "locations", "input"],
        ["num_experts", "capacity", "zero_unwritten", "unique_slots", "row_format"],
        ["dispatch", "dispatch_scales"],
    )
    assert words_of("sy_route_score") == ["softmax", "sigmoid", "none", "sqrtsoftplus"]
    assert all(told.role for fields in STRUCTS.values() for told in fields.values() if told.kind == "DLTensor")
    assert all(sum(map(len, parts_of(name))) == len(fields) for name, fields in STRUCTS.items())


@operators
def test_table_names_the_fields(name: str) -> None:
    inputs, numbers, outputs = parts_of(name)
    table = list(_binding.fields(name))
    assert sorted(table[: len(inputs)]) == sorted(inputs)
    assert table[len(inputs) : len(inputs) + len(numbers)] == [f for f in table if f in numbers]
    assert sorted(f for f in table if f in numbers) == sorted(numbers)
    assert sorted(table[len(inputs) + len(numbers) :]) == sorted(outputs)


@operators
def test_table_knows_the_kinds(name: str) -> None:
    for at, field in enumerate(_binding.fields(name)):
        kind, wanted = STRUCTS[name][field].kind, _binding.table(name)[at].wanted
        if kind == "sy_empty_token":
            assert wanted == "-1 or 0"
        elif kind in ENUMS:
            words = [word for word in words_of(kind) if word not in NOT_TAKEN.get((name, field), ())]
            assert wanted == " or ".join(", ".join(words).rsplit(", ", 1)), field
        else:
            assert wanted == QUANTIZED.get((name, field), KINDS[kind]), field


@operators
def test_parameters_are_the_fields(name: str) -> None:
    inputs, numbers, outputs = parts_of(name)
    given = parameters_of(name)
    arrays = [p for p in given if p not in numbers]
    assert set(arrays) == {*inputs, *(outputs if name in IN_PLACE else ())}
    assert {p for p in given if p in numbers} == set(numbers)
    assert all(given[p].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in arrays)
    assert all(given[p].kind is inspect.Parameter.KEYWORD_ONLY for p in numbers)

    order = list(STRUCTS[name])
    needed = [p for p in arrays if given[p].default is inspect.Parameter.empty]
    assert arrays == sorted(needed, key=order.index) + sorted(set(arrays) - set(needed), key=order.index)


@operators
def test_optional_arrays_may_be_left_out(name: str) -> None:
    for field, parameter in parameters_of(name).items():
        told = STRUCTS[name][field]
        if told.kind == "DLTensor":
            may = told.optional or field in ONE_OF_SEVERAL.get(name, ())
            assert parameter.default is (None if may else inspect.Parameter.empty), field


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
def test_keywords_and_defaults_are_those_of_the_description(name: str) -> None:
    given = parameters_of(name)
    numbers = [field for field in _binding.table(name) if field.kind != "tensor"]
    assert {p for p, found in given.items() if found.kind is inspect.Parameter.KEYWORD_ONLY} == {
        f.name for f in numbers
    }
    for field in numbers:
        default, want = given[field.name].default, described_default(name, field)
        assert (type(default), default) == (type(want), want), field.name


@operators
def test_results_are_the_outputs(name: str) -> None:
    outputs = parts_of(name)[2]
    function = getattr(switchyard, name)
    overloads = typing.get_overloads(function) if hasattr(typing, "get_overloads") else []
    result = hints_of(overloads[0] if overloads else function)["return"]
    named = getattr(typing.get_origin(result) or result, "_fields", None)
    assert ("out" in inspect.signature(function).parameters) == (name not in IN_PLACE | NO_OUT)
    if name in IN_PLACE:
        assert result is type(None)
    elif named is not None:
        assert [*named] == outputs
        assert [*named] == list(_binding.fields(name))[-len(named) :]
    else:
        assert len(outputs) == 1 + (name == "moe_dispatch")  # which returns both with a row_format


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


@operators
def test_words_are_those_of_the_enums(name: str) -> None:
    function = getattr(switchyard, name)
    hints, renamed = hints_of(function), RENAMED.get(name, {})
    for field, told in STRUCTS[name].items():
        if told.kind not in ENUMS or told.kind == "sy_empty_token":  # which is said as the token itself
            continue
        without = NOT_TAKEN.get((name, field), ())
        words = [None if word in without else word for word in words_of(told.kind)]
        assert [*_binding.words(name, field)] == words, field
        assert [*typing.get_args(hints[renamed.get(field, field)])] == [word for word in words if word], field


def test_formats_are_those_of_c() -> None:
    told = re.search(r"A format by name:(.*?)Returns", HEADER, re.S)
    assert told is not None
    names = re.findall(r'"(\w+)"', told[1])
    assert " or ".join(", ".join(names).rsplit(", ", 1)) == KINDS["sy_kv_format"]
    assert [*typing.get_args(_caches.Format)] == names
    told = re.search(r"Formats by name, sy_row_format_named.*?same bits as\n(.*?)A format of the caller", HEADER, re.S)
    assert told is not None
    names = [name for line in re.findall(r"^ \*   (\w+(?:, \w+)?)", told[1], re.M) for name in line.split(", ")]
    assert " or ".join(", ".join(names).rsplit(", ", 1)) == QUANTIZED["quantize_rows", "format"]
    assert [*typing.get_args(_row_formats.QuantizedFormat)] == names
    rows = [*typing.get_args(_row_formats.RowFormat)]
    assert " or ".join(", ".join(rows).rsplit(", ", 1)) == KINDS["sy_row_format"]


def test_statuses_are_those_of_c() -> None:
    assert [f"SY_{'' if s is Status.OK else 'ERR_'}{s.name}" for s in Status] == ENUMS["sy_status"]
    assert [int(s) for s in Status] == list(range(len(Status)))


@operators
def test_every_parameter_is_explained(name: str) -> None:
    function = getattr(switchyard, name)
    arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^    {parameter}: ", arguments, re.M), parameter


@pytest.mark.parametrize("name", [*STRUCTS, *sorted(MESH)])
def test_help_lists_the_words(name: str) -> None:
    """Of enums and formats, in the entry of the parameter, once."""
    function = getattr(switchyard.mesh.LocalMesh if name in MESH else switchyard, name)
    for field in _binding.table(name):
        if field.kind in ("enum", "format") and field.name != "cluster_axis":  # None, 0 or 1
            of = RENAMED.get(name, {}).get(field.name, field.name)
            entry = re.search(rf"^( +)(?:\w+, )*{of}(?:, \w+)*: .*(?:\n\1 +.*)*", function.__doc__, re.M)
            for word in field.words:
                assert entry and (word is None or (f'"{word}"' if isinstance(word, str) else str(word)) in entry[0])


def test_the_other_name_of_combine() -> None:
    assert switchyard.moe_dispatch_grad_data is switchyard.moe_combine
