"""The Python package as its users get it: a source archive, one wheel for every Python, an empty venv."""
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import python_env

BUILD = "build/wheel"
NEEDS = ("numpy", "typing_extensions")
ALLOWED = re.compile(r"switchyard/(\w+/)*(\w+\.pyi?|py\.typed)|switchyard/_core\.abi3\.so"
                     r"|switchyard/lib/libswitchyard\.so\.\d+|switchyard/bin/switchyard"
                     r"|switchyard_ops-[\d.]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE)")

EXAMPLE = """
import numpy, switchyard
tokens = numpy.array([[10, 11], [20, 21], [30, 31], [40, 41]], numpy.float32)
routing_map = numpy.array([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], bool)
rows = switchyard.moe_permute(tokens, routing_map, num_out_tokens=8)
assert rows.permuted_tokens[:, 0].tolist() == [10, 30, 40, 20, 30, 10, 20, 40]
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libswitchyard" in line}
assert mapped == {switchyard.info().library}, mapped
"""


def run(*command, cwd=ROOT, env=None):
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-8000:]}")
    return done.stdout


def build_wheel(source, folder, **env):
    """The only file in a new folder after pip built what is there. The venv has what the build needs."""
    os.mkdir(folder)
    shutil.rmtree(os.path.join(ROOT, BUILD), ignore_errors=True)
    # Flags and relative paths are those of `make python`, whose objects ccache then has. Kernels for a GPU take minutes.
    run(python_env.PYTHON, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder,
        f"-Cbuild-dir={BUILD}", "-Ccmake.define.SWITCHYARD_CUDA=OFF",
        f"-Ccmake.define.SWITCHYARD_WERROR={os.environ.get('WERROR', 'OFF')}", source, env=dict(os.environ, **env))
    wheel, = os.listdir(folder)
    return os.path.join(folder, wheel)


def files_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


@unittest.skipIf(python_env.why_not(), python_env.why_not())
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.wheel = build_wheel(ROOT, os.path.join(cls.folder, "wheel"))

    def test_it_serves_every_python(self):
        name = rf"switchyard_ops-\d+\.\d+\.\d+-cp310-abi3-linux_{platform.machine()}\.whl"
        self.assertRegex(os.path.basename(self.wheel), f"^{name}$")

    def test_it_holds_nothing_else(self):
        files = files_of(self.wheel)
        self.assertEqual([path for path in files if not ALLOWED.fullmatch(path)], [])
        written = "switchyard/_words.pyi"  # by the build
        for path in ("switchyard/py.typed", "switchyard/__main__.py", "switchyard/_core.abi3.so", written):
            self.assertIn(path, files)
        with zipfile.ZipFile(self.wheel) as archive:
            for path in files:
                if path.endswith((".py", ".pyi", ".typed")) and path != written:
                    with open(os.path.join(ROOT, "python", path), "rb") as file:
                        self.assertEqual(archive.read(path), file.read(), path)

    def test_its_libraries_look_for_each_other_beside_themselves(self):
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(folder)
            for path in files_of(self.wheel):
                if not path.startswith(("switchyard/lib/", "switchyard/bin/")) and not path.endswith(".abi3.so"):
                    continue
                told = run("readelf", "-d", os.path.join(folder, path))
                found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", told)
                self.assertLessEqual(set(found), {"$ORIGIN", "$ORIGIN/lib", "$ORIGIN/../lib"}, path)
                needed = re.findall(r"\(NEEDED\).*\[(.*)\]", told)
                self.assertEqual([name for name in needed if re.search("mpi|nccl|jansson", name)], [], path)

    def test_the_source_archive_gives_the_same_wheel(self):
        archives = os.path.join(self.folder, "sdist")
        os.mkdir(archives)
        run(python_env.PYTHON, "-c",
            f"from scikit_build_core.build import build_sdist; build_sdist({archives!r})")
        archive, = os.listdir(archives)
        self.assertRegex(archive, r"^switchyard_ops-\d+\.\d+\.\d+\.tar\.gz$")
        with tarfile.open(os.path.join(archives, archive)) as tar:
            names = [name.partition("/")[2] for name in tar.getnames()]
        self.assertIn("LICENSE", names)
        kept = [name for name in names if name.startswith(("build/", "tests/", "python/tests/"))]
        self.assertEqual([name for name in kept if not re.fullmatch(r"tests(/examples(/\w+\.txt)?)?", name)], [])
        wheel = build_wheel(os.path.join(archives, archive), os.path.join(self.folder, "wheel_of_sdist"), TMPDIR=self.folder,
                            CCACHE_BASEDIR=self.folder)  # where pip unpacks it
        self.assertEqual(files_of(wheel), files_of(self.wheel))

    def test_it_works_in_an_empty_venv(self):
        venv = os.path.join(self.folder, "venv")
        run(python_env.PYTHON, "-m", "venv", venv)
        python = os.path.join(venv, "bin", "python")
        copy_needs(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        run(python, "-m", "pip", "install", "-q", "--no-index", self.wheel)  # its requirements are met
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
        run(python, "-c", EXAMPLE, cwd="/", env=env)
        if "switchyard/bin/switchyard" in files_of(self.wheel):
            told = run(os.path.join(venv, "bin", "switchyard"), "info", cwd="/", env=env)
            self.assertIn("results version", told)
            self.assertEqual(told, run(python, "-m", "switchyard", "info", cwd="/", env=env))

    def test_the_benchmark_of_calls_runs(self):
        told = run("make", "--no-print-directory", "bench-python", "ARGS=1", env=dict(os.environ, SKIP_SETUP="1"))
        self.assertRegex(told, r"(?m)^moe_permute +numpy( +-?\d+){6}$")


def copy_needs(folder):
    """What the package needs, from the project's venv, as pip would put it there: no network."""
    source = run(python_env.PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    for needed in NEEDS:
        found, = importlib.metadata.distributions(name=needed, path=[source])
        for path in found.files:
            if not str(path).startswith(("..", "/")):
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                if os.path.exists(os.path.join(source, path)):
                    shutil.copy(os.path.join(source, path), os.path.join(folder, path))


if __name__ == "__main__":
    unittest.main()
