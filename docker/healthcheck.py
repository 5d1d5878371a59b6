"""Exit code 0 where the plugin answers on /v1/lam/status, 1 and the reason where it does not.

vLLM's own /health is no proof: vLLM serves on when a plugin cannot be loaded. The key is that of the environment
(VLLM_API_KEY, or the file that VLLM_API_KEY_FILE names), the server that of LAM_HEALTH_URL.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

TIMEOUT_SECONDS = 8.0
PATH = "/v1/lam/status"


def api_key(environment: Mapping[str, str]) -> str | None:
    """The key that the server asks for, None where it asks for none."""
    path = environment.get("VLLM_API_KEY_FILE")
    return Path(path).read_text(encoding="utf-8").strip() if path else environment.get("VLLM_API_KEY")


def trouble(environment: Mapping[str, str]) -> str | None:
    """Why the server is not well, None when it is."""
    url = environment.get("LAM_HEALTH_URL", "http://127.0.0.1:8000").rstrip("/") + PATH
    try:
        key = api_key(environment)
        request = Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            status = json.load(answer)
    except (URLError, OSError, ValueError) as error:
        return f"{url}: {error}"
    return None if isinstance(status, dict) and "algorithm" in status else f"{url}: not the answer of lam-vllm"


if __name__ == "__main__":
    reason = trouble(os.environ)
    if reason is not None:
        sys.exit(reason)
