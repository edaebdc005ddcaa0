#!/bin/bash
# Installs, from Debian, what the tests and the benchmark need and this machine lacks. Starts none of Debian's services.
#
#   scripts/install-test-tools.sh           install what is missing
#   scripts/install-test-tools.sh --list    only say what that is
#
# ONLY="nginx siege" leaves out all packages but these.
set -euo pipefail

# command:package; a command that any package provided will do.
wanted=(
    cc:build-essential
    make:build-essential
    nginx:nginx
    haproxy:haproxy
    curl:curl
    ab:apache2-utils
    wrk:wrk
    siege:siege
    httperf:httperf
    h2load:nghttp2-client
    nghttpd:nghttp2-server
    testssl:testssl.sh
    slowhttptest:slowhttptest
    go:golang-go
    promtool:prometheus
    python3:python3
    snmpd:snmpd
    dnsmasq:dnsmasq-base
    redis-server:redis-server
    etcd:etcd-server
    dockerd:docker.io
    psql:postgresql-client
    ssh:openssh-client
    sshd:openssh-server
    faketime:faketime
    valgrind:valgrind
    chromium:chromium
    certbot:python3-certbot-nginx
    logrotate:logrotate
)
# What is left out where Debian does not have it: the benchmark counts CPU time where there is no perf, which some systems have only
# for their own kernels, and the lab compares with Caddy where there is one.
optional=(perf:linux-perf caddy:caddy)

export PATH=$PATH:/usr/sbin:/sbin
missing=()
for pair in "${wanted[@]}" "${optional[@]}"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
# Debian's python3 has venv without the part that makes pip.
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
# NGINX's headers, for the module.
[ -e /usr/share/nginx/src/conf_flags ] || missing+=(nginx-dev)

# Debian keeps the programs of PostgreSQL's server out of the path.
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)

# A module that NGINX loads.
[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing+=(libnginx-mod-stream)

if [ -n "${ONLY:-}" ]; then
    all=("${missing[@]}")
    missing=()
    for package in "${all[@]}"; do
        [[ " $ONLY " != *" $package "* ]] || missing+=("$package")
    done
fi
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi
echo "missing: ${missing[*]}"
if [ "${1:-}" = --list ]; then
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    echo "no apt-get here: install these by other means" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "neither root nor sudo: run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

# Packages ask this program before they start a service; 101 means no.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
    "${as_root[@]}" chmod 755 $policy
    trap '"${as_root[@]}" rm -f $policy' EXIT
fi
"${as_root[@]}" apt-get update -q
available=()
for package in "${missing[@]}"; do
    if [[ " ${optional[*]##*:} " = *" $package "* ]] && ! apt-cache show "$package" >/dev/null 2>&1; then
        echo "$package is not to be had here and is left out"
    else
        available+=("$package")
    fi
done
if [ ${#available[@]} -gt 0 ]; then
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${available[@]}"
fi
