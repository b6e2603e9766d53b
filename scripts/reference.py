#!/usr/bin/env python3
"""The reference pages that follow from the library's own description: `switchyard ops --json`, its help, header and docs/ops.

    reference.py PROGRAM FOLDER     man pages: FOLDER/man1 and FOLDER/man3

Every page is made as Markdown, which scripts/make_site.py uses as it is; for man it is converted, with the rest of the operator's page.
"""
import ast
import glob
import json
import os
import re
import subprocess
import sys
import textwrap
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
COMMANDS = ("run", "compare", "show", "example", "bench", "demo", "sim-a2a", "ops", "info")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


HEADER = read("include", "switchyard.h")
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)


# ---- What C and Python call the fields ----

def members(struct):
    """{field: its type in C}"""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", CODE, re.S)
    fields = (re.match(r"(.*?[ *])(\w+)(\[\w.*\])?$", " ".join(line.split())) for line in body.group(1).split(";") if line.strip())
    return {field.group(2): field.group(1).strip() + (field.group(3) or "") for field in fields}


def enumerators(name):
    """[(name, number, comment)] of an enum of the header; none of another type."""
    body = re.search(rf"typedef enum {re.escape(name)} \{{(.*?)\}} {re.escape(name)};", HEADER, re.S)
    found = re.findall(r"(SY_\w+)\s*=\s*(\d+),?(?:[ ]*/\*\s*(.*?)\s*\*/)?", body.group(1), re.S) if body else []
    return [(word, int(number), " ".join(comment.split())) for word, number, comment in found]


def python_functions():
    """{operator: (parameters as in a call, names of the results)}"""
    calls, results = {}, {}
    for path in sorted(glob.glob(os.path.join(ROOT, "python/switchyard/ops/*.py")) + glob.glob(os.path.join(ROOT, "python/switchyard/mesh/*.py"))):
        for node in ast.walk(ast.parse(read(path))):
            if isinstance(node, ast.ClassDef):
                results.setdefault(node.name.lower(), [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)])
            elif isinstance(node, ast.FunctionDef):
                for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    argument.annotation = None
                calls.setdefault(node.name.lstrip("_"), ast.unparse(node.args).removeprefix("self, "))
    return {name: (call, results.get(name.replace("_", ""), [])) for name, call in calls.items()}


PYTHON = python_functions()


# ---- An operator ----

def describe(program):
    done = subprocess.run([program, "ops", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def shapes(field):
    if field.get("per_row"):
        return "per row"
    texts = ["[" + ",".join(shape.split()) + "]" for shape in field["shapes"]]
    return "`" + "` or `".join(texts) + "`"


def accepts(field):
    """Types, shapes, words, range and default, in one cell."""
    if field["kind"] == "tensor":
        types = " ".join(field["types"])
        like = f"type of `{field['type_like']}`" if field["type_like"] else ""
        parts = [field["role"] + (", optional" if field["optional"] else ""), shapes(field), " or ".join(filter(None, (types, like)))]
        return "; ".join(parts)
    parts = ["required"] if field["required"] else [f"default {field['default']}"] if "default" in field else []
    return "; ".join([*([field["range"]] if "range" in field else []), *parts])


def synopsis(op):
    """The calls in C and in Python."""
    comm = " sy_comm *comm," if op["mesh"] else ""
    python = f"{'mesh' if op['mesh'] else 'switchyard'}.{op['name']}({PYTHON[op['name']][0]})"
    return "\n".join(["```c", "#include <switchyard.h>", "",
                      f"sy_status sy_{op['name']}(sy_ctx *ctx,{comm} const sy_{op['name']}_args *args);",
                      f"sy_status sy_{op['name']}_query(sy_ctx *ctx,{comm} const sy_{op['name']}_args *args,",
                      " " * len(f"sy_status sy_{op['name']}_query(") + "sy_query *query);", "```", "", "```text",
                      *textwrap.wrap(python, 84, subsequent_indent=" " * 8, break_on_hyphens=False), "```", ""])


def constants(field, c_type):
    """The words of an enum or of the formats, with their names in C."""
    if field["kind"] not in ("enum", "format"):
        return ""
    names = [f" (`{name}`)" for name, _, _ in enumerators(c_type)] or [""] * len(field["words"])
    return ", ".join(f"`{word.replace('|', '` or `')}`{name}" for word, name in zip(field["words"], names) if word)


def names_section(op, help_text):
    """The names of the fields in C, in Python and on the command line, side by side, with what they accept."""
    call, results = PYTHON[op["name"]]
    parameters = {node.arg for node in ast.walk(ast.parse(f"lambda {call}: 0")) if isinstance(node, ast.arg)}
    types = members(f"sy_{op['name']}_args")
    options = set(re.findall(r"^  --([\w-]+)", help_text, re.M))
    lines = ["`.name` is a part of the result. Of several words the first is the default. Other defaults are those of Python and the command "
             "line, 0 where none is named; in C a field that is left out is 0.", "",
             "| field | in C | in Python | option | accepts |", "|---|---|---|---|---|"]
    for field in op["fields"]:
        name = field["name"].split("[")[0]
        if field["name"] not in (name, f"{name}[0]"):
            continue
        short = name.removesuffix("_mode")  # logprob_mode
        python = next((f"`{word}`" for word in (name, short) if word in parameters), "")
        if field.get("role") == "out":
            python = f"`.{name}`" + (f", with {python}" if python else "") if name in results else python or "the result"
        option = f"--{short.replace('_', '-')}"
        words = constants(field, types[name])
        lines.append(f"| `{name}` | {types[name].replace('const DLTensor *', 'tensor')} | {python} | "
                     f"{f'`{option}`' if option[2:] in options else ''} | "
                     f"{accepts({**field, 'range': words} if words else field)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def operator_page(op, help_text, man=False):
    """docs/ops/NAME.md with the names after its arguments; for man with the calls in front."""
    names = names_section(op, help_text)
    page = read("docs", "ops", f"{op['name']}.md")
    place = re.search(r"^## Errors", page, re.M) or re.search(r"\Z", page)
    title, _, begin = page[:place.start()].partition("\n")
    if man:
        return f"{title}\n## Synopsis\n\n{synopsis(op)}\n## Description\n{begin}## Names\n\n{names}\n{page[place.start():]}"
    return f"{title}\n{begin}## Names\n\n{synopsis(op)}\n{names}\n{page[place.start():]}"


def codes(name, prefix, in_python):
    """The table of an enum; a code without a comment has its name for one."""
    lines = ["| in C | | in Python | meaning |", "|---|---|---|---|"]
    for constant, number, text in enumerators(name):
        short = constant.removeprefix("SY_").removeprefix(prefix)
        lines.append(f"| `{constant}` | {number} | `{in_python.format(short)}` | {text or short.replace('_', ' ').lower()} |")
    return lines


def codes_page():
    """Statuses and fault codes, from the header."""
    return "\n".join([
        "# Status and fault codes", "", "Every function that can fail returns a `sy_status`; `sy_ctx_error` has the sentence of the "
        "last failed call, `sy_ctx_fault` the same as numbers. In Python they are `error.status` and `error.fault` of the exception. "
        "[C in ten minutes](../c.md#errors) says which status a fault code comes with.",
        "", "## Status", "", *codes("sy_status", "ERR_", "Status.{}"),
        "", "## Fault codes", "", *codes("sy_fault_code", "FAULT_", '"{}"'), ""])


# ---- A command ----

def help_of(program, *words):
    return subprocess.run([program, "help", *words], capture_output=True, text=True, check=True).stdout


def command_page(name, text):
    """Markdown of a help page: its lines "Word:" are headings, its two columns tables, its commands code."""
    lines, table, code = [f"# {name}", ""], False, False
    for line in text.splitlines():
        columns = re.match(r"  (\S.*?)(?:  +(\S.*)|)$", line)
        if code and line.startswith("  "):
            lines.append("  " + line)
        elif re.fullmatch(r"[A-Z][\w ,.<>?()]*:", line) or line.startswith("Try it"):
            table, code = False, line.startswith("Try it")
            lines += ["", f"## {line.rstrip(':').partition(' (')[0]}", ""]
        elif line.startswith("Exit: "):
            table = False
            lines += ["", "## Exit status", "", line.removeprefix("Exit: ")]
        elif line.startswith("Usage: "):
            lines += ["", "## Usage", "", "    " + line.removeprefix("Usage: "), ""]
        elif columns and (columns.group(2) or not table or line.startswith("  -")):
            lines += [] if table else ["", "| | |", "|---|---|"]
            table = True
            lines.append("| `{}` | {} |".format(columns.group(1).replace("|", r"\|"), (columns.group(2) or "").replace("|", r"\|")))
        elif table and line.startswith("    "):
            lines[-1] = lines[-1].removesuffix(" |") + f" {line.strip()} |".replace("|", r"\|").removesuffix(r"\|") + "|"
        else:
            table = code = False
            lines.append(line)
    return "\n".join(lines) + "\n"


# ---- Man pages ----

def inline(text):
    """roff of one line of Markdown: code and names are bold, links their text."""
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace(r"\|", "|").replace("<br>", ", ").replace("\\", r"\e")
    text = text.replace("-", r"\-").replace("^", r"\(ha").replace("~", r"\(ti").replace("'", r"\(aq")
    text = re.sub(r"\*\*(.+?)\*\*|`([^`]+)`", lambda m: rf"\fB{m.group(1) or m.group(2)}\fR", text)
    return r"\&" + text if text.startswith(".") else text


def roff(markdown):
    """The lines of a page after its title. A table is a list: its first column, then the others."""
    out, fenced, header, after_text = [], False, [], False
    code = False
    for line in markdown.splitlines():
        in_code = fenced or (line.startswith("    ") and not after_text)
        if line.startswith("```"):
            fenced = not fenced
            in_code = fenced
            line = None
        if in_code != code:
            out += [".PP", ".RS 4", ".nf"] if in_code else [".fi", ".RE"]
            code = in_code
        if line is None:
            continue
        if in_code:
            text = (line if fenced else line[4:]).replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
            text = text.replace("^", r"\(ha").replace("~", r"\(ti").replace("`", r"\(ga")
            out.append(r"\&" + text if text.startswith(".") else text)
        elif line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not header:
                header = cells
            elif not set(line) <= set("|-: "):
                rest = [f"{name}: {cell}" if name and name not in ("notes", "meaning", "when") and len(cells) > 2 else cell
                        for name, cell in zip(header[1:], cells[1:]) if cell]
                out += [".TP", inline(cells[0]) or r"\&", inline("; ".join(rest)) or r"\&"]
            continue
        elif line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            out.append((".SH " if level == 2 else ".SS ") + inline(line.lstrip("# ").upper() if level == 2 else line.lstrip("# ")))
        elif match := re.match(r"([-*]|\d+\.) (.*)", line):
            out += [rf'.IP "{match.group(1) if match.group(1)[0].isdigit() else chr(92) + "(bu"}" 4', inline(match.group(2))]
        elif inline(line.strip()):
            out += [] if after_text else [".PP"]
            out.append(inline(line.strip()))
        header = []
        after_text = bool(inline(line.strip())) and not in_code and not line.startswith("#")
    return [line for i, line in enumerate(out) if line != ".PP" or not (out[i - 1].startswith((".SH", ".SS")) if i else True)]


def man_page(folder, section, name, summary, markdown, see):
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    version = ".".join(re.search(rf"SY_VERSION_{part} (\d+)", HEADER).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
    body = re.sub(r"^# .*\n", "", markdown).lstrip("\n")
    if not body.startswith("## "):
        body = "## Description\n" + body
    lines = [f'.TH "{name.upper()}" {section} {date} "Switchyard {version}"', ".ad l", ".nh", ".SH NAME", rf"{inline(name)} \- {inline(summary)}",
             *roff(body), ".SH SEE ALSO", ",\n".join(rf"\fB{inline(page)}\fR({number})" for page, number in see)]
    path = os.path.join(folder, f"man{section}", f"{name}.{section}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def related(name, markdown):
    """The operators that a page links to."""
    return sorted(set(re.findall(r"\((\w+)\.md", markdown)) & set(PYTHON) - {name})


def main(program, folder):
    operators = describe(program)["operators"]
    general = help_of(program)
    man_page(folder, 1, "switchyard", "operators that move and pick tokens in large language models",
             command_page("switchyard", general.partition("\n\n")[2]), [(f"switchyard-{name}", 1) for name in COMMANDS])
    for name in COMMANDS:
        page = command_page(name, help_of(program, name))
        summary = re.search(rf"^  {name}\b.*?  +(\S.*)", general, re.M).group(1)
        man_page(folder, 1, f"switchyard-{name}", summary, page, [("switchyard", 1)])
    for op in operators:
        page = operator_page(op, help_of(program, op["name"]), man=True)
        man_page(folder, 3, f"sy_{op['name']}", op["summary"], page,
                 [("switchyard", 1), ("sy_status", 3), *((f"sy_{name}", 3) for name in related(op["name"], page))])
    alias = os.path.join(folder, "man3", "sy_moe_dispatch_grad_data.3")
    if not os.path.lexists(alias):
        os.symlink("sy_moe_combine.3", alias)
    man_page(folder, 3, "sy_status", "status and fault codes of Switchyard", codes_page(), [("switchyard", 1)])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), sys.argv[2])
