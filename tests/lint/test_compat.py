"""The compatibility layers export exactly the listed names and use only the public headers."""
import os
import re
import unittest

import test_library
from test_library import read
from test_structure import ROOT, sources


class Layer(test_library.Beside):
    headers = ("switchyard.h", "switchyard_inline.h", "switchyard_describe.h")
    # The sentence of the last failed call belongs to a thread: the vendor's functions for it take no handle.
    # So does the context of a device, for the functions of memory.
    thread_local = (".tbss",)
    reads, asserts = {"getenv"}, {"__assert_fail"}

    @classmethod
    def setUpClass(cls):
        cls.shared = os.environ.get(f"SWITCHYARD_COMPAT{cls.name.upper()}")
        if not cls.shared:
            raise unittest.SkipTest("the layer was not built")
        cls.objects = os.environ[f"SWITCHYARD_COMPAT{cls.name.upper()}_OBJECTS"].split(":")
        cls.folder, cls.prefix = f"compat/{cls.name[1:]}/", f"syi{cls.name}_"
        cls.map = f"{cls.folder}switchyard{cls.name}.map"

    def declared(self):
        text = "\n".join(read(path) for path in sources((".h",)) if path.startswith(f"{self.folder}include/"))
        return set(self.PATTERN.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.S)))

    def listed(self):  # its map has patterns
        return self.declared()

    def others(self):
        return self.declared()


class Aclnn(Layer, unittest.TestCase):
    name = "_aclnn"
    PATTERN = re.compile(r"^(?!typedef)[\w *]+\b(acl\w+)\(", re.M)

    def declared(self):  # the header has a macro for both functions of an operator
        found = super().declared()
        operators = set(re.findall(r"^SWITCHYARD_ACLNN_OPERATOR\((\w+)", read(f"{self.folder}include/aclnnop/operators.h"), re.M))
        self.assertEqual(len(operators), 20)
        return found | operators | {f"{name}GetWorkspaceSize" for name in operators}


class Mluop(Layer, unittest.TestCase):
    name = "_mluop"
    PATTERN = re.compile(r"^[^;(#/{}]*?\b((?:mluOp|cnrt)\w+)\(", re.M)


class Sources(unittest.TestCase):
    def test_every_folder_is_known(self):
        folders = os.listdir(os.path.join(ROOT, "compat")) if os.path.exists(os.path.join(ROOT, "compat")) else []
        self.assertEqual(set(folders) - {"aclnn", "mluop"}, {"device.h"})

    def test_of_the_environment_only_the_device_is_read(self):
        """The vendor's programs cannot name one."""
        text = "".join(read(path) for path in sources() if path.startswith("compat/"))
        self.assertEqual(set(re.findall(r"getenv\((.*?)\)", text)),
                         {'"SWITCHYARD_COMPAT_DEVICE"', '"SWITCHYARD_COMPAT_DEVICE_LIBRARY"'})


if __name__ == "__main__":
    unittest.main()
