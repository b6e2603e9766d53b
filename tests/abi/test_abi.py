"""The binary interface: programs built with the recorded one, tests/abi/baseline.txt, run with the present one.

    python3 tests/abi/test_abi.py            compare
    python3 tests/abi/test_abi.py --update   record a release, or a change that breaks programs on purpose

Additions need no record: functions, structs, constants, and fields after the last byte of a struct whose size callers
pass, or that only the library makes. All else that differs from the record is a fault.

The description comes from the header and from the compiler (a generated program prints offsets and values), so one
reviewable text serves every 64-bit machine and needs no debug information. In the record a struct or an enum is a paragraph:
`24+8 int64_t position` are the 8 bytes from byte 24 on, `8 int64_t position` the next 8 that are aligned, `| limit`
one more field of that size and type. `operators` are those with the functions OPERATOR and QUERY. SWITCHYARD_RUN may name an emulator.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
HEADERS = ("switchyard.h", "switchyard_inline.h", "switchyard_describe.h", "switchyard_transport.h", "switchyard_mpi.h")
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


def constants(code):
    """(enum, name, number as written or "") of every constant; an enum without a name is "-"."""
    for enum, body in re.findall(r"\benum\s*(\w*)\s*\{(.*?)\}", code, re.S):
        entries = [squeeze(entry).partition(" = ") for entry in body.split(",") if entry.strip()]
        for name, _, number in entries:
            yield enum or "-", name, number


def describe():
    code = header_code()
    lines, program = [f"function {prototype}" for prototype in prototypes()], []
    for match in re.finditer(r"typedef\s+([^;{}]*\(\s*\*\s*\w+\s*\)[^;{}]*);", code):
        lines.append(f"callback {squeeze(match.group(1))}")
    for enum, name, _ in constants(code):
        program.append(f'printf("enum %s %d\\n", "{enum} {name}", (int){name});')
    for match in re.finditer(r"typedef struct (\w+)\s*\{(.*?)\}\s*\w+;", code, re.S):
        struct = match.group(1)
        for declaration in filter(None, map(squeeze, match.group(2).split(";"))):
            field = field_name(declaration)
            program.append(f'printf("struct %s %zu+%zu %s\\n", "{struct}", offsetof({struct}, {field}), '
                           f'sizeof((({struct} *)0)->{field}), "{declaration}");')
        program.append(f'printf("struct %s ends at %zu\\n", "{struct}", sizeof({struct}));')
    return sorted(lines) + run_program(program)


def prototypes():
    """Of every exported function, after the preprocessor: some come from macros."""
    with tempfile.TemporaryDirectory() as folder:
        text = compile_c(folder, "", "-E", "-P")
    found = re.findall(r'__attribute__\(\(visibility\("default"\)\)\)([^;{]+\bsy_[^;{]+);', text)
    return [squeeze(prototype).replace("_Bool", "bool") for prototype in found]


def compile_c(folder, code, *flags):
    """Compiles code after the headers; returns what the compiler prints."""
    compiler, source = os.environ.get("SWITCHYARD_CC", "cc"), os.path.join(folder, "source.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write("".join(f"#include <{name}>\n" for name in ("stdio.h", *HEADERS)) + code)
    with open(os.path.join(folder, "mpi.h"), "w", encoding="utf-8") as file:  # no layout depends on the real one
        file.write("typedef void *MPI_Comm;\ntypedef int MPI_Fint;\n")
    command = [compiler, "-std=c11", "-I", folder, "-I", os.path.join(ROOT, "include"), source, *flags]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


OPERATOR = "function sy_status sy_{0}_n(sy_ctx *ctx, const sy_{0}_args *args, size_t args_bytes)"
QUERY = OPERATOR.replace("_n(", "_query_n(").replace("s)", "s, sy_query *query, size_t query_bytes)")


def place(entry, end):
    """(offset, size, the rest) of a field, which may be without its offset; `end`: of the one before it."""
    offset, size, rest = re.match(r"(?:(\d+)\+)?(\d+) (.*)", entry).groups()
    align = min(int(size), 8)
    return int(offset) if offset else -(-end // align) * align, int(size), rest


def fields(entries):
    """The entries of a paragraph; those of a struct with all offsets."""
    end = 0
    for entry in entries:
        first, *names = entry.split(" | ")
        head = re.match(r"\d+ [\w ]+ |", first)[0]
        for entry in (first, *(head + name for name in names)):
            if re.match(r"\d", entry):
                offset, size, rest = place(entry, end)
                entry, end = f"{offset}+{size} {rest}", offset + size
            yield entry


def short(entries):
    """The same without what the fields before give."""
    end, found, last = 0, [], ""
    for entry in entries:
        if re.match(r"\d", entry):
            offset, size, rest = place(entry, end)
            entry = f"{size} {rest}" if place(f"{size} {rest}", end)[0] == offset else entry
            end = offset + size
        head = re.match(r"\d+ [\w ]+ |", entry)[0]
        if head and head == last:
            found[-1] += " | " + entry[len(head):]
        else:
            found.append(entry)
        last = head
    return "; ".join(found)


def pack(lines):
    """The text of a record: what is said of a struct or an enum is one paragraph."""
    operators = [name for name in re.findall(r" sy_(\w+)_n\(", "\n".join(lines))
                 if {OPERATOR.format(name), QUERY.format(name)} <= set(lines)]
    functions, paragraphs = {text.format(name) for name in operators for text in (OPERATOR, QUERY)}, {"operators": operators}
    for line in lines:
        match = re.match(r"((?:struct|enum) \S+) (.*)", line)
        if line not in functions:
            paragraphs.setdefault(match[1] if match else line, []).extend([match[2]] if match else [])
    texts = (f"{head}: {short(entries)}" if entries else head for head, entries in paragraphs.items())
    return "".join(f"{textwrap.fill(text, 118, subsequent_indent='    ', break_on_hyphens=False)}\n" for text in texts)


def unpack(text):
    """Its lines."""
    for paragraph in re.sub(r"\n +", " ", text).splitlines():
        head, colon, text = paragraph.partition(": ")
        entries = text.split("; ")
        if head == "operators":
            yield from (text.format(name) for name in entries for text in (OPERATOR, QUERY))
        else:
            yield from [f"{head} {entry}" for entry in fields(entries)] if colon else [head]


MADE_BY_THE_LIBRARY = {"sy_trace", "sy_transport_exchange"}  # arguments of the caller's functions
SIZED_BY_A_FIELD = {"sy_kv_plane"}  # plane_bytes


def growing(lines):
    """The structs that a function takes together with their size, and those that callers only read."""
    sized = MADE_BY_THE_LIBRARY | SIZED_BY_A_FIELD
    return sized | {struct for line in lines for struct in re.findall(r"(\w+) \*\w+, size_t \w+_bytes", line)}


def faults(old, new):
    """What breaks a program that was built with `old`, line by line."""
    ends = {name: int(end) for name, end in re.findall(r"^struct (\w+) ends at (\d+)$", "\n".join(old), re.M)}
    grow = growing(new)
    for line in set(old) - set(new):
        struct, count = re.match(r"struct (\w+) ends", line), re.match(r"enum \S+ SY_N_", line)
        if not count and not (struct and struct.group(1) in grow):
            yield f"- {line}"
    for line in set(new) - set(old):
        struct, at, _ = (re.match(r"struct (\w+) (?:ends at )?(\d+)(\+|$)", line) or re.match("()()()", "")).groups()
        if struct in ends and (struct not in grow or int(at) < ends[struct]):
            yield f"+ {line}"


def run_program(statements):
    with tempfile.TemporaryDirectory() as folder:
        body, binary = "\n    ".join(statements), os.path.join(folder, "layout")
        compile_c(folder, f"int main(void)\n{{\n    {body}\n    return 0;\n}}\n", "-o", binary)
        run = shlex.split(os.environ.get("SWITCHYARD_RUN", "")) + [binary]
        return subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()


class Abi(unittest.TestCase):
    maxDiff = None

    def test_reads_the_header(self):
        lines = describe()
        self.assertIn("enum sy_status SY_OK 0", lines)
        self.assertIn("function const char *sy_version(void)", lines)
        self.assertIn("function sy_status sy_sample_n(sy_ctx *ctx, const sy_sample_args *args, size_t args_bytes)", lines)
        self.assertTrue([line for line in lines if line.startswith("struct sy_ctx_options 0+8 const char *isa")])
        self.assertTrue([line for line in lines if line.startswith("callback void (*sy_trace_fn)(")])
        self.assertEqual(sorted(unpack(pack(lines))), sorted(lines))

    def test_every_constant_has_its_number(self):
        """Other languages type them. Only a count of constants follows from its place."""
        found = list(constants(header_code()))
        self.assertGreater(len(found), 100)
        self.assertEqual([name for _, name, number in found if not number.isdecimal() and not name.startswith("SY_N_")], [])

    def test_runs_programs_of_the_baseline(self):
        with open(BASELINE, encoding="utf-8") as file:
            text = "\n".join(sorted(faults(list(unpack(file.read())), describe())))
        self.assertFalse(text, f"\n{text}\nThese break compiled callers. A new field follows the last byte of its struct: where the "
                               "struct ends with padding, an older caller's padding would be read. If the change is intended: "
                               "python3 tests/abi/test_abi.py --update")

    def test_the_rule_can_fail(self):
        old = ["function int f(sy_a *a, size_t a_bytes)", "enum e A 0", "enum e SY_N_E 1", "struct sy_a 0+1 bool x",
               "struct sy_a ends at 8", "struct sy_b 0+8 int64_t x", "struct sy_b ends at 8"]
        grown = ["function int g(void)", "enum e B 1", "struct sy_c 0+4 int x", "struct sy_c ends at 4"]
        field = ["struct sy_a 8+1 bool y", "struct sy_a ends at 16"]

        def found(*without, more=()):
            return sorted(faults(old, [line for line in old if line not in without] + grown + list(more)))

        self.assertEqual(found(), [])
        self.assertEqual(found("enum e SY_N_E 1", "struct sy_a ends at 8", more=["enum e SY_N_E 2", *field]), [])
        for gone in (old[0], old[1], old[3], old[5]):
            self.assertIn(f"- {gone}", found(gone))
        inside = "struct sy_a 4+4 int y"  # in the padding
        self.assertEqual(found(more=[inside]), [f"+ {inside}"])
        fixed = "struct sy_b 8+8 int64_t y"  # callers do not pass its size
        self.assertEqual(found(more=[fixed]), [f"+ {fixed}"])
        self.assertEqual(found("struct sy_a ends at 8", more=["struct sy_a ends at 4"]), ["+ struct sy_a ends at 4"])


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        with open(BASELINE, "w", encoding="utf-8") as out:
            out.write(pack(describe()))
    else:
        unittest.main()
