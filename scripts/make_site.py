#!/usr/bin/env python3
"""The site: README, docs and what they link to, with the reference of scripts/reference.py, by mkdocs-material.

    make_site.py PROGRAM FOLDER     the command line, for its description; where the site goes

Pages keep their text. Links go to the pages of the site; a source file that one names becomes a page of its own. A link to
nothing is an error.
"""
import logging
import os
import posixpath
import re
import shutil
import subprocess
import sys

import reference

ROOT = reference.ROOT
MISSING = 3  # exit status: mkdocs-material cannot be installed here
VENV = os.path.join(ROOT, "build", "site-venv")
LINK = re.compile(r"(?<=\]\()([^()\s#]+)(#[^()\s]*)?(?=\))")
LANGUAGES = {".c": "c", ".h": "c", ".cpp": "cpp", ".cu": "cuda", ".py": "python", ".txt": "text", ".sh": "bash"}


def site_path(path):
    """Where a file of the repository is on the site."""
    if path == "README.md":
        return "index.md"
    path = path.removeprefix("docs/")
    return path if path.endswith((".md", ".svg", ".png", ".css")) else f"{path}.md"


def find(path):
    """The file that a link to a file or folder means; None: nothing."""
    full = os.path.join(ROOT, path)
    readme = posixpath.join(path, "README.md")
    return readme if os.path.exists(os.path.join(ROOT, readme)) else path if os.path.exists(full) and path != "docs" else None


def text_of(path):
    """The Markdown of a page: itself, a source file, or the names in a folder."""
    full = os.path.join(ROOT, path)
    if path.endswith(".md"):
        return reference.read(path)
    if os.path.isdir(full):
        return f"# {path}\n\n" + "\n".join(f"- [{name}]({posixpath.basename(path)}/{name})" for name in sorted(os.listdir(full)))
    language = LANGUAGES.get(os.path.splitext(path)[1])
    if not language:
        return f"# {path}\n\nA file of {os.path.getsize(full)} bytes.\n"
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n``````{language}\n{reference.read(path)}``````\n"


def plain(line):
    """What GitHub and the generator read differently: `\\|` in the code of a table."""
    return re.sub(r"`[^`]*`", lambda code: code.group().replace(r"\|", "|"), line) if line.startswith("|") else line


def convert(path, text, wanted):
    """The page with links of the site; what it links to is added to `wanted`."""
    here = posixpath.dirname(site_path(path))

    def link(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match.group(1)))
        found = None if re.match(r"\w+:", match.group(1)) else find(target)
        if not found:
            return match.group()
        wanted.append(found)
        return posixpath.relpath(site_path(found), here or ".") + (match.group(2) or "")

    lines, fenced, item = [], False, 0  # item: how far the text of a list item is indented
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        marker = None if fenced else re.match(r"([-*]|\d+\.) +", line)
        if marker and not item and lines and lines[-1]:
            lines.append("")  # the generator begins a list only after an empty line
        item = 0 if fenced else marker.end() if marker else item if not line or line.startswith("  ") else 0
        if not fenced and (item or not line.startswith("    ")):
            line = LINK.sub(link, plain(line))
        lines.append(" " * (4 - item) + line if item and line.startswith(" ") else line)  # it indents by four
    return "\n".join(lines) + "\n"


def write(folder, path, text):
    full = os.path.join(folder, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w", encoding="utf-8") as file:
        file.write(text)


def write_pages(program, folder):
    """All pages; the names of the operators."""
    shutil.rmtree(folder, ignore_errors=True)
    operators = {f"docs/ops/{op['name']}.md": op for op in reference.describe(program)["operators"]}
    docs = [os.path.relpath(os.path.join(place, name), ROOT) for place, _, names in os.walk(os.path.join(ROOT, "docs")) for name in names]
    wanted, done = ["README.md", *sorted(name for name in docs if not name.endswith(".yml"))], set()
    while wanted:
        path = wanted.pop(0)
        if path in done:
            continue
        done.add(path)
        if path.endswith((".svg", ".png", ".css")):
            os.makedirs(os.path.join(folder, os.path.dirname(site_path(path))), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(folder, site_path(path)))
            continue
        op = operators.get(path)
        text = reference.operator_page(op, reference.help_of(program, op["name"])) if op else text_of(path)
        write(folder, site_path(path), convert(path, text, wanted) if path.endswith(".md") or os.path.isdir(os.path.join(ROOT, path)) else text)
    write(folder, "reference/codes.md", reference.codes_page())
    for name in reference.COMMANDS:
        write(folder, f"reference/{name}.md", reference.command_page(f"switchyard {name}", reference.help_of(program, name)))
    return [op["name"] for op in operators.values()]


def navigation(entries, lists, folder):
    """Without pages that do not exist, and with the lists that the script makes."""
    out = []
    for entry in entries:
        if isinstance(entry, dict):
            out += [{title: navigation(part, lists, folder)} for title, part in entry.items()]
        elif entry in lists:
            out.append(lists[entry])
        elif os.path.exists(os.path.join(folder, entry)):
            out.append(entry)
    return out


def family(operators, begin):
    return [f"ops/{name}.md" for name in operators if name.startswith(begin)]


def build(program, folder):
    """The pages beside it, in FOLDER-pages."""
    from mkdocs.commands.build import build as run
    from mkdocs.config import load_config
    logging.basicConfig(format="%(message)s")
    source = f"{folder}-pages"
    operators = write_pages(program, source)
    lists = {
        "ops": {"Operators": ["ops/README.md", *({title: family(operators, begin)} for title, begin in (
            ("Experts and rows", "moe_"), ("Sampling", "sample"), ("Paged KV caches", "kv_"),
            ("Between devices", ("all_to_all", "local_")), ("Codes of 4 and 8 bits", ("quantize", "dequantize"))))]},
        "commands": {"Commands": [f"reference/{name}.md" for name in reference.COMMANDS]},
        "examples": {"Examples": [name for name in ("examples/README.md", "examples/moe_lm/README.md") if os.path.exists(os.path.join(source, name))]},
    }
    config = load_config(os.path.join(ROOT, "docs", "mkdocs.yml"), docs_dir=source, site_dir=folder, strict=True)
    config["nav"] = navigation(config["nav"], lists, source)
    new = [name for name in sorted(os.listdir(os.path.join(ROOT, "docs"))) if name.endswith(".md") and f"'{name}'" not in str(config["nav"])]
    config["nav"] += [{"More": new}] if new else []
    config.plugins.on_startup(command="build", dirty=False)
    run(config)


def main(program, folder):
    python = os.path.join(VENV, "bin", "python")
    if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        if not os.path.exists(python):
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        if subprocess.run([python, "-c", "import material"], capture_output=True, check=False).returncode and subprocess.run(
                [python, "-m", "pip", "install", "-q", "--retries", "1", "mkdocs-material>=9.5,<10"], check=False).returncode:
            sys.exit(MISSING)
        sys.exit(subprocess.run([python, __file__, program, folder], check=False).returncode)
    build(os.path.abspath(program), os.path.abspath(folder))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
