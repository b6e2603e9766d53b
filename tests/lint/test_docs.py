"""The documents: links and anchors lead somewhere, names are those of the code, tables are those of docs/figures. Python blocks are run
by python/tests/test_documentation.py, C blocks by tests/consumer/test_pages.py."""
import functools
import glob
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
WORD = re.compile(r"\b(?:sy|SY)_\w*[^\W_]\b(?![<*…_/])")
PATH = re.compile(r"`((?:bench|cli|cmake|docs|examples|include|integrations|python|scripts|src|tests|transports)/[\w./-]+)`")


@functools.lru_cache(maxsize=None)
def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def pages():
    folders = ("", "docs/**/", "examples/**/", "integrations/**/", "tests/**/")
    return sorted({path for folder in folders for path in glob.glob(f"{folder}*.md", root_dir=ROOT, recursive=True)})


@functools.lru_cache(maxsize=None)
def anchors(path):
    """As GitHub and MkDocs make them: lower case, spaces are hyphens, no other signs."""
    heads = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", read(path), flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower()).strip().replace(" ", "-") for head in heads}


class Docs(unittest.TestCase):
    def test_links(self):
        dead, seen = [], 0
        for page in pages():
            for link in LINK.findall(CODE.sub("", read(page))):
                if re.match(r"\w+:", link):
                    continue
                seen += 1
                file, _, anchor = link.partition("#")
                path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
                if not os.path.exists(os.path.join(ROOT, path)):
                    dead.append(f"{page}: {link}: no such file")
                elif anchor and path.endswith(".md") and anchor not in anchors(path):
                    dead.append(f"{page}: {link}: no such heading")
        self.assertEqual(dead, [])
        self.assertGreater(seen, 200)

    def test_names(self):
        """Every sy_name and SY_NAME is one of a header or a source, every file and make target that is named exists."""
        sources = [path for folder in ("include", "src", "transports", "compat", "integrations", "bench", "examples", "python", "tests", "cmake")
                   for path in glob.glob(f"{folder}/**/*", root_dir=ROOT, recursive=True)
                   if path.endswith((".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".pyi", ".cmake"))]
        known = set()
        for path in sources:
            known.update(re.findall(r"\b(?:sy|SY)_\w+", read(path)))
        operators = re.findall(r"^SY_(?:MESH_)?OPERATOR\((\w+)\)", read("include/switchyard.h"), re.M)
        self.assertGreater(len(operators), 30)
        known.update(f"sy_{op}{end}" for op in operators for end in ("", "_n", "_query", "_start", "_args"))
        targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.M))
        wrong = []
        for page in pages():
            if page == "CHANGELOG.md":
                continue
            text = read(page)
            wrong += [f"{page}: {name}" for name in sorted(set(WORD.findall(text)) - known)]
            wrong += [f"{page}: {path}" for path in PATH.findall(text)
                      if not page.startswith("docs/compat/") and not glob.glob(os.path.join(ROOT, path))]
            wrong += [f"{page}: make {name}" for name in re.findall(r"`make ([a-z][\w-]*)", text) if name not in targets]
        self.assertEqual(wrong, [])

    def test_figures(self):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "figures.py"), "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_codes_of_faults(self):
        """docs/c.md has every code, its number, and the statuses of contents that come with it."""
        rows = re.findall(r"^\| (\d+) `(\w+)` \| ([A-Z, ]+) \|", read("docs/c.md"), re.M)
        codes = re.findall(r"^    SY_FAULT_(\w+) = ([1-9]\d*)", read("include/switchyard.h"), re.M)
        self.assertEqual([(name, number) for number, name, _ in rows], codes)
        contents = re.findall(r"^    X\(\w+, (\w+), (\w+),", read("src/base/faults.h"), re.M)
        for _, code, statuses in rows:
            found = {status for status, name in contents if name == code}
            self.assertLessEqual(found, set(statuses.split(", ")), code)

    def test_readme(self):
        self.assertLessEqual(len(read("README.md").splitlines()), 140)
        linked = {os.path.normpath(link.partition("#")[0]) for link in LINK.findall(read("README.md"))}
        lost = [page for page in glob.glob("docs/*.md", root_dir=ROOT) if page not in linked]
        self.assertEqual(lost, [], "every page of docs is in the list of README")


if __name__ == "__main__":
    unittest.main()
