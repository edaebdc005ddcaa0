#!/bin/sh
# Makes the tests' virtual environment when it is missing and runs the end-to-end tests.
#
#   tests/e2e/run.sh                          all tests against Balanza
#   tests/e2e/run.sh -k websocket             some of them
#   BALANCER=nginx tests/e2e/run.sh           the same tests against the installed NGINX
#   BALANZA=/path/to/balanza tests/e2e/run.sh another binary
#   CLIENT_HTTP=2 tests/e2e/run.sh             requests by HTTP/2, where HTTP/2 can express them
#   SOAK_REQUESTS=1000000 tests/e2e/run.sh -m soak
#
# WORKERS sets how many tests run side by side (default 4; most of them wait rather than compute).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${VENV:-$root/target/venv}
mkdir -p "$venv"
# Of suites that run at the same time one makes it.
exec 9>"$venv/lock"
flock 9
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --no-compile --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/requirements.txt"
fi
exec 9>&-
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt 8192 ]; then
    ulimit -n 8192 2>/dev/null || ulimit -n "$(ulimit -H -n)"
fi
# Beside these there are tests with directories of their own that use the same environment.
cd "${TESTS:-$here}"
exec "$venv/bin/python" -m pytest -n "${WORKERS:-4}" "$@"
