#!/bin/bash
# Builds the Debian package of the balancer and prints where it is.
#
#   scripts/package.sh [DIRECTORY]     DIRECTORY: where the package goes (default: target/release-files)
#
# BINARY is a program that was built already; REVISION (default 1) is the last part of the package's version; COMPRESSION is
# dpkg-deb's (xz).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
out=$(package_directory "${1:-$target/release-files}")
export PATH=$PATH:/usr/sbin:/sbin

for tool in dpkg-deb dpkg-shlibdeps; do
    if ! command -v $tool >/dev/null; then
        echo "$tool is missing: apt-get install dpkg-dev" >&2
        exit 1
    fi
done
binary=${BINARY:-$("$root/scripts/build-release.sh")}
package_version=$version-${REVISION:-1}
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tree=$stage/tree
doc=$tree/usr/share/doc/balanza

DESTDIR=$tree PREFIX=/usr BINARY=$binary "$root/scripts/install.sh" install
strip --strip-all --remove-section=.comment --remove-section=.note "$tree/usr/bin/balanza"
gzip -9n "$tree"/usr/share/man/man1/*.1
install -d "$doc"
install -m 644 "$root/packaging/debian/copyright" "$doc/copyright"
gzip -9n <"$root/CHANGELOG.md" >"$doc/changelog.gz"
cat <<END_OF_LOG | gzip -9n >"$doc/changelog.Debian.gz"
balanza ($package_version) unstable; urgency=medium

  * See changelog.gz.

 -- Balanza maintainers <maintainers@balanza.invalid>  $(date -R -d "@$SOURCE_DATE_EPOCH")
END_OF_LOG
"$root/scripts/bill-of-materials.py" --notices | gzip -9n >"$doc/libraries.gz"
install -m 644 "$root/README.md" "$doc/README.md"
install -d "$doc/examples"
install -m 644 "$root"/examples/*.conf "$doc/examples/"
install -d "$tree/usr/share/lintian/overrides"
install -m 644 "$root/packaging/debian/lintian-overrides" "$tree/usr/share/lintian/overrides/balanza"

# dpkg-shlibdeps reads debian/control for the names of packages only.
mkdir -p "$stage/debian"
printf 'Source: balanza\n\nPackage: balanza\nArchitecture: any\n' >"$stage/debian/control"
libraries=$(cd "$stage" && dpkg-shlibdeps -O "$tree/usr/bin/balanza" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')

install -d "$tree/DEBIAN"
(cd "$tree" && find etc -type f | sort | sed 's,^,/,') >"$tree/DEBIAN/conffiles"
(cd "$tree" && find usr -type f | sort | xargs -d '\n' md5sum) >"$tree/DEBIAN/md5sums"
for script in postinst prerm postrm; do
    install -m 755 "$root/packaging/debian/$script" "$tree/DEBIAN/$script"
done
cat >"$tree/DEBIAN/control" <<END_OF_CONTROL
Package: balanza
Version: $package_version
Section: httpd
Priority: optional
Architecture: $architecture
Depends: ${libraries:+$libraries, }passwd
Recommends: logrotate
Installed-Size: $(du -k --apparent-size -s "$tree/usr" "$tree/etc" | awk '{ sum += $1 } END { print sum }')
Maintainer: Balanza maintainers <maintainers@balanza.invalid>
Description: load balancer that reads nginx.conf
 Balanza balances HTTP and TCP with the configuration language, the command
 line and the signals of NGINX. It has the algorithms of NGINX, HAProxy, LVS
 and Envoy and others, and includes a simulator and a laboratory to compare
 them before they are in production.
END_OF_CONTROL
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
file=$out/balanza_${package_version}_$architecture.deb
dpkg-deb --root-owner-group "-Z${COMPRESSION:-xz}" --build "$tree" "$file" >/dev/null
echo "$file"
