#!/usr/bin/env bash
# The program must depend only on glibc, of this version or older, and be at most 40 MiB when stripped.
#   needed_test.sh PROGRAM GLIBC [STRIP]
set -euo pipefail
program=$1 glibc=$2 strip=${3:-strip}
limit=$((40 * 1024 * 1024))

needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "no NEEDED entry in $program"; exit 1; }
echo "$needed"
for library in $needed; do
  case $library in
    libc.so.6 | libm.so.6 | ld-linux-x86-64.so.2 | libpthread.so.0 | libdl.so.2 | librt.so.1) ;;
    *) echo "$program needs $library, which is not part of glibc: link it statically or open it with dlopen"; exit 1 ;;
  esac
done
# A symbol with a newer version keeps the program from starting on an older system, even if nothing calls it.
symbols=$({
  readelf --wide --dyn-syms "$program" | grep -oE '[[:alnum:]_]+@+GLIBC_[0-9.]+'
  readelf --wide --version-info "$program" | sed -nE 's/.*Name: GLIBC_([^ ]+) .*/version@GLIBC_\1/p'
} | sort -u)
[ -n "$symbols" ] || { echo "$program has no symbols of glibc"; exit 1; }
newer=$(awk -F '@+GLIBC_' -v allowed="$glibc" '
  { split($2, is, "."); split(allowed, may, "."); if (is[1] > may[1] || is[1] == may[1] && is[2] + 0 > may[2] + 0) print }' <<<"$symbols")
if [ -n "$newer" ]; then
  printf '%s\n' "$program needs a newer glibc than $glibc; avoid these, or add them to src/static_runtime:" "$newer"
  exit 1
fi
# There must be no run-time search path, which could hide the dependency on another library.
if readelf -d "$program" | grep -E 'RPATH|RUNPATH'; then
  echo "$program has a library search path"
  exit 1
fi

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
"$strip" -o "$stripped" "$program"
size=$(stat -c %s "$stripped")
echo "stripped: $size bytes"
[ "$size" -le "$limit" ] || { echo "$program: $size bytes stripped, at most $limit allowed"; exit 1; }
