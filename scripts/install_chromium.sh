#!/usr/bin/env bash
# Install the browser that the tests of the inspect page drive, from Debian's packages. Quick when one is there.
set -euo pipefail

if command -v chromium >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install_chromium: no chromium on the PATH and no apt-get to install one; install it by hand" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)

echo "install_chromium: installing chromium"
if ! { ${as_root[@]+"${as_root[@]}"} apt-get update &&
    ${as_root[@]+"${as_root[@]}"} apt-get install -y --no-install-recommends chromium; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "install_chromium: failed; as root: apt-get install chromium" >&2
    exit 1
fi
