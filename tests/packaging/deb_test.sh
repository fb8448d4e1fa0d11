#!/usr/bin/env bash
# Builds the .deb and checks its metadata and contents: the program in it runs, and neither the program nor the library
# needs a newer glibc than the package declares.
#   deb_test.sh BUILD_DIR SOURCE_DIR CPACK GLIBC
set -euo pipefail
build=$1 source=$2 cpack=$3 glibc=$4
command -v dpkg-deb >/dev/null || { echo "SKIPPED: dpkg-deb is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$cpack" --config "$build/CPackConfig.cmake" -G DEB -B "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
debs=("$work"/*.deb)
[ "${#debs[@]}" = 1 ]
deb=${debs[0]}
[[ ${deb##*/} =~ ^fovea_[0-9.]+_[a-z0-9]+\.deb$ ]]
[ "$(dpkg-deb --field "$deb" Depends)" = "libc6 (>= $glibc)" ]
[ "$(dpkg-deb --field "$deb" Package)" = fovea ]

dpkg-deb --extract "$deb" "$work/root"
dpkg-deb --control "$deb" "$work/control"
# All files are under /usr except those that the administrator edits, which are conffiles.
[ "$(cd "$work/root" && find . -type f -not -path './usr/*')" = ./etc/default/fovea ]
[ "$(cat "$work/control/conffiles")" = /etc/default/fovea ]
grep -q ldconfig "$work/control/triggers"
for script in postinst prerm postrm; do
  [ -x "$work/control/$script" ]
  sh -n "$work/control/$script"
done
for file in bin/fovea lib/libfovea.so include/fovea/c_api.h include/fovea/engine.h lib/pkgconfig/fovea.pc \
  lib/cmake/fovea/foveaConfig.cmake lib/systemd/system/fovea.service share/man/man1/fovea.1 share/doc/fovea/copyright \
  share/doc/fovea/fovea.spdx.json share/fovea/models/demo/model.safetensors; do
  [ -e "$work/root/usr/$file" ] || { echo "the package lacks /usr/$file"; exit 1; }
done
if grep -rlF "$source/" "$work/root/usr/share" "$work/root/usr/lib/cmake" "$work/root/etc"; then
  echo "these files name the folder that they were built in" && exit 1
fi

program=$work/root/usr/bin/fovea
"$program" generate --chat --temperature 0 "What is 275 + 148?" | grep 423 # finds the demo model beside it
"$source/tests/install/needed_test.sh" "$program" "$glibc"
"$source/tests/install/needed_test.sh" "$work/root/usr/lib/libfovea.so" "$glibc"

# The man page lists each command, and there are completions for each shell that the program supports.
commands=$("$program" --help | awk '/^[A-Za-z].*:$/ { on = !/^(Options|Positionals)/ } on && /^  [a-z]/ { print $1 }')
[ "$(wc -l <<<"$commands")" -ge 10 ]
for command in $commands; do
  grep -qx "\.B ${command//-/\\\\-}" "$work/root/usr/share/man/man1/fovea.1" || { echo "fovea(1) lacks $command"; exit 1; }
done
if "$program" completion bash >/dev/null 2>&1; then
  for file in bash-completion/completions/fovea zsh/vendor-completions/_fovea fish/vendor_completions.d/fovea.fish; do
    [ -s "$work/root/usr/share/$file" ] || { echo "the package lacks $file"; exit 1; }
  done
fi
