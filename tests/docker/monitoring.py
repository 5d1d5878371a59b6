"""What docker/ ships for Prometheus and Grafana, as data: rules, alerts, and the queries of the dashboard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
RULES = DOCKER / "prometheus/rules/lam.yml"
DASHBOARD = DOCKER / "grafana/dashboards/lam.json"


@dataclass(frozen=True)
class Query:
    """A query of the dashboard, and the panel that shows it."""

    panel: str
    expression: str


def load(path: Path) -> Any:
    """A YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules(kind: str) -> list[dict[str, Any]]:
    """The rules of one kind, `record` or `alert`, in order."""
    return [rule for group in load(RULES)["groups"] for rule in group["rules"] if kind in rule]


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard, rows left out."""
    return [panel for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[Query]:
    """Every query of every panel."""
    return [Query(panel["title"], target["expr"]) for panel in panels() for target in panel.get("targets", ())]


def substituted(expression: str, interval: str, time_shown: str) -> str:
    """A query of the dashboard as Grafana sends it, with every job and instance chosen."""
    for variable, value in (
        ("$__rate_interval", interval),
        ("$__range", time_shown),
        ("$job", ".*"),
        ("$instance", ".*"),
    ):
        expression = expression.replace(variable, value)
    return expression
