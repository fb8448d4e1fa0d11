#!/bin/sh
# nvcc_logged.sh COMMAND...: a compiler launcher that keeps what ptxas says of registers and spills in OBJECT.ptxas, and
# shows the rest.
for argument; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
"$@" 2>"$object.ptxas"
status=$?
grep -v -e '^ptxas info' -e 'bytes stack frame' "$object.ptxas" >&2
exit $status
