#!/bin/sh
# Builds tests of sample, sample_noise and sample_overrides with the emulated device code in place of the CPU's and runs
# them: tests/cuda/sample_emulated.sh BUILD [TEST...]
# BUILD is a build folder with the static library and the test support; TEST is a name like op_sample_random.
# op_sample_draws and op_sample_shortcuts make millions of draws and take long here; the test "the caller's pool,
# backwards" of op_sample_outputs expects threads of the CPU and fails.
set -eu
build=$1
shift
[ $# -gt 0 ] || set -- op_sample_random op_sample_edits op_sample_params op_sample_oracle op_sample_noise \
    op_sample_overrides bad_sample bad_sample_noise bad_sample_overrides
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$build/cuda_emulated
flags="-O2 -ffp-contract=off -I$root/include -I$root/src -I$root/tests"
wrap=-Wl,--wrap=syi_cpu_sample,--wrap=syi_cpu_sample_noise,--wrap=syi_cpu_sample_overrides
mkdir -p "$out"
for file in tests/cuda/sample_emulated.cpp src/cuda/sample_noise.cu tests/cuda/emulator/emulator.cpp; do
    ${CXX:-c++} -x c++ -std=c++17 $flags -I"$root/tests/cuda/emulator" -Wall -Wextra -Wno-unknown-pragmas \
        -Wno-missing-field-initializers -c "$root/$file" -o "$out/$(basename "$file").o"
done
for name in "$@"; do
    ${CC:-cc} -std=c11 -D_GNU_SOURCE $flags -c "$root/tests/$(echo "$name" | sed 's|_|/|').c" -o "$out/$name.o"
    ${CXX:-c++} "$out/$name.o" "$out"/sample_emulated.cpp.o "$out"/sample_noise.cu.o "$out"/emulator.cpp.o $wrap \
        "$build/libswitchyard_test_support.a" "$build/libswitchyard.a" -lcmocka -lm -lpthread -fopenmp -o "$out/$name"
    "$out/$name"
done
