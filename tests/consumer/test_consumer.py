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


LANGUAGES = ((CC, ["-std=c11", "-x", "c"]), ("c++", ["-std=c++17", "-x", "c++"]))


@unittest.skipUnless(BUILD, "SWITCHYARD_BUILD names the build folder")
class Installed(unittest.TestCase):
    """An installation for all classes."""

    @classmethod
    def setUpClass(cls):
        if not hasattr(Installed, "prefix"):
            install(Installed, "consumer")

    def pkg_config(self, *options, package="switchyard"):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config")
        return shlex.split(run(["pkg-config", *options, package], env=dict(os.environ, PKG_CONFIG_PATH=self.pkgconfig)))

    def compile(self, compiler, options, source, flags):
        """The program, of a source beside this file."""
        if not shutil.which(compiler):
            self.skipTest(f"no {compiler}")
        binary = os.path.join(self.work, "program")
        run([compiler, *options, os.path.join(HERE, source), "-x", "none", *flags, "-o", binary])
        return binary

    def check(self, says, binary, *launcher):
        self.assertEqual(run([*launcher, binary], env=dict(os.environ, LD_LIBRARY_PATH=self.libdir)), f"{self.version}{says}\n")

    def check_processes(self, binary):
        """Two processes of an MPI program; the first one reports."""
        self.check(" mpi 2", binary, sys.executable, os.path.join(HERE, "../../scripts/mpirun.py"), "-n", "2", "--mpirun",
                   os.environ["SWITCHYARD_MPIRUN"])


class Consumer(Installed):
    def check_languages(self, flags):
        for compiler, language in LANGUAGES:
            with self.subTest(compiler):
                self.check("", self.compile(compiler, [*language, *STRICT], "consumer.c", flags))

    def test_pkg_config_version(self):
        self.assertEqual(self.pkg_config("--modversion"), [self.version])

    def test_pkg_config_shared(self):
        self.check_languages(self.pkg_config("--cflags", "--libs"))

    def test_pkg_config_static(self):
        """What --static gives, with the archive in place of the shared library that lies beside it."""
        flags = self.pkg_config("--static", "--cflags", "--libs")
        self.assertIn("-lswitchyard", flags)
        self.check_languages(["-l:libswitchyard.a" if flag == "-lswitchyard" else flag for flag in flags])

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
            r"|.*/cmake/switchyard/switchyard\w+(-\w+)?\.cmake$|share/man/man[13]/(switchyard|sy_)[\w-]*\.[13]$"
            r"|share/(bash-completion/completions/switchyard|zsh/site-functions/_switchyard|fish/vendor_completions\.d/switchyard\.fish)$", path)}
        self.assertEqual(strangers, set())


@unittest.skipUnless(MPICC, "libswitchyard_mpi was not built: no MPI was found (Debian: libopenmpi-dev)")
class Mpi(Installed):
    def test_pkg_config(self):
        flags = self.pkg_config("--cflags", "--libs", package="switchyard_mpi")
        for compiler, options in ((CC, [*STRICT, *LANGUAGES[0][1]]), LANGUAGES[1], (MPICC, LANGUAGES[0][1])):
            with self.subTest(compiler):
                self.check_processes(self.compile(compiler, options, "consumer_mpi.c", flags))


NCCL = os.environ.get("SWITCHYARD_NCCL_SHARED")
NCCL_SAYS = " SY_ERR_COMM sy_comm_create_nccl: nccl is NULL, want a communicator"


@unittest.skipUnless(NCCL, "libswitchyard_nccl was not built: no NCCL was found")
class Nccl(Installed):
    def test_pkg_config(self):
        flags = self.pkg_config("--cflags", "--libs", package="switchyard_nccl")
        for compiler, options in ((CC, ["-Wall", "-Wextra", "-Werror", *LANGUAGES[0][1]]), LANGUAGES[1]):
            with self.subTest(compiler):
                self.check(NCCL_SAYS, self.compile(compiler, options, "consumer_nccl.c", flags))


class FindPackage(Installed):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build = os.path.join(cls.work, "find_package")
        run(["cmake", "-S", HERE, "-B", cls.build, f"-DCMAKE_PREFIX_PATH={cls.prefix}", "-DCMAKE_BUILD_TYPE=Release",
             f"-DCMAKE_C_COMPILER={CC}", f"-DWANTED_VERSION={cls.version}", *([f"-DMPI_C_COMPILER={MPICC}"] if MPICC else [])])
        run(["cmake", "--build", cls.build])

    def test_shared_and_static(self):
        for name in ("c_switchyard", "c_switchyard_static", "cxx_switchyard", "cxx_switchyard_static"):
            with self.subTest(name):
                self.assertEqual(run([os.path.join(self.build, name)]), f"{self.version}\n")

    @unittest.skipUnless(MPICC, "libswitchyard_mpi was not built")
    def test_mpi(self):
        for name in ("c_mpi", "cxx_mpi"):
            self.check_processes(os.path.join(self.build, name))

    @unittest.skipUnless(NCCL, "libswitchyard_nccl was not built")
    def test_nccl(self):
        for name in ("c_nccl", "cxx_nccl"):
            self.assertEqual(run([os.path.join(self.build, name)]), f"{self.version}{NCCL_SAYS}\n")


@unittest.skipUnless(CBLAS, "no CBLAS was found (Debian: libopenblas-dev)")
class MoeLayer(Installed):
    """examples/moe_layer.c proves its gradients; so with any part of them left out it must fail."""
    SOURCE = os.path.join(HERE, "../../examples/moe_layer.c")
    LEFT_OUT = {
        "dx": [("*dlogits, ' ', *router, 1, *dx", "*dlogits, ' ', *router, 0, *dx"),
               ("*up[e], 1, drows", "*up[e], 0, drows"),
               (".grad_permuted_tokens = MAT(drows,", ".grad_permuted_tokens = MAT(dresults,")],
        "drouter": [("(dprobs[t][e] - mean)", "dprobs[t][e]"),
                    ("mean += dprobs[t][e] * scores[t][e]", "mean += dprobs[t][e]")],
        "dgate": [("* s * (1 + v * (1 - s));", "* s;"), ("* b[i][f] * s * (1", "* s * (1")],
        "dup": [("dinner[i][f] * v * s", "dinner[i][f] * s")],
        "ddown": [("dresults[begin], ' ', inner[begin]", "dresults[begin], ' ', a[begin]")],
        "y": [("a[i][f] * sigmoid(a[i][f]) * b", "a[i][f] * b"), (".k = K", ".k = K, .scale = 1.001f")],
    }

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(cls.SOURCE, encoding="utf-8") as file:
            cls.text = file.read()

    def build_and_run(self, text):
        """(exit status, the words after each name)"""
        source, binary = (os.path.join(self.work, "moe_layer" + end) for end in (".c", ""))
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        flags = self.pkg_config("--cflags", "--libs")
        run([CC, "-O1", "-isystem", os.environ["SWITCHYARD_CBLAS_INCLUDE"], source, *flags, CBLAS, "-lm", "-o", binary])
        env = dict(os.environ, LD_LIBRARY_PATH=self.libdir, OPENBLAS_NUM_THREADS="1")
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
