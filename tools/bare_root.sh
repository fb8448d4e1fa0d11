#!/usr/bin/env bash
# Runs commands of this tree in a bare Debian 12 (debootstrap's minbase), to find what works only on machines with more
# packages. Needs root and debootstrap. Everything is mounted in a namespace that ends with the command, so that nothing
# stays mounted in ROOT even if the command is killed.
#   tools/bare_root.sh make FOLDER PACKAGE...   FOLDER/clean: as debootstrap creates it; FOLDER/tree: with this tree at
#                                               the same path as here, and the packages downloaded but not installed
#   tools/bare_root.sh run ROOT COMMAND...      runs a command in the root FOLDER/clean or FOLDER/tree
#   tools/bare_root.sh remove FOLDER
# If a root cannot be made, make prints why and fails.
set -euo pipefail
script=$(realpath "${BASH_SOURCE[0]}")
tree=$(dirname "$(dirname "$script")")
codename=bookworm

fail() {
  echo "bare_root.sh: $*" >&2
  exit 1
}

# in_namespace COMMAND...: runs it in new mount and process namespaces, which end with it, even if it is killed.
in_namespace() {
  exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@"
}

# Copies the mirror and proxy settings of the host's apt. The root checks signatures with Debian's keys.
write_apt_configuration() {
  local root=$1 sources
  sources=$(debian_sources)
  [ -z "$sources" ] || echo "$sources" >"$root/etc/apt/sources.list"
  apt-config dump | sed -nE '/Auto-Detect/d; /^Acquire::(https?::|Check-|Retries|ForceIPv|Languages)/p' \
    >"$root/etc/apt/apt.conf.d/90host"
  # The system need not survive a power failure, so dpkg may skip its fsyncs.
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
}

# Prints lines for sources.list; none if the host's apt has no Debian 12.
debian_sources() {
  # shellcheck disable=SC2016 # names of apt
  apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    awk -v codename=$codename '$4 == "main" && index($3, codename) == 1' | sort -u
}

# Copies the host's resolver and certificates.
copy_network_configuration() {
  local root=$1 file
  for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    if [ -e "$file" ]; then
      mkdir -p "$root$(dirname "$file")"
      cp --dereference "$file" "$root$file"
    fi
  done
}

# The files of the working tree as they are, and what npm installed for the tests.
copy_tree() {
  local root=$1 file folder
  mkdir -p "$root$tree"
  if git -C "$tree" rev-parse >/dev/null 2>&1; then
    # A file that was deleted but not committed is still in git's list.
    (cd "$tree" && git ls-files -z --cached --others --exclude-standard |
      while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done)
  else
    (cd "$tree" && find . \( -path './build*' -o -name node_modules \) -prune -o -type f -print0)
  fi | tar -C "$tree" --create --null --files-from=- | tar -C "$root$tree" --extract --same-owner
  for folder in tests/text tests/serve; do
    [ ! -d "$tree/$folder/node_modules" ] || cp -a "$tree/$folder/node_modules" "$root$tree/$folder/"
  done
}

make() {
  local folder=$1 mirror
  shift
  mirror=$(debian_sources | awk -v codename=$codename '$3 == codename { print $2; exit }')
  mkdir -p "$folder"
  timeout 900 debootstrap --variant=minbase $codename "$folder/clean" "${mirror:-http://deb.debian.org/debian}" 2>&1 |
    tee "$folder/log" || fail "debootstrap failed: $(tail -n 1 "$folder/log")"
  write_apt_configuration "$folder/clean"
  copy_network_configuration "$folder/clean"
  cp -a "$folder/clean" "$folder/tree"
  copy_tree "$folder/tree"
  # Fails here if nothing can be mounted, run or downloaded in the root.
  enter "$folder/tree" sh -c 'echo >/dev/null && test -e /proc/self/status' || fail "commands cannot run in the root"
  enter "$folder/tree" apt-get update -qq || fail "apt-get update failed in the root"
  enter "$folder/tree" apt-get install -qq --no-install-recommends --download-only "$@" >/dev/null ||
    fail "the packages could not be downloaded"
  # ccache is the only additional package: without it CI would compile everything twice.
  if command -v ccache >/dev/null; then
    enter "$folder/tree" apt-get install -y -qq --no-install-recommends ccache || fail "ccache could not be installed"
  fi
}

# enter ROOT COMMAND...: call it in the namespace of in_namespace.
enter() {
  local root=$1 variable settings=()
  shift
  mount --bind "$root" "$root" # so that "/" is a mount in there too
  mount -t proc proc "$root/proc"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
  mkdir -p "$root/dev/shm"
  mount -t tmpfs tmpfs "$root/dev/shm"
  for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!variable:-}" ] || settings+=("$variable=${!variable}")
  done
  if command -v ccache >/dev/null; then
    # The compiler, the path of the tree and the settings are the same as on the host, so both share cached objects.
    mkdir -p "$root/ccache" "$(ccache --get-config cache_dir)"
    mount --bind "$(ccache --get-config cache_dir)" "$root/ccache"
    settings+=(CCACHE_DIR=/ccache)
    ccache --show-config | sed '/^(default)/d; s/^([^)]*) //; /^cache_dir/d' >"$root/etc/ccache.conf"
  fi
  local status=0
  # shellcheck disable=SC2016 # for the shell in the root
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
    DEBIAN_FRONTEND=noninteractive NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "${settings[@]}" \
    sh -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' sh "$tree" "$@" </dev/null || status=$?
  umount --recursive --lazy "$root"
  return $status
}

remove() {
  local folder
  folder=$(realpath "$1")
  if grep -F " $folder/" /proc/mounts; then
    fail "something is mounted in $folder, which is therefore not removed"
  fi
  rm -rf --one-file-system "$folder"
}

command=${1:-}
[ $# -ge 2 ] || fail "usage: make FOLDER PACKAGE... | run ROOT COMMAND... | remove FOLDER"
folder=$2
shift 2
case $command in
  make)
    [ "$(id -u)" = 0 ] || fail "making a root needs root rights"
    command -v debootstrap >/dev/null || fail "debootstrap is not installed"
    unshare --mount --pid --fork --mount-proc true || fail "namespaces cannot be made here"
    [ ! -e "$folder" ] || remove "$folder"
    in_namespace bash "$script" make-here "$(realpath -m "$folder")" "$@"
    ;;
  run) in_namespace bash "$script" run-here "$(realpath "$folder")" "$@" ;;
  make-here) make "$folder" "$@" ;;
  run-here) enter "$folder" "$@" ;;
  remove) [ ! -e "$folder" ] || remove "$folder" ;;
  *) fail "unknown command $command; allowed are make, run and remove" ;;
esac
