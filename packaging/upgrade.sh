#!/bin/sh
# Replaces a running balanza by the program that is installed now, without losing a connection. The old process goes on
# if the new one does not start. Does nothing if none runs.
#
#   upgrade [PID_FILE]     default: /run/balanza/balanza.pid
set -eu
pid_file=${1:-/run/balanza/balanza.pid}

# A pid that stands in the file and is a process's, or nothing.
running() {
    if [ -s "$1" ] && read -r pid <"$1" && [ -d "/proc/$pid" ]; then echo "$pid"; fi
}
# As the account that owns the pid file, which can signal its own processes only.
signal() {
    if [ "$owner" = "$(id -u)" ]; then
        kill "-$1" "$2"
    else
        setpriv --reuid "$owner" --clear-groups sh -c 'kill "-$1" "$2"' sh "$1" "$2"
    fi
}
# Whether a process has a child, which is its worker.
has_worker() {
    for stat in /proc/[0-9]*/stat; do
        # The name of a program may have spaces; its parent's id is the second word behind it.
        line=$(cat "$stat" 2>/dev/null) || continue
        rest=${line##*) }
        rest=${rest#* }
        [ "${rest%% *}" != "$1" ] || return 0
    done
    return 1
}
# Waits up to 20 seconds.
until_true() {
    tries=200
    while ! "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}
no_predecessor() { [ -z "$(running "$pid_file.oldbin")" ]; }
successor_serves() {
    new=$(running "$pid_file")
    [ -n "$new" ] && [ "$new" != "$old" ] && has_worker "$new"
}

if [ -z "$(running "$pid_file")" ]; then exit 0; fi
if ! until_true no_predecessor; then
    echo "balanza: an earlier upgrade still runs ($pid_file.oldbin): process $(running "$pid_file.oldbin") was not replaced" >&2
    exit 1
fi
old=$(running "$pid_file")
owner=$(stat -c %u "$pid_file")
signal USR2 "$old"
if ! until_true successor_serves; then
    echo "balanza: the new program does not serve; the old one (process $old) goes on. The error log says why." >&2
    exit 1
fi
# The worker has started; a second for it to accept, as both accept meanwhile.
sleep 1
signal QUIT "$old"
echo "balanza: process $new has replaced process $old, which finishes what it has in flight"
