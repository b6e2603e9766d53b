"""`make` and `make install` in a copy of the sources, on a machine that has a C compiler, CMake and make: they build what
can be built, name what is missing, and install no package. Commands that would install one are replaced by fakes that fail."""
import os
import re
import shutil
import subprocess
import unittest

from test_consumer import BUILD, HERE

ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
INSTALLERS = ("apt", "apt-get", "aptitude", "dnf", "pip", "pip3", "sudo")
LEFT_OUT = {"c++", "g++", "ninja", "pkg-config"}
NO_MPI = "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"  # CMake looks beyond PATH
OFF = " ".join(f"-DSWITCHYARD_{part}=OFF" for part in ("BENCH", "COMPAT", "EXAMPLES", "HARDENING", "TESTS"))
SMALL = f"{OFF} {NO_MPI} -DCMAKE_C_FLAGS_RELEASE=-O0"


def machine(folder, left_out, log):
    """A PATH with every command of this machine but a few, and fakes of those that install packages."""
    os.makedirs(folder)
    for path in os.environ["PATH"].split(os.pathsep):
        for name in os.listdir(path) if os.path.isdir(path) else ():
            link = os.path.join(folder, name)
            if name not in left_out and name not in INSTALLERS and not os.path.lexists(link):
                os.symlink(os.path.join(path, name), link)
    fake = f'#!/bin/sh\necho "$0 $*" >>{log}\necho "$0: the test forbids this" >&2\nexit 97\n'
    python = os.path.join(folder, "python3")
    texts = dict.fromkeys(INSTALLERS, fake)
    if os.path.exists(python):
        texts["python3"] = (f'#!/bin/sh\ncase "$*" in *pip*|*venv*|*python_env*) echo "$0 $*" >>{log}; exit 97;; esac\n'
                            f'exec {os.path.realpath(python)} "$@"\n')
        os.remove(python)
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(os.path.join(folder, name), 0o755)
    return folder


def files_below(folder):
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}


@unittest.skipUnless(BUILD and shutil.which("make"), "SWITCHYARD_BUILD names the build folder, and make runs there")
class Make(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = os.path.join(BUILD, "consumer_make")
        shutil.rmtree(cls.work, ignore_errors=True)
        cls.source, cls.log = os.path.join(cls.work, "source"), os.path.join(cls.work, "installers.log")
        shutil.copytree(ROOT, cls.source, symlinks=True, ignore=shutil.ignore_patterns(".git", "build", "build-*", "__pycache__"))
        cls.small = machine(os.path.join(cls.work, "small"), LEFT_OUT, cls.log)
        lost = os.path.join(cls.work, "lost")  # where a PREFIX that is not passed on would install
        cls.status, cls.text = cls.make(cls.small, flags=f"{SMALL} -DCMAKE_INSTALL_PREFIX={lost}")

    @classmethod
    def make(cls, path, *arguments, flags=SMALL):
        """(exit status, what it printed)"""
        env = {name: value for name, value in os.environ.items()
               if name not in ("SKIP_SETUP", "CMAKE_GENERATOR", "CC", "DESTDIR", "PREFIX") and not name.startswith("MAKE")}
        done = subprocess.run(["make", f"CMAKE_FLAGS={flags}", *arguments], cwd=cls.source, env=dict(env, PATH=path),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def setUp(self):
        self.assertEqual(self.status, 0, self.text)
        if os.path.exists(self.log):
            os.remove(self.log)

    def check(self, *arguments, **more):
        status, text = self.make(self.small, *arguments, **more)
        self.assertEqual(status, 0, text)
        return text

    def installers(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def built(self, name):
        return os.path.join(self.source, "build/release", name)

    def test_missing_parts_are_named_and_left_out(self):
        self.assertIn("MPI not found: libswitchyard_mpi is not built. To get it: make setup-mpi, or install libopenmpi-dev and "
                      "openmpi-bin. To do without: -DSWITCHYARD_MPI=OFF.\n", self.text)
        with open(self.built("CMakeCache.txt"), encoding="utf-8") as file:
            header = re.search(r"^JANSSON_INCLUDE_DIR:PATH=(/.*)$", file.read(), re.M)
        if header:  # make it look as if there were none
            os.remove(self.built("switchyard"))
            gone = "-DJANSSON_INCLUDE_DIR=JANSSON_INCLUDE_DIR-NOTFOUND"
            text = self.check(flags=f"{SMALL} {gone} -DCMAKE_IGNORE_PATH={header.group(1)}")
            self.assertIn("jansson not found: the command line is not built. To get it: make setup, or install libjansson-dev. "
                          "To do without: -DSWITCHYARD_CLI=OFF.\n", text)
            status, text = self.make(self.small, "bench")
            self.assertNotEqual(status, 0)
            self.assertIn("the command line was not built", text)
            self.check(flags=f"{SMALL} {gone} -DCMAKE_IGNORE_PATH=")
        self.assertNotIn("MPI", self.check(flags=f"{SMALL} -DSWITCHYARD_MPI=OFF"))
        self.check(flags=f"{SMALL} -DSWITCHYARD_MPI=AUTO")
        self.assertEqual(self.installers(), "")

    def test_what_nothing_works_without_is_named(self):
        for package, left_out in (("gcc", {"cc"}), ("cmake", {"cmake"}), ("gcc cmake", {"cc", "cmake"})):
            with self.subTest(package):
                folder = machine(os.path.join(self.work, package.replace(" ", "_")), left_out, self.log)
                status, text = self.make(folder)
                self.assertNotEqual(status, 0)
                lines = [line for line in text.splitlines() if "found: run `make setup`, or install " in line]
                self.assertEqual([re.search(r"install (\S+) yourself$", line).group(1) for line in lines], package.split())
        with open(os.path.join(folder, "cmake"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho cmake version 3.16.3\n")
        os.chmod(os.path.join(folder, "cmake"), 0o755)
        self.assertIn("make: no CMake 3.22 or later found: run `make setup`, or install cmake yourself\n", self.make(folder)[1])
        self.assertEqual(self.installers(), "")

    def test_install_and_uninstall(self):
        for arguments in (["PREFIX={0}/prefix"], ["DESTDIR={0}/stage", "PREFIX=/opt/switchyard"]):
            with self.subTest(arguments):
                base = os.path.join(self.work, "installed")
                shutil.rmtree(base, ignore_errors=True)
                os.makedirs(os.path.join(base, "prefix/include"))
                with open(os.path.join(base, "prefix/include/other.h"), "w", encoding="utf-8"):
                    pass
                self.check("install", *(argument.format(base) for argument in arguments))
                top = os.path.join(base, "stage/opt/switchyard" if len(arguments) == 2 else "prefix")
                files = files_below(top)
                self.assertTrue({"include/switchyard.h", "include/switchyard_dlpack.h"} <= files, files)
                self.assertEqual(len([path for path in files if path.endswith("/libswitchyard.a")]), 1)
                if "bin/switchyard" in files:
                    done = subprocess.run([os.path.join(top, "bin/switchyard"), "--version"], stdout=subprocess.PIPE, check=False)
                    self.assertEqual(done.returncode, 0)
                self.check("uninstall")
                self.assertEqual(files_below(base), {"prefix/include/other.h"})
                self.assertEqual([at for at, _, _ in os.walk(base) if at.endswith("/switchyard")], [])
                status, text = self.make(self.small, "uninstall")
                self.assertNotEqual(status, 0)
                self.assertIn("no list of installed files", text)
        self.assertFalse(os.path.exists(os.path.join(self.work, "lost")))
        self.assertEqual(self.installers(), "")

    def test_a_second_build_with_more_tools(self):
        if shutil.which("ninja"):
            status, text = self.make(machine(os.path.join(self.work, "more"), set(), self.log))
            self.assertEqual(status, 0, text)
        self.assertEqual(self.installers(), "")

    def test_these_targets_install(self):
        for target in ("setup", "demo", "test"):
            with self.subTest(target):
                status, text = self.make(self.small, target)
                self.assertNotEqual(status, 0)
                self.assertRegex(text, "setup: apt failed; wanted:.* ninja-build")
                self.assertIn("apt-get", self.installers())
                os.remove(self.log)

    def test_help_lists_every_target(self):
        with open(os.path.join(self.source, "Makefile"), encoding="utf-8") as file:
            text = file.read()
        targets = set(re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", text, re.M).group(1).replace("\\\n", " ").split())
        known = self.check("help")
        self.assertEqual([name for name in sorted(targets - {"all", "configure", "release", "command"}) if not re.search(rf"\b{name}\b", known)], [])


if __name__ == "__main__":
    unittest.main()
