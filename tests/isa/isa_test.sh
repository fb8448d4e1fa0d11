#!/usr/bin/env bash
# The program must start on any x86-64 CPU: only the objects of *_avx2.cc and *_avx512.cc may contain instructions beyond
# SSE2, and those may not export anything that the linker could use for all callers (inline functions, templates).
#   isa_test.sh LIBRARY...     static libraries
set -euo pipefail
status=0 guarded=0 plain=0
for library in "$@"; do
  work=$(mktemp -d)
  (cd "$work" && ar x "$library")
  for object in "$work"/*.o; do
    name=$(basename "$library"):$(basename "$object")
    case $object in
      *_avx2.*|*_avx512.*)
        guarded=$((guarded + 1))
        # W and V: weak, the linker keeps one copy; u: unique.
        if nm -C --defined-only "$object" | grep -E ' [WVu] ' | grep -vE 'simd_avx(2|512)::'; then
          echo "$name defines these for the whole program"
          status=1
        fi ;;
      *)
        plain=$((plain + 1))
        # grep exits before objdump has written everything, which pipefail would report as a failure.
        found=$(objdump -d --no-show-raw-insn "$object" | grep -m 3 -E '%[yz]mm|\sv[a-z0-9]+[ps][sd]\s' || true)
        if [ -n "$found" ]; then
          echo "$name needs more than SSE2: $found"
          status=1
        fi ;;
    esac
  done
  rm -rf "$work"
done
echo "$guarded objects behind the dispatch, $plain for every x86-64"
[ "$guarded" -gt 0 ] && [ "$plain" -gt 0 ] && exit $status
