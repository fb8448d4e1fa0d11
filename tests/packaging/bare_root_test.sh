#!/usr/bin/env bash
# bare_root.sh reports why a root cannot be made, and does not remove a folder that contains a mount.
#   bare_root_test.sh SCRIPT
set -euo pipefail
script=$1
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# refused PATTERN COMMAND...: the command must fail with the pattern in its last line.
refused() {
  local pattern=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    echo "accepted: $*" && exit 1
  fi
  tail -n 1 "$work/log" | grep -E -- "$pattern" || { cat "$work/log"; exit 1; }
}

mkdir "$work/bin"
printf '#!/bin/sh\necho "E: no mirror answers" >&2\nexit 1\n' >"$work/bin/debootstrap"
chmod +x "$work/bin/debootstrap"
PATH=$work/bin:$PATH
refused 'usage: make' "$script"
refused 'unknown command frob; allowed are make, run and remove' "$script" frob "$work/root"
if [ "$(id -u)" != 0 ]; then
  refused 'needs root rights' "$script" make "$work/root" bash
  exit
fi
if ! unshare --mount --pid --fork --mount-proc true 2>/dev/null; then
  refused 'namespaces cannot be made' "$script" make "$work/root" bash
  exit
fi
refused 'debootstrap failed: E: no mirror answers' "$script" make "$work/root" bash

# In a separate mount namespace: a root in which a file system is still mounted.
mkdir -p "$work/root/dev"
# shellcheck disable=SC2016 # for the shell in the namespace
refused "something is mounted in $work/root" unshare --mount --propagation private bash -c '
  mount -t tmpfs tmpfs "$1/dev" && touch "$1/dev/kept" && ! "$2" remove "$1" && ls "$1/dev/kept" >&2 && "$2" remove "$1"' \
  bash "$work/root" "$script"
grep -q "$work/root/dev/kept" "$work/log"
"$script" remove "$work/root"
[ ! -e "$work/root" ]
