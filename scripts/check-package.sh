#!/bin/bash
# Builds the Debian package and tries it: lintian, the unit's security, and in each Debian system install, start, reload,
# log rotation, upgrade under load, remove and purge.
#
#   scripts/check-package.sh [SUITE...]     default: bookworm trixie
#
# Needs root, debootstrap, lintian, systemd, curl, python3, iproute2 and, once for each suite, Debian's mirror
# (DEBIAN_MIRROR): what debootstrap makes is kept in target/package-check. BINARY is a program that was built already.
# First without a service manager: the unit's commands are run with the account and the privileges that it names. Then
# under systemd, where systemd-nspawn (Debian's systemd-container) is installed and works.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
export PATH=$PATH:/usr/sbin:/sbin
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
cache=$target/package-check
mkdir -p "$cache"

missing=()
for pair in debootstrap:debootstrap lintian:lintian systemd-analyze:systemd curl:curl python3:python3 ip:iproute2; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "missing: apt-get install ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "must be root: chroot and namespaces" >&2
    exit 1
fi
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

echo "== packages"
export BINARY=${BINARY:-$("$root/scripts/build-release.sh")}
package=$("$root/scripts/package.sh" "$work/one")
again=$("$root/scripts/package.sh" "$work/two")
cmp "$package" "$again"
echo "  built twice: the same bytes"
next=$(COMPRESSION=none REVISION=2 "$root/scripts/package.sh" "$work/one")
broken=$(COMPRESSION=none REVISION=3 BINARY=/bin/false "$root/scripts/package.sh" "$work/one")

echo "== lintian"
lintian --fail-on error,warning --display-info --tag-display-limit 0 "$package"
echo "  no error, no warning"

echo "== unit"
dpkg-deb -x "$package" "$work/tree"
unit=$work/tree/usr/lib/systemd/system/balanza.service
systemd-analyze security --offline=true --threshold=25 "$unit" | tail -n 1
# With the paths of this tree, as verify looks for the program.
sed "s,/usr/bin/balanza,$work/tree/usr/bin/balanza,; /^Documentation=/d" "$unit" >"$work/balanza.service"
systemd-analyze verify "$work/balanza.service"
echo "  systemd-analyze verify: accepted"

# Unpacks a Debian system into the working directory, made the first time with these packages.
system() {
    local name=$1 suite=$2 packages=$3
    if [ ! -e "$cache/$name.tar" ]; then
        # Not by --include: the debootstrap of one Debian does not know the order in which the next one unpacks packages.
        {
            debootstrap --variant=minbase "$suite" "$work/$name" "$mirror" &&
                chroot "$work/$name" apt-get update &&
                DEBIAN_FRONTEND=noninteractive chroot "$work/$name" apt-get install --yes --no-install-recommends ${packages//,/ }
        } >"$work/$name.log" 2>&1 || { tail "$work/$name.log" >&2; return 1; }
        rm -rf "$work/$name"/var/cache/apt/archives/*.deb "$work/$name"/var/lib/apt/lists/*
        tar -C "$work/$name" -cf "$cache/$name.tar.new" .
        mv "$cache/$name.tar.new" "$cache/$name.tar"
    else
        mkdir "$work/$name"
        tar -C "$work/$name" -xf "$cache/$name.tar"
    fi
}
needed=libpcre2-8-0,logrotate

# In a network of its own; processes end with it.
without_systemd() {
    echo "== $1, the unit's commands by hand"
    system "$1" "$1" $needed
    unshare --mount --pid --fork --net --mount-proc --kill-child \
        "$root/tests/package/inside.sh" "$work/$1" "$package" "$next" "$broken"
}

with_systemd() {
    local name=$1-systemd tree
    tree=$work/$name
    echo "== $1, under systemd"
    system "$name" "$1" $needed,systemd,systemd-sysv,dbus,procps,curl,nginx-light
    cp "$root/tests/package/systemd.sh" "$package" "$next" "$tree/root/"
    cat >"$tree/etc/systemd/system/check.service" <<END_OF_UNIT
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/root/systemd.sh /root/$(basename "$package") /root/$(basename "$next")
END_OF_UNIT
    mkdir -p "$tree/etc/systemd/system/default.target.wants"
    ln -sf ../check.service "$tree/etc/systemd/system/default.target.wants/check.service"
    # NGINX would have the port before the test begins.
    rm -f "$tree/etc/systemd/system/multi-user.target.wants/nginx.service"
    timeout 600 systemd-nspawn --quiet --register=no --keep-unit --private-network --directory="$tree" \
        --boot </dev/null >"$work/$name.console" 2>&1 || true
    if [ ! -e "$tree/root/log" ]; then
        tail -n 5 "$work/$name.console"
        echo "systemd does not run here: not tried"
        return
    fi
    cat "$tree/root/log"
    [ "$(tail -n 1 "$tree/root/log")" = passed ]
}

for suite in ${*:-bookworm trixie}; do
    without_systemd "$suite"
    if command -v systemd-nspawn >/dev/null; then
        with_systemd "$suite"
    else
        echo "systemd-nspawn is missing (apt-get install systemd-container): not tried under systemd"
    fi
done
echo "The package is good."
