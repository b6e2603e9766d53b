"""The C in the documents, as a reader of them builds and runs it with the installed library."""
import os
import re
import unittest

from test_consumer import CC, HERE, Installed, install, run

ROOT = os.path.join(HERE, "..", "..")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)


def blocks(page, language):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return [text for name, text in BLOCK.findall(file.read()) if name == language]


class Pages(Installed):
    @classmethod
    def setUpClass(cls):
        install(cls, "consumer_pages")

    def shell(self, commands):
        env = dict(os.environ, PKG_CONFIG_PATH=self.pkgconfig, LD_LIBRARY_PATH=self.libdir, CC=CC)
        return run(["sh", "-ec", f"cd '{self.folder}'\n{commands}"], env=env)

    def setUp(self):
        self.pkg_config("--version")  # skips where there is no pkg-config
        self.folder = os.path.join(self.work, "pages")
        os.makedirs(self.folder, exist_ok=True)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def test_ten_minutes(self):
        (program,), (commands,), (says,), (project,) = (blocks("docs/c.md", name) for name in ("c", "sh", "text", "cmake"))
        self.write("app.c", program)
        self.assertEqual(self.shell(commands), says)
        self.write("CMakeLists.txt", project)
        self.shell(f"cmake -S . -B build -DCMAKE_PREFIX_PATH='{self.prefix}' -DCMAKE_C_COMPILER='{CC}' && cmake --build build")
        self.assertEqual(run([os.path.join(self.folder, "build", "app")]), says)

    def test_readme(self):
        block, = blocks("README.md", "c")
        self.write("readme.c", "#include <stdio.h>\n#include <switchyard.h>\nint main(void)\n{\nsy_ctx *ctx = NULL;\nsy_ctx_create(&ctx, NULL);\n"
                   + block + 'for (int i = 0; i < 8; i++)\nprintf(" %g", rows[i][0]);\nsy_ctx_destroy(ctx);\nreturn 0;\n}\n')
        says = self.shell(f"'{CC}' -std=c11 -Wall -Werror readme.c -o readme $(pkg-config --cflags --libs switchyard)\n./readme")
        self.assertEqual(says.split(), "10 30 40 20 30 10 20 40".split())


if __name__ == "__main__":
    unittest.main()
