"""Prometheus' own tool on the scrape configuration, the rules and their unit tests; and what an alert has to say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docker.monitoring import DOCKER, RULES, load, rules

UNIT_TESTS = sorted((DOCKER / "prometheus/tests").glob("*.yml"))
ALERTS = [rule["alert"] for rule in rules("alert")]


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def unit_tests(alert: str) -> list[dict[str, Any]]:
    """What the unit tests say of an alert."""
    cases = [case for path in UNIT_TESTS for test in load(path)["tests"] for case in test.get("alert_rule_test", ())]
    return [case for case in cases if case["alertname"] == alert]


def test_prometheus_accepts_its_configuration() -> None:
    assert "SUCCESS: 1 rule files found" in promtool("check", "config", DOCKER / "prometheus/prometheus.yml")


def test_prometheus_accepts_the_rules() -> None:
    assert f"SUCCESS: {len(rules('record') + rules('alert'))} rules found" in promtool("check", "rules", RULES)


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: str(path.stem))
def test_alerts_fire_when_they_should(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", path)


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_firing_and_silent(alert: str) -> None:
    found = {bool(case["exp_alerts"]) for case in unit_tests(alert)}
    assert found == {True, False}


@pytest.mark.parametrize("alert", rules("alert"), ids=lambda rule: str(rule["alert"]))
def test_every_alert_says_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (DOCKER.parent / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor == alert["alert"].lower()
    assert alert["alert"] in headings


@pytest.mark.parametrize("alert", rules("alert"), ids=lambda rule: str(rule["alert"]))
def test_every_alert_is_a_condition_on_one_recorded_figure(alert: dict[str, Any]) -> None:
    recorded = [rule["record"] for rule in rules("record")]
    name, condition = re.fullmatch(r"([a-z0-9_:]+)(?:\{[^}]*\})? ((?:>|==) [0-9.]+)", alert["expr"]).groups()  # type: ignore[union-attr]
    assert name in recorded
    assert condition


def test_names_of_recorded_figures_are_level_metric_and_operation() -> None:
    for rule in rules("record"):
        level, _, operation = rule["record"].split(":")
        assert level in ("job", "instance")
        window = re.search(r"(?:rate|increase)(\d+[mh])$", operation)
        used = set(re.findall(r"\[(\w+)\]", rule["expr"]))
        assert window is None or used == {window[1]}
        assert re.search(rf"by \({level if level == 'job' else 'job, instance'}\b", rule["expr"])
