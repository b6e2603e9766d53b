"""Where no DLPack header is found, switchyard_dlpack.h declares the tensor: the same layout as every real header on this
machine, programs in C and C++17 that build without one, and a clear error where the two would be mixed."""
import glob
import os
import re
import shutil
import subprocess
import unittest

from test_consumer import BUILD, CC, HERE, STRICT, install, run

ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
OWN = ["-DSY_NO_DLPACK_HEADER", "-I", os.path.join(ROOT, "include")]
LANGUAGES = {"c": [CC, "-std=c11", "-x", "c"], "c++": ["c++", "-std=c++17", "-x", "c++"]}
LANGUAGES = {name: command for name, command in LANGUAGES.items() if shutil.which(command[0])}
SIZES = {"DLDeviceType": 4, "DLDevice": 8, "DLDataType": 4, "DLTensor": 48}
OFFSETS = {"DLDevice": {"device_type": 0, "device_id": 4}, "DLDataType": {"code": 0, "bits": 1, "lanes": 2},
           "DLTensor": {"data": 0, "device": 8, "ndim": 16, "dtype": 20, "shape": 24, "strides": 32, "byte_offset": 40}}


def compile_text(language, text, *flags):
    """(exit status, messages) of a translation unit that is only checked."""
    done = subprocess.run([*LANGUAGES[language], "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *flags, "-"],
                          input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def real_headers():
    """Every DLPack header here: the compiler's, and those of the packages in the project's venv."""
    code, text = compile_text("c", "#include <dlpack/dlpack.h>\n", "-M")
    found = re.findall(r"\S+/dlpack/dlpack\.h", text) if code == 0 else []
    for path in ("torch/include/ATen/dlpack.h",):
        found += glob.glob(os.path.join(ROOT, "build/venv/lib/python3*/site-packages", path))
    return found


def declared():
    """The names of our header, and the fields of each struct."""
    with open(os.path.join(ROOT, "include/switchyard_dlpack.h"), encoding="utf-8") as file:
        code = re.sub(r"/\*.*?\*/|^#.*?$", "", file.read(), flags=re.S | re.M)
    structs = re.findall(r"typedef struct \{(.*?)\} (\w+);", code, re.S)
    return set(re.findall(r"\bk?DL\w+", code)), {name: re.findall(r"(\w+);", body) for body, name in structs}


def search_list_without_dlpack(language, folder):
    """Flags that replace the compiler's include folders, where one of them holds DLPack, by the same without it."""
    text = run([*LANGUAGES[language], "-E", "-v", "/dev/null"])
    listed = re.search(r"#include <\.\.\.> search starts here:\n(.*?)End of search list", text, re.S).group(1).split()
    flags = ["-nostdinc"]
    for number, path in enumerate(listed):
        if os.path.isdir(os.path.join(path, "dlpack")):
            farm = os.path.join(folder, f"{language}_{number}")
            os.makedirs(farm)
            for name in set(os.listdir(path)) - {"dlpack"}:
                os.symlink(os.path.join(path, name), os.path.join(farm, name))
            path = farm
        flags += ["-isystem", path]
    return flags


class Layout(unittest.TestCase):
    def test_numbers(self):
        lines = [f'static_assert(sizeof({name}) == {size}, "{name}");' for name, size in SIZES.items()]
        lines += [f'static_assert(offsetof({name}, {field}) == {at}, "{name}.{field}");'
                  for name, fields in OFFSETS.items() for field, at in fields.items()]
        self.assertEqual({name: list(fields) for name, fields in OFFSETS.items()}, declared()[1])
        text = "#include <assert.h>\n#include <stddef.h>\n#include <switchyard.h>\n" + "\n".join(lines) + "\n"
        for language in LANGUAGES:
            with self.subTest(language):
                self.assertEqual(compile_text(language, text, *OWN), (0, ""))
                self.assertNotEqual(compile_text(language, text.replace("== 40", "== 44"), *OWN)[0], 0)

    def test_equal_to_every_real_header(self):
        headers = real_headers()
        if not headers:
            self.skipTest("no DLPack header was found (Debian: libdlpack-dev)")
        names, structs = declared()
        self.assertEqual(set(structs), {"DLDevice", "DLDataType", "DLTensor"})
        lines = ["#include <assert.h>", "#include <stddef.h>"] + [f"#define {name} own_{name}" for name in names]
        lines += ["#include <switchyard_dlpack.h>"] + [f"#undef {name}" for name in names] + ["#include REAL"]
        for name in names:
            same = f"(int)own_{name} == (int){name}" if name.startswith("k") else f"sizeof(own_{name}) == sizeof({name})"
            lines.append(f'static_assert({same}, "{name}");')
        for name, fields in structs.items():
            for field in fields:
                lines.append(f'static_assert(offsetof(own_{name}, {field}) == offsetof({name}, {field}) && '
                             f'sizeof(((own_{name} *)0)->{field}) == sizeof((({name} *)0)->{field}), "{name}.{field}");')
        for header in headers:
            for language in LANGUAGES:
                with self.subTest(header, language=language):
                    self.assertEqual(compile_text(language, "\n".join(lines) + "\n", *OWN, f'-DREAL="{header}"'), (0, ""))


class Together(unittest.TestCase):
    def setUp(self):
        self.headers = real_headers()
        if not self.headers:
            self.skipTest("no DLPack header was found (Debian: libdlpack-dev)")

    def check(self, text, verdict):
        for header in self.headers:
            for language in LANGUAGES:
                with self.subTest(header, language=language):
                    verdict(*compile_text(language, text + "DLManagedTensor *managed;\n", *OWN, f'-DREAL="{header}"'))

    def test_a_real_header_before_ours_is_used(self):
        self.check("#include REAL\n#include <switchyard.h>\n", lambda *result: self.assertEqual(result, (0, "")))

    def test_one_after_ours_is_an_error_that_names_the_cure(self):
        def verdict(code, text):
            self.assertNotEqual(code, 0)
            self.assertIn("Include the DLPack header before switchyard.h", text)
        self.check("#include <switchyard.h>\n#include REAL\n", verdict)


@unittest.skipUnless(BUILD, "SWITCHYARD_BUILD names the build folder")
class Hidden(unittest.TestCase):
    """The installed tree, on a machine without DLPack: the compiler's own folders, less that one."""
    @classmethod
    def setUpClass(cls):
        install(cls, "consumer_dlpack")
        cls.flags = {language: search_list_without_dlpack(language, cls.work) for language in LANGUAGES}

    def test_compilers(self):
        source = os.path.join(HERE, "consumer.c")
        for language, compiler in LANGUAGES.items():
            for without in (self.flags[language], ["-DSY_NO_DLPACK_HEADER"]):
                with self.subTest(language, without=without[0]):
                    flags = [*without, "-I", os.path.join(self.prefix, "include")]
                    self.assertNotIn("DLPACK_DLPACK_H_", run([*compiler, *flags, "-E", "-dM", source]))
                    binary = os.path.join(self.work, "plain_" + language)
                    run([*compiler, *STRICT, *flags, source, "-x", "none", "-L", self.libdir, "-lswitchyard", "-o", binary])
                    self.assertEqual(run([binary], env=dict(os.environ, LD_LIBRARY_PATH=self.libdir)), f"{self.version}\n")

    @unittest.skipUnless("c++" in LANGUAGES, "no c++")
    def test_find_package(self):
        build = os.path.join(self.work, "find_package")
        run(["cmake", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={CC}",
                  f"-DWANTED_VERSION={self.version}", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON",
                  f"-DCMAKE_C_FLAGS={' '.join(self.flags['c'])}", f"-DCMAKE_CXX_FLAGS={' '.join(self.flags['c++'])}"])
        for name in ("c_switchyard", "cxx_switchyard", "c_switchyard_static"):
            run(["cmake", "--build", build, "--target", name])
            self.assertEqual(run([os.path.join(build, name)]), f"{self.version}\n")

    def test_the_package_does_not_mention_it(self):
        for folder, _, names in os.walk(self.libdir):
            for name in names:
                if name.endswith((".pc", ".cmake")):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        self.assertNotIn("dlpack", file.read().lower(), name)


if __name__ == "__main__":
    unittest.main()
