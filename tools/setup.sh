# Shared by run.sh and test.sh: the Debian packages that the project needs, and the configuration of its builds.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build_packages=(g++-12 cmake ninja-build libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libboost1.81-dev libpcre2-dev libutf8proc-dev libedit-dev)
test_packages=(libgtest-dev libgmock-dev binutils nodejs npm python3 python3-jinja2 python3-jsonschema python3-numpy shellcheck curl openssl)
# Only CI installs a web server (which Debian starts at once), a browser and system tools; elsewhere their tests are
# skipped with a line.
ci_packages=(ccache clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev lld-19 nginx-light chromium debootstrap systemd json-schema-test-suite)
export build_packages test_packages ci_packages

# install_packages NAME...: installs the Debian packages that are missing, as root or with sudo.
install_packages() {
  local missing=() package
  for package in "$@"; do
    case $package in # tools that are installed from other sources are not installed again
      nodejs) command -v node >/dev/null && continue ;;
      npm) command -v npm >/dev/null && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  echo "installing ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "fovea: needs the packages ${missing[*]}; run as root, or install sudo" >&2
      return 2
    }
    sudo=(sudo)
  fi
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# cuda_wanted: prints ON or OFF, from FOVEA_BUILD_CUDA or depending on whether the machine has nvcc and a GPU.
cuda_wanted() {
  if [ -n "${FOVEA_BUILD_CUDA:-}" ]; then
    [ "$FOVEA_BUILD_CUDA" = 1 ] && echo ON || echo OFF
  elif command -v nvcc >/dev/null && [ -e /dev/nvidia0 ]; then
    echo ON
  else
    echo OFF
  fi
}

# configure BUILD_DIR OPTION...: runs CMake if the folder has no build yet or its options have changed.
configure() {
  local build=$1
  shift
  local options="$*"
  if [ ! -f "$build/build.ninja" ] || [ "$(cat "$build/.options" 2>/dev/null)" != "$options" ]; then
    rm -f "$build/CMakeCache.txt" # otherwise a changed compiler makes CMake forget the other options
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="${CXX:-g++-12}" ${CC:+-DCMAKE_C_COMPILER="$CC"} "$@"
    echo "$options" >"$build/.options"
  fi
}

# configure_release BUILD_DIR OPTION...: the build of run.sh and test.sh. Sources are compiled eight at a time, unless a
# preset configured the folder without that, which is faster for building single sources after an edit.
configure_release() {
  local build=$1 unity=ON
  shift
  ! grep -qs FOVEA_UNITY:BOOL=OFF "$build/CMakeCache.txt" || unity=OFF
  configure "$build" -DCMAKE_BUILD_TYPE=Release -DFOVEA_UNITY=$unity -DFOVEA_CUDA="$(cuda_wanted)" "$@"
}
