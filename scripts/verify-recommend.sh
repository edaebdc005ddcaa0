#!/bin/sh
# Verifies `balanza recommend`: farms drawn at random, their logs, the answers, and the truth by simulation of all candidates.
# Arguments: farms (40), farms without a difference (10), requests of a log (100000), seed (1), what a change has to be worth (0.03).
set -eu
cd "$(dirname "$0")/.."
exec cargo run --quiet --config profile.dev.opt-level=2 -p balanza-recommend --example verify -- "$@"
