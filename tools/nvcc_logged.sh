#!/bin/sh
# nvcc_logged.sh COMMAND...: a compiler launcher that stores ptxas's report on registers and spills in OBJECT.ptxas and
# prints the rest. If ptxas serialises wgmma or inserts waits, its informational messages (C7504 to C7520) are errors
# here.
for argument; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
"$@" 2>"$object.ptxas"
status=$?
grep -v -e '^ptxas info' -e 'bytes stack frame' "$object.ptxas" >&2
if grep -E 'C75(0[4-9]|1[0-9]|20)' "$object.ptxas" >&2; then
  rm -f "$object"
  [ $status -ne 0 ] || status=1
fi
exit $status
