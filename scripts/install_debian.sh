#!/usr/bin/env bash
# Install the programs that tests start, from Debian's packages: install_debian.sh COMMAND... Quick where all are there.
# Nothing is left running: Debian would start a service on its installation, and the tests start their own.
set -euo pipefail

# The package of each command. One that is not named here is not installed.
package_of() {
    case "$1" in
    chromium) echo chromium ;;
    redis-server) echo redis-server ;;
    prometheus | promtool) echo prometheus ;;
    *)
        echo "install_debian: no package is known for the command $1" >&2
        return 1
        ;;
    esac
}

packages=()
for command in "$@"; do
    command -v "$command" >/dev/null && continue
    package=$(package_of "$command")
    packages+=("$package")
done
[ ${#packages[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "install_debian: no apt-get to install ${packages[*]} with; install them by hand" >&2
    exit 1
fi

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
policy=/usr/sbin/policy-rc.d # asked before a service is started; 101 says no
log=$(mktemp)
made_policy=
cleanup() {
    rm -f "$log"
    [ -z "$made_policy" ] || ${as_root[@]+"${as_root[@]}"} rm -f "$policy"
}
trap cleanup EXIT

echo "install_debian: installing ${packages[*]}"
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$log"
    ${as_root[@]+"${as_root[@]}"} install -m 0755 "$log" "$policy"
    made_policy=yes
fi
if ! { ${as_root[@]+"${as_root[@]}"} apt-get update &&
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "install_debian: failed; as root: apt-get install ${packages[*]}" >&2
    exit 1
fi
