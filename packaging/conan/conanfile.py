"""A Conan 2 recipe of the library, used from the sources it belongs to: conan create packaging/conan --build=missing"""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

PARTS = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "cmake/*", "include/*", "src/*")


class Switchyard(ConanFile):
    name = "switchyard"
    description = "Operators that move and pick tokens in large language models"
    license = "Apache-2.0"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False]}
    default_options = {"shared": False}
    package_type = "library"
    languages = ["C"]

    def _top(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._top(), "include", "switchyard.h"))
        self.version = ".".join(re.findall(r"#define SY_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))

    def export_sources(self):
        for part in PARTS:
            copy(self, part, self._top(), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("BENCH", "CLI", "COMPAT", "CUDA", "EXAMPLES", "MPI", "NCCL", "TESTS"):
            toolchain.cache_variables[f"SWITCHYARD_{part}"] = "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))  # Conan writes its own
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rm(self, "*.a" if self.options.shared else "*.so*", os.path.join(self.package_folder, "lib"))

    def package_info(self):
        self.cpp_info.libs = ["switchyard"]
        self.cpp_info.set_property("cmake_target_name", "switchyard::switchyard")
        if not self.options.shared:
            self.cpp_info.system_libs = ["m", "dl", "pthread"]
