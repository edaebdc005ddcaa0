#!/bin/bash
# Builds everything that is released into target/release-files, with SHA256SUMS and a bill of materials. What this machine
# cannot build is left out, and the last lines say so.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
out=$target/release-files
rm -rf "$out"
mkdir -p "$out"
left_out=()

if [ -n "$(git -C "$root" status --porcelain 2>/dev/null)" ]; then
    echo "warning: the tree has changes that are not committed" >&2
fi
echo "== program" >&2
binary=$("$root/scripts/build-release.sh")
if static=$("$root/scripts/build-release.sh" static); then
    BINARY=$static "$root/scripts/package-static.sh" "$out"
    if command -v buildah >/dev/null; then
        BINARY=$static "$root/scripts/package-container.sh" "$out"
    else
        left_out+=("the container image: apt-get install buildah")
    fi
else
    left_out+=("the static program and the container image: see above")
fi
if command -v dpkg-shlibdeps >/dev/null; then
    BINARY=$binary "$root/scripts/package.sh" "$out"
else
    left_out+=("the Debian package: apt-get install dpkg-dev")
fi
if [ -e /usr/share/nginx/src/conf_flags ]; then
    "$root/scripts/build-nginx-module.sh" >&2
    module=$("$root/scripts/package-nginx-module.sh")
    cp "$module" "$out/"
    echo "$out/$(basename "$module")"
else
    left_out+=("the module for NGINX: apt-get install nginx-dev")
fi
"$root/scripts/bill-of-materials.py" >"$out/balanza-$version.cdx.json"
echo "$out/balanza-$version.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "$out/SHA256SUMS"
for what in ${left_out[@]+"${left_out[@]}"}; do
    echo "left out: $what" >&2
done
