"""A small safetensors reader and writer and a way to call the command line. Shares nothing with the C code."""
import json
import os
import re
import struct
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CLI = os.path.abspath(os.environ.get("SWITCHYARD_CLI", os.path.join(ROOT, "build", "release", "switchyard")))

NAN, INF = float("nan"), float("inf")

def operators():
    """In the order of the library's own list, which is that of the command line."""
    with open(os.path.join(ROOT, "src", "plan", "plan.h"), encoding="utf-8") as file:
        return re.findall(r"^    \w+\([A-Z_]+, (\w+)\)", file.read(), re.M)


OPERATORS = operators()

# struct letters; BF16 and the 8-bit floats are given and shown as bit patterns
FORMATS = {
    "BOOL": "B", "U8": "B", "I8": "b", "F8_E4M3": "B", "F8_E5M2": "B", "F8_E8M0": "B", "U16": "H", "I16": "h",
    "F16": "e", "BF16": "H", "U32": "I", "I32": "i", "F32": "f", "F64": "d", "U64": "Q", "I64": "q",
}


class Tensor:
    """Type, shape and raw bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), bytes(data)

    def values(self):
        letter = FORMATS[self.dtype]
        return list(struct.unpack(f"<{len(self.data) // struct.calcsize(letter)}{letter}", self.data))

    def nested(self):
        """The values as nested lists of the tensor's shape."""
        def cut(flat, shape):
            if not shape:
                return flat[0]
            step = len(flat) // shape[0] if shape[0] else 0
            return [cut(flat[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]
        return cut(self.values(), self.shape)


def shape_of(values):
    shape = []
    while isinstance(values, (list, tuple)):
        shape.append(len(values))
        values = values[0] if values else None
    return shape


def flatten(values):
    return [v for row in values for v in flatten(row)] if isinstance(values, (list, tuple)) else [values]


def tensor(dtype, values, shape=None):
    flat = flatten(values)
    data = struct.pack(f"<{len(flat)}{FORMATS[dtype]}", *flat)
    return Tensor(dtype, shape_of(values) if shape is None else shape, data)


def f32(value):
    """The nearest f32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def encode(tensors, metadata=None):
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, t in tensors.items():
        header[name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [len(data), len(data) + len(t.data)]}
        data += t.data
    return raw(json.dumps(header).encode(), data)


def raw(header, data=b"", length=None):
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def decode(blob):
    """Reads strictly: the data must be covered end to end, and the header padded so that the data starts aligned."""
    length = struct.unpack("<Q", blob[:8])[0]
    assert length % 8 == 0, "header is not padded to 8 bytes"
    header, data = json.loads(blob[8:8 + length]), blob[8 + length:]
    header.pop("__metadata__", None)
    end, tensors = 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{name} does not begin where the one before it ends"
        assert begin % struct.calcsize(FORMATS[entry["dtype"]]) == 0, f"{name} is not aligned to its type"
        tensors[name], end = Tensor(entry["dtype"], entry["shape"], data[begin:stop]), stop
    assert end == len(data), "bytes after the last tensor"
    return tensors


def is_sanitized():
    """Whether a sanitizer is in the program."""
    with open(CLI, "rb") as file:
        return bool(re.search(rb"__[at]san_init", file.read()))


class Result:
    def __init__(self, done, outputs):
        self.code, self.out, self.err, self.outputs = done.returncode, done.stdout, done.stderr, outputs

    def __getitem__(self, name):
        return self.outputs[name]


class CliTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, blob):
        with open(self.path(name), "wb") as file:
            file.write(blob)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def cli(self, *arguments, env=None, program=CLI):
        # A sanitizer build must let a huge allocation fail like any other: the message about it is tested.
        environment = dict(os.environ, **(env or {}))
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):
            environment[name] = f"{environment.get(name, '')}:allocator_may_return_null=1"
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                              env=environment, check=False)
        done.stderr = re.sub(r"^==\d+==WARNING: \w+ failed to allocate [^\n]*\n", "", done.stderr)
        return done

    def out(self, *arguments, **more):
        """What a command prints that has nothing to complain about."""
        done = self.cli(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def json(self, *arguments, **more):
        return json.loads(self.out(*arguments, "--json", **more))

    def mistake(self, *arguments, says):
        done = self.cli(*arguments)
        self.assert_usage(done.returncode, done.stderr, says)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def run_op(self, op, tensors, *options, metadata=None):
        """Runs an operator; outputs is None when no output file was written."""
        self.write("in.safetensors", encode(tensors, metadata))
        if os.path.exists(self.path("out.safetensors")):
            os.unlink(self.path("out.safetensors"))
        done = self.cli("run", op, "in.safetensors", "out.safetensors", *options)
        exists = os.path.exists(self.path("out.safetensors"))
        return Result(done, decode(self.read("out.safetensors")) if exists else None)

    def ok(self, op, tensors, *options, metadata=None):
        result = self.run_op(op, tensors, *options, metadata=metadata)
        self.assertEqual((result.code, result.err), (0, ""))
        self.assertEqual(result.out, "")
        return result

    def rejected(self, op, tensors, *options, status, says=""):
        """Exit 1, one line with operator, status and sentence, and nothing but the input left behind."""
        result = self.run_op(op, tensors, *options)
        self.assertEqual(result.code, 1, result.err)
        self.assertRegex(result.err, rf"\Aswitchyard: {op}: {status}: [^\n]+\n\Z")
        self.assertIn(says, result.err)
        self.assertNotIn(f"{status}: {op}: ", result.err)
        self.assertEqual(os.listdir(self.folder), ["in.safetensors"])
        return result

    def usage(self, op, tensors, *options, says, metadata=None):
        """Exit 2, a line that says what is wrong, and no output file."""
        result = self.run_op(op, tensors, *options, metadata=metadata)
        self.assert_usage(result.code, result.err, says)
        self.assertIsNone(result.outputs)
        return result

    def assert_usage(self, code, err, says):
        self.assertEqual(code, 2, err)
        self.assertTrue(err.startswith("switchyard: "), err)
        self.assertLessEqual(err.count("\n"), 2, err)
        self.assertIn(says, err)

    def equal(self, got, dtype, values, shape=None):
        """Bytes, type and shape of an output."""
        want = tensor(dtype, values, shape)
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
        self.assertEqual(got.data, want.data, f"got {got.values()}, want {want.values()}")

    def near(self, got, values, tolerance=1e-6):
        self.assertEqual(len(got), len(values))
        for i, (a, b) in enumerate(zip(got, values)):
            self.assertLessEqual(abs(a - b), tolerance, f"element {i}: {a} against {b}")


def main():
    unittest.main()
