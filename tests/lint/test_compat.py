"""The compatibility layers export exactly the listed names and use only the public headers."""
import os
import re
import unittest

from test_library import FORBIDDEN, declared, exported, global_names, needed, read, tool, version, writable
from test_structure import ROOT, sources

# Patterns of a vendor's declarations in its headers.
DECLARED = {
    "aclnn": re.compile(r"^(?!typedef)[\w *]+\b(acl\w+)[(;]", re.M),
    "mluop": re.compile(r"^[^;(#/{}]*?\b((?:mluOp|cnrt)\w+)\(", re.M),
}
LAYERS = [layer for layer in DECLARED if os.environ.get(f"SWITCHYARD_COMPAT_{layer.upper()}")]
# The sentence of the last failed call belongs to a thread: the vendor's functions for it take no handle.
# So does the context of a device, for the functions of memory.
THREAD_LOCAL = {"aclnn": (".tbss",), "mluop": (".tbss",)}


def library(layer):
    return os.environ[f"SWITCHYARD_COMPAT_{layer.upper()}"]


def objects(layer):
    return os.environ[f"SWITCHYARD_COMPAT_{layer.upper()}_OBJECTS"].split(":")


def in_headers(layer):
    text = "\n".join(read(path) for path in sources((".h",)) if path.startswith(f"compat/{layer}/include/"))
    return set(DECLARED[layer].findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S)))


@unittest.skipUnless(LAYERS, "no compatibility layer was built")
class Layers(unittest.TestCase):
    def each(self):
        for layer in LAYERS:
            with self.subTest(layer):
                yield layer

    def test_every_folder_is_known(self):
        folders = os.listdir(os.path.join(ROOT, "compat")) if os.path.exists(os.path.join(ROOT, "compat")) else []
        self.assertEqual(set(folders) - set(DECLARED), {"device.h"})

    def test_the_library_shows_what_the_headers_declare_and_nothing_else(self):
        for layer in self.each():
            self.assertGreater(len(in_headers(layer)), 50)
            self.assertEqual(exported(library(layer)), in_headers(layer))

    def test_soname(self):
        for layer in self.each():
            self.assertIn(f"[libswitchyard_{layer}.so.{version()}]", tool("readelf", "-d", library(layer)))
            self.assertIn(f"SWITCHYARD_{layer.upper()}_{version()} {{", read(f"compat/{layer}/switchyard_{layer}.map"))

    def test_other_global_names_carry_a_prefix(self):
        for layer in self.each():
            others = global_names(*objects(layer)) - in_headers(layer)
            self.assertEqual({name for name in others if not name.startswith(f"syi_{layer}_")}, set())

    def test_no_writable_globals_and_no_constructors(self):
        for layer in self.each():
            bad = [line for line in writable(*objects(layer))
                   if not any(f" {section} " in line for section in THREAD_LOCAL.get(layer, ()))]
            self.assertEqual(bad, [])

    def test_never_prints_or_exits(self):
        """Of the environment only the device is read: the vendor's programs cannot name one."""
        for layer in self.each():
            self.assertEqual({name for name in needed(*objects(layer)) if FORBIDDEN.match(name)} - {"__assert_fail"}, {"getenv"})
            text = "".join(read(path) for path in sources() if path.startswith("compat/"))
            self.assertEqual(set(re.findall(r"getenv\((.*?)\)", text)),
                             {'"SWITCHYARD_COMPAT_DEVICE"', '"SWITCHYARD_COMPAT_DEVICE_LIBRARY"'})

    def test_uses_only_what_the_library_exports(self):
        for layer in self.each():
            ours = {name for name in needed(*objects(layer)) if re.match(r"syi?_", name)} - global_names(*objects(layer))
            self.assertTrue(ours)
            self.assertLessEqual(ours, declared("switchyard.h", "switchyard_inline.h", "switchyard_describe.h"))


if __name__ == "__main__":
    unittest.main()
