#!/bin/sh
# Records the sequences of servers that a real NGINX chooses into the *.txt files beside this script.
# Needs nginx (1.22.1 of Debian 12 made the files in the repository) and python3, and the ports 16500 to 16580 of
# 127.0.0.1. About two minutes.
set -eu
exec python3 "$(dirname "$0")/record.py" "${NGINX:-nginx}"
