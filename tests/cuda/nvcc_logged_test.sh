#!/bin/sh
# nvcc_logged_test.sh NVCC_LOGGED: ptxas's message that it serialises wgmma is an error; its other messages are kept.
set -e
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
compiler="$folder/nvcc"
for case in '0 ptxas info    : Used 168 registers' '1 ptxas info    : (C7519) Potential Performance Loss'; do
  printf '#!/bin/sh\necho "%s" >&2\n: >"$2"\n' "${case#? }" >"$compiler"
  chmod +x "$compiler"
  status=0
  shown=$("$1" "$compiler" -o "$folder/kernel.o" 2>&1) || status=$?
  grep -q 'ptxas info' "$folder/kernel.o.ptxas"
  [ "$status" = "${case%% *}" ] || { echo "exit code $status of: $case"; exit 1; }
  case $status in
    0) [ -f "$folder/kernel.o" ] && [ -z "$shown" ] ;;
    1) [ ! -f "$folder/kernel.o" ] && [ -n "$shown" ] ;;
  esac
done
