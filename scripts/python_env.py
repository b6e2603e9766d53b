#!/usr/bin/env python3
"""The project's own Python: build/venv, with the requirements of pyproject.toml and the package built from this clone.

    python_env.py [--full] [--werror]

Does only what is not done yet: a second run reads a few hundred small files, uses no network and prints nothing.
Without --full: NumPy and what the tests of `make test` need, about 60 MB. With it also PyTorch, JAX, transformers and
the tools of `make lint`, about 1.6 GB; a venv that has them keeps them.
SKIP_SETUP=1 downloads nothing and uses what is installed. SWITCHYARD_TORCH is the requirement to install for PyTorch
(`torch==2.10.0`, a wheel), or `none`. A PyTorch that the system's Python has is used as it is. `rm -r build/venv`
starts over.

Without a network there is no venv: one line reports it, it becomes the reason of the skipped tests, and the exit
status is 0. It is 1 when the package does not build.
"""
import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
VENV = os.path.join(ROOT, "build", "venv")
PYTHON = os.path.join(VENV, "bin", "python")
STATE = os.path.join(ROOT, "build", "venv.json")
OLDEST = (3, 11)

# Newest first. The first one that is available without CUDA's packages, which are gigabytes, is used. On x86_64 all of them need
# these packages, and asking for each takes minutes.
TORCH = ("torch>=2.4", "torch==2.10.*", "torch==2.9.*", "torch==2.8.*", "torch==2.6.*", "torch==2.4.*")
OLDEST_TORCH = (2, 4)
CUDA = re.compile(r"nvidia|cuda|.*triton", re.IGNORECASE)

# The sources of the package. Other files may change without a new build.
SOURCES = ("CMakeLists.txt", "pyproject.toml", "bench", "cli", "cmake", "include", "python/binding",
           "python/switchyard", "src", "transports")


class Skip(Exception):
    """No venv can be made here; the text is the reason."""


def read_state():
    try:
        with open(STATE, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def write_state(state):
    os.makedirs(os.path.dirname(STATE), exist_ok=True)
    with open(STATE, "w", encoding="utf-8") as file:
        json.dump(state, file, indent=1)


def why_not():
    """Why there are no Python tests here; "" when the venv is ready."""
    state = read_state()
    if "reason" in state:
        return state["reason"]
    return "" if state.get("package") and os.path.exists(PYTHON) else "`make python` has not run"


def say(text):
    print(f"python: {text}", flush=True)


def pip(*arguments):
    """(exit status, output) of pip in the venv."""
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return done.returncode, done.stdout


def error_line(text):
    """The line of pip's output with the error."""
    errors = [line for line in text.splitlines() if line.startswith("ERROR: ")]
    return (errors or text.strip().splitlines() or ["no output"])[-1].removeprefix("ERROR: ")


# ---- Requirements ----

def wanted(full):
    """(required packages, optional packages whose absence skips some tests), as requirements."""
    import tomllib
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)
    groups = project["dependency-groups"]
    required = project["build-system"]["requires"] + project["project"]["dependencies"] + groups["test"]
    return sorted(set(required)), groups["optional"] + (groups["full"] if full else [])


def system_torch():
    """The version of a usable PyTorch that this Python has; "" when there is none."""
    if importlib.util.find_spec("torch") is None:
        return ""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return version if tuple(map(int, version.split(".")[:2])) >= OLDEST_TORCH else ""


def make_venv(see_system):
    if importlib.util.find_spec("ensurepip") is None:
        raise Skip("python3 has no ensurepip (Debian: apt install python3-venv)")
    shutil.rmtree(VENV, ignore_errors=True)
    options = ["--system-site-packages"] if see_system else []
    done = subprocess.run([sys.executable, "-m", "venv", *options, VENV], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip(f"no venv can be made here: {error_line(done.stdout + done.stderr)}")
    pip("install", "-q", "--retries", "1", "--upgrade", "pip")  # newer versions read a wheel's requirements without downloading it


def install_torch():
    """The reason why there is no PyTorch; "" if it is installed. A resolution with CUDA packages is not accepted."""
    asked = os.environ.get("SWITCHYARD_TORCH", "")
    if asked == "none":
        return "disabled (SWITCHYARD_TORCH=none)"
    if asked:
        code, text = pip("install", "-q", *asked.split())
        return f"{asked} cannot be installed: {error_line(text)}" if code else ""
    if platform.machine() == "x86_64":
        return "its builds for x86_64 require CUDA packages, gigabytes; SWITCHYARD_TORCH=torch installs them"
    reason = "the index offers none for this platform"
    for candidate in TORCH:
        found, cuda = resolve(candidate)
        if found and not cuda:
            code, text = pip("install", "-q", *found)
            return f"{error_line(text)}" if code else ""
        if cuda:
            reason = "the builds the index offers for this platform require CUDA packages; SWITCHYARD_TORCH names another"
    return reason


def resolve(requirement):
    """(packages pip would install, the CUDA packages among them); ([], []) when it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        code, _ = pip("install", "-q", "--dry-run", "--only-binary=:all:", "--report", report, requirement)
        if code:
            return [], []
        with open(report, encoding="utf-8") as file:
            parts = [entry["metadata"] for entry in json.load(file)["install"]]
    return ([f"{part['name']}=={part['version']}" for part in parts],
            [part["name"] for part in parts if CUDA.match(part["name"])])


def install_optional(requirements):
    """Lines about packages that could not be installed. Tries all at once first, which is faster."""
    if pip("install", "-q", "--prefer-binary", *requirements)[0] == 0:
        return []
    lines = []
    for requirement in requirements:
        code, text = pip("install", "-q", "--prefer-binary", requirement)
        if code:
            lines.append(f"without {requirement}: {error_line(text)}")
    return lines


def install_requirements(full, has_venv):
    """Fills a new venv, or adds to one."""
    required, optional = wanted(full)
    has_torch = os.environ.get("SWITCHYARD_TORCH", "") == "" and system_torch()
    if not has_venv:
        say("making build/venv")
        make_venv(bool(has_torch))
    say(f"installing {', '.join(required)}")
    code, text = pip("install", "-q", "--retries", "1", *required)
    if code:
        raise Skip(f"the packages the tests need cannot be installed: {error_line(text)}")
    say(f"installing {', '.join(optional)}{' (hundreds of megabytes)' if full else ''}")
    for line in install_optional(optional):
        say(line)
    if has_torch:
        say(f"PyTorch {has_torch} is the system's")
    elif full:
        say("installing PyTorch")
        missing = install_torch()
        if missing:
            say(f"without PyTorch: {missing}")


# ---- The package ----

def fingerprint(*words):
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def requirements_fingerprint(full):
    required, optional = wanted(full)
    return fingerprint(ROOT, sys.version, os.environ.get("SWITCHYARD_TORCH", ""), *TORCH, *required, *optional)


def source_files():
    for top in SOURCES:
        path = os.path.join(ROOT, top)
        if os.path.isfile(path):
            yield path
        for folder, folders, names in os.walk(path):
            folders.sort()
            if os.path.basename(folder) != "__pycache__":
                yield from (os.path.join(folder, name) for name in sorted(names))


def package_fingerprint(requirements, werror):
    digest = hashlib.sha256(f"{requirements} {werror}".encode())  # with JAX the package has XLA's handlers
    for path in source_files():
        with open(path, "rb") as file:
            content = hashlib.sha256(file.read()).hexdigest()
        digest.update(f"{os.path.relpath(path, ROOT)} {content}\n".encode())
    return digest.hexdigest()


def install_package(werror):
    """True when the package was built and installed. CMake's part is in build/python and incremental."""
    say("building the package")
    options = {"SWITCHYARD_MPI": "AUTO", "SWITCHYARD_NCCL": "AUTO" if os.path.exists("/dev/nvidiactl") else "OFF",
               "SWITCHYARD_WERROR": "ON" if werror else "OFF"}
    code, text = pip("install", "--no-deps", "--no-build-isolation", "--force-reinstall", "--no-index",
                     "-Cbuild-dir=build/python", *(f"-Ccmake.define.{name}={value}" for name, value in options.items()), ".")
    if code:
        print(text, flush=True)
        say("the package does not build")
    return code == 0


def prepare(full, werror):
    """The exit status."""
    if sys.version_info < OLDEST:
        raise Skip(f"python3 is {sys.version.split()[0]}, want {'.'.join(map(str, OLDEST))} or later")
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        raise Skip("the package needs the headers of python3, and there are none (Debian: apt install python3-dev)")
    state = read_state()
    small = requirements_fingerprint(False)
    has_venv = os.path.exists(PYTHON) and state.get("small") == small
    full = full or (has_venv and state.get("full", False))
    requirements = requirements_fingerprint(full)
    if not has_venv or state.get("requirements") != requirements:
        if os.environ.get("SKIP_SETUP", "0") != "1":
            write_state({"small": small} if has_venv else {})
            install_requirements(full, has_venv)
            state = {"small": small, "full": full, "requirements": requirements}
            write_state(state)
        elif not (os.path.exists(PYTHON) and state.get("requirements")):
            raise Skip("there is no build/venv, and SKIP_SETUP=1 makes none")
    package = package_fingerprint(state["requirements"], werror)
    if state.pop("package", "") == package:
        return 0
    write_state(state)
    if not install_package(werror):
        return 1
    write_state({**state, "package": package})
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="with PyTorch, JAX, transformers and the tools of lint")
    parser.add_argument("--werror", action="store_true", help="warnings of the compiler are errors")
    args = parser.parse_args()
    try:
        return prepare(args.full, args.werror)
    except Skip as reason:
        write_state({"reason": str(reason)})
        say(f"the Python tests are skipped: {reason}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
