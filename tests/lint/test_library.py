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


def listed(path):
    return set(re.findall(r"^ +(sy_\w+);$", read(path), re.M))


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


def version():
    return ".".join(re.findall(r"^#define SY_VERSION_M(?:AJOR|INOR) (\d+)$", read("include/switchyard.h"), re.M))


@unittest.skipUnless(SHARED and STATIC, "SWITCHYARD_SHARED and SWITCHYARD_STATIC name the built libraries")
class Library(unittest.TestCase):
    def test_the_shared_library_shows_what_the_headers_declare_and_nothing_else(self):
        self.assertGreater(len(declared(*HEADERS)), 90)
        self.assertEqual(exported(SHARED), declared(*HEADERS))

    def test_soname(self):
        """Before 1.0 a minor release may change the ABI, so programs are linked to major.minor."""
        self.assertIn(f"[libswitchyard.so.{version()}]", tool("readelf", "-d", SHARED))
        self.assertIn(f"SWITCHYARD_{version()} {{", read("src/switchyard.map"))

    def test_global_names_carry_a_prefix(self):
        self.assertEqual({name for name in global_names(STATIC) if not re.match(r"syi?_", name)}, set())

    def test_no_writable_globals_and_no_constructors(self):
        self.assertEqual(writable(STATIC), [])

    def test_never_prints_or_exits(self):
        bad = {name for name in needed(STATIC) if FORBIDDEN.match(name)}
        if os.environ.get("SWITCHYARD_CONFIG") == "Debug":
            bad.discard("__assert_fail")
        self.assertEqual(bad - {"getenv"}, set())

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


class Transport:
    """What holds for each library of a transport."""
    name = ""
    aborts = ()

    @property
    def map(self):
        return f"transports/{self.name}/switchyard_{self.name}.map"

    def test_map_header_and_library_list_the_same_names(self):
        self.assertTrue(listed(self.map))
        self.assertEqual(listed(self.map), declared(f"switchyard_{self.name}.h"))
        self.assertEqual(listed(self.map), exported(self.shared))

    def test_soname(self):
        self.assertIn(f"[libswitchyard_{self.name}.so.{version()}]", tool("readelf", "-d", self.shared))
        self.assertIn(f"SWITCHYARD_{self.name.upper()}_{version()} {{", read(self.map))

    def test_global_names_carry_a_prefix(self):
        prefix = re.compile(rf"sy_comm_create_{self.name}_|syi_{self.name}_")
        folder = os.path.join(ROOT, "transports/common")
        shared = {name for file in os.listdir(folder) if file.endswith(".h")
                  for name in re.findall(r"\b(syi_\w+)\(", read(f"transports/common/{file}"))}
        self.assertEqual({name for name in global_names(*self.objects) if not prefix.match(name)} - shared, set())

    def test_no_writable_globals_and_no_constructors(self):
        self.assertEqual(writable(*self.objects), [])

    def test_never_prints_or_exits(self):
        bad = {name for name in needed(*self.objects) if FORBIDDEN.match(name) or name in self.aborts}
        self.assertEqual(bad, set())

    def test_uses_only_what_the_library_exports(self):
        """Every symbol of ours that it needs is in a public header, so any build of the library will do."""
        ours = {name for name in needed(*self.objects) if name.startswith("sy")} - global_names(*self.objects)
        self.assertTrue(ours)
        self.assertLessEqual(ours, declared(*HEADERS))


@unittest.skipUnless(MPI_SHARED, "libswitchyard_mpi was not built: no MPI was found (Debian: libopenmpi-dev)")
class MpiLibrary(Transport, unittest.TestCase):
    name = "mpi"
    shared, objects = MPI_SHARED, MPI_OBJECTS
    aborts = ("MPI_Abort", "PMPI_Abort")


@unittest.skipUnless(NCCL_SHARED, "libswitchyard_nccl was not built: no NCCL was found")
class NcclLibrary(Transport, unittest.TestCase):
    name = "nccl"
    shared, objects = NCCL_SHARED, NCCL_OBJECTS


if __name__ == "__main__":
    unittest.main()
