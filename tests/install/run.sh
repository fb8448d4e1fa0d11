#!/usr/bin/env bash
# Installs a build, then configures, builds and runs examples/embed, examples/select, examples/c and examples/backend, a
# program that links the whole engine, and one that proves a backend of its own, against what was installed.
#   run.sh BUILD_DIR SOURCE_DIR CXX CC
# CPU_ATTN and TORCH_NATIVE must agree within 1e-4; an unknown backend must be refused. The external backend must be
# selected, run and proven.
set -euo pipefail
build=$1 source=$2 cxx=$3 cc=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
"$work/prefix/bin/fovea" generate --chat --temperature 0 "What is 275 + 148?" | grep 423  # finds its demo model
# Compiles against the installed files alone: headers that depend on the source tree fail here.
cp -r "$source/examples/embed" "$work/embed"
cmake -G Ninja -S "$work/embed" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }

for backend in CPU_ATTN TORCH_NATIVE; do
  "$work/build/embed" "$backend" | tee "$work/$backend.txt"
  grep -q "$backend" "$work/$backend.txt"
  grep '^row' "$work/$backend.txt" | grep -oE -- '-?[0-9]+\.[0-9]{5}' >"$work/$backend.numbers"
  [ "$(wc -l <"$work/$backend.numbers")" = 25 ]
done
paste "$work/CPU_ATTN.numbers" "$work/TORCH_NATIVE.numbers" |
  awk '($1 - $2) ^ 2 > 1e-8 { print "the backends differ: " $0; bad = 1 } END { exit bad }'

status=0
"$work/build/embed" NO_SUCH_BACKEND 2>"$work/refusal.txt" || status=$?
[ "$status" = 2 ]
grep NO_SUCH_BACKEND "$work/refusal.txt"

cp -r "$source/examples/select" "$work/select"
cmake -G Ninja -S "$work/select" -B "$work/select/build" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix" \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/select/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/select/build/select" >"$work/select.txt"
grep 'prefills for TRTLLM_MLA' "$work/select.txt"

# A C program against the shared library, with the flags of the pkg-config file.
pc=$(dirname "$(find "$work/prefix" -name libfovea.so)")/pkgconfig/fovea.pc
flags=$(sed -n "s|\${pcfiledir}|$(dirname "$pc")|; s/^includedir=/-I/p; s/^libdir=/-L/p" "$pc")
grep -q '^Libs: -L${libdir} -lfovea$' "$pc"
# shellcheck disable=SC2086
"$cc" -std=c11 -Wall -Wextra -Werror "$source/examples/c/decode.c" $flags -lfovea -o "$work/decode"
LD_LIBRARY_PATH=$(dirname "$pc")/.. "$work/decode" | grep 'sequence 1 attends to 5 keys'

# A program that uses the engine: it links only if the package names every library.
mkdir "$work/engine"
cat >"$work/engine/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(whole LANGUAGES CXX)
find_package(fovea 0.1 REQUIRED)
add_executable(whole whole.cc)
target_link_libraries(whole PRIVATE fovea::engine)
EOF
cat >"$work/engine/whole.cc" <<'EOF'
#include <fovea/engine.h>

#include <cstdio>

int main() {
  fovea::EngineConfig config;
  config.model = "/no/such/model";
  const auto engine = fovea::Engine::create(config);
  if (engine) return 1;
  std::puts(engine.error().message.c_str());
  return 0;
}
EOF
cmake -G Ninja -S "$work/engine" -B "$work/engine/build" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix" \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
# Not lib/cmake/fovea/ of a source tree at /fovea.
if grep -rE "(^|[^[:alnum:]_}])$source/|libpcre2|libutf8proc|[Bb]oost" "$work/prefix/lib/cmake/fovea/"; then
  echo "the package names paths of this machine, or what only its own build needs" && exit 1
fi
cmake --build "$work/engine/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/engine/build/whole" | grep /no/such/model

# An external backend: selected, run and proven.
cp -r "$source/examples/backend" "$work/backend"
cmake -G Ninja -S "$work/backend" -B "$work/backend/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/backend/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
example=(--backend-library "$work/backend/build/example_attn.so")
"$work/prefix/bin/fovea" explain "${example[@]}" --device cpu --attention-backend EXAMPLE_ATTN | grep 'decode: EXAMPLE_ATTN'
"$work/prefix/bin/fovea" generate "${example[@]}" --attention-backend EXAMPLE_ATTN --chat --temperature 0 \
  "What is 275 + 148?" 2>"$work/generate.log" | grep 423
grep EXAMPLE_ATTN "$work/generate.log"
"$work/prefix/bin/fovea" conformance "${example[@]}" --backend EXAMPLE_ATTN --quick | tee "$work/proof.txt"
grep -E 'EXAMPLE_ATTN: [0-9]+ cells proven.* 0 failed; [0-9]+ cases, 0 failed' "$work/proof.txt"

# A backend in C++ that is proven in its own program, with the installed conformance headers.
mkdir "$work/prove"
cat >"$work/prove/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(prove_mine LANGUAGES CXX)
find_package(fovea 0.1 REQUIRED COMPONENTS conformance)
add_executable(prove_mine prove_mine.cc)
target_link_libraries(prove_mine PRIVATE fovea::conformance)
EOF
cp "$source/tests/install/prove_mine.cc" "$work/prove"
cmake -G Ninja -S "$work/prove" -B "$work/prove/build" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix" \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/prove/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/prove/build/prove_mine"
