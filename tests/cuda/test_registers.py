"""What kernels of libswitchyard_cuda need per thread, as ptxas left it in the library: a stack in local memory, where spilled
registers would be, only where it is known and has a reason."""
import os
import shutil
import struct
import subprocess
import unittest

LIBRARY = os.environ.get("SWITCHYARD_CUDA_SHARED", "")

# A call of an out-of-line function (a 64-bit division, a load of unaligned numbers) saves a few registers there.
CALLS = 32
# Part of a kernel's name: most bytes, and why.
ALLOWED = {
    "syc_validateI10rows_check": (192, "the record of a fault, filled by a function that is out of line"),
    "syc_validateI11slots_check": (256, "the same"),
    "syc_validateI11token_check": (192, "the same"),
    "syc_validateI16syc_kv_positions": (96, "the same"),
    "syc_validateI12usual_ragged": (64, "the same"),
    "syc_validateI6ragged": (64, "the same"),
    "syc_validateI6tables": (64, "the same"),
    "7choices": (64, "the same: ranks of the choices of a mesh, which are validated while they are counted"),
    "18choices_and_visits": (64, "the same"),
    "14choices_served": (64, "the same, with a rule for replicas"),
    "reduce_count": (64, "the same"),
    "syc_route_many": (256, "the general path of moe_route, for any number of experts and slots"),
    "sample_rows": (640, "the general path: steps out of line, which share what they know of a row in memory"),
    "sample_logprobs": (640, "the same"),
    "syc_validateI11named_check": (192, "the record of a fault, filled by a function that is out of line"),
    "ELb1ELj16EEv15syi_sample_planj8syc_more": (320, "whole_rows with more outputs: the same, for rows it cannot decide"),
    "top_k_rows": (640, "the same, where its own steps do not do"),
    "weigh_parts": (256, "the same"),
    "nucleus_rows": (640, "the same, where the nucleus of a row is wide"),
    "select_rows": (192, "steps of kv_select that run once for a row, at 64 registers so that two blocks fit a multiprocessor"),
    "6add_upI": (64, "sums of rows of any alignment, whose windows are shifted: a few registers are spilled"),
    "syc_fan_windows": (192, "the same: places of a row, across divisions that are out of line"),
    "sum_groupsI18syc_window_numbers": (144, "the same"),
    "10build_rowsILb": (104, "steps of sample_overrides that run once for a token, at 64 registers"),
    "9sort_rows": (64, "the same: numbers of a row, across a sort that is out of line"),
}

FATBIN, CUBIN, ELF, ZSTD = b"\x50\xed\x55\xba", 2, b"\x7fELF", 0x8000
FRAME, REGISTERS = 0x11, 0x2F  # attributes of .nv.info: of the function with this symbol
RELOCATABLE = 1  # e_type
ENTRY = 0x10  # in st_other of a symbol: a kernel, not a function that kernels call


def cubins(data):
    """(architecture, ELF file) of every kernel image of a library. What was linked is there as relocatable code, too."""
    at = data.find(FATBIN)
    while at >= 0:
        _, version, header, size = struct.unpack_from("<IHHQ", data, at)
        part = at + header
        while (version, header) == (1, 16) and part < at + header + size:
            kind, _, skip, length, packed, _, _, architecture, *_, flags = struct.unpack_from("<HHIQIIIIIIQ", data, part)
            image = data[part + skip:part + skip + (packed or length)]
            if kind == CUBIN and flags & ZSTD:
                image = subprocess.run(["zstd", "-dcq"], input=image, capture_output=True, check=True).stdout
            if kind == CUBIN and struct.unpack_from("<H", image, 16)[0] != RELOCATABLE:
                yield architecture, image
            part += skip + length
        at = data.find(FATBIN, at + 4)


def sections(elf):
    offset, = struct.unpack_from("<Q", elf, 0x28)
    size, n, names = struct.unpack_from("<HHH", elf, 0x3A)
    rows = [struct.unpack_from("<IIQQQQ", elf, offset + i * size) for i in range(n)]
    text = elf[rows[names][4]:]
    return {text[row[0]:text.index(b"\0", row[0])].decode(): elf[row[4]:row[4] + row[5]] for row in rows if row[1] != 8}


def kernels(elf):
    """{name: {attribute: value}} of the entries of a kernel image."""
    parts, found, at = sections(elf), {}, 0
    info = parts.get(".nv.info", b"")
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4 and size == 8 and attribute in (FRAME, REGISTERS):
            symbol, value = struct.unpack_from("<II", info, at)
            begin, _, other = struct.unpack_from("<IBB", parts[".symtab"], 24 * symbol)
            name = parts[".strtab"][begin:parts[".strtab"].index(b"\0", begin)].decode()
            if other & ENTRY:
                found.setdefault(name, {})[attribute] = value
        at += size if form == 4 else 0
    return {name: values for name, values in found.items() if REGISTERS in values}


@unittest.skipUnless(shutil.which("zstd"), "zstd is not installed")
@unittest.skipUnless(os.path.exists(LIBRARY), "libswitchyard_cuda was not built: nvcc was not found, or SWITCHYARD_CUDA is OFF")
class TestRegisters(unittest.TestCase):
    def setUp(self):
        with open(LIBRARY, "rb") as file:
            images = list(cubins(file.read()))
        self.assertGreater(len(images), 20)
        for architecture, image in images:
            self.assertEqual(image[:4], ELF, f"an image for sm_{architecture} cannot be unpacked")
        self.found = [(architecture, name, values) for architecture, image in images for name, values in kernels(image).items()]

    def test_every_kernel_is_read(self):
        architectures = {architecture for architecture, _, _ in self.found}
        for kernel in ("syc_move", "syc_validate"):
            self.assertEqual({a for a, name, _ in self.found if kernel in name}, architectures, kernel)
        for _, name, values in self.found:
            self.assertIn(FRAME, values, name)
            self.assertTrue(4 <= values[REGISTERS] <= 255, f"{name}: {values[REGISTERS]} registers")

    def test_stacks(self):
        wrong = []
        for architecture, name, values in self.found:
            limits = [most for part, (most, _) in ALLOWED.items() if part in name]
            if values[FRAME] > max([CALLS, *limits]):
                wrong.append(f"sm_{architecture}: {name}: {values[FRAME]} bytes of stack, {values[REGISTERS]} registers")
        self.assertEqual(wrong, [], "spilled registers, or arrays that are not in registers")


if __name__ == "__main__":
    unittest.main()
