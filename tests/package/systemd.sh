#!/bin/bash
# What scripts/check-package.sh does with a package under systemd. Runs in a container, as a service that starts at boot;
# the result is the last line of /root/log.
#
#   systemd.sh PACKAGE NEXT
set -uo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C
package=$1
next=$2
exec >/root/log 2>&1
trap 'sync; systemctl --no-block poweroff' EXIT

step=0
say() { step=$((step + 1)); echo "  $step. $*"; }
fail() {
    echo "FAILED: $*"
    systemctl status --no-pager --lines=20 balanza
    exit 1
}
install_package() { dpkg -i "$1" >/root/dpkg.log 2>&1 || fail "dpkg: $(cat /root/dpkg.log)"; }
page() { curl --silent --show-error --fail --max-time 10 http://127.0.0.1/ >/root/page; }
main() { systemctl show --value -p MainPID balanza; }
# Waits up to 30 seconds.
until_true() {
    local tries
    for tries in {1..300}; do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    return 1
}
active() { systemctl --quiet is-active balanza; }
another() { [ "$(main)" != "$1" ] && [ "$(main)" != 0 ]; }
gone() { [ ! -d "/proc/$1" ]; }
# Requests, one after the other, until the file is gone.
load() {
    local sent=0 failed=0
    while [ -e /root/load ]; do
        page || failed=$((failed + 1))
        sent=$((sent + 1))
    done
    echo "$sent $failed" >/root/sent
}
begin_load() { touch /root/load; load & loader=$!; sleep 1; }
end_load() {
    local sent failed
    rm /root/load
    wait $loader
    read -r sent failed </root/sent
    echo "     $sent requests, $failed failed"
    [ "$failed" = 0 ] && [ "$sent" -gt 10 ] || fail "requests"
}

say "NGINX listens on port 80: installed, said, neither started nor enabled, NGINX goes on"
systemctl start nginx || fail "no nginx"
install_package "$package"
grep -q 'it could not start' /root/dpkg.log || fail "nothing was said: $(cat /root/dpkg.log)"
! active && ! systemctl --quiet is-enabled balanza || fail "active or enabled"
systemctl --quiet is-active nginx && page || fail "nginx"
dpkg -P balanza >/dev/null 2>&1 || fail "purge"
systemctl disable --now nginx >/dev/null 2>&1

say "install: enabled and started"
install_package "$package"
active && systemctl --quiet is-enabled balanza || fail "not active and enabled: $(cat /root/dpkg.log)"
page && grep -q 'Balanza works' /root/page || fail "no page"
[ "$(ps -o user= -p "$(main)")" = balanza ] || fail "the account is $(ps -o user= -p "$(main)")"
[ "$(grep CapEff "/proc/$(main)/status" | cut -f 2)" = 0000000000000400 ] || fail "privileges"

say "reload: right and wrong"
systemctl reload balanza || fail "reload"
sed -i 's/worker_connections/worker_conections/' /etc/balanza/nginx.conf
if systemctl reload balanza 2>/dev/null; then fail "a wrong configuration was accepted"; fi
active && page || fail "not served"
journalctl --sync
journalctl -u balanza | grep -q worker_conections || fail "the journal has no reason"
sed -i 's/worker_conections/worker_connections/' /etc/balanza/nginx.conf

say "upgrade under load: systemd follows the new main process"
old=$(main)
begin_load
install_package "$next"
until_true another "$old" || fail "main process $(main) after $old"
until_true gone "$old" || fail "the old process goes on"
end_load
active || fail "not active"
cmp "/proc/$(main)/exe" /usr/bin/balanza || fail "not the new program"

say "the supervisor is killed under load: the worker goes on, systemd starts another supervisor"
old=$(main)
begin_load
kill -KILL "$old"
until_true another "$old" || fail "not started again"
until_true active || fail "not active"
end_load

say "stop, start, restart"
systemctl stop balanza && ! active && ! page 2>/dev/null || fail "stop"
! pgrep -u balanza >/dev/null || fail "processes are left: $(pgrep -a -u balanza)"
systemctl start balanza && page || fail "start"
systemctl restart balanza && page || fail "restart"

say "disabled and stopped: an upgrade does not start it"
systemctl disable --now balanza >/dev/null 2>&1
install_package "$package"
! active && ! systemctl --quiet is-enabled balanza || fail "active or enabled"

say "remove and purge: no unit, no account, no process"
systemctl enable --now balanza >/dev/null 2>&1 || fail "start"
dpkg -r balanza >/dev/null 2>&1 && ! active || fail "remove"
dpkg -P balanza >/dev/null 2>&1 || fail "purge"
! getent passwd balanza && [ ! -e /etc/systemd/system/multi-user.target.wants/balanza.service ] || fail "left"
left=$(find /etc /var /usr /run -xdev -name '*balanza*' -not -path '/var/lib/dpkg/*' 2>/dev/null)
[ -z "$left" ] || fail "left: $left"
echo "passed"
