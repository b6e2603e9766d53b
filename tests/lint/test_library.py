"""What the built library shows and needs: exactly the listed names, no writable globals, no way to print or exit."""
import os
import re
import subprocess
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SHARED = os.environ.get("SWITCHYARD_SHARED")
STATIC = os.environ.get("SWITCHYARD_STATIC")

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


def exported():
    names = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", SHARED).splitlines() if line.strip()}
    return {name.split("@")[0] for name in names if not name.startswith("SWITCHYARD_")}


def needed():
    lines = tool("nm", "--undefined-only", STATIC).splitlines()
    return {line.split()[-1] for line in lines if re.match(r"\s+[Uw] ", line)}


@unittest.skipUnless(SHARED and STATIC, "SWITCHYARD_SHARED and SWITCHYARD_STATIC name the built libraries")
class Library(unittest.TestCase):
    def test_map_and_header_list_the_same_names(self):
        listed = set(re.findall(r"^ +(sy_\w+);$", read("src/switchyard.map"), re.M))
        declared = set(re.findall(r"^SY_API [^;(]*?\b(sy_\w+)\(", read("include/switchyard.h"), re.M))
        self.assertTrue(listed)
        self.assertEqual(listed, declared)

    def test_the_shared_library_shows_the_map_and_nothing_else(self):
        listed = set(re.findall(r"^ +(sy_\w+);$", read("src/switchyard.map"), re.M))
        self.assertEqual(exported(), listed)

    def test_soname(self):
        """Before 1.0 a minor release may change the ABI, so programs are linked to major.minor."""
        major, minor = re.findall(r"^#define SY_VERSION_M(?:AJOR|INOR) (\d+)$", read("include/switchyard.h"), re.M)
        self.assertIn(f"[libswitchyard.so.{major}.{minor}]", tool("readelf", "-d", SHARED))
        self.assertIn(f"SWITCHYARD_{major}.{minor} {{", read("src/switchyard.map"))

    def test_global_names_carry_a_prefix(self):
        names = {line.split()[-1] for line in tool("nm", "--defined-only", "--extern-only", STATIC).splitlines()
                 if re.match(r"[0-9a-f]+ [A-Z] ", line)}
        strangers = {name for name in names if not re.match(r"syi?_", name)}
        self.assertEqual(strangers, set())

    def test_no_writable_globals_and_no_constructors(self):
        faults, member = [], ""
        for line in tool("objdump", "-h", STATIC).splitlines():
            if ":     file format" in line:
                member = line.split(":")[0]
            section = re.match(r"\s*\d+ (\S+)\s+([0-9a-f]+) ", line)
            if section and WRITABLE.match(section.group(1)) and int(section.group(2), 16) \
                    and not section.group(1).startswith(".data.rel.ro"):
                faults.append(f"{member}: {section.group(1)} holds {int(section.group(2), 16)} bytes")
        self.assertEqual(faults, [])
        commons = [line for line in tool("nm", STATIC).splitlines() if re.match(r"[0-9a-f]+ C ", line)]
        self.assertEqual(commons, [])

    def test_never_prints_exits_or_reads_the_environment(self):
        bad = {name for name in needed() if FORBIDDEN.match(name)}
        if os.environ.get("SWITCHYARD_CONFIG") == "Debug":
            bad.discard("__assert_fail")
        self.assertEqual(bad, set())

    def test_of_libm_only_fma(self):
        self.assertEqual({name for name in needed() if LIBM.match(name)} - {"fma", "fmaf"}, set())

    def test_the_rules_can_fail(self):
        for name in ("printf", "__fprintf_chk", "abort", "stderr", "exit", "fwrite", "getenv"):
            self.assertTrue(FORBIDDEN.match(name), name)
        for name in ("snprintf", "__vsnprintf_chk", "memcpy", "fmaf"):
            self.assertFalse(FORBIDDEN.match(name), name)
        for name in ("expf", "log", "fma", "rintf"):
            self.assertTrue(LIBM.match(name), name)
        self.assertTrue(WRITABLE.match(".bss") and WRITABLE.match(".data.x") and WRITABLE.match(".tbss"))


if __name__ == "__main__":
    unittest.main()
