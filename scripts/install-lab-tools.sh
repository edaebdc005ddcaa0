#!/bin/bash
# Installs what the lab's experiments use and this machine lacks: balancers and load generators from Debian, Locust from
# PyPI into a virtual environment of its own under ~/.cache/balanza. Starts none of Debian's services.
#
#   scripts/install-lab-tools.sh           install what is missing
#   scripts/install-lab-tools.sh --list    only say what that is
#
# PYTHON names the interpreter for Locust; the newest one that will do is the default.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

locust_version=2.47.0
venv=${XDG_CACHE_HOME:-$HOME/.cache}/balanza/locust
only_list=
[ "${1:-}" = --list ] && only_list=yes

ONLY="nginx haproxy caddy apache2-utils siege httperf wrk python3 python3-venv" "$here/install-test-tools.sh" "$@"

# Written last, so that an installation that broke off is not taken for one.
mark=$venv/installed
if [ -x "$venv/bin/locust" ] && [ "$(cat "$mark" 2>/dev/null)" = "$locust_version" ] && "$venv/bin/python" -c ''; then
    exit 0
fi
if [[ "$("$venv/bin/locust" --version 2>/dev/null)" = "locust $locust_version "* ]]; then
    echo "$locust_version" >"$mark"
    exit 0
fi
echo "missing: locust $locust_version"
if [ -n "$only_list" ]; then
    exit 0
fi

will_do() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}
python=
if [ -n "${PYTHON:-}" ]; then
    if ! will_do "$PYTHON"; then
        echo "$PYTHON is not a Python of 3.10 or later with venv and ensurepip" >&2
        exit 1
    fi
    python=$PYTHON
else
    # Versions beyond these may lack ready-made packages of Locust's dependencies.
    for candidate in python3.13 python3.12 python3.11 python3.10 python3 /usr/bin/python3; do
        if will_do "$candidate"; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "Locust needs Python 3.10 or later with venv: apt-get install python3 python3-venv, or set PYTHON" >&2
    exit 1
fi

mkdir -p "$(dirname "$venv")"
"$python" -m venv --clear "$venv"
if ! "$venv/bin/pip" install -q --disable-pip-version-check "locust==$locust_version"; then
    echo "Locust $locust_version could not be had from PyPI (see above): is https://pypi.org reachable? Behind a mirror" >&2
    echo "set PIP_INDEX_URL, behind a proxy HTTPS_PROXY. All plans without 'tool = \"locust\"' run without it." >&2
    exit 1
fi
"$venv/bin/locust" --version
echo "$locust_version" >"$mark"
