#!/usr/bin/env bash
# The program answers with only the files of its container; if buildah is installed, it builds the image.
#   container_test.sh BUILD_DIR PACKAGING_DIR
set -euo pipefail
build=$1 packaging=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$packaging/container_root.sh" "$build" "$work/root"
if [ -n "$(find "$work/root" -name 'sh' -o -name 'libstdc++*' -o -name 'libgcc_s*')" ]; then
  echo "the container has more than it needs" && exit 1
fi

in_root=(unshare --mount --pid --fork --kill-child "--mount-proc=$work/root/proc")
[ "$(id -u)" = 0 ] || in_root+=(--map-root-user)
if "${in_root[@]}" true 2>/dev/null; then
  "${in_root[@]}" chroot "$work/root" /usr/bin/fovea generate --chat --temperature 0 "What is 275 + 148?" | grep 423
else
  echo "SKIPPED: no namespace can be made here, so the container's files are not tried alone"
fi

if ! command -v buildah >/dev/null; then
  echo "SKIPPED: buildah is not installed, so no image is built"
  exit
fi
# Separate storage, and a driver without kernel requirements.
buildah() { command buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
mkdir "$work/probe"
echo text >"$work/probe/file"
printf 'FROM scratch\nCOPY . /\n' >"$work/Containerfile"
if ! buildah build --isolation chroot --quiet -f "$work/Containerfile" "$work/probe" >"$work/log" 2>&1; then
  echo "SKIPPED: buildah does not run here: $(tail -n 1 "$work/log")"
  exit
fi
buildah build --isolation chroot --quiet -f "$packaging/Containerfile" -t fovea "$work/root"
config=$(buildah inspect --type image --format '{{.OCIv1.Config}}' fovea)
echo "$config"
[[ $config == *65534* && $config == *8000* && $config == *"/usr/bin/fovea"*"serve"* ]]
container=$(buildah from fovea)
buildah run --isolation chroot "$container" /usr/bin/fovea generate --chat --temperature 0 "What is 275 + 148?" | grep 423
