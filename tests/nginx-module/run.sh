#!/bin/sh
# Tests the module inside a real NGINX.
#
#   tests/nginx-module/run.sh                     with the installed NGINX and the module built for it
#   tests/nginx-module/run.sh -k reload           some of them
#   NGINX=/path/to/nginx MODULE=/path/to/ngx_http_balanza_module.so tests/nginx-module/run.sh
#   SOAK_REQUESTS=1000000 tests/nginx-module/run.sh -m soak
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec env TESTS="$here" "$here/../e2e/run.sh" "$@"
