#!/bin/sh
# Lets the commands of NGINX act on balanza: certbot, logrotate's file, the unit and the init script of NGINX.
#
#   as-nginx on      /usr/sbin/nginx is balanza; NGINX's own program is kept as /usr/sbin/nginx.distrib
#   as-nginx off     /usr/sbin/nginx is NGINX's own program again
#   as-nginx status  says which it is
#
# Neither starts or ends a process. Updates of NGINX's package leave the link as it is (dpkg-divert).
set -eu
link=/usr/sbin/nginx
kept=$link.distrib
balanza=@BIN@/balanza

is_on() { [ "$(readlink "$link" || true)" = "$balanza" ]; }
has_dpkg() { command -v dpkg-divert >/dev/null; }
must_be_root() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "balanza: only root can change $link" >&2
        exit 1
    fi
}

case ${1:-} in
    on)
        must_be_root
        if is_on; then exit 0; fi
        if [ ! -x "$balanza" ]; then
            echo "balanza: $balanza is missing" >&2
            exit 1
        fi
        if [ -e "$link" ] && [ -e "$kept" ]; then
            echo "balanza: $kept is in the way: it was made by another program; remove or rename it" >&2
            exit 1
        fi
        if has_dpkg; then
            dpkg-divert --quiet --local --divert "$kept" --rename --add "$link"
        elif [ -e "$link" ]; then
            mv "$link" "$kept"
        fi
        ln -s "$balanza" "$link"
        echo "balanza: $link is balanza; \"$0 off\" changes it back"
        ;;
    off)
        must_be_root
        if ! is_on; then exit 0; fi
        rm "$link"
        if has_dpkg; then
            dpkg-divert --quiet --local --divert "$kept" --rename --remove "$link"
        elif [ -e "$kept" ]; then
            mv "$kept" "$link"
        fi
        echo "balanza: $link is what it was before"
        ;;
    status)
        if is_on; then echo "$link is balanza"; else echo "$link is not balanza"; fi
        ;;
    *)
        echo "usage: $0 on|off|status" >&2
        exit 1
        ;;
esac
