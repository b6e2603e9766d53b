"""Who may include whom: arrows point down only (docs/design.md), foreign headers stay in the folder that owns them."""
import os
import re
import subprocess
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
OBJECTS = os.path.join(os.environ.get("SWITCHYARD_BUILD", ""), "CMakeFiles", "switchyard_objects.dir")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|union|enum|class) (?:\w+\([^)]*\) )?(\w+)(?: : [^;{]*)? {", re.M)

# Folders, and how every quoted include in them may begin. "." is a header beside the file.
ARROWS = {
    "src/base": {"base"},
    "src/plan": {"base", "plan"},
    "src/kernels": {"base", "plan", "kernels"},
    "src/cpu": {"base", "plan", "kernels", "cpu"},
    "src/comm": {"base", "plan", "comm"},
    "src/exchange": {"base", "plan", "kernels", "cpu", "comm", "exchange"},
    "src/cuda/runtime": {"base", "plan", "cuda/cuda.h", "cuda/runtime"},
    "src/cuda/prim": {"base", "plan", "cuda/runtime", "cuda/prim"},
    "src/cuda/codes": {"base", "plan", "cuda/runtime", "cuda/prim", "cuda/codes"},
    "src/cuda/kv": {"base", "plan", "cuda/runtime", "cuda/prim", "cuda/codes", "cuda/kv"},
    "src/cuda/moe": {"base", "plan", "cuda/runtime", "cuda/prim", "cuda/codes", "cuda/moe"},
    "src/cuda/sample": {"base", "plan", "cuda/runtime", "cuda/prim", "cuda/sample"},
    "src/cuda/exchange": {"base", "plan", "cuda/runtime", "cuda/prim", "cuda/codes", "cuda/moe", "cuda/exchange"},
    "src/cuda": {"base", "plan", "cuda"},
    "src/ops": {"base", "plan", "kernels", "cpu", "cuda", "comm", "exchange", "ops"},
    "transports/common": {"."},
    "transports/mpi": {".", "transports/common"},
    "transports/nccl": {".", "transports/common"},
    "compat/aclnn": {".", "compat", "acl", "aclnn", "aclnnop", "aclnn_util.h"},
    "compat/mluop": {".", "compat", "mlu_op.h", "cnrt.h", "cn_api.h"},
    "cli/main": {".", "bench", "cli"},
    "cli": {"."},
    "bench/mpi": {".", "bench", "cli"},
    "bench": {".", "cli", "bench_list.h"},  # the list is made by the build
    "examples/compat": {".", "acl", "aclnn", "aclnnop", "mlu_op.h", "cnrt.h", "cn_api.h"},
    "examples/moe_lm": {".", "examples", "support"},
    "examples": set(),
    "tests/op": {".", "support.h", "support_memory.h", "mesh_cases.h", "case", "oracle"},
    "tests/comm": {".", "support.h", "support_memory.h", "mesh_cases.h", "mesh_misuse.h", "schedule.h", "oracle", "comm"},
    "tests/oracle": {".", "support.h", "oracle"},
    "tests/fault": {".", "support.h", "case", "wrapped.h", "support_memory.h", "oracle", "base", "plan", "kernels", "cpu", "ops"},
    "tests/isa": {".", "support.h", "oracle", "base", "plan", "kernels", "cpu", "ops"},
    "tests/mpi": {".", "support.h", "groups.h", "support_memory.h", "oracle", "mesh_cases.h", "mesh_misuse.h", "schedule.h", "transports", "comm", "cuda"},
    "tests/nccl/fake": set(),
    "tests/nccl": {".", "support.h", "support_memory.h", "ranks.h", "mesh_cases.h", "transports", "comm"},
    "tests/compat": {".", "support.h", "case", "examples", "acl", "aclnn", "aclnnop", "mlu_op.h", "cnrt.h", "cn_api.h"},
    "tests/cuda": {".", "support.h", "mesh_cases.h", "case", "base", "plan", "cuda"},
    "tests/fuzz": {"safetensors.h"},
    "python/binding/jax": {"python"},
    "python/binding/mpi": {"python"},
    "python/binding/nccl": {"python"},
    "python/binding": {"."},
    "python/bench": {"python"},
    "include": set(),
}

# Headers of others, and the folders that may include them.
OWNERS = {
    "immintrin.h": ["src/kernels/"],
    "arm_neon.h": ["src/kernels/"],
    "arm_sve.h": ["src/kernels/"],
    "omp.h": ["examples/moe_lm/"],
    "jansson.h": ["cli/", "bench/", "examples/moe_lm/"],
    "cmocka.h": ["tests/"],
    "dlpack/dlpack.h": ["include/switchyard_dlpack.h"],
    "mpi.h": ["include/switchyard_mpi.h"],
    "nccl.h": ["include/switchyard_nccl.h", "tests/nccl/fake/"],
    "xla/ffi/api/c_api.h": ["python/binding/jax/"],
    "Python.h": ["python/binding/"],  # its stable ABI alone, see docs/design.md
}

LONGEST_FILE, LONGEST_LINE = 800, 110
# Of CUDA code, which clang-tidy does not read. Up to LONGEST_KERNEL with a reason: NOLINT(readability-function-size): why.
LONGEST_FUNCTION, LONGEST_KERNEL = 60, 80
LONG_NOW = {"src/cuda/moe/moe_sum_ring.cu": 87}  # to be cut: most lines of a function in these files
LONGEST = {"include/switchyard.h": 1900}  # callers include one header, and most of it is contracts


def sources(suffixes=(".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")):
    """Paths from the root of all C files."""
    for top in ("include", "src", "transports", "compat", "cli", "bench", "examples", "python", "tests"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith(suffixes):
                    yield os.path.relpath(os.path.join(folder, name), ROOT)


def lines_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return list(file)


def includes(path):
    """(line number, quoted?, name) of every #include of a file."""
    for number, line in enumerate(lines_of(path), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def folder_of(path):
    return next((folder for folder in ARROWS if path.startswith(folder + "/")), None)


def functions(path):
    """(line number, lines of the body, has a reason to be long) of each function of a formatted file."""
    lines = lines_of(path)
    for number, line in enumerate(lines):
        body = re.fullmatch(r"( *){\n", line)
        if body and lines[number - 1].endswith((")\n", " const\n", ">\n")):
            indent = body.group(1)
            begin = next(i for i in range(number - 1, -1, -1) if re.match(indent + r"\S", lines[i]))
            end = next(i for i in range(number, len(lines)) if lines[i].startswith(indent + "}"))
            yield begin + 1, end - number - 1, any("NOLINT(readability-function-size): " in text for text in lines[max(0, begin - 4):number])


def arrow_fault(path, name):
    """What is wrong with `#include "name"` in a file, or None."""
    allowed = ARROWS[folder_of(path)]
    if name.startswith("../") and not path.startswith("src/"):  # the library's includes start at src/, always
        base = "tests" if path.startswith("tests/") else ""
        name = os.path.relpath(os.path.normpath(os.path.join(os.path.dirname(path), name)), base or ".")
    beside = os.path.exists(os.path.join(ROOT, os.path.dirname(path), name))
    if any(f"{name}/".startswith(f"{prefix}/") for prefix in allowed) or (beside and "/" not in name and "." in allowed):
        return None
    return f"{folder_of(path)} may include {', '.join(sorted(allowed)) or 'no internal header'}"


class Structure(unittest.TestCase):
    def test_there_is_something_to_read(self):
        folders = {folder_of(path) for path in sources()}
        self.assertTrue({"src/base", "src/kernels", "src/cpu", "src/ops", "cli", "tests/op"} <= folders, folders)

    def test_arrows_point_down(self):
        faults = [f'{path}:{line}: "{name}": {arrow_fault(path, name)}'
                  for path in sources() if folder_of(path)
                  for line, quoted, name in includes(path) if quoted and arrow_fault(path, name)]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    @unittest.skipUnless(OBJECTS and os.path.isdir(OBJECTS), "the objects of the library are not built")
    def test_calls_point_down(self):
        """What the objects of a folder need of other folders, also where no header says so."""
        defined, needed = {}, {}
        for folder, _, names in os.walk(OBJECTS):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".c.o")):
                room = folder_of(os.path.relpath(path, OBJECTS))
                for line in subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines():
                    kind, symbol = line.split()[-2:]
                    if kind in "TRDB":
                        defined[symbol] = room
                    elif kind == "U":
                        needed.setdefault((room, symbol), os.path.relpath(path, OBJECTS))
        self.assertGreater(len(defined), 300)
        self.assertEqual([f"{path} calls {symbol} of {defined[symbol]}" for (room, symbol), path in needed.items()
                          if symbol in defined and defined[symbol].split("/")[1] not in ARROWS[room]], [])

    def test_the_rule_can_fail(self):
        self.assertIsNotNone(arrow_fault("src/base/base.h", "kernels/kernels.h"))
        self.assertIsNotNone(arrow_fault("src/kernels/pick.c", "cpu/backend.h"))
        self.assertIsNotNone(arrow_fault("tests/oracle/x.c", "base/base.h"))
        self.assertIsNotNone(arrow_fault("cli/run.c", "../src/base/base.h"))
        self.assertIsNotNone(arrow_fault("cli/run.c", "bench/bench.h"))
        self.assertIsNotNone(arrow_fault("transports/mpi/comm.c", "plan/mesh.h"))
        self.assertIsNotNone(arrow_fault("transports/nccl/line.c", "../mpi/transport.h"))
        self.assertIsNotNone(arrow_fault("python/binding/module.c", "base/base.h"))
        self.assertIsNotNone(arrow_fault("python/binding/module.c", "../../src/base/base.h"))
        self.assertIsNotNone(arrow_fault("compat/aclnn/x.c", "base/base.h"))
        self.assertIsNotNone(arrow_fault("compat/aclnn/x.c", "../../src/base/base.h"))
        self.assertIsNotNone(arrow_fault("examples/compat/x.cpp", "switchyard.h"))
        self.assertIsNone(arrow_fault("src/cpu/x.c", "kernels/kernels.h"))

    def test_foreign_headers_stay_at_home(self):
        faults = [f"{path}:{line}: <{name}> belongs to {' '.join(OWNERS[name])}"
                  for path in sources() for line, _, name in includes(path)
                  if name in OWNERS and not path.startswith(tuple(OWNERS[name]))]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_backends_write_no_sentences(self):
        calls = [f"{path}:{line}" for path in sources() if path.startswith("src/cpu/")
                 for line, text in enumerate(lines_of(path), 1) if re.search(r"\bsyi_fail", text)]
        self.assertEqual(calls, [])

    def test_faults_of_contents(self):
        listed = "".join(lines_of("src/base/faults.h"))
        names = re.findall(r"^    X\((\w+),", listed, re.M)
        known = {"batch", "position", "value", "limit", "extra", "value+1", "limit-1", "code"}
        texts = listed[listed.index("#define SYI_CONTENT_FAULTS"):listed.index("enum syi_bad")]
        self.assertEqual(set(re.findall(r"{([^}]*)}", texts)) - known, set())
        self.assertEqual(texts.count("{"), texts.count("}"))
        backend = "".join("".join(lines_of(path)) for path in sources() if path.startswith(("src/cpu/", "src/base/", "src/plan/")))
        backend += "".join(lines_of("src/cuda/exchange/all_to_all_choices.cuh"))  # what the host finds for a mesh in CPU memory
        self.assertGreater(len(names), 50)
        self.assertEqual([name for name in names if not re.search(rf"\bSYI_BAD_{name}\b", backend)], [])

    def test_device_types_are_defined_once(self):
        files = {}  # units are linked together: two types of one name would share their member functions
        for path in sources((".cu", ".cuh", ".h")):
            if path.startswith("src/cuda/"):
                for name in TYPE.findall("".join(lines_of(path))):
                    files.setdefault(name, set()).add(path)
        self.assertGreater(len(files), 200)
        faults = [f"{name}: {' '.join(sorted(paths))}" for name, paths in files.items() if len(paths) > 1]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_the_public_header_includes_little(self):
        names = {name for _, _, name in includes("include/switchyard.h")}
        self.assertEqual(names, {"stdbool.h", "stddef.h", "stdint.h", "switchyard_dlpack.h", "switchyard_inline.h"})

    def test_no_file_is_too_long(self):
        faults = []
        for path in sources((".c", ".h", ".py", ".cu", ".cuh")):
            lines = len(lines_of(path))
            if lines > LONGEST.get(path, LONGEST_FILE):
                faults.append(f"{path}: {lines} lines, at most {LONGEST.get(path, LONGEST_FILE)}")
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_no_line_on_a_device_is_too_long(self):
        """Comments too, which clang-format leaves alone."""
        paths = list(sources((".cu", ".cuh")))
        self.assertGreater(len(paths), 100)
        faults = [f"{path}:{number}" for path in paths for number, line in enumerate(lines_of(path), 1) if len(line) > LONGEST_LINE + 1]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_no_function_on_a_device_is_too_long(self):
        found = [(path, *function) for path in sources((".cu", ".cuh")) for function in functions(path)]
        self.assertGreater(len(found), 800)
        faults = [f"{path}:{line}: {lines} lines" for path, line, lines, reason in found
                  if lines > LONG_NOW.get(path, LONGEST_KERNEL if reason else LONGEST_FUNCTION)]
        self.assertEqual(faults, [], "\n" + "\n".join(faults))


if __name__ == "__main__":
    unittest.main()
