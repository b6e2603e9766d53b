"""scripts/make_site.py: pages whose links lead somewhere; and the site itself, where `make site` has installed its generator."""
import os
import re
import subprocess
import sys
import unittest

from st import CLI, OPERATORS, ROOT, CliTest

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import make_site  # noqa: E402


class Site(CliTest):
    def test_pages(self):
        folder = os.path.join(self.folder, "pages")
        self.assertEqual(sorted(make_site.write_pages(CLI, folder)), sorted(OPERATORS))
        links, wrong = 0, []
        for place, _, names in os.walk(folder):
            for name in names:
                if not name.endswith(".md"):
                    continue
                with open(os.path.join(place, name), encoding="utf-8") as file:
                    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", file.read(), flags=re.S | re.M)
                for target in re.findall(r"\]\(([^)#\s]+)", text):
                    if not re.match(r"\w+:", target):
                        links += 1
                        wrong += [] if os.path.exists(os.path.join(place, target)) else [f"{name}: {target}"]
        self.assertEqual(wrong, [])
        self.assertGreater(links, 100)

    def test_lists_and_tables(self):
        text = "Text:\n- a\n\n      code\n- [b](docs/ops/sample.md#errors)\n\n| `x\\|y` |\n"
        self.assertEqual(make_site.convert("README.md", text, []),
                         "Text:\n\n- a\n\n        code\n- [b](ops/sample.md#errors)\n\n| `x|y` |\n")

    def test_build(self):
        if not os.path.exists(os.path.join(make_site.VENV, "bin", "mkdocs")):
            self.skipTest("mkdocs-material is not installed; `make site` does")
        script = os.path.join(ROOT, "scripts", "make_site.py")
        done = subprocess.run([sys.executable, script, CLI, os.path.join(self.folder, "site")], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        for op in OPERATORS:
            with open(os.path.join(self.folder, "site", "ops", f"{op}.html"), encoding="utf-8") as file:
                self.assertIn(f"sy_{op}_args", file.read())


if __name__ == "__main__":
    unittest.main()
