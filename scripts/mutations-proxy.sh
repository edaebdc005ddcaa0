#!/bin/sh
# Shows that the simulation of the forwarding path finds mistakes: applies the patches of crates/proxy/src/simulation/mutations
# one at a time, runs the simulation, and prints the seed that failed. Fails if a mistake is not found.
#
#   scripts/mutations-proxy.sh                all of them
#   scripts/mutations-proxy.sh last-chunk     those whose names contain this
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
applied=
trap '[ -z "$applied" ] || git apply -R "$applied"' EXIT
trap 'exit 130' INT TERM
missed=0
for patch in crates/proxy/src/simulation/mutations/*"${1:-}"*.patch; do
    name=$(basename "$patch" .patch)
    git apply "$patch"
    applied=$patch
    # A mistake may also be a loop that never ends.
    if ! "$cargo" test --locked -q -p balanza-proxy --lib --no-run; then
        echo "$name: does not compile"
        missed=1
    elif output=$(timeout 300 "$cargo" test --locked -q -p balanza-proxy --lib simulation::requests 2>&1); then
        echo "$name: NOT FOUND"
        missed=1
    else
        found=$(echo "$output" | sed -n '/^SIMULATION_SEED/{s/ .*//;N;s/\n */: /;p;q}' | cut -c 1-140)
        echo "$name: ${found:-no end}"
    fi
    git apply -R "$patch"
    applied=
done
exit $missed
