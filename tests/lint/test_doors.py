"""The front doors from outside: exactly the listed names, the public header of the library and nothing inside it."""
import os
import re
import unittest

from test_library import FORBIDDEN, declared, exported, global_names, needed, read, tool, version, writable
from test_structure import ROOT, sources

# What a vendor's calls look like in its headers: the first names of their declarations.
DECLARED = {
    "aclnn": re.compile(r"^(?:ACL_FUNC_VISIBILITY|ACLNN_API) [^;(]*?\b(acl\w+)\(", re.M),
    "mluop": re.compile(r"^[^;(#/{}]*?\b((?:mluOp|cnrt)\w+)\(", re.M),
}
DOORS = [door for door in DECLARED if os.environ.get(f"SWITCHYARD_DOOR_{door.upper()}")]
# The sentence of the last failed call belongs to a thread: the vendor's functions for it take no handle.
THREAD_LOCAL = {"aclnn": (".tbss",)}


def library(door):
    return os.environ[f"SWITCHYARD_DOOR_{door.upper()}"]


def objects(door):
    return os.environ[f"SWITCHYARD_DOOR_{door.upper()}_OBJECTS"].split(":")


def listed(door):
    return set(re.findall(r"^ +(\w+);$", read(f"compat/{door}/switchyard_{door}.map"), re.M))


def in_headers(door):
    text = "\n".join(read(path) for path in sources((".h",)) if path.startswith(f"compat/{door}/include/"))
    return set(DECLARED[door].findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S)))


@unittest.skipUnless(DOORS, "no front door was built")
class Doors(unittest.TestCase):
    def each(self):
        for door in DOORS:
            with self.subTest(door):
                yield door

    def test_every_folder_is_known(self):
        folders = os.listdir(os.path.join(ROOT, "compat")) if os.path.exists(os.path.join(ROOT, "compat")) else []
        self.assertEqual(set(folders) - set(DECLARED), set())

    def test_map_headers_and_library_list_the_same_names(self):
        for door in self.each():
            self.assertTrue(listed(door))
            self.assertEqual(listed(door), in_headers(door))
            self.assertEqual(listed(door), exported(library(door)))

    def test_soname(self):
        for door in self.each():
            self.assertIn(f"[libswitchyard_{door}.so.{version()}]", tool("readelf", "-d", library(door)))
            self.assertIn(f"SWITCHYARD_{door.upper()}_{version()} {{", read(f"compat/{door}/switchyard_{door}.map"))

    def test_other_global_names_carry_a_prefix(self):
        for door in self.each():
            others = global_names(*objects(door)) - listed(door)
            self.assertEqual({name for name in others if not name.startswith(f"syi_{door}_")}, set())

    def test_no_writable_globals_and_no_constructors(self):
        for door in self.each():
            bad = [line for line in writable(*objects(door))
                   if not any(f" {section} " in line for section in THREAD_LOCAL.get(door, ()))]
            self.assertEqual(bad, [])

    def test_never_prints_exits_or_reads_the_environment(self):
        for door in self.each():
            self.assertEqual({name for name in needed(*objects(door)) if FORBIDDEN.match(name)} - {"__assert_fail"}, set())

    def test_uses_only_what_the_library_exports(self):
        for door in self.each():
            ours = {name for name in needed(*objects(door)) if name.startswith("sy")} - global_names(*objects(door))
            self.assertTrue(ours)
            self.assertLessEqual(ours, declared("switchyard.h", "switchyard_inline.h"))


if __name__ == "__main__":
    unittest.main()
