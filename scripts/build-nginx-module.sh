#!/bin/bash
# Builds ngx_http_balanza_module.so and says where it is.
#
#   scripts/build-nginx-module.sh                           for the installed NGINX (Debian: nginx-dev)
#   NGINX_SOURCE=/src/nginx scripts/build-nginx-module.sh   for another NGINX, from its sources
#
# NGINX_FLAGS are the arguments of NGINX's configure; with sources of your own --with-compat is the default, which fits
# every binary that was built with it. OUT is where to build (default target/nginx-module/VERSION).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
module=$root/crates/nginx-module

if [ -n "${NGINX_SOURCE:-}" ]; then
    source=$(cd "$NGINX_SOURCE" && pwd)
    read -r -a flags <<<"${NGINX_FLAGS:---with-compat}"
else
    source=/usr/share/nginx/src
    if [ ! -e $source/conf_flags ]; then
        echo "NGINX's headers are missing: apt-get install nginx-dev, or set NGINX_SOURCE=/path/to/nginx" >&2
        exit 1
    fi
    # Sets NGX_CONF_FLAGS, the flags of Debian's build.
    . $source/conf_flags
    flags=("${NGX_CONF_FLAGS[@]}")
fi
version=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$source/src/core/nginx.h")
out=${OUT:-$root/target/nginx-module/$version}

mkdir -p "$out"
hide_directories "$(cd "$out" && pwd)"
(cd "$root" && cargo build --profile module --locked -p balanza-nginx-module --target-dir "$root/target/nginx-module/library")
export BALANZA_LIBRARY=$root/target/nginx-module/library/module/libbalanza_nginx_module.a

# NGINX's configure writes a Makefile where it stands, so it gets a tree of links to itself.
tree=$out/tree
rm -rf "$tree"
mkdir -p "$tree"
cp -rs "$source/." "$tree/"
rm -rf "$tree/Makefile" "$tree/objs"
cd "$tree"
configure=./configure
[ -e $configure ] || configure=./auto/configure
$configure "${flags[@]}" --add-dynamic-module="$module" >"$out/configure.log" 2>&1 || {
    tail -20 "$out/configure.log" >&2
    exit 1
}
make -s -f objs/Makefile modules >"$out/make.log" 2>&1 || {
    tail -30 "$out/make.log" >&2
    exit 1
}
cp objs/ngx_http_balanza_module.so "$out/"
rm -rf "$tree"
echo "$out/ngx_http_balanza_module.so"
