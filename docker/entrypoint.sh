#!/bin/sh
# Starts the server. vLLM's API key may come from a file, such as a container's secret: a key in the environment of the
# container, or among the arguments, is shown to whoever may inspect it.
set -eu

if [ -n "${VLLM_API_KEY_FILE:-}" ]; then
    VLLM_API_KEY=$(cat "$VLLM_API_KEY_FILE")
    if [ -z "$VLLM_API_KEY" ]; then
        echo "entrypoint: $VLLM_API_KEY_FILE is empty; a server without a key is not started by mistake" >&2
        exit 2
    fi
    export VLLM_API_KEY
fi

exec lam-vllm serve "$@"
