#!/bin/sh
# Makes the virtual environment when it is missing, compares `balanza simulate` with another simulator, and runs sweeps on a
# Dask cluster.
#
#   tests/simulation/run.sh
#   BALANZA=/path/to/balanza tests/simulation/run.sh -k shortest
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${VENV:-$root/target/venv-simulation}
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
    mkdir -p "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" -e "$root/python"
    cp "$here/requirements.txt" "$venv/requirements.txt"
fi
cd "$here"
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
