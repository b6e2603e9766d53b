"""The worked examples of tests/examples through `switchyard run`: outputs bit for bit, rejections word for word."""
import functools
import json
import math
import os
import re
import shlex
import subprocess
import sys
import unittest

from st import CLI, ROOT, CliTest, Result, Tensor, decode

sys.path.insert(0, os.path.join(ROOT, "tests", "examples"))
import read  # noqa: E402


@functools.cache
def described():
    """{operator: {field: description}}; the last of two with one name, which is the output."""
    text = subprocess.run([CLI, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    return {op["name"]: {field["name"]: field for field in op["fields"]} for op in json.loads(text)["operators"]}


def stored(field, alternative, data):
    return Tensor(field.type(alternative).upper(), field.shape, data)


def tensors_of(case, alternative):
    return {f.name: stored(f, alternative, f.bytes(alternative)) for f in case.inputs() if f.types}


def old_of(case, alternative):
    """Old contents of outputs of which elements are kept, where a file can hold some and the case gives none."""
    fields = [f for f in case.outputs() if f.keeps() and (False, f.name) not in case.fields]
    fields = [f for f in fields if described()[case.op][f.name].get("keeps")]
    poison = bytes([read.POISON])
    return {f.name: stored(f, alternative, poison * read.SIZES[f.type(alternative)] * f.count()) for f in fields}


def options_of(case, alternative):
    fields = described()[case.op]
    options = [f"--{f.name.replace('_', '-')}={f.words[0]}" for f in case.inputs() if not f.types]
    listed = [fields[f.name] for f in case.outputs() if not f.none]
    options += sorted({f"--{field['switch'].replace('_', '-')}" for field in listed if "switch" in field})
    if (False, "format") in case.fields and "out" in fields:
        options += [f"--out-type={f.type(alternative)}" for f in case.outputs() if f.name == "out" and f.types]
    if (False, "row_format") in case.fields and case.op in ("moe_unpermute", "local_reduce") and case.status is None:
        options += [f"--out-type={case.outputs()[0].type(alternative)}"]
    return options


class Examples(CliTest):
    def check(self, case, alternative):
        tensors, options = tensors_of(case, alternative), options_of(case, alternative)
        if case.status is not None:
            result = self.rejected(case.op, tensors, *options, status=case.status)
            sentence = case.sentence.removeprefix(f"{case.op}: ")
            self.assertEqual(result.err, f"switchyard: {case.op}: {case.status}: {sentence}\n")
            return
        old = old_of(case, alternative)
        for given in (tensors, {**tensors, **old})[:2 if old else 1]:
            self.expect(case, alternative, self.ok(case.op, given, *options), given)

    def expect(self, case, alternative, result, before):
        """Elements that are kept are those of the file, or zeros."""
        for field in case.outputs():
            if field.none:
                self.assertNotIn(field.name, result.outputs)
                continue
            got, old = result[field.name], before.get(field.name)
            if alternative > 0 and got.dtype != field.type(alternative).upper():
                continue  # a type that only a caller of the library can choose
            size = read.SIZES[field.type(alternative)] * field.count()
            want = field.bytes(alternative, old.data if old else bytes(size))
            self.equal_bytes(field, got, stored(field, alternative, want))

    def test_the_first_of_every_file_is_what_example_writes(self):
        """And the command it prints makes the outputs, those that need an option left out."""
        first = {}
        for case, _ in read.every("cli"):
            first.setdefault(case.op, case)
        for case in first.values():
            with self.subTest(case.op):
                done, given = self.cli("example", case.op, "in.safetensors"), tensors_of(case, 0)
                self.assertIn(f"Wrote in.safetensors: {case.name}. Next:\n", done.stdout)
                written = decode(self.read("in.safetensors"))
                self.assertEqual(set(written), set(given))
                for field in case.inputs():
                    if field.types:
                        self.equal_bytes(field, written[field.name], given[field.name])
                command = re.search(r"^  switchyard (run .+)$", done.stdout, re.M).group(1)
                self.assertEqual(self.cli(*shlex.split(command)).returncode, 0)
                for name, field in list(case.fields.items()):
                    if field.out and "switch" in described()[case.op][field.name]:
                        del case.fields[name]
                self.assertTrue(case.outputs())
                self.expect(case, 0, Result(done, decode(self.read("out.safetensors"))), given)

    def equal_bytes(self, field, got, want):
        self.assertEqual((got.dtype, tuple(got.shape)), (want.dtype, tuple(want.shape)), field.name)
        self.assertEqual(got.data, want.data, f"{field.name}: got {got.values()}, want {want.values()}")


class Described(CliTest):
    """Calls that the description rejects: the first example of an operator with a tensor missing, of another
    type, of another rank."""

    def each(self):
        first = {}
        for case, alternative in read.every("cli"):
            if case.status is None and case.inferred and alternative == 0:
                first.setdefault(case.op, case)
        for case in first.values():
            for field in case.inputs():
                if field.types:
                    yield case, tensors_of(case, 0), options_of(case, 0), described()[case.op][field.name]

    def test_missing(self):
        for case, tensors, options, field in self.each():
            if not field["optional"] and field["role"] == "in":
                with self.subTest(f"{case.op} {field['name']}"):
                    del tensors[field["name"]]
                    self.rejected(case.op, tensors, *options, status="SY_ERR_NULL", says=f"{field['name']} is missing")

    def test_type(self):
        for case, tensors, options, field in self.each():
            if field["types"] and set(field["types"]) < set(read.SIZES) - {"f64"}:
                with self.subTest(f"{case.op} {field['name']}"):
                    shape = tensors[field["name"]].shape
                    tensors[field["name"]] = Tensor("F64", shape, bytes(8 * math.prod(shape)))
                    self.rejected(case.op, tensors, *options, status="SY_ERR_DTYPE", says=f"{field['name']} is f64, want")

    def test_rank(self):
        for case, tensors, options, field in self.each():
            rank, dtype = field["max_rank"] + 1, tensors[field["name"]].dtype
            if rank > 16:  # more than a file may have
                continue
            with self.subTest(f"{case.op} {field['name']}"):
                tensors[field["name"]] = Tensor(dtype, [1] * rank, bytes(read.SIZES[dtype.lower()]))
                self.rejected(case.op, tensors, *options, status="SY_ERR_SHAPE",
                             says=f"{field['name']} has rank {rank}, want")


def add(case, alternative):
    name = f"test {case.op}: {case.name}" + (f", types {alternative + 1}" if case.alternatives() > 1 else "")
    setattr(Examples, name, lambda self: self.check(case, alternative))


for one, number in read.every("cli"):
    if number < 2 and one.inferred:
        add(one, number)

if __name__ == "__main__":
    unittest.main()
