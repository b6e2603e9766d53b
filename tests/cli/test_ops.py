"""switchyard ops: the library's descriptions are complete and agree with the header and the pages of docs/ops.

    python3 tests/cli/test_ops.py --update

writes docs/ops/README.md: the operators and the devices they run on.
"""
import glob
import json
import os
import re
import subprocess
import sys
import unittest

from st import CLI, OPERATORS, ROOT, CliTest

INDEX = os.path.join(ROOT, "docs", "ops", "README.md")
AFTER = "\n`switchyard help OP`"  # the rest of that page, written by hand

sys.path.insert(0, os.path.join(ROOT, "tests", "abi"))
import test_abi  # noqa: E402

KINDS = {"bool": "bool", "int": "int", "int64_t": "i64", "uint32_t": "u32", "uint64_t": "u64", "float": "f32",
         "double": "f64", "size_t": "size", "const sy_kv_format *": "format", "const sy_row_format *": "format",
         "const sy_kv_plane *": "planes", "sy_routing *": "routing",
         "const sy_routing *": "routing", "const DLTensor *": "tensor",
         "sy_tensors": "array"}


def header_fields():
    """Struct by struct: (name, offset, kind) of every field, from the binary interface."""
    structs = {}
    for line in test_abi.describe():
        match = re.match(r"struct sy_(\w+)_args (\d+)\+(\d+) (.*?)(\w+)(\[.*\])?$", line)
        if not match:
            continue
        op, offset, size, kind, name, array = match.groups()
        kind, fields = KINDS.get(kind.strip(), "enum"), structs.setdefault(op, set())
        names = [f"{name}[{i}]" for i in range(int(size) // 8)] if array else [name]
        fields.update((each, int(offset) + 8 * i, kind) for i, each in enumerate(names))
    return structs


def page_tables(op):
    """Rows of the tables of tensors and of fields on an operator's page: {name: cells}."""
    with open(os.path.join(ROOT, "docs", "ops", op + ".md"), encoding="utf-8") as file:
        text = file.read()
    tables = []
    for head in ("tensor | role | shape | types | notes", "field | default | meaning"):
        match = re.search(rf"^\| {re.escape(head)} \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
        rows = {}
        for line in match.group(1).splitlines() if match else ():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for name in re.findall(r"`([^`]+)`", cells[0]):
                rows[name.replace("[0..2]", "")] = cells
        tables.append(rows)
    return tables


def sentences():
    """A pattern for each error sentence in the source of the library."""
    patterns = []
    numbers = {"s": ".*", "g": "[-+.e0-9]+"}
    paths = glob.glob(os.path.join(ROOT, "src", "**", "*.c"), recursive=True)
    for path in [*paths, os.path.join(ROOT, "src", "base", "faults.h")]:
        with open(path, encoding="utf-8") as file:
            source = file.read().replace("\\\n", "")
        literals = re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source)
        for literal in literals:
            text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', literal))
            if "want " in text or "could not be" in text:
                text = re.sub(r"%(?:ll|z)?([a-z])", lambda m: numbers.get(m[1], "-?[0-9]+"), re.escape(text))
                text = re.sub(r"\\{[a-z]+.*?\\}", "-?[0-9]+", text.replace(r"\{code\}", ".*"))
                patterns.append(re.compile(text + "$"))
    return patterns


def index(ops):
    """The begin of docs/ops/README.md: a line for each operator of `switchyard ops --json`, and the devices that have it."""
    with open(os.path.join(ROOT, "src", "plan", "plan.h"), encoding="utf-8") as file:
        cuda = re.findall(r"X\([A-Z_]+, (\w+)\)", file.read())
    text = ("# Operators\n\nEach has a page: formula, arguments, errors, worked examples. All run in CPU memory; CUDA says which of "
            "them run on\n[CUDA devices](../cuda.md) too, with the same results and errors. `switchyard ops` lists what an "
            "installation has.\n[moe_dispatch_grad_data](moe_dispatch_grad_data.md) is another name of moe_combine.\n\n| operator | | CUDA |\n|---|---|---|\n")
    for op in ops:
        there = "yes" if op["name"] in cuda else "[yes: in one process, MPI, NCCL](../mesh.md)" if op["mesh"] else ""
        text += f"| [{op['name']}]({op['name']}.md) | {op['summary']} | {there} |\n"
    return text


class Ops(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ops = {}

    def setUp(self):
        super().setUp()
        self.ops = {op["name"]: op for op in self.json("ops")["operators"]}

    def test_list(self):
        self.assertEqual(list(self.ops), OPERATORS)
        lines = self.out("ops").splitlines()
        self.assertEqual([line.split()[0] for line in lines], OPERATORS)

    def test_index(self):
        with open(INDEX, encoding="utf-8") as file:
            self.assertEqual(file.read().split(AFTER)[0], index(self.ops.values()), "run tests/cli/test_ops.py --update")

    def test_usage(self):
        for words in (("--yaml",), ("sample",), ("--json=1",), ("--device", "cuda"), ("--device-library",)):
            self.assertEqual(self.cli("ops", *words).returncode, 2)

    def test_every_field_of_the_header(self):
        header = header_fields()
        self.assertEqual(set(header), set(OPERATORS))
        for op, info in self.ops.items():
            described = {(f["name"], f["offset"], "array" if f.get("array") else f["kind"]) for f in info["fields"]}
            self.assertEqual(described, header[op], op)

    def test_shapes_have_the_ranks(self):
        for op, info in self.ops.items():
            for field in info["fields"]:
                if field["kind"] != "tensor" or any("..." in shape for shape in field["shapes"]):
                    continue
                ranks = [len(shape.split()) for shape in field["shapes"]]
                with self.subTest(op=op, field=field["name"]):
                    self.assertGreaterEqual(min(ranks), field["min_rank"])
                    self.assertLessEqual(max(ranks), field["max_rank"])

    def test_words_and_help(self):
        for op, info in self.ops.items():
            names = [f["name"] for f in info["fields"] if not f.get("again")]
            self.assertEqual(len(names), len(set(names)), op)
            for field in info["fields"]:
                with self.subTest(op=op, field=field["name"]):
                    self.assertTrue(field["help"])
                    self.assertNotIn("--", field["help"])
                    self.assertEqual(field["kind"] == "enum", "words" in field and field["kind"] not in
                                     ("format", "planes"))
                    if field.get("type_like"):
                        self.assertIn(field["type_like"], names)

    def test_pages_name_every_field(self):
        for op, info in self.ops.items():
            tensors, scalars = page_tables(op)
            described = {re.sub(r"\[\d\]", "", f["name"]): f for f in info["fields"]}
            with self.subTest(op):
                self.assertEqual(set(tensors), {n for n, f in described.items() if f["kind"] == "tensor"})
                self.assertEqual(set(scalars), {n for n, f in described.items() if f["kind"] != "tensor"})

    def test_pages_have_the_roles_types_and_shapes(self):
        known = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16", "bool"}
        for op, info in self.ops.items():
            tensors, _ = page_tables(op)
            for field in info["fields"]:
                cells = tensors.get(re.sub(r"\[\d\]", "", field["name"])) if field["kind"] == "tensor" else None
                if not cells or field.get("again"):
                    continue
                with self.subTest(op=op, field=field["name"]):
                    role = field["role"].replace("inout", "in and out") + ", optional" * field["optional"]
                    self.assertEqual(cells[1], role)
                    shapes = ["[" + shape.replace(" ", ",") + "]" for shape in field["shapes"]]
                    missing = [shape for shape in shapes if shape not in cells[2]]
                    self.assertEqual(missing if cells[2] != "per row" or not field.get("per_row") else [], [])
                    types = set(field["types"]) & known
                    if types and not field.get("type_like"):
                        self.assertEqual(set(re.findall(r"[a-z]+\d*", cells[3])) & known, types)

    def test_sentences_of_pages_are_in_the_source(self):
        known, quoted = sentences(), 0
        for op in OPERATORS:
            with open(os.path.join(ROOT, "docs", "ops", op + ".md"), encoding="utf-8") as file:
                text = re.sub(r"^```.*?^```", "", file.read(), flags=re.M | re.S)
            for sentence in re.findall(r"`([^`]*)`", text):
                if "want " not in sentence and "could not be" not in sentence or "…" in sentence:
                    continue
                quoted += 1
                with self.subTest(op=op, sentence=sentence):
                    self.assertTrue(any(pattern.search(" ".join(sentence.split())) for pattern in known))
        self.assertGreater(quoted, 200)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        described = json.loads(subprocess.run([CLI, "ops", "--json"], check=True, capture_output=True).stdout)
        with open(INDEX, encoding="utf-8") as file:
            rest = file.read().partition(AFTER)[1:]
        with open(INDEX, "w", encoding="utf-8") as out:
            out.write(index(described["operators"]) + "".join(rest))
    else:
        unittest.main()
