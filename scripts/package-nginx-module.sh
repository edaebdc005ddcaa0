#!/bin/bash
# Packs the module that scripts/build-nginx-module.sh built: on Debian, for the installed NGINX, a package that depends on
# exactly its ABI; otherwise, or with NGINX_SOURCE, a tarball. Says where it is.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$PATH:/usr/sbin:/sbin

if [ -n "${NGINX_SOURCE:-}" ]; then
    nginx=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$NGINX_SOURCE/src/core/nginx.h")
else
    nginx=$(nginx -v 2>&1 | sed 's,.*nginx/\([0-9.]*\).*,\1,')
fi
directory=$root/target/nginx-module/$nginx
built=$directory/ngx_http_balanza_module.so
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/crates/nginx-module/Cargo.toml" | head -1)
stage=$directory/stage
rm -rf "$stage"

abi=
if [ -z "${NGINX_SOURCE:-}" ] && command -v dpkg-deb >/dev/null; then
    abi=$(dpkg-query -W -f '${Provides}' nginx 2>/dev/null | tr ', ' '\n\n' | grep '^nginx-abi-' || true)
fi
if [ -z "$abi" ]; then
    name=ngx_http_balanza_module-$version-nginx-$nginx
    mkdir -p "$stage/$name"
    strip --strip-debug -o "$stage/$name/ngx_http_balanza_module.so" "$built"
    cp "$root/docs/nginx-module.md" "$stage/$name/README.md"
    cp "$root/LICENSE" "$stage/$name/"
    tar -C "$stage" -czf "$directory/$name.tar.gz" "$name"
    rm -rf "$stage"
    echo "$directory/$name.tar.gz"
    exit 0
fi

package=libnginx-mod-http-balanza
architecture=$(dpkg --print-architecture)
install -d "$stage/DEBIAN" "$stage/usr/lib/nginx/modules" "$stage/usr/share/nginx/modules-available" \
    "$stage/usr/share/doc/$package"
strip --strip-debug -o "$stage/usr/lib/nginx/modules/ngx_http_balanza_module.so" "$built"
chmod 644 "$stage/usr/lib/nginx/modules/ngx_http_balanza_module.so"
echo "load_module modules/ngx_http_balanza_module.so;" >"$stage/usr/share/nginx/modules-available/mod-http-balanza.conf"
install -m 644 "$root/docs/nginx-module.md" "$stage/usr/share/doc/$package/README.md"
install -m 644 "$root/LICENSE" "$stage/usr/share/doc/$package/copyright"

# Debian's modules are switched on by a link.
link=/etc/nginx/modules-enabled/50-mod-http-balanza.conf
cat >"$stage/DEBIAN/postinst" <<END
#!/bin/sh
set -e
if [ "\$1" = configure ] && [ -z "\$2" ] && [ -d /etc/nginx/modules-enabled ] && [ ! -e $link ]; then
    ln -s /usr/share/nginx/modules-available/mod-http-balanza.conf $link
fi
END
cat >"$stage/DEBIAN/prerm" <<END
#!/bin/sh
set -e
if [ "\$1" = remove ]; then
    rm -f $link
fi
END
chmod 755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm"
libc=$(objdump -T "$built" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1)
cat >"$stage/DEBIAN/control" <<END
Package: $package
Version: $version
Section: httpd
Priority: optional
Architecture: $architecture
Depends: $abi, libc6 (>= $libc)
Maintainer: Balanza maintainers <maintainers@balanza.invalid>
Description: load-balancing algorithms for NGINX's upstreams
 The algorithms of the load balancer Balanza as a module of NGINX: two random
 choices, Maglev, least time, peak EWMA and others, by one directive in an
 upstream. Counters and tables are shared by the workers.
END
file=$directory/${package}_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$stage" "$file" >/dev/null
rm -rf "$stage"
echo "$file"
