#!/usr/bin/env bash
# tidy.sh [--fast] [--most N] [BASE | --all]: runs clang-tidy (checks: .clang-tidy) on the sources in src/, tests left
# out, that have changed since BASE, by default the merge base with origin/main or else the commit before, and for each
# changed header on one source that includes it; --all: on all sources. --most N: on N of them at most, the most recently
# changed ones. --fast: without the analyser, which takes most of the time. Needs a folder that is built with clang (with
# precompiled headers these too): $FOVEA_TIDY_BUILD, by default build/asan.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${FOVEA_TIDY_BUILD:-build/asan} most=0 base='' checks=()
while [ $# -gt 0 ]; do
  case $1 in
    --most) most=${2:?--most needs a number}; shift ;;
    --all) base=all ;;
    --fast) checks=('--checks=-clang-analyzer-*') ;;
    *) base=$1 ;;
  esac
  shift
done
command -v clang-tidy-19 >/dev/null || {
  echo "SKIPPED: clang-tidy-19 is not installed"
  exit 0
}
[ -f "$build/compile_commands.json" ] || {
  echo "tidy.sh: $build/compile_commands.json does not exist; configure a build with clang there" >&2
  exit 2
}
git rev-parse --git-dir >/dev/null 2>&1 || base=all
if [ -z "$base" ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse --verify -q HEAD~1 || echo all)
fi
# A source that includes the header, so that the header's findings show: its own one, or else the first.
source_of() {
  local header=$1 name=${1#src/}
  [ -f "${header%.h}.cc" ] && echo "${header%.h}.cc" && return
  git grep -lF "#include \"${name#include/}\"" -- 'src/*.cc' ':!src/*_test.cc' | sed -n 1p || true
}
if [ "$base" = all ]; then
  files=$(find src -name '*.cc')
else
  files=$(git diff --name-only --diff-filter=d "$base" -- 'src/*.cc')
  for header in $(git diff --name-only --diff-filter=d "$base" -- 'src/*.h' 'include/*.h'); do
    files+=$'\n'$(source_of "$header")
  done
fi
# One command for each source: the first, where the build compiles it several times, and that of the unity_*.cxx that
# includes it, where it is compiled as one with others.
mkdir -p "$build/tidy"
python3 - "$build/compile_commands.json" "$build/tidy/compile_commands.json" <<'END'
import json, pathlib, re, sys
commands = {}
for command in json.loads(pathlib.Path(sys.argv[1]).read_text()):
    file = pathlib.Path(command["file"])
    included = []
    if file.name.startswith("unity_") and file.exists():
        included = re.findall(r'^#include "(.+\.cc)"', file.read_text(), re.M)
    for source in included or [str(file)]:
        commands.setdefault(source, {**command, "file": source, "command": command["command"].replace(str(file), source)})
pathlib.Path(sys.argv[2]).write_text(json.dumps(list(commands.values())))
END
# Sources that this build compiles; of tests the analyser takes minutes for each.
mapfile -t files < <(printf '%s\n' "$files" | grep -v -e '_test\.cc$' -e '^$' | sort -u | while read -r file; do
  ! grep -qF "/$file\"" "$build/tidy/compile_commands.json" || echo "$(git log -1 --format=%ct -- "$file" 2>/dev/null || echo 0) $file"
done | sort -rn -k1,1 -s | cut -d' ' -f2)
count=${#files[@]}
if [ "$most" != 0 ] && [ "$count" -gt "$most" ]; then
  files=("${files[@]:0:$most}")
fi
echo "clang-tidy on ${#files[@]} of $count sources"
[ ${#files[@]} = 0 ] || printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-19 -p "$build/tidy" --quiet "${checks[@]}"
