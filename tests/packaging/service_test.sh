#!/usr/bin/env bash
# systemd-analyze accepts the service without warnings, and rates its sandboxing as strict.
#   service_test.sh UNIT PROGRAM
set -euo pipefail
unit=$1 program=$2
command -v systemd-analyze >/dev/null || { echo "SKIPPED: systemd-analyze is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The unit names the installed program, which does not exist here.
sed "s|^ExecStart=fovea |ExecStart=$program |" "$unit" >"$work/fovea.service"
grep -q "^ExecStart=$program serve" "$work/fovea.service"

# "verify" exits with 0 for unknown keys, so its output is checked.
complaints=$(systemd-analyze verify --man=no --recursive-errors=no "$work/fovea.service" 2>&1) || {
  echo "$complaints"
  exit 1
}
if grep -F fovea.service <<<"$complaints"; then
  exit 1
fi
# The exposure in tenths: 0 = everything is forbidden, 100 = nothing.
systemd-analyze security --offline=true --threshold=20 "$work/fovea.service" | tail -n 1
