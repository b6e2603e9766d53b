"""What the built libraries show and need: exactly the declared names, no writable globals, no way to print or exit."""
import os
import re
import subprocess
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SHARED = os.environ.get("SWITCHYARD_SHARED")
STATIC = os.environ.get("SWITCHYARD_STATIC")
MPI_SHARED = os.environ.get("SWITCHYARD_MPI_SHARED")
MPI_OBJECTS = os.environ.get("SWITCHYARD_MPI_OBJECTS", "").split(":")
NCCL_SHARED = os.environ.get("SWITCHYARD_NCCL_SHARED")
NCCL_OBJECTS = os.environ.get("SWITCHYARD_NCCL_OBJECTS", "").split(":")
HEADERS = ("switchyard.h", "switchyard_inline.h", "switchyard_describe.h", "switchyard_transport.h")

# Ending the process, writing to a stream, hidden state, randomness; _chk are the fortified forms.
FORBIDDEN = re.compile(
    r"(abort|_?exit|_Exit|quick_exit|__assert_fail|raise|kill|signal|sigaction|atexit|on_exit"
    r"|(__)?v?f?printf(_chk)?|(__)?v?dprintf(_chk)?|puts|fputs|putchar|putc|fputc|fwrite|write|perror|syslog"
    r"|stdin|stdout|stderr|fopen|rand|srand|random|srandom|drand48|getenv|setenv|setlocale|strtok|strerror)$")
# libm differs between machines: only the fused multiply-add, which is correctly rounded everywhere, is allowed.
LIBM = re.compile(r"(exp|exp2|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|sin|cos|tan|tanh|erf|round|rint|nearbyint"
                  r"|floor|ceil|trunc|ldexp|scalbn|frexp|fmod|remainder|lrint|llrint|lround|llround|hypot|fma)[fl]?$")
# Memory that can change, thread-local included, and code that runs at load time.
WRITABLE = re.compile(r"\.(data|bss|tdata|tbss|init_array|fini_array|ctors|dtors|preinit_array)(\.|$)")


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def exported(shared):
    names = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", shared).splitlines() if line.strip()}
    return {name.split("@")[0] for name in names if not name.startswith("SWITCHYARD_")}


def declared(*headers):
    """The exported names in headers, those of the macros for operators included."""
    names = set()
    for text in (read(f"include/{header}") for header in headers):
        names.update(re.findall(r"^SY_API [^;(]*?\b(sy_\w+)\(", text, re.M))
        for mesh, op in re.findall(r"^SY_(MESH_)?OPERATOR\((\w+)\)", text, re.M):
            names.update(f"sy_{op}{end}" for end in ("_n", "_query_n", "_start_n")[:3 if mesh else 2])
    return names


def needed(*objects):
    lines = tool("nm", "--undefined-only", *objects).splitlines()
    return {line.split()[-1] for line in lines if re.match(r"\s+[Uw] ", line)}


def global_names(*objects):
    return {line.split()[-1] for line in tool("nm", "--defined-only", "--extern-only", *objects).splitlines()
            if re.match(r"[0-9a-f]+ [A-Z] ", line)}


def writable(*objects):
    """Sections with memory that can change, and common symbols."""
    faults, member = [], ""
    for line in tool("objdump", "-h", *objects).splitlines():
        if ":     file format" in line:
            member = line.split(":")[0]
        section = re.match(r"\s*\d+ (\S+)\s+([0-9a-f]+) ", line)
        if section and WRITABLE.match(section.group(1)) and int(section.group(2), 16) \
                and not section.group(1).startswith(".data.rel.ro"):
            faults.append(f"{member}: {section.group(1)} holds {int(section.group(2), 16)} bytes")
    return faults + [line for line in tool("nm", *objects).splitlines() if re.match(r"[0-9a-f]+ C ", line)]


def abi_version():
    return re.search(r"^#define SY_VERSION_ABI (\d+)", read("include/switchyard.h"), re.M)[1]


class Rules:
    """What holds for each library."""
    name = ""  # after libswitchyard
    headers = HEADERS  # with what it may use of the library
    aborts, thread_local = (), ()
    reads = set()  # of the environment
    asserts = set()

    def listed(self):
        return set(re.findall(r"^ +(\w+);$", read(self.map), re.M))

    def declared(self):
        return declared(f"switchyard{self.name}.h")

    def others(self):
        """Global names without the prefix."""
        return set()

    def test_map_headers_and_library_list_the_same_names(self):
        self.assertTrue(self.declared())
        self.assertEqual(self.listed(), self.declared())
        self.assertEqual(exported(self.shared), self.declared())

    def test_soname(self):
        """Programs are linked to the number of the ABI (docs/promises.md)."""
        self.assertIn(f"[libswitchyard{self.name}.so.{abi_version()}]", tool("readelf", "-d", self.shared))
        self.assertIn(f"SWITCHYARD{self.name.upper()}_{abi_version()} {{", read(self.map))

    def test_global_names_carry_a_prefix(self):
        names = {name for name in global_names(*self.objects) if not re.match(self.prefix, name)}
        self.assertEqual(names - self.others(), set())

    def test_no_writable_globals_and_no_constructors(self):
        bad = [line for line in writable(*self.objects) if not any(f" {section} " in line for section in self.thread_local)]
        self.assertEqual(bad, [])

    def test_never_prints_or_exits(self):
        bad = {name for name in needed(*self.objects) if FORBIDDEN.match(name) or name in self.aborts}
        self.assertEqual(bad - self.asserts, self.reads)


class Beside(Rules):
    def test_uses_only_what_the_library_exports(self):
        """Every symbol of ours that it needs is in a public header, so any build of the library will do."""
        ours = {name for name in needed(*self.objects) if re.match("syi?_", name)} - global_names(*self.objects)
        self.assertTrue(ours)
        self.assertLessEqual(ours, declared(*self.headers))


@unittest.skipUnless(SHARED and STATIC, "SWITCHYARD_SHARED and SWITCHYARD_STATIC name the built libraries")
class Library(Rules, unittest.TestCase):
    map, prefix, shared, objects = "src/switchyard.map", "syi?_", SHARED, [STATIC]
    reads, asserts = {"getenv"}, {"__assert_fail"} if os.environ.get("SWITCHYARD_CONFIG") == "Debug" else set()

    def declared(self):
        return declared(*HEADERS)

    listed = declared  # its map has patterns

    def test_there_is_something_to_read(self):
        self.assertGreater(len(self.declared()), 90)

    def test_only_the_threads_read_the_environment(self):
        """The number of threads, spinning and pinning follow OpenMP's variables, as users expect."""
        folders = (folder for folder, _, _ in os.walk(os.path.join(ROOT, "src")))
        files = (os.path.join(folder, name) for folder in folders for name in os.listdir(folder) if name.endswith((".c", ".h")))
        self.assertEqual([os.path.relpath(path, ROOT) for path in files if "getenv(" in read(path)], ["src/cpu/pool.c"])

    def test_of_libm_only_fma(self):
        self.assertEqual({name for name in needed(STATIC) if LIBM.match(name)} - {"fma", "fmaf"}, set())

    def test_the_rules_can_fail(self):
        for name in ("printf", "__fprintf_chk", "abort", "stderr", "exit", "fwrite", "getenv"):
            self.assertTrue(FORBIDDEN.match(name), name)
        for name in ("snprintf", "__vsnprintf_chk", "memcpy", "fmaf"):
            self.assertFalse(FORBIDDEN.match(name), name)
        for name in ("expf", "log", "fma", "rintf"):
            self.assertTrue(LIBM.match(name), name)
        self.assertTrue(WRITABLE.match(".bss") and WRITABLE.match(".data.x") and WRITABLE.match(".tbss"))


class Transport(Beside):
    def others(self):
        paths = [f"transports/common/{name}" for name in os.listdir(os.path.join(ROOT, "transports/common"))]
        return {name for path in paths if path.endswith(".h") for name in re.findall(r"\b(syi_\w+)\(", read(path))}


@unittest.skipUnless(MPI_SHARED, "libswitchyard_mpi was not built: no MPI was found (Debian: libopenmpi-dev)")
class MpiLibrary(Transport, unittest.TestCase):
    name, map, prefix = "_mpi", "transports/mpi/switchyard_mpi.map", "sy_comm_create_mpi_|syi_mpi_"
    shared, objects = MPI_SHARED, MPI_OBJECTS
    aborts = ("MPI_Abort", "PMPI_Abort")


@unittest.skipUnless(NCCL_SHARED, "libswitchyard_nccl was not built: no NCCL was found")
class NcclLibrary(Transport, unittest.TestCase):
    name, map, prefix = "_nccl", "transports/nccl/switchyard_nccl.map", "sy_comm_create_nccl_|syi_nccl_"
    shared, objects = NCCL_SHARED, NCCL_OBJECTS


if __name__ == "__main__":
    unittest.main()
