#!/usr/bin/env bash
# Installs what is missing, builds the program (Release) and runs it: ./run.sh ARGS... is `fovea ARGS...`; without
# arguments the demo model answers a prompt. FOVEA_BUILD_CUDA=1 or 0 decides about CUDA; unset, it is built when
# nvcc and a driver are there.
set -euo pipefail
# shellcheck source=tools/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/tools/setup.sh"

build=$root/build/release
program=$build/bin/fovea

# Nothing to do when no source is newer than the program: a warm start must not wait for the build tool.
if [ ! -x "$program" ] || [ -n "$(find "$root/src" "$root/include" "$root/cmake" "$root/CMakeLists.txt" \
  -newer "$program" -print -quit)" ]; then
  {
    install_packages "${build_packages[@]}"
    # A build that test.sh configured keeps its tests.
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
