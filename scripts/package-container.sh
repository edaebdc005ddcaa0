#!/bin/bash
# Builds a container image of the static program and prints where its archive is. Needs buildah; nothing is downloaded, as
# the image begins with nothing.
#
#   scripts/package-container.sh [DIRECTORY]     DIRECTORY: where it goes (default: target/release-files)
#
# BINARY is a static program that was built already.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
out=$(package_directory "${1:-$target/release-files}")
if ! command -v buildah >/dev/null; then
    echo "buildah is missing: apt-get install buildah" >&2
    exit 1
fi
binary=${BINARY:-$("$root/scripts/build-release.sh" static)}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

tree=$stage/context/tree
install -d "$tree/usr/bin" "$tree/etc/balanza" "$tree/usr/share/balanza/html" "$tree/usr/share/doc/balanza"
strip --strip-all -o "$tree/usr/bin/balanza" "$binary"
install -m 644 "$root/packaging/container/nginx.conf" "$root/packaging/etc/mime.types" "$tree/etc/balanza/"
install -m 644 "$root/packaging/html/index.html" "$tree/usr/share/balanza/html/"
install -m 644 "$root/LICENSE" "$tree/usr/share/doc/balanza/"
"$root/scripts/bill-of-materials.py" --notices --target x86_64-unknown-linux-musl >"$tree/usr/share/doc/balanza/libraries"
# Started by root, the worker runs as this account.
printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\nbalanza:x:65532:65532:balanza:/:/sbin/nologin\n' >"$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\nbalanza:x:65532:\n' >"$tree/etc/group"
install -d -m 1777 "$tree/tmp"
install -d "$stage/context/owned/run/balanza" "$stage/context/owned/var/lib/balanza"
find "$stage/context" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# All state in the stage: works without a container engine's own configuration. Without the right to mount, as in a
# container, the storage must be vfs.
engine=(buildah --root "$stage/storage" --runroot "$stage/run" --storage-driver vfs)
"${engine[@]}" build --isolation chroot --timestamp "$SOURCE_DATE_EPOCH" --format oci \
    --label org.opencontainers.image.title=balanza \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.licenses=Apache-2.0 \
    --tag "localhost/balanza:$version" -f "$root/packaging/container/Containerfile" "$stage/context" >&2
# A directory first: the archive that buildah would write has the time of its writing in it.
"${engine[@]}" push "localhost/balanza:$version" "oci:$stage/image:localhost/balanza:$version" >&2
file=$out/balanza-$version-$(uname -m).oci.tar
(cd "$stage/image" && find . -mindepth 1 | sed 's,^\./,,' | sort) >"$stage/list"
archive "$stage/image" --no-recursion -T "$stage/list" >"$file"
"${engine[@]}" rmi --all --force >/dev/null
echo "$file"
