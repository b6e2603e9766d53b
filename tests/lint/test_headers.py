"""Every header compiles alone; the public ones as C11 and C++17 without a warning, under every compiler found."""
import glob
import os
import platform
import re
import shutil
import subprocess
import tempfile
import unittest

from test_structure import ROOT, sources

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", os.path.join(ROOT, "include")]
MPI = [flag for folder in filter(None, os.environ.get("SWITCHYARD_MPI_INCLUDES", "").split(":"))
       for flag in ("-isystem", folder)]
NCCL = ["-I", os.path.join(ROOT, "tests/nccl/fake"), "-I", os.path.join(ROOT, "tests/mpi")]  # the double

with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
    TABLES = re.findall(r'^switchyard_isa\((\w+) "([^"]+)"(.*)\)$', file.read(), re.M)  # name, processors, flags


def of_table(path):
    """The kernel table whose header this is; ""."""
    names = [name for name, _, _ in TABLES if re.match(rf"src/kernels/{name}\b|src/kernels/{name}_", path)]
    return max(names, key=len, default="")


def compile_alone(compiler, flags, include, suffix, twice=True):
    """The compiler's complaints about a file that only includes the header, twice: guards are part of the deal."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "alone" + suffix)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#include {include}\n" * (2 if twice else 1) + "typedef int not_empty;\n")
        done = subprocess.run([compiler, *flags, path], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr or f"exit status {done.returncode}"


class PublicHeader(unittest.TestCase):
    def check(self, compiler, standard, suffix):
        if not shutil.which(compiler):
            self.skipTest(f"no {compiler}")
        for header in ("switchyard.h", "switchyard_inline.h", "switchyard_dlpack.h", "switchyard_describe.h",
                       "switchyard_transport.h", "switchyard_cuda_tools.h", "switchyard_nccl.h",
                       *(["switchyard_mpi.h"] if MPI else [])):
            for dlpack in ([], ["-DSY_NO_DLPACK_HEADER"]):
                with self.subTest(header, dlpack=dlpack):
                    flags = [f"-std={standard}", *STRICT, *dlpack, *(MPI if header == "switchyard_mpi.h" else []),
                             *(NCCL if header == "switchyard_nccl.h" else [])]
                    self.assertEqual(compile_alone(compiler, flags, f"<{header}>", suffix), "")

    def test_c11_gcc(self):
        self.check("gcc", "c11", ".c")

    def test_c11_clang(self):
        self.check("clang", "c11", ".c")

    def test_cxx17_gcc(self):
        self.check("g++", "c++17", ".cc")

    def test_cxx17_clang(self):
        self.check("clang++", "c++17", ".cc")


class LayerHeaders(unittest.TestCase):
    """The vendors' header names, each alone, in any order, in the languages their programs are written in."""
    def check(self, compiler, standard, suffix):
        if not shutil.which(compiler):
            self.skipTest(f"no {compiler}")
        for path in sources((".h",)):
            folder = re.match(r"compat/\w+/include", path)
            if folder:
                with self.subTest(path):
                    flags = [f"-std={standard}", *STRICT[:5], "-I", os.path.join(ROOT, folder.group(0))]
                    name = f'"{path[len(folder.group(0)) + 1:]}"'
                    self.assertEqual(compile_alone(compiler, flags, name, suffix), "")

    def test_c11_gcc(self):
        self.check("gcc", "c11", ".c")

    def test_c11_clang(self):
        self.check("clang", "c11", ".c")

    def test_cxx11_gcc(self):
        self.check("g++", "c++11", ".cc")

    def test_cxx11_clang(self):
        self.check("clang++", "c++11", ".cc")


class InternalHeaders(unittest.TestCase):
    def test_each_compiles_alone(self):
        self.check(os.environ.get("SWITCHYARD_CC", "cc"), [], lambda path: not of_table(path))

    def test_each_of_a_kernel_table(self):
        """With the table's own flags, by a compiler for its processors."""
        for name, processors, flags in TABLES:
            foreign = "" if re.fullmatch(processors, platform.machine()) else f"{processors.split('|')[0]}-linux-gnu-"
            with self.subTest(name):
                if any(of_table(path) == name for path in sources((".h",))):
                    if not shutil.which(f"{foreign}gcc"):
                        self.skipTest(f"no {foreign}gcc")
                    self.check(f"{foreign}gcc", flags.split(), lambda path: of_table(path) == name)

    def check(self, compiler, table_flags, wanted):
        folders = [".", "src", "cli", "bench", "tests"]
        flags = ["-std=c11", *STRICT, *MPI, "-D_POSIX_C_SOURCE=200809L", *table_flags]
        for folder in folders:
            flags += ["-I", os.path.join(ROOT, folder)]
        for layer in sorted(glob.glob(os.path.join(ROOT, "compat/*/include"))):
            flags += ["-I", layer]
        headers = [path for path in sources((".h",)) if not path.startswith(("include/", "python/", "tests/cuda/emulator/"))  # Python.h; C++
                   and (MPI or not path.startswith(("transports/mpi/", "tests/mpi/"))) and wanted(path)]
        self.assertTrue(headers)
        for path in headers:
            with self.subTest(path):
                more = [*NCCL, "-DSWITCHYARD_TEST_NCCL"] if "nccl/" in path else []
                self.assertEqual(compile_alone(compiler, flags + more, f'"{os.path.join(ROOT, path)}"', ".c"), "")


if __name__ == "__main__":
    unittest.main()
