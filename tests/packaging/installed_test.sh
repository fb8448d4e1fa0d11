#!/usr/bin/env bash
# In a bare Debian 12: installs the .deb, runs the program and its server, and removes it again. Such a system has no HTTP
# client, so requests are written by hand.
#   installed_test.sh FILE.deb
set -euo pipefail
deb=$(realpath "$1")

apt-get install -y -qq --no-install-recommends "$deb" >/dev/null
fovea --version
fovea generate --chat --temperature 0 "What is 275 + 148?" | grep 423
ldconfig -p | grep libfovea.so

log=$(mktemp)
fovea serve --port 0 2>"$log" >&2 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
port=
for _ in $(seq 600); do
  port=$(sed -nE 's|.*http://127\.0\.0\.1:([0-9]+).*|\1|p' "$log" | head -n 1)
  [ -z "$port" ] || break
  kill -0 "$server" || { cat "$log"; exit 1; }
  sleep 0.1
done
[ -n "$port" ] || { cat "$log"; exit 1; }

# request METHOD PATH [BODY]: prints status line, headers and body.
request() {
  local body=${3:-}
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' \
    "$1" "$2" "${#body}" "$body" >&3
  cat <&3
  exec 3>&-
}
ready=
for _ in $(seq 600); do
  if ready=$(request GET /health) && [[ $ready == "HTTP/1.1 200"* ]]; then
    break
  fi
  sleep 0.1
done
[[ $ready == "HTTP/1.1 200"* ]] || { cat "$log"; exit 1; }
request POST /v1/chat/completions \
  '{"messages": [{"role": "user", "content": "What is 275 + 148?"}], "temperature": 0}' | grep 423
kill -TERM "$server"
wait "$server"
trap - EXIT

# Removing the package keeps the administrator's files; purging removes them.
echo 'OPTIONS="--port 8001"' >/etc/default/fovea
apt-get remove -y -qq fovea >/dev/null
[ ! -e /usr/bin/fovea ]
grep 8001 /etc/default/fovea
apt-get purge -y -qq fovea >/dev/null
[ ! -e /etc/default/fovea ]
echo "the package installs, serves and goes"
