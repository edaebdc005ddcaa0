#!/bin/bash
# Packs the static program with its manual pages, completions, unit and configuration, and prints where the archive is.
#
#   scripts/package-static.sh [DIRECTORY]     DIRECTORY: where it goes (default: target/release-files)
#
# BINARY is a static program that was built already.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
out=$(package_directory "${1:-$target/release-files}")
binary=${BINARY:-$("$root/scripts/build-release.sh" static)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

name=balanza-$version-$(uname -m)-linux-static
tree=$stage/$name
mkdir -p "$tree/scripts"
strip --strip-all -o "$tree/balanza" "$binary"
chmod 755 "$tree/balanza"
cp -R "$root/packaging" "$root/examples" "$tree/"
rm -rf "$tree/packaging/container" "$tree/packaging/debian"
cp "$root/scripts/install.sh" "$tree/scripts/"
cp "$root/LICENSE" "$root/README.md" "$root/CHANGELOG.md" "$tree/"
cp "$root/docs/install.md" "$tree/INSTALL.md"
"$root/scripts/bill-of-materials.py" --notices --target x86_64-unknown-linux-musl >"$tree/LIBRARIES"
chmod -R u=rwX,go=rX "$tree"
archive "$stage" "$name" | gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
