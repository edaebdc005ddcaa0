#!/bin/bash
# Installs or removes the program and what belongs to it: manual pages, completions, systemd unit, logrotate's file, the
# default page and configuration.
#
#   scripts/install.sh install     BINARY is the program (default: target/release/balanza)
#   scripts/install.sh uninstall   keeps configuration, logs and account
#
# PREFIX is /usr/local, SYSCONFDIR /etc. With DESTDIR everything goes below that directory and nothing else is changed;
# without it, root also gets the account and the directories of the unit. A configuration that is there is kept.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

prefix=${PREFIX:-/usr/local}
etc=${SYSCONFDIR:-/etc}
destination=${DESTDIR:-}
# An unpacked release has the program beside its directories.
if [ -x balanza ] && [ ! -d balanza ]; then binary=balanza; else binary=${CARGO_TARGET_DIR:-target}/release/balanza; fi
binary=${BINARY:-$binary}
case $prefix$etc in
    *[!A-Za-z0-9/._-]*) echo "PREFIX and SYSCONFDIR must be plain paths: $prefix $etc" >&2; exit 1 ;;
    /*/*) ;;
    *) echo "PREFIX and SYSCONFDIR must be absolute: $prefix $etc" >&2; exit 1 ;;
esac
data=$prefix/share/balanza

# Where each file goes: source, destination, mode.
files() {
    local page
    echo "$binary $prefix/bin/balanza 755"
    for page in packaging/man/*; do
        echo "$page $prefix/share/man/man1/$(basename "$page") 644"
    done
    echo "packaging/completions/balanza.bash $prefix/share/bash-completion/completions/balanza 644"
    local zsh=site-functions
    if [ "$prefix" = /usr ]; then zsh=vendor-completions; fi
    echo "packaging/completions/_balanza $prefix/share/zsh/$zsh/_balanza 644"
    echo "packaging/completions/balanza.fish $prefix/share/fish/vendor_completions.d/balanza.fish 644"
    echo "packaging/balanza.service $prefix/lib/systemd/system/balanza.service 644"
    echo "packaging/upgrade.sh $prefix/lib/balanza/upgrade 755"
    echo "packaging/account.sh $prefix/lib/balanza/account 755"
    echo "packaging/as-nginx.sh $prefix/lib/balanza/as-nginx 755"
    echo "packaging/html/index.html $data/html/index.html 644"
}
# The same for what its user may have changed, which is not overwritten.
settings() {
    echo "packaging/etc/nginx.conf $etc/balanza/nginx.conf 644"
    echo "packaging/etc/mime.types $etc/balanza/mime.types 644"
    echo "packaging/balanza.logrotate $etc/logrotate.d/balanza 644"
}

put() {
    local source=$1 file=$destination$2 mode=$3
    install -d "$(dirname "$file")"
    if [ "$source" = "$binary" ]; then
        # Beside the old one and then renamed: a program that runs cannot be written to.
        install -m "$mode" "$source" "$file.new"
        mv -f "$file.new" "$file"
    else
        sed "s,@BIN@,$prefix/bin,g; s,@DATA@,$data,g; s,/etc/balanza,$etc/balanza,g; s,/usr/lib/balanza,$prefix/lib/balanza,g" "$source" >"$file"
        chmod "$mode" "$file"
    fi
}

install_all() {
    local source file mode
    if [ ! -x "$binary" ]; then
        echo "$binary is missing: make build" >&2
        exit 1
    fi
    while read -r source file mode; do
        put "$source" "$file" "$mode"
    done < <(files)
    while read -r source file mode; do
        if [ -e "$destination$file" ]; then
            echo "kept: $destination$file"
        else
            put "$source" "$file" "$mode"
        fi
    done < <(settings)
    if [ -n "$destination" ]; then
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "Not root: the account \"balanza\" and its directories in /var were not made."
        return
    fi
    packaging/account.sh
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
    fi
    echo "Installed. Start it: systemctl enable --now balanza"
    echo "If an older one runs: $prefix/lib/balanza/upgrade replaces it and loses no connection."
}

# Removes a directory and those above it that are empty, but none that every system has.
remove_empty() {
    local directory=$1
    while [ "$directory" != / ]; do
        case $directory in
            /usr | /opt | /usr/local | /usr/bin | /usr/lib | /usr/share | /usr/share/man) break ;;
            /usr/local/bin | /usr/local/lib | /usr/local/share | /usr/local/share/man) break ;;
        esac
        rmdir "$destination$directory" 2>/dev/null || break
        directory=$(dirname "$directory")
    done
}

uninstall_all() {
    local source file mode
    if [ -z "$destination" ] && [ -d /run/systemd/system ]; then
        systemctl disable --now balanza.service || true
    fi
    if [ -z "$destination" ] && [ -x "$prefix/lib/balanza/as-nginx" ]; then
        "$prefix/lib/balanza/as-nginx" off || true
    fi
    while read -r source file mode; do
        rm -f "$destination$file"
        remove_empty "$(dirname "$file")"
    done < <(files)
    # Settings that were never changed go too.
    while read -r source file mode; do
        put "$source" "$file.default" "$mode"
        if [ -e "$destination$file" ] && cmp -s "$destination$file" "$destination$file.default"; then
            rm -f "$destination$file"
        fi
        rm -f "$destination$file.default"
    done < <(settings)
    rmdir "$destination$etc/balanza" 2>/dev/null || echo "kept: $destination$etc/balanza, which was changed"
    if [ -z "$destination" ]; then
        if [ -d /run/systemd/system ]; then
            systemctl daemon-reload
        fi
        echo "Kept: /var/log/balanza, /var/lib/balanza and the account \"balanza\"."
    fi
}

case ${1:-} in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) echo "usage: $0 install|uninstall" >&2; exit 1 ;;
esac
