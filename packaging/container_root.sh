#!/usr/bin/env bash
# Creates the files of a minimal container: the program with its demo model, and the glibc libraries that it is linked
# with.
#   container_root.sh BUILD_DIR ROOT
set -euo pipefail
build=$1 root=$2
if [ -e "$root" ]; then
  echo "container_root.sh: $root exists; give a folder that does not" >&2
  exit 2
fi
installed=$(mktemp -d)
trap 'rm -rf "$installed"' EXIT
cmake --install "$build" --prefix "$installed" --strip >/dev/null
mkdir -p "$root/usr/bin" "$root/usr/share" "$root/etc" "$root/proc" "$root/tmp"
chmod 1777 "$root/tmp"
cp "$installed/bin/fovea" "$root/usr/bin/"
cp -r "$installed/share/fovea" "$root/usr/share/"
[ ! -d "$installed/share/doc" ] || cp -r "$installed/share/doc" "$root/usr/share/"
echo 'nobody:x:65534:65534:nobody:/:/sbin/nologin' >"$root/etc/passwd"
echo 'nogroup:x:65534:' >"$root/etc/group"
# Lines are "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)"; the loader's has only a path.
ldd "$root/usr/bin/fovea" | grep -oE '/[^ ]+' | while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp --dereference "$library" "$root$library"
done
