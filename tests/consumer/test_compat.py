"""The installed compatibility layers: every example in a vendor's style is compiled against the installed tree, as its readers do
it, with pkg-config and with find_package, and run."""
import glob
import os
import shlex
import shutil
import unittest

from test_consumer import BUILD, CC, install, run

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
LAYERS = [layer for layer in ("aclnn", "mluop") if os.environ.get(f"SWITCHYARD_COMPAT_{layer.upper()}")]

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(layers LANGUAGES C CXX)
find_package(switchyard REQUIRED COMPONENTS {components})
{programs}"""


def examples(layer):
    return sorted(glob.glob(os.path.join(ROOT, f"examples/compat/{layer}_*.c*")))


def stem(path):
    return os.path.splitext(os.path.basename(path))[0]


@unittest.skipUnless(BUILD and LAYERS, "SWITCHYARD_BUILD names a build folder with compatibility layers")
class Layers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install(cls, "consumer_compat")
        cls.env = dict(os.environ, LD_LIBRARY_PATH=cls.libdir)

    def test_there_is_something_to_compile(self):
        self.assertTrue([path for layer in LAYERS for path in examples(layer)])

    def test_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        for layer in LAYERS:
            flags = shlex.split(run(["pkg-config", "--cflags", "--libs", f"switchyard_{layer}"],
                                    env=dict(os.environ, PKG_CONFIG_PATH=self.pkgconfig)))
            for path in examples(layer):
                compiler, standard = ("c++", "c++11") if path.endswith("cpp") else (CC, "c11")
                if shutil.which(compiler):
                    with self.subTest(path):
                        binary = os.path.join(self.work, "pc_" + stem(path))
                        run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", path, *flags, "-o",
                             binary])
                        run([binary], env=self.env)

    def test_find_package(self):
        if not shutil.which("c++"):
            self.skipTest("no c++")
        lines = [f"add_executable({stem(path)} {path})\ntarget_link_libraries({stem(path)} PRIVATE switchyard::{layer})\n"
                 for layer in LAYERS for path in examples(layer)]
        source, build = os.path.join(self.work, "project"), os.path.join(self.work, "find_package")
        os.makedirs(source)
        with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT.format(components=" ".join(LAYERS), programs="".join(lines)))
        run(["cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={CC}"])
        run(["cmake", "--build", build])
        for layer in LAYERS:
            for path in examples(layer):
                with self.subTest(path):
                    run([os.path.join(build, stem(path))], env=self.env)


if __name__ == "__main__":
    unittest.main()
