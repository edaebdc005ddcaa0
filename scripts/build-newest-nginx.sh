#!/bin/bash
# Builds the newest NGINX whose source the registry of crates has (nginx-src), as an oracle beside Debian's, and says where
# it is. Needs a C compiler, make, and the headers of OpenSSL, PCRE2 and zlib (Debian: libssl-dev libpcre2-dev zlib1g-dev).
#
#   scripts/build-newest-nginx.sh
#   NGINX=$(scripts/build-newest-nginx.sh) scripts/test.sh compatibility
#
# OUT is where to build (default target/newest-nginx); OUT/source is the source, for scripts/build-nginx-module.sh.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/release-environment.sh"
out=${OUT:-$target/newest-nginx}
cargo=${CARGO:-cargo}

# Cargo fetches the crate as it fetches others: from a mirror, if one is configured.
mkdir -p "$out/crate/src"
out=$(cd "$out" && pwd)
touch "$out/crate/src/lib.rs"
cat >"$out/crate/Cargo.toml" <<END
[package]
name = "newest-nginx"
edition = "2024"
[dependencies]
nginx-src = "1"
[workspace]
END
crate=$("$cargo" metadata --quiet --format-version 1 --manifest-path "$out/crate/Cargo.toml" | python3 -c '
import json, pathlib, sys
[found] = [one for one in json.load(sys.stdin)["packages"] if one["name"] == "nginx-src"]
print(pathlib.Path(found["manifest_path"]).parent)')

rm -rf "$out/source"
cp -r "$crate/nginx" "$out/source"
cd "$out/source"
./auto/configure --with-compat --with-pcre-jit --with-threads --with-stream --with-stream_ssl_module \
    --with-stream_ssl_preread_module --with-stream_realip_module \
    --with-http_{addition,auth_request,dav,flv,gunzip,gzip_static,mp4,random_index,realip,secure_link,slice,ssl,stub_status,sub,v2}_module \
    >"$out/build.log" 2>&1 && make -s -j "$(nproc)" >>"$out/build.log" 2>&1 || {
    tail -20 "$out/build.log" >&2
    exit 1
}
mv objs/nginx "$out/nginx"
make -s clean
echo "$out/nginx"
