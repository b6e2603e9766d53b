"""The binary interface, compared with tests/abi/baseline.txt: prototypes, struct layouts, enum values.

    python3 tests/abi/test_abi.py            compare
    python3 tests/abi/test_abi.py --update   record an intended change

The description comes from the header and from the compiler (a generated program prints offsets and values), so one
reviewable text serves every 64-bit machine and needs no debug information. SWITCHYARD_RUN may name an emulator.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
HEADERS = ("switchyard.h", "switchyard_describe.h", "switchyard_transport.h", "switchyard_mpi.h")
BASELINE = os.path.join(ROOT, "tests", "abi", "baseline.txt")


def header_code():
    """The headers without comments and preprocessor lines."""
    text = ""
    for name in HEADERS:
        with open(os.path.join(ROOT, "include", name), encoding="utf-8") as file:
            text += re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    return re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def field_name(declaration):
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", declaration)  # a function pointer
    return pointer.group(1) if pointer else re.search(r"(\w+)\s*(?:\[[^\]]*\])?$", declaration).group(1)


def describe():
    code = header_code()
    lines, program = [], []
    for match in re.finditer(r"SY_API\s+([^;{]+);", code):
        lines.append(f"function {squeeze(match.group(1))}")
    for match in re.finditer(r"typedef\s+([^;{}]*\(\s*\*\s*\w+\s*\)[^;{}]*);", code):
        lines.append(f"callback {squeeze(match.group(1))}")
    for match in re.finditer(r"typedef enum (\w+)\s*\{(.*?)\}", code, re.S):
        for entry in filter(None, map(squeeze, match.group(2).split(","))):
            name = entry.split("=")[0].strip()
            program.append(f'printf("enum %s %d\\n", "{match.group(1)} {name}", (int){name});')
    for match in re.finditer(r"typedef struct (\w+)\s*\{(.*?)\}\s*\w+;", code, re.S):
        struct = match.group(1)
        for declaration in filter(None, map(squeeze, match.group(2).split(";"))):
            field = field_name(declaration)
            program.append(f'printf("struct %s at %zu, %zu bytes: %s\\n", "{struct}", offsetof({struct}, {field}), '
                           f'sizeof((({struct} *)0)->{field}), "{declaration}");')
        program.append(f'printf("struct %s ends at %zu\\n", "{struct}", sizeof({struct}));')
    return sorted(lines) + run_program(program)


def run_program(statements):
    compiler = os.environ.get("SWITCHYARD_CC", "cc")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as file:
            body = "\n    ".join(statements)
            includes = "".join(f"#include <{name}>\n" for name in ("stdio.h", *HEADERS))
            file.write(f"{includes}int main(void)\n{{\n    {body}\n    return 0;\n}}\n")
        with open(os.path.join(folder, "mpi.h"), "w", encoding="utf-8") as file:  # no layout depends on the real one
            file.write("typedef void *MPI_Comm;\ntypedef int MPI_Fint;\n")
        subprocess.run([compiler, "-std=c11", "-I", folder, "-I", os.path.join(ROOT, "include"), source, "-o", binary], check=True)
        run = shlex.split(os.environ.get("SWITCHYARD_RUN", "")) + [binary]
        return subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()


class Abi(unittest.TestCase):
    maxDiff = None

    def test_reads_the_header(self):
        lines = describe()
        self.assertIn("enum sy_status SY_OK 0", lines)
        self.assertIn("function const char *sy_version(void)", lines)
        self.assertTrue([line for line in lines if line.startswith("struct sy_ctx_options at 0, 8 bytes: const char *isa")])
        self.assertTrue([line for line in lines if line.startswith("callback void (*sy_trace_fn)(")])

    def test_equals_the_baseline(self):
        with open(BASELINE, encoding="utf-8") as file:
            old = file.read().splitlines()
        new = describe()
        gone = [line for line in old if line not in new]
        added = [line for line in new if line not in old]
        text = "".join(f"\n- {line}" for line in gone) + "".join(f"\n+ {line}" for line in added)
        self.assertFalse(gone or added, f"{text}\nLines marked - break compiled callers unless a struct only grew at its "
                                        "end. If the change is intended: python3 tests/abi/test_abi.py --update")


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        with open(BASELINE, "w", encoding="utf-8") as out:
            out.write("\n".join(describe()) + "\n")
    else:
        unittest.main()
