"""The metrics of a server with several API processes, in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from lam_vllm.metrics import Metrics

ROOT = Path(__file__).parents[2]

ONE_PROCESS = """
import sys
from lam_vllm.metrics import process_metrics

metrics, own = process_metrics(), float(sys.argv[1])
metrics.requests.labels("chat", "changed", "none").inc(own)
metrics.stub_tokens.inc(own)
metrics.removal_ratio.observe(own / 10)
metrics.raise_bounds(0.3, own / 10)
metrics.queue_depth.inc(own)
metrics.memo_bytes.labels("prefix").set(own)
metrics.store_bytes.labels("records").set(700)
print(metrics.counts("requests")["chat/changed/none"], metrics.counts("stub_tokens")[""])
sys.stdout.flush()
sys.stdin.read()  # live gauges are those of processes that live
"""


def started(folder: Path, own: int) -> tuple[subprocess.Popen[str], str]:
    """A process that has counted `own`, and what it says the server has counted so far."""
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_PROCESS, str(own)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_counters_add_up_over_processes_and_gauges_say_what_they_mean(tmp_path: Path) -> None:
    first, said_first = started(tmp_path, 1)
    second, said_second = started(tmp_path, 2)
    try:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
        sample = registry.get_sample_value
        assert (said_first, said_second) == ("1.0 1.0", "3.0 3.0")
        assert sample("lam:requests_total", {"api": "chat", "outcome": "changed", "reason": "none"}) == 3
        assert sample("lam:removal_ratio_count") == 2
        assert sample("lam:delta_hat_max") == 0.2
        assert sample("lam:queue_depth") == 3
        assert sample("lam:memo_bytes", {"memo": "prefix"}) == 3
        assert sample("lam:store_bytes", {"store": "records"}) == 700  # one store, seen by both
        assert {label for family in registry.collect() for each in family.samples for label in each.labels} <= {
            "api", "outcome", "reason", "layer", "stage", "cause", "source", "memo", "store", "result", "le",
        }  # fmt: skip
    finally:
        for process in (first, second):
            process.communicate("")
    assert (first.returncode, second.returncode) == (0, 0)


def test_counts_of_one_process_are_its_own() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.lookups.labels("found").inc()
    assert metrics.counts("lookups") == {"found": 1.0, "expired": 0.0, "unknown": 0.0}
    assert metrics.counts("stub_tokens") == {"": 0.0}
