"""Installs the library into a folder of the build and uses it from outside: pkg-config and find_package, C and C++17,
shared and static; then moves the folder and uses it again. The example with a BLAS is built as its readers build it."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("SWITCHYARD_BUILD")
CBLAS = os.environ.get("SWITCHYARD_CBLAS")
MPICC = os.environ.get("SWITCHYARD_MPI_C_COMPILER")
CC = os.environ.get("SWITCHYARD_CC", "cc")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(command)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def install(cls, name):
    """Installs into a new folder of the build, and tells the class where everything is."""
    cls.work = os.path.join(BUILD, name)
    shutil.rmtree(cls.work, ignore_errors=True)
    cls.prefix = os.path.join(cls.work, "prefix")
    run(["cmake", "--install", BUILD, "--prefix", cls.prefix])
    cls.pkgconfig = next(folder for folder, _, names in os.walk(cls.prefix) if "switchyard.pc" in names)
    cls.libdir = os.path.dirname(cls.pkgconfig)
    with open(os.path.join(cls.prefix, "include", "switchyard.h"), encoding="utf-8") as file:
        cls.version = ".".join(re.findall(r"^#define SY_VERSION_\w+ (\d+)$", file.read(), re.M))


@unittest.skipUnless(BUILD, "SWITCHYARD_BUILD names the build folder")
class Consumer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install(cls, "consumer")

    def pkg_config(self, *options):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        env = dict(os.environ, PKG_CONFIG_PATH=self.pkgconfig)
        return shlex.split(run(["pkg-config", *options, "switchyard"], env=env))

    def compile_and_run(self, compiler, language, flags, name):
        if not shutil.which(compiler):
            self.skipTest(f"no {compiler}")
        binary = os.path.join(self.work, name)
        run([compiler, *language, *STRICT, os.path.join(HERE, "consumer.c"), "-x", "none", *flags, "-o", binary])
        self.check_program(binary, LD_LIBRARY_PATH=self.libdir)

    def check_program(self, binary, **env):
        self.assertEqual(run([binary], env=dict(os.environ, **env)), f"{self.version}\n")

    def static_flags(self):
        """What --static gives, with the archive in place of the shared library that lies beside it."""
        flags = self.pkg_config("--static", "--cflags", "--libs")
        self.assertIn("-lswitchyard", flags)
        return ["-l:libswitchyard.a" if flag == "-lswitchyard" else flag for flag in flags]

    def test_pkg_config_version(self):
        self.assertEqual(self.pkg_config("--modversion"), [self.version])

    def test_pkg_config_c_shared(self):
        self.compile_and_run(CC, ["-std=c11", "-x", "c"], self.pkg_config("--cflags", "--libs"), "pc_c_shared")

    def test_pkg_config_c_static(self):
        self.compile_and_run(CC, ["-std=c11", "-x", "c"], self.static_flags(), "pc_c_static")

    def test_pkg_config_cxx_shared(self):
        self.compile_and_run("c++", ["-std=c++17", "-x", "c++"], self.pkg_config("--cflags", "--libs"), "pc_cxx_shared")

    def test_pkg_config_cxx_static(self):
        self.compile_and_run("c++", ["-std=c++17", "-x", "c++"], self.static_flags(), "pc_cxx_static")

    def test_installed_command_runs_after_a_move(self):
        command = os.path.join(self.prefix, "bin", "switchyard")
        if not os.path.exists(command):
            self.skipTest("the command line was not built")
        moved = os.path.join(self.work, "moved")
        shutil.copytree(self.prefix, moved, symlinks=True)
        self.assertIn(self.version, run([os.path.join(moved, "bin", "switchyard"), "--version"]))

    def test_only_the_promised_files_are_installed(self):
        files = {os.path.relpath(os.path.join(folder, name), self.prefix)
                 for folder, _, names in os.walk(self.prefix) for name in names}
        strangers = {path for path in files if not re.match(
            r"bin/switchyard(-mpi)?$|include/switchyard(_inline|_dlpack|_describe|_transport|_mpi|_nccl)?\.h$|include/switchyard/(aclnn|mluop)/.*\.h$"
            r"|.*/libswitchyard(_mpi|_nccl|_aclnn|_mluop)?\.(a|so[.0-9]*)$"
            r"|.*/pkgconfig/switchyard(_mpi|_nccl|_aclnn|_mluop)?\.pc$"
            r"|.*/cmake/switchyard/switchyard\w+(-\w+)?\.cmake$", path)}
        self.assertEqual(strangers, set())


def check_processes(test, binary):
    """Two processes of an MPI program; the first one reports."""
    command = [sys.executable, os.path.join(HERE, "../../scripts/mpirun.py"), "-n", "2", "--mpirun",
               os.environ["SWITCHYARD_MPIRUN"], binary]
    env = dict(os.environ, LD_LIBRARY_PATH=Consumer.libdir)
    test.assertEqual(run(command, env=env), f"{Consumer.version} mpi 2\n")


@unittest.skipUnless(BUILD and MPICC, "libswitchyard_mpi was not built: no MPI was found (Debian: libopenmpi-dev)")
class Mpi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not hasattr(Consumer, "prefix"):
            Consumer.setUpClass()

    def check(self, compiler, package, *language):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        flags = shlex.split(run(["pkg-config", "--cflags", "--libs", package],
                                env=dict(os.environ, PKG_CONFIG_PATH=Consumer.pkgconfig)))
        binary = os.path.join(Consumer.work, "pc_mpi")
        run([compiler, *language, os.path.join(HERE, "consumer_mpi.c"), "-x", "none", *flags, "-o", binary])
        check_processes(self, binary)

    def test_pkg_config_plain_compilers(self):
        self.check(CC, "switchyard_mpi", "-std=c11", *STRICT, "-x", "c")
        self.check("c++", "switchyard_mpi", "-std=c++17", "-x", "c++")

    def test_pkg_config_compiler_of_mpi(self):
        self.check(MPICC, "switchyard_mpi", "-std=c11", "-x", "c")


NCCL = os.environ.get("SWITCHYARD_NCCL_SHARED")
NCCL_SAYS = "SY_ERR_COMM sy_comm_create_nccl: nccl is NULL, want a communicator"


@unittest.skipUnless(BUILD and NCCL, "libswitchyard_nccl was not built: no NCCL was found")
class Nccl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not hasattr(Consumer, "prefix"):
            Consumer.setUpClass()

    def check(self, compiler, *language):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        flags = shlex.split(run(["pkg-config", "--cflags", "--libs", "switchyard_nccl"],
                                env=dict(os.environ, PKG_CONFIG_PATH=Consumer.pkgconfig)))
        binary = os.path.join(Consumer.work, "pc_nccl")
        run([compiler, *language, os.path.join(HERE, "consumer_nccl.c"), "-x", "none", *flags, "-o", binary])
        said = run([binary], env=dict(os.environ, LD_LIBRARY_PATH=Consumer.libdir))
        self.assertEqual(said, f"{Consumer.version} {NCCL_SAYS}\n")

    def test_pkg_config(self):
        self.check(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c")
        self.check("c++", "-std=c++17", "-x", "c++")


@unittest.skipUnless(BUILD, "SWITCHYARD_BUILD names the build folder")
class FindPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not hasattr(Consumer, "prefix"):
            Consumer.setUpClass()
        cls.build = os.path.join(Consumer.work, "find_package")
        run(["cmake", "-S", HERE, "-B", cls.build, f"-DCMAKE_PREFIX_PATH={Consumer.prefix}", "-DCMAKE_BUILD_TYPE=Release",
             f"-DCMAKE_C_COMPILER={CC}", f"-DWANTED_VERSION={Consumer.version}",
             *([f"-DMPI_C_COMPILER={MPICC}"] if MPICC else [])])
        run(["cmake", "--build", cls.build])

    def check(self, name):
        self.assertEqual(run([os.path.join(self.build, name)]), f"{Consumer.version}\n")

    def test_c_shared(self):
        self.check("c_switchyard")

    def test_c_static(self):
        self.check("c_switchyard_static")

    def test_cxx_shared(self):
        self.check("cxx_switchyard")

    def test_cxx_static(self):
        self.check("cxx_switchyard_static")

    def test_mpi(self):
        if not MPICC:
            self.skipTest("libswitchyard_mpi was not built")
        for name in ("c_mpi", "cxx_mpi"):
            check_processes(self, os.path.join(self.build, name))


    def test_nccl(self):
        if not NCCL:
            self.skipTest("libswitchyard_nccl was not built")
        for name in ("c_nccl", "cxx_nccl"):
            self.assertEqual(run([os.path.join(self.build, name)]), f"{Consumer.version} {NCCL_SAYS}\n")


@unittest.skipUnless(BUILD and CBLAS, "no CBLAS was found (Debian: libopenblas-dev)")
class MoeLayer(unittest.TestCase):
    """examples/moe_layer.c proves its gradients; so with any part of them left out it must fail."""
    SOURCE = os.path.join(HERE, "../../examples/moe_layer.c")
    LEFT_OUT = {
        "dx": [("*dlogits, ' ', *router, 1, *dx", "*dlogits, ' ', *router, 0, *dx"),
               ("*up[e], 1, drows", "*up[e], 0, drows"),
               (".grad_permuted_tokens = &tdrows", ".grad_permuted_tokens = &tdresults")],
        "drouter": [("(dprobs[t][e] - mean)", "dprobs[t][e]"),
                    ("mean += dprobs[t][e] * scores[t][e]", "mean += dprobs[t][e]")],
        "dgate": [("* s * (1 + v * (1 - s));", "* s;"), ("* b[i][f] * s * (1", "* s * (1")],
        "dup": [("dinner[i][f] * v * s", "dinner[i][f] * s")],
        "ddown": [("dresults[begin], ' ', inner[begin]", "dresults[begin], ' ', a[begin]")],
        "y": [("a[i][f] * sigmoid(a[i][f]) * b", "a[i][f] * b"), (".k = K", ".k = K, .scale = 1.001f")],
    }

    @classmethod
    def setUpClass(cls):
        if not shutil.which("pkg-config"):
            raise unittest.SkipTest("no pkg-config")
        if not hasattr(Consumer, "prefix"):
            Consumer.setUpClass()
        env = dict(os.environ, PKG_CONFIG_PATH=Consumer.pkgconfig)
        cls.flags = shlex.split(run(["pkg-config", "--cflags", "--libs", "switchyard"], env=env))
        with open(cls.SOURCE, encoding="utf-8") as file:
            cls.text = file.read()

    def build_and_run(self, text):
        """(exit status, the words after each name)"""
        source, binary = (os.path.join(Consumer.work, "moe_layer" + end) for end in (".c", ""))
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        run([CC, "-O1", "-isystem", os.environ["SWITCHYARD_CBLAS_INCLUDE"], source, *self.flags, CBLAS, "-lm", "-o", binary])
        env = dict(os.environ, LD_LIBRARY_PATH=Consumer.libdir, OPENBLAS_NUM_THREADS="1")
        done = subprocess.run([binary], env=env, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, dict(re.findall(r"^ +(\w+) .* (\w+)$", done.stdout, re.M))

    def test_every_gradient_is_right(self):
        self.assertEqual(self.build_and_run(self.text), (0, dict.fromkeys(self.LEFT_OUT, "ok")))

    def test_what_is_left_out_is_missed(self):
        for name, changes in self.LEFT_OUT.items():
            for right, wrong in changes:
                with self.subTest(wrong):
                    self.assertEqual(self.text.count(right), 1)
                    code, verdicts = self.build_and_run(self.text.replace(right, wrong))
                    self.assertEqual((code, verdicts[name]), (1, "WRONG"))

    def test_short_enough_to_read(self):
        self.assertLess(len(self.text.splitlines()), 300)


if __name__ == "__main__":
    unittest.main()
