#!/usr/bin/env bash
# Builds and runs the release tests. --quick checks the format and runs only the tests that take a few seconds: under two
# minutes once everything is built. --ci adds the format and shell checks, the sanitizers with the fuzzers on their
# corpora, and the compilation of all CUDA, and runs the release tests in a bare Debian 12 if one can be made. Each stage
# prints its time; the last output is ctest's summary.
set -euo pipefail
# shellcheck source=tools/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/tools/setup.sh"
cd "$root"

case "${1:-}" in
  "") ci=0 quick=0 ;;
  --quick) ci=0 quick=1 ;;
  --ci) ci=1 quick=0 ;;
  *)
    echo "test.sh: unknown argument $1; allowed are --quick and --ci" >&2
    exit 2
    ;;
esac
jobs=$(nproc)

# stage NAME COMMAND...: runs it and prints how long it took.
stage() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  echo "== $name: $((SECONDS - start)) s"
}

# build FOLDER TARGETS OPTION...: TARGETS is a space-separated list, "all" for everything.
build() {
  local folder=$1 targets=$2
  shift 2
  configure "$folder" "$@"
  # shellcheck disable=SC2086 # a list of targets
  cmake --build "$folder" --parallel "$jobs" --target $targets
}

build_release() {
  configure_release build/release -DFOVEA_TESTS=ON
  cmake --build build/release --parallel "$jobs"
}

# Runs one more test at a time than there are CPUs, because some tests mostly wait.
run_tests() {
  local folder=$1
  shift
  ctest --test-dir "$folder" --output-on-failure --parallel "$((jobs + 1))" "$@"
}

# Installs npm packages: oracles of the text tests and clients of the server. Tests without theirs are skipped with a line.
install_npm_packages() {
  local folder
  for folder in tests/text tests/serve; do
    # The packages of this package-lock.json are installed already.
    cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed-lock" && continue
    if npm ci --prefix "$folder" --no-audit --no-fund --loglevel=error --fetch-retries=1; then
      cp "$folder/package-lock.json" "$folder/node_modules/.installed-lock"
    else
      echo "npm could not install the packages of $folder: its tests will be skipped"
    fi
  done
}

check_format() {
  # All C++ sources of the tree, with or without a git history.
  find src include tests examples bench -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | grep -v node_modules |
    xargs --max-args=50 --max-procs="$jobs" clang-format-19 --dry-run -Werror
  shellcheck run.sh test.sh tools/*.sh packaging/*.sh packaging/debian/p* src/cli/completion/*.bash .ci/run
  python3 tools/check_includes.py
  python3 tools/check_words.py
  # Files that only external tools read.
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["postCreateCommand"])' .devcontainer/devcontainer.json | bash -n
  cmake --list-presets=test >/dev/null
}

compile_cuda() {
  if ! command -v nvcc >/dev/null; then
    echo "SKIPPED: nvcc is not installed, so no CUDA is compiled"
    return
  fi
  # One architecture, and sm_90a for *_sm90a.cu; releases have all. Without a GPU the tests are skipped, so their CUDA is
  # only compiled, and one of them runs to check the skip.
  local options=(-DCMAKE_BUILD_TYPE=Release -DFOVEA_CUDA=ON -DFOVEA_CUDA_ARCHITECTURES=80-real -DFOVEA_TESTS=ON) objects
  configure build/cuda "${options[@]}"
  objects=$(ninja -C build/cuda -t targets all | sed -nE 's/^([^:]+(\.cu|_cuda(_test)?\.cc|\/cuda\/[^:]*\.cc)\.o): .*/\1/p')
  build build/cuda "cuda_tiles_test ${objects//$'\n'/ }" "${options[@]}"
  run_tests build/cuda -R "^(cuda_tiles_test|cuda_budgets|cuda_archs|cuda_waits|nvcc_logged_test)\$"
}

# Tests and fuzzers need the same sanitizers, so one build has both, with the compiler that supports libFuzzer. Unlike the
# preset it has no coverage instrumentation, which doubles the time of tests and which running a corpus does not need.
check_memory() {
  CC=clang-19 CXX=clang++-19 build build/asan all -DCMAKE_BUILD_TYPE=Debug -DFOVEA_UNITY=ON -DFOVEA_FUZZ=ON -DFOVEA_SANITIZE=address,undefined \
    "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1"
  # These start the program hundreds of times; the engine's tests, golden_test, launch_test and conformance_test run the same
  # code in one process.
  run_tests build/asan -E '^cli_(commands|completion|conformance|families|help|launch_lines)$'
}

check_threads() {
  CC=clang-19 CXX=clang++-19 build build/tsan thread_tests -DCMAKE_BUILD_TYPE=Debug -DFOVEA_UNITY=ON "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1" -DFOVEA_SANITIZE=thread
  run_tests build/tsan -L threads
}

# Both commands run in a bare Debian 12, so that no change can land that needs more packages. The root is made while other
# stages run, because that mostly waits for the mirror.
bare=build/bare bare_maker='' ran_in_bare_debian=0
make_bare_debian() {
  mkdir -p build
  tools/bare_root.sh make "$bare" "${build_packages[@]}" "${test_packages[@]}" >build/bare_root.log 2>&1 &
  bare_maker=$!
  trap remove_bare_debian EXIT
}

remove_bare_debian() {
  [ -z "$bare_maker" ] || kill -KILL "$bare_maker"
  tools/bare_root.sh remove "$bare" || true
}

bare_debian_is_made() {
  local made=0
  wait "$bare_maker" || made=$?
  bare_maker=''
  [ "$made" != 0 ] || return 0
  echo "no bare Debian 12 can be made here, so the release tests run on this machine alone: $(tail -n 1 build/bare_root.log)"
  return 1
}

run_in_bare_debian() {
  local answer
  answer=$(tools/bare_root.sh run "$bare/tree" ./run.sh)
  echo "$answer"
  [[ $answer == *423* ]] || {
    echo "test.sh: ./run.sh must answer 423 in a bare Debian 12" >&2
    return 1
  }
}

# The package is built in one root, and installed and run in another one without any tools.
install_package_in_bare_debian() {
  local folder=$root/build/release/package
  tools/bare_root.sh run "$bare/tree" cpack --config build/release/CPackConfig.cmake -G DEB -B "$folder"
  cp "$bare/tree$folder"/fovea_*.deb "$bare/clean/root/fovea.deb"
  cp tests/packaging/installed_test.sh "$bare/clean/root/"
  tools/bare_root.sh run "$bare/clean" /root/installed_test.sh /root/fovea.deb
}

# If the release tests ran in the bare Debian, which has no browser, no nginx and older tools, only tests that were skipped
# there, in part or whole, run on this machine; otherwise, and on a machine with a GPU, all do.
run_release_tests() {
  local log=$bare/tree$root/build/release/Testing/Temporary/LastTest.log skipped
  if [ "$ran_in_bare_debian" = 0 ] || [ "$(cuda_wanted)" = ON ]; then
    run_tests build/release
    return
  fi
  skipped=$(awk '/^[0-9]+\/[0-9]+ Test: / { name = $3 } /^SKIPPED/ { print name }' "$log" | sort -u | paste -sd '|')
  [ -z "$skipped" ] || run_tests build/release -R "^($skipped)\$"
}

# Each takes 8 s or more.
slow="attention_property_test|builtin_test|backend_library_test|backend_loopback_test|cli_commands|cli_conformance|conformance_quick"
slow+="|conformance_test|install_test|invariance_test|isa_test|mutation_test|serve_abuse|serve_lifecycle|serve_page|serve_page_mock"
slow+="|serve_raw_socket|serve_soak|text_differential"
run_quick_tests() {
  run_tests build/release -E "^($slow)\$"
}

if [ "$quick" = 1 ]; then
  stage "packages" install_packages "${build_packages[@]}" "${test_packages[@]}"
  if command -v clang-format-19 >/dev/null; then
    stage "format and shell" check_format
  else
    echo "SKIPPED: clang-format-19 is not installed, so the format is not checked"
  fi
  stage "build" build_release
  stage "quick tests" run_quick_tests
  exit
fi
if [ "$ci" = 1 ]; then
  stage "packages" install_packages "${build_packages[@]}" "${test_packages[@]}" "${ci_packages[@]}"
  stage "format and shell" check_format
else
  stage "packages" install_packages "${build_packages[@]}" "${test_packages[@]}"
fi
stage "npm packages" install_npm_packages
if [ "$ci" = 1 ]; then
  make_bare_debian
  stage "CUDA compiles" compile_cuda
  stage "address, undefined behaviour and fuzzers" check_memory
  # Uses the compile commands of that build; after a large change it checks the sources that changed last.
  stage "clang-tidy" tools/tidy.sh --fast --most 24
  stage "threads" check_threads
  if bare_debian_is_made; then
    stage "run.sh in a bare Debian" run_in_bare_debian
    stage "test.sh in a bare Debian" tools/bare_root.sh run "$bare/tree" ./test.sh
    stage "the package in a bare Debian" install_package_in_bare_debian
    ran_in_bare_debian=1
  fi
fi
stage "build" build_release
stage "tests" run_release_tests
