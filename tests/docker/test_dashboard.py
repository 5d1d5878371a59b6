"""The dashboard is what its description builds, and asks for nothing that nobody exports."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from lam_vllm.metrics import Metrics
from tests.docker.monitoring import DASHBOARD, DOCKER, dashboard_queries, load, panels, rules, substituted

NAME = re.compile(r"\b(?:lam|vllm|job|instance):[a-z0-9_:]+")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def own_metrics() -> set[str]:
    """The names of every sample that lam_vllm.metrics can make."""
    registry = CollectorRegistry()
    Metrics(registry)
    return {family.name + suffix for family in registry.collect() for suffix in SUFFIXES[family.type]}


def engine_metrics() -> set[str]:
    """The names of every sample that vLLM's own loggers can make, by their source."""
    spec = find_spec("vllm")
    assert spec is not None and spec.submodule_search_locations
    source = (Path(spec.submodule_search_locations[0]) / "v1/metrics/loggers.py").read_text(encoding="utf-8")
    families = re.findall(r'name="(vllm:[a-z0-9_]+)"', source)
    suffixes = itertools.chain(*SUFFIXES.values())
    return {family + suffix for family, suffix in itertools.product(families, [*suffixes])}


def expressions() -> Iterator[str]:
    """Every query and every rule."""
    yield from (query.expression for query in dashboard_queries())
    yield from (rule["expr"] for rule in rules("record") + rules("alert"))


def test_the_committed_dashboard_is_what_the_description_builds(tmp_path: Path) -> None:
    built = tmp_path / "lam.json"
    subprocess.run([sys.executable, DOCKER / "grafana/dashboards.py", built], check=True, timeout=60)
    assert built.read_text(encoding="utf-8") == DASHBOARD.read_text(encoding="utf-8")


def test_every_metric_that_is_asked_for_is_exported_or_recorded() -> None:
    known = own_metrics() | engine_metrics() | {rule["record"] for rule in rules("record")}
    asked = {name for expression in expressions() for name in NAME.findall(expression)}
    assert asked <= known
    assert {"lam:requests_total", "vllm:num_requests_running", "instance:lam_store_fill:ratio"} <= asked


def test_every_metric_of_ours_is_shown() -> None:
    """By the dashboard itself, or by a figure or an alert that it shows."""
    shown = " ".join(expressions())
    families = {name.removesuffix("_sum").removesuffix("_count").removesuffix("_bucket") for name in own_metrics()}
    assert {name for name in families if name not in shown} == {"lam:canonical_windows_total"}  # = source="canonical"


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    queries = [substituted(query.expression, "1m", "1h") for query in dashboard_queries()]
    group = {"name": "queries", "rules": [{"record": f"query_{n}", "expr": query} for n, query in enumerate(queries)]}
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [query for query in queries if "$" in query]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_every_panel_says_what_it_means(panel: dict[str, Any]) -> None:
    text = panel["options"]["content"] if panel["type"] == "text" else panel["description"]
    assert text.strip().endswith((".", ").", '".'))
    if panel["type"] in ("stat", "timeseries"):
        assert panel["fieldConfig"]["defaults"]["unit"]
    if panel["type"] == "timeseries":
        assert all(target["legendFormat"] for target in panel["targets"])


def test_panels_neither_share_a_number_nor_a_place() -> None:
    every = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in every)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_job_and_instance_can_be_chosen_and_every_query_heeds_them() -> None:
    variables = {each["name"]: each for each in json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert all(variables[name]["multi"] and variables[name]["includeAll"] for name in ("job", "instance"))
    for query in dashboard_queries():
        names = len(NAME.findall(query.expression)) or 1
        assert query.expression.count('job=~"$job"') == names, query


def test_grafana_is_provisioned_with_the_dashboard_and_its_source() -> None:
    (source,) = load(DOCKER / "grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    (provider,) = load(DOCKER / "grafana/provisioning/dashboards/lam.yaml")["providers"]
    compose = load(DOCKER / "compose.yaml")["services"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in compose
    mounts = dict(volume.split(":")[:2] for volume in compose["grafana"]["volumes"])
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    interval = load(DOCKER / "prometheus/prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
