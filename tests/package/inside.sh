#!/bin/bash
# What scripts/check-package.sh does with a package, in namespaces of its own: no network but its own loopback, so that
# port 80 is free; processes end with it.
#
#   inside.sh ROOT PACKAGE NEXT BROKEN
#
# ROOT is a Debian system, PACKAGE is installed there, NEXT is the same of a later version, and BROKEN a version whose
# program does not start.
set -euo pipefail
root=$1
here=$(dirname "$0")
ip link set lo up
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
for package in "$2" "$3" "$4"; do
    cp "$package" "$root/root/"
done
package=/root/$(basename "$2")
next=/root/$(basename "$3")
broken=/root/$(basename "$4")

step=0
say() { step=$((step + 1)); echo "  $step. $*"; }
fail() {
    echo "FAILED: $*" >&2
    tail -n 20 "$root/var/log/balanza/error.log" 2>/dev/null >&2
    exit 1
}
in_root() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
dpkg_in_root() {
    in_root dpkg "$@" >"$root/root/dpkg.log" 2>&1 || { cat "$root/root/dpkg.log" >&2; fail "dpkg $*"; }
}
page() { curl --silent --show-error --max-time 10 http://127.0.0.1/; }
pid() { cat "$root/run/balanza/balanza.pid"; }
# Waits up to 20 seconds.
until_true() {
    local tries
    for tries in {1..200}; do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    return 1
}
gone() { [ ! -d "/proc/$1" ]; }
# The unit's command, with the account and the privileges that it names.
unit() {
    local command
    # Several commands of one kind are done one after the other.
    command=$(sed -n "s/^$1=//p" "$root/usr/lib/systemd/system/balanza.service" | awk 'NR > 1 { printf " && " } { printf "%s", $0 }')
    in_root setpriv --reuid balanza --regid balanza --init-groups --inh-caps=-all,+net_bind_service \
        --ambient-caps=-all,+net_bind_service --bounding-set=-all,+net_bind_service --no-new-privs \
        sh -c "umask 0027; $command"
}
# Every file of the system but dpkg's and the logs of dpkg.
everything() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/lib/dpkg -o -path ./root -o -path ./tmp \
        -o -path ./var/lib/systemd -o -path ./var/cache \) -prune -o -print | sort |
        grep -vE '^\./(var/log/(dpkg|alternatives)\.log|etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/\.pwd\.lock|var/lib/logrotate/status|etc/ld.so.cache)$')
    sort "$root/etc/passwd" "$root/etc/group"
}

everything >"$root/root/before"

say "install: an account, no process, a configuration that is valid"
dpkg_in_root -i "$package"
in_root getent passwd balanza >/dev/null || fail "no account"
[ "$(in_root dpkg-query -W -f '${Status}' balanza)" = "install ok installed" ] || fail "not installed"
[ ! -e "$root/run/balanza/balanza.pid" ] || fail "something was started without a service manager"
in_root dpkg-query -W -f '${Conffiles}' balanza | grep -q ' /etc/balanza/nginx.conf ' || fail "nginx.conf is no conffile"
install -d -o "$(in_root id -u balanza)" -g "$(in_root id -g balanza)" "$root/run/balanza"
in_root balanza -t 2>"$root/root/test" || fail "-t: $(cat "$root/root/test")"
grep -q '/etc/balanza/nginx.conf' "$root/root/test" || fail "another configuration is tested: $(cat "$root/root/test")"

say "another program listens on port 80: the start fails and says so"
python3 -m http.server --bind 0.0.0.0 80 >/dev/null 2>&1 &
other=$!
until_true page >/dev/null 2>&1 || fail "no other program"
if unit ExecStart 2>"$root/root/start"; then fail "started on a port in use"; fi
grep -q 'Address already in use' "$root/root/start" || fail "no reason: $(cat "$root/root/start")"
kill $other
wait $other || true

say "start with the unit's command: the page, no process of root's"
unit ExecStart || fail "the start"
page | grep -q 'Balanza works' || fail "no page"
owners=$(ps -o uid= -g "$(pid)" | sort -u | tr -d ' \n')
[ "$owners" = "$(in_root id -u balanza)" ] || fail "processes of the accounts: $owners"
in_root man -w balanza >/dev/null 2>&1 || [ -e "$root/usr/share/man/man1/balanza.1.gz" ] || fail "no manual page"

say "reload with the unit's command, and refuse what is wrong"
sed -i 's,location / {,location / { add_header X-Changed yes;,' "$root/etc/balanza/nginx.conf"
unit ExecReload || fail "the reload"
changed() { curl --silent --head http://127.0.0.1/ | grep -qi '^x-changed: yes'; }
until_true changed || fail "the reload changed nothing"
sed -i 's/add_header/add_haeder/' "$root/etc/balanza/nginx.conf"
if unit ExecReload 2>"$root/root/reload"; then fail "a wrong configuration was accepted"; fi
grep -q add_haeder "$root/root/reload" || fail "no reason: $(cat "$root/root/reload")"
changed || fail "the old configuration is not served"
sed -i 's/add_haeder/add_header/' "$root/etc/balanza/nginx.conf"

say "rotate the logs"
in_root logrotate -f /etc/logrotate.d/balanza || fail "logrotate"
page >/dev/null
written() { [ -s "$root/var/log/balanza/access.log" ] && [ -s "$root/var/log/balanza/access.log.1" ]; }
until_true written || fail "no new log: $(ls -l "$root/var/log/balanza")"

say "upgrade under load: no request fails, the changed configuration stays"
old=$(pid)
coproc client { python3 "$here/client.py" http://127.0.0.1/; }
sleep 2
dpkg_in_root -i "$next"
grep -q "has replaced process $old" "$root/root/dpkg.log" || fail "not replaced: $(cat "$root/root/dpkg.log")"
until_true gone "$old" || fail "the old process goes on"
sleep 2
client_pid=$client_PID
exec 3<&"${client[0]}"
exec {client[1]}>&-
result=$(cat <&3)
wait "$client_pid" || fail "requests failed: $result"
echo "     $result"
[ "$(pid)" != "$old" ] || fail "the same process"
cmp "/proc/$(pid)/exe" "$root/usr/bin/balanza" || fail "the process is not the new program"
changed || fail "the configuration was changed"

say "upgrade to a program that does not start: the old one goes on"
old=$(pid)
dpkg_in_root -i "$broken"
[ "$(pid)" = "$old" ] || fail "$(pid) instead of $old"
changed || fail "not served"
dpkg_in_root -i "$next"
until_true gone "$old" || fail "the process was not replaced later"
changed || fail "not served"

say "remove: the process ends, the configuration stays"
old=$(pid)
dpkg_in_root -r balanza
until_true gone "$old" || fail "the process goes on"
[ -e "$root/etc/balanza/nginx.conf" ] && [ ! -e "$root/usr/bin/balanza" ] || fail "files"

say "install again and purge: nothing is left"
dpkg_in_root -i "$package"
grep -q X-Changed "$root/etc/balanza/nginx.conf" || fail "the configuration was replaced"
dpkg_in_root -P balanza
everything >"$root/root/after"
diff "$root/root/before" "$root/root/after" >"$root/root/difference" || fail "left: $(cat "$root/root/difference")"
