#!/bin/bash
# Builds target/optimized/balanza: compiled a second time, with what the first build counted while it balanced a mixture
# of requests (profile-guided optimisation). The program's own work costs a third less; docs/performance.md.
#
# Needs python3, and the llvm-profdata of rustc's LLVM: `rustup component add llvm-tools`, or Debian's llvm-NN. TARGET is cargo's target directory (default: target).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${TARGET:-target}/optimized
mkdir -p "$out"
out=$(cd "$out" && pwd)

read -r host llvm < <(rustc -vV | awk '/^host:/ { host = $2 } /^LLVM version:/ { print host, int($3) }')
find_profdata() {
    local tool
    for tool in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" "llvm-profdata-$llvm" llvm-profdata; do
        if command -v "$tool" >/dev/null && "$tool" merge --version | grep -q "LLVM version $llvm\."; then
            echo "$tool"
            return
        fi
    done
    echo "llvm-profdata of LLVM $llvm is missing: rustup component add llvm-tools, or apt-get install llvm-$llvm" >&2
    return 1
}
profdata=$(find_profdata)

build() {
    RUSTFLAGS="${RUSTFLAGS:-} $1" ${CARGO:-cargo} build --release --locked -p balanza --target "$host" \
        --target-dir "$out/build"
}
built=$out/build/$host/release/balanza

echo "== a build that counts"
build "-Cprofile-generate=$out/counts"
counting=$(sha256sum <"$built")
if [ "$counting" != "$(cat "$out/trained" 2>/dev/null)" ] || [ ! -e "$out/balanza.profdata" ]; then
    echo "== it at work"
    rm -rf "$out/counts"
    benches/train.py "$built" "$out/counts"
    "$profdata" merge --sparse -o "$out/balanza.profdata" "$out"/counts/*.profraw
    echo "$counting" >"$out/trained"
fi
echo "== the build that knows"
build "-Cprofile-use=$out/balanza.profdata"
cp "$built" "$out/balanza"
echo "$out/balanza"
