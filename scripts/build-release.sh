#!/bin/bash
# Builds the program as it is released, without debugging information, and prints where it is.
#
#   scripts/build-release.sh           for this system's C library
#   scripts/build-release.sh static    linked statically (musl): runs on any Linux of this architecture
#
# The program's bytes do not depend on the directories that it was built in. It is built without a profile: a profile
# (make optimized) differs from run to run.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"

host=$(rustc -vV | sed -n 's/^host: //p')
kind=${1:-dynamic}
case $kind in
    dynamic) triple=$host ;;
    static)
        triple=${host%%-*}-unknown-linux-musl
        if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
            echo "Rust's library for $triple is missing: rustup target add $triple" >&2
            exit 1
        fi
        if ! command -v musl-gcc >/dev/null; then
            echo "musl-gcc is missing: apt-get install musl-tools" >&2
            exit 1
        fi
        # Beside Rust's part, PCRE2 and jemalloc are compiled from the sources in their crates.
        export PCRE2_SYS_STATIC=1
        ;;
    *) echo "usage: $0 [static]" >&2; exit 1 ;;
esac

build=$target/release-build
hide_directories "$build"
export CARGO_INCREMENTAL=0
cd "$root"
${CARGO:-cargo} build --release --locked -p balanza --target "$triple" --target-dir "$build" >&2

out=$build/$kind
mkdir -p "$out"
strip --strip-all --remove-section=.comment --remove-section=.note -o "$out/balanza" "$build/$triple/release/balanza"
echo "$out/balanza"
