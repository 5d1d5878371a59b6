"""Whether the plugin answers, and if not, which of the usual causes it is."""

from __future__ import annotations

from dataclasses import dataclass

from lam_vllm.commands.doctor_ask import Asked, Reply
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.commands.doctor_status import Status, problem_of

STATUS = "/v1/lam/status"
MOST_HELD = 64
"""Connections that are open at once to meet every API process."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The statuses of the API processes that answered, by process id; none where the plugin is not there.

    Each is one that can be read.
    """

    finding: Finding
    statuses: dict[int, Status]

    @property
    def status(self) -> Status:
        """That of the first process that answered."""
        return next(iter(self.statuses.values()))


def reach(server: Asked) -> Reached:
    """What came of asking for the plugin's status."""
    reply = server.ask(STATUS)
    first = reply.json
    if first is None or "algorithm" not in first:
        return Reached(_absent(server, reply), {})
    if problem := problem_of(first):
        return Reached(_unreadable(problem), {})
    statuses = {_process(first): first}
    wanted = int(first.get("processes") or 1)
    for other in server.ask_held(STATUS, min(MOST_HELD, 4 * max(2, wanted))):
        if (status := other.json) is not None and not problem_of(status):
            statuses.setdefault(_process(status), status)
        if 1 < wanted <= len(statuses):
            break
    return Reached(
        Finding("plugin", "active", f"{STATUS} answers; met {len(statuses)} of its {wanted} processes"), statuses
    )


def _process(status: Status) -> int:
    return int(status.get("process") or 0)


def _absent(server: Asked, reply: Reply) -> Finding:
    if reply.status is None:
        remedy = "check host and port of --url, and that the server has come up (its log, and GET /health)"
        return _missing("the server cannot be reached", f"{server.url}: {reply.text}", remedy)
    if reply.status in (401, 403):
        return _refused(server, reply.status)
    if reply.status == 404:
        return _not_found(server, reply)
    words = f"{STATUS} answers {reply.status}: {reply.text[:200]}"
    remedy = "look into the server's log; where a proxy stands before it, let it pass /v1/lam/"
    return _missing("the answer is not the plugin's", words, remedy)


def _unreadable(problem: str) -> Finding:
    remedy = "install the same version on both sides; check that --url is that of a server with this plugin"
    return _missing("its status cannot be read", problem, remedy)


def _refused(server: Asked, code: int) -> Finding:
    if server.has_key:
        why, remedy = "the key that was given is not one of the server's", "pass the server's key with --api-key"
    else:
        why, remedy = "the server asks for a key and none was given", "pass it with --api-key, or set LAM_API_KEY"
    why += "; whether the plugin is there is not told without one"
    return _missing(f"{code} for {STATUS}", why, remedy)


def _not_found(server: Asked, reply: Reply) -> Finding:
    version = (server.ask("/version").json or {}).get("version")
    found = f"404 for {STATUS}"
    if version is None:
        why = "something else than vLLM answers there: /version, which vLLM has, is not found either"
        return _missing(found, why, "point --url at vLLM itself; a proxy before it has to pass /v1/lam/")
    if reply.server and "uvicorn" not in reply.server.lower():
        why = f"vLLM {version} answers through {reply.server!r}, not through its Python front end"
        remedy = "ask vLLM itself, past any proxy; unset VLLM_USE_RUST_FRONTEND, whose front end runs no Python hook"
        return _missing(found, why, remedy)
    why = (
        f"vLLM {version} is up without the plugin: its environment does not hold the entry point, or VLLM_PLUGINS does "
        "not name lam, or it runs the Rust front end; its log says which plugins it found"
    )
    remedy = (
        "start it with `lam-vllm serve MODEL`, which checks all three; else pip install lam-vllm in vLLM's own "
        "environment, VLLM_PLUGINS=lam with every other plugin in use, VLLM_USE_RUST_FRONTEND unset"
    )
    return _missing(found, why, remedy)


def _missing(found: str, why: str, remedy: str) -> Finding:
    return Finding("plugin", found, why, wrong=True, remedy=remedy)
