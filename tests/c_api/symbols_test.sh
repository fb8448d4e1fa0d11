#!/usr/bin/env bash
# The library exports exactly what the headers declare.
#   symbols_test.sh LIBRARY NM HEADER...
set -euo pipefail
library=$1 nm=$2
shift 2
shown=$("$nm" -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
declared=$(grep -ohE '\bfovea_[a-z_]+\(' "$@" | tr -d '(' | sort -u)
diff <(echo "$declared") <(echo "$shown")
