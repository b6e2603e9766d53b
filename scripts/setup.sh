#!/bin/sh
# Installs missing packages that the build needs.   scripts/setup.sh [check|basic|mpi|test|full|ci|release]
#   basic: what `make demo` needs.   mpi: also an MPI.   test: also what `make test` needs.
#   full: also what `make test-all` and `make lint` need.   Silent when nothing is missing. SKIP_SETUP=1 turns it off.
#   release: what `make release-check` needs.
#   ci: also what makes .ci/run faster.
#   check: installs nothing, names what `make` cannot do without.
set -eu

set_name=${1:-basic}
missing=
reasons=
optional=

need() { # need PACKAGE REASON CHECK...: remember PACKAGE when CHECK fails
    package=$1 reason=$2
    shift 2
    if ! "$@"; then
        missing="$missing $package"
        reasons="$reasons $package ($reason),"
        [ "$set_name" != check ] || echo "make: no $reason found: run \`make setup\`, or install $package yourself" >&2
    fi
}
want() { # want PACKAGE CHECK...: the same for an optional package
    package=$1
    shift
    "$@" || optional="$optional $package"
}
has() { command -v "$1" >/dev/null 2>&1; }
cc=${CC:-cc}
has_cc() { has "${cc%% *}"; }
has_header() {
    [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ] || echo "#include <$1>" | $cc -E - >/dev/null 2>&1
}
oldest_cmake=$(sed -n 's/^cmake_minimum_required(VERSION \(.*\))$/\1/p' "$(dirname "$0")/../CMakeLists.txt")
has_cmake() {
    has cmake && printf '%s\n' "$oldest_cmake" "$(cmake --version | sed 's/[^0-9]*//;q')" | sort -cV >/dev/null 2>&1
}
has_module() { python3 -c "import $1" >/dev/null 2>&1; }
has_python_header() {
    has python3 && [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]
}
has_file() { # has_file PATTERN...: some file matches
    for file in "$@"; do
        [ -e "$file" ] && return 0
    done
    return 1
}

can_install() { has apt-get && { [ "$(id -u)" = 0 ] || has sudo; }; }

need gcc "C compiler" has_cc
need libc6-dev "C library header" has_header stdio.h
need cmake "CMake $oldest_cmake or later" has_cmake
if [ "$set_name" = check ]; then
    [ -z "$missing" ]
    exit
fi
[ "${SKIP_SETUP:-0}" = 1 ] && exit 0
need g++ "C++ users' side of the tests" has c++
need ninja-build build has ninja
need pkg-config "users' side of the tests" has pkg-config
need python3 "command line tests" has python3
need libjansson-dev "JSON in the command line" has_header jansson.h
need libcmocka-dev "C tests" has_header cmocka.h

# Any MPI is accepted. Two packages: Open MPI's compiler wrapper, and the program that starts processes.
if [ "$set_name" = mpi ]; then
    need libopenmpi-dev "MPI" has mpicc
    need openmpi-bin "starting processes" has mpirun
fi
if [ "$set_name" = ci ]; then
    want ccache has ccache # several builds with equal flags
fi
if [ "$set_name" = test ] || [ "$set_name" = full ]; then
    want libopenmpi-dev has mpicc
    want openmpi-bin has mpirun
    want libdlpack-dev has_header dlpack/dlpack.h # our declarations are compared with it
    want libopenblas-dev has_header cblas.h # matrix products of an example
    want python3-venv has_module ensurepip  # the Python package's tests
    want python3-dev has_python_header      # its binding
fi

if [ "$set_name" = release ]; then
    need clang "second compiler" has clang
    need debhelper "Debian packages" has dh
    need dpkg-dev "Debian packages" has dpkg-buildpackage
    need fakeroot "Debian packages" has fakeroot
    need lintian "Debian packages" has lintian
    need mmdebstrap "bare systems" has mmdebstrap
    need musl-tools "musl" has musl-gcc
    need gcc-riscv64-linux-gnu "RISC-V" has riscv64-linux-gnu-gcc
    need libc6-dev-riscv64-cross "RISC-V" has_file /usr/riscv64-linux-gnu/include/stdio.h
    need python3-venv "build tools of the wheel" has_module ensurepip
    need python3-dev "Python's headers" has_python_header
fi
if [ "$set_name" = full ] || [ "$set_name" = release ]; then
    case $(uname -m) in
    x86_64) other=aarch64 other_gcc=gcc-aarch64-linux-gnu other_libc=libc6-dev-arm64-cross ;;
    *) other=x86_64 other_gcc=gcc-x86-64-linux-gnu other_libc=libc6-dev-amd64-cross ;;
    esac
    need $other_gcc "the other architecture" has $other-linux-gnu-gcc
    need $other_libc "the other architecture" has_file /usr/$other-linux-gnu/include/stdio.h
    need qemu-user "the other architecture" has qemu-$other
fi
if [ "$set_name" = full ]; then
    need clang "second compiler" has clang
    need libclang-rt-dev "sanitizers of clang" has_file /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
    need clang-tidy lint has clang-tidy
    need clang-format lint has clang-format
    need cppcheck lint has cppcheck
    want libmpich-dev has mpicc.mpich # a second MPI
    want mpich has mpirun.mpich
    want mandoc has mandoc # tests of man pages, and of completions in other shells
    want zsh has zsh
    want fish has fish
fi

can_install || optional=
[ -z "$missing$optional" ] && exit 0

if ! has apt-get; then
    echo "setup: missing:${reasons%,}" >&2
    echo "setup: no apt-get here; please install what these Debian packages hold:$missing" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! has sudo; then
        echo "setup: neither root nor sudo; as root: apt-get install$missing" >&2
        exit 1
    fi
    sudo="sudo"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086 # $sudo and the packages are lists of words
install() { # install PACKAGE...
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null
}

echo "setup: installing with apt:$reasons${optional:+$optional,}" | sed 's/,$//'
mpicc=$(readlink /etc/alternatives/mpi || true)
$sudo apt-get update >"$log" 2>&1 </dev/null || [ -z "$missing" ] || {
    tail -n 12 "$log" >&2
    echo "setup: apt failed; wanted:$missing" >&2
    exit 1
}
# shellcheck disable=SC2086
if [ -n "$missing" ] && ! install $missing; then
    tail -n 12 "$log" >&2
    echo "setup: apt failed; wanted:$missing" >&2
    exit 1
fi
if ! has_cmake; then
    echo "setup: this system's cmake is older than $oldest_cmake; \`pip install cmake\` in a venv gives a newer one" >&2
    exit 1
fi
# shellcheck disable=SC2086
if [ -n "$optional" ] && ! install $optional; then
    tail -n 3 "$log" >&2
    echo "setup: going on without$optional"
fi
# A second MPI must not replace mpicc and mpirun of the first one.
mpicc=${mpicc:-/usr/bin/mpicc.openmpi} mpirun=$(echo "$mpicc" | sed s/mpicc/mpirun/)
if [ -x "$mpicc" ] && [ -x "$mpirun" ] && [ "$(readlink /etc/alternatives/mpi)" != "$mpicc" ]; then
    $sudo update-alternatives --set mpi "$mpicc" >/dev/null
    $sudo update-alternatives --set mpirun "$mpirun" >/dev/null
fi
