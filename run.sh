#!/usr/bin/env bash
# Installs what is missing, builds the program (Release) and runs it: ./run.sh ARGS... is `fovea ARGS...`; without
# arguments the demo model answers a prompt. FOVEA_BUILD_CUDA=1 or 0 selects whether CUDA is built; by default it is if
# the machine has nvcc and a driver.
set -euo pipefail
# shellcheck source=tools/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/tools/setup.sh"

build=$root/build/release
program=$build/bin/fovea

# Skips the build if no source is newer than the program: a warm start must not wait for the build tool.
if [ ! -x "$program" ] || [ -n "$(find "$root/src" "$root/include" "$root/cmake" "$root/CMakeLists.txt" \
  -newer "$program" -print -quit)" ]; then
  {
    install_packages "${build_packages[@]}"
    # Keeps the tests in a build that test.sh configured.
    tests=OFF
    grep -qs FOVEA_TESTS:BOOL=ON "$build/CMakeCache.txt" && tests=ON
    configure_release "$build" -DFOVEA_TESTS=$tests
    cmake --build "$build" --target fovea --parallel "$(nproc)"
    touch "$program"
  } >&2
fi

if [ $# -eq 0 ]; then
  exec "$program" generate --chat --temperature 0 "What is 275 + 148?"
fi
exec "$program" "$@"
