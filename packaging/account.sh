#!/bin/sh
# Makes the account "balanza" and the directories that belong to it.
set -eu
if ! getent passwd balanza >/dev/null; then
    group=--user-group
    if getent group balanza >/dev/null; then group="--gid balanza"; fi
    # shellcheck disable=SC2086
    useradd --system $group --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin balanza
fi
logs=adm
getent group adm >/dev/null || logs=balanza
# New logs get the group of their directory.
install -d -m 2750 -o balanza -g "$logs" /var/log/balanza
install -d -m 750 -o balanza -g balanza /var/lib/balanza
