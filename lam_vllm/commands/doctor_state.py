"""How the server was started, its encoder, and the counters that should stay at zero."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import lam_vllm
from lam_vllm.commands.doctor_finding import Finding

_ELSEWHERE = {
    "version",
    "vllm_version",
    "requests",
    "encoder",
    "store",
    "store_bytes",
    "hint",
    "config",
    "prefix_breaks",
    "lookups",
    "store_errors",
    "guard_band_violations",
}
"""What of the status has findings of its own, or is too long for a cell."""

_BREAKS = {
    "defect": "a rule of lam-vllm gave other bytes for a prefix that had been sent: please report it, with the log",
    "failed_open": "a failure let originals through; mend its cause (see the failures below or in the log)",
    "config_changed": "options changed inside a conversation: keep them for its whole length; switching on breaks once",
    "client_changed": "the client rewrites its own history: nothing to do here",
}
_LOOKUPS = {
    "expired": "the record is gone: raise --lam-store-bytes or --lam-store-retention-seconds",
    "unknown": "send the salt of the request in x-lam-cache-salt; after a restart ids need the same LAM_KEY and store",
}
_NEARLY_FULL = 0.9
_STORES = (
    "see the server's log; check that the store is up, that its disk has room and that the server may write there. "
    "Requests go on without it"
)


def state(statuses: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    """Versions, settings, store, encoder and worker, then what was broken, violated, not found or lost.

    A status holds sums over the processes of its server; what is of one process only is told for each that answered.
    """
    status = next(iter(statuses.values()))
    yield from versions(status)
    for name, value in status.items():
        if name not in _ELSEWHERE:
            yield Finding(f"server: {name}", _shown(value))
    yield from store(status.get("store"))
    for one in statuses.values():
        yield from encoder(one.get("encoder") or {})
    yield from troubles(status)


def versions(status: Mapping[str, Any]) -> Iterator[Finding]:
    """The server's versions against those here."""
    theirs, ours = str(status.get("version")), lam_vllm.__version__
    same = theirs == ours
    why = "the same as here" if same else f"here it is {ours}: what follows is read by other code than wrote it"
    yield Finding(
        "server: lam-vllm", theirs, why, remedy="" if same else "install the server's version here, or the other way"
    )
    if status.get("vllm_version"):
        yield Finding("server: vLLM", str(status["vllm_version"]), "checked by the plugin at start-up")


def store(facts: Any) -> Iterator[Finding]:
    """Where removed text is kept, and how full it is."""
    if not isinstance(facts, Mapping):
        return
    held, most = float(facts.get("bytes") or 0), float(facts.get("max_bytes") or 0)
    where = facts.get("url") or f"{facts.get('kind')}, of each process"
    found = f"{where}: {held:,.0f} of {most:,.0f} bytes"
    if facts.get("kept") is False:
        yield Finding("server: store", found, "requests that say nothing keep no removed text")
    elif held > _NEARLY_FULL * most:
        why = "it is nearly full: the oldest rows go first, and their look-ups fail"
        yield Finding("server: store", found, why, remedy="raise --lam-store-bytes where look-ups are wanted longer")
    else:
        yield Finding("server: store", found)


def encoder(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """The encoder and its worker process; why there is none, or why its device and its fast pass are those."""
    if not facts.get("name"):
        yield Finding("server: encoder", "none", str(facts.get("reason") or ""))
        return
    for name, value in facts.items():
        if not name.endswith("reason") and name != "restarts":
            why = facts.get("reason" if name == "name" else f"{name}_reason")
            yield Finding(f"server: encoder {name}", "" if value is None else str(value), str(why or ""))
    restarts = int(facts.get("restarts") or 0)
    if restarts:
        why = "the worker process died or hung so often; the requests of that time went through as they came"
        remedy = "look for its death in the log and the kernel's (out of memory?); fewer --lam-threads take less"
        yield Finding("server: worker restarts", str(restarts), why, wrong=True, remedy=remedy)
    else:
        yield Finding("server: worker restarts", "0")


def troubles(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Prefix breaks, guard band violations, failed look-ups and store errors since the server's start."""
    yield from _by_label("prefix breaks", status.get("prefix_breaks") or {}, _BREAKS, wrong={"defect"})
    violations = float(status.get("guard_band_violations") or 0)
    why = "audited requests were decided otherwise by canonical embeddings" if violations else ""
    remedy = "measure a wider band: lam-vllm calibrate encoder NAME runs.jsonl; then --lam-audit-rate 1 for a while"
    yield Finding(
        "guard band violations", f"{violations:g}", why, wrong=violations > 0, remedy=remedy if violations else ""
    )
    failed = {result: n for result, n in (status.get("lookups") or {}).items() if result != "found"}
    yield from _by_label("failed look-ups", failed, _LOOKUPS)
    errors = status.get("store_errors") or {}
    yield from _by_label("store errors", errors, dict.fromkeys(errors, _STORES), wrong=set(errors))


def _shown(value: Any) -> str:
    """A value of the status, which may be anything; of counts those that are not zero."""
    if isinstance(value, Mapping):
        return ", ".join(f"{label} {_plain(count)}" for label, count in value.items() if count) or "0"
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    return "" if value is None else str(value)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return "..."
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


def _by_label(
    what: str, counts: Mapping[str, float], remedies: Mapping[str, str], wrong: Container[str] = ()
) -> Iterator[Finding]:
    some = {label: count for label, count in counts.items() if count}
    if not some:
        yield Finding(what, "0")
    for label, count in sorted(some.items(), key=lambda item: (-item[1], item[0])):
        yield Finding(what, f"{count:g}", label, wrong=label in wrong, remedy=remedies.get(label, ""))
