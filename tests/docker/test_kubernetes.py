"""The example for the vLLM production stack: names that its chart knows, and what Kubernetes itself accepts."""

from __future__ import annotations

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.docker.monitoring import DOCKER, RULES, load

KUBERNETES = "1.32"
ENGINE_VALUES = {"vllmApiKey", "securityContext", "containerSecurityContext", "serviceMonitor", "modelSpec"}
MODEL_VALUES = {
    "name", "repository", "tag", "modelURL", "replicaCount", "requestCPU", "requestMemory", "requestGPU", "pvcStorage",
    "vllmConfig", "env", "extraVolumes", "extraVolumeMounts",
}  # fmt: skip
"""The names of the chart vllm-stack that are used here, out of its values.yaml and its deployment template."""
NEEDED = {
    "name", "repository", "tag", "modelURL", "replicaCount", "requestCPU", "requestMemory", "requestGPU", "pvcStorage"
}  # fmt: skip
"""Without these its schema refuses a model."""


def values() -> dict[str, Any]:
    found: dict[str, Any] = load(DOCKER / "k8s/values.yaml")
    return found


def model() -> dict[str, Any]:
    (found,) = values()["servingEngineSpec"]["modelSpec"]
    assert isinstance(found, dict)
    return found


def test_the_values_have_names_and_types_of_the_chart() -> None:
    assert set(values()) == {"servingEngineSpec", "routerSpec"}
    assert set(values()["servingEngineSpec"]) == ENGINE_VALUES
    assert set(values()["routerSpec"]) == {"vllmApiKey", "routingLogic", "sessionKey"}
    assert NEEDED <= set(model()) <= MODEL_VALUES
    assert all(isinstance(model()[name], int) for name in ("replicaCount", "requestCPU", "requestGPU"))
    assert all(set(variable) == {"name", "value"} for variable in model()["env"])  # its schema wants both, as text
    assert all(isinstance(variable["value"], str) for variable in model()["env"])


def test_kubernetes_accepts_what_the_chart_makes_of_the_values() -> None:
    engine = values()["servingEngineSpec"]
    container = {
        "name": "vllm",
        "image": f"{model()['repository']}:{model()['tag']}",
        "command": ["vllm", "serve", model()["modelURL"], *model()["vllmConfig"]["extraArgs"]],
        "securityContext": engine["containerSecurityContext"],
        "env": model()["env"],
        "volumeMounts": model()["extraVolumeMounts"],
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine"},
        "spec": {
            "securityContext": engine["securityContext"],
            "containers": [container],
            "volumes": model()["extraVolumes"],
        },
    }
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    pod["spec"]["containers"][0]["volumeMounts"] = {}  # the schema would tell
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_plugin_is_named_and_replicas_share_a_store_and_its_key() -> None:
    environment = {variable["name"]: variable["value"] for variable in model()["env"]}
    assert environment["VLLM_PLUGINS"] == "lam"  # the chart starts `vllm serve`, which nobody tells about it
    assert model()["replicaCount"] > 1 and environment["LAM_STORE_URL"].startswith("redis://")
    (mount,), (volume,) = model()["extraVolumeMounts"], model()["extraVolumes"]
    (item,) = volume["secret"]["items"]
    assert environment["LAM_KEY_FILE"] == f"{mount['mountPath']}/{item['path']}"
    assert mount["name"] == volume["name"] and mount["readOnly"]
    assert volume["secret"]["defaultMode"] & 0o007 == 0


def test_the_settings_are_settings_of_the_plugin() -> None:
    from lam_vllm.serving.settings import SETTINGS

    names = {variable["name"] for variable in model()["env"] if variable["name"].startswith("LAM_")}
    names |= {
        name for name in load(DOCKER / "compose.yaml")["services"]["vllm"]["environment"] if name.startswith("LAM_")
    }
    assert {name.removeprefix("LAM_").lower() for name in names} <= {*SETTINGS, "key_file"}


def test_the_server_ends_what_runs_before_kubernetes_ends_the_server() -> None:
    assert "terminationGracePeriodSeconds" not in model()  # so that it is the default, 30 seconds
    (seconds,) = [
        int(argument.partition("=")[2])
        for argument in model()["vllmConfig"]["extraArgs"]
        if argument.startswith("--shutdown-timeout=")
    ]
    assert seconds <= 20


def test_the_operators_rules_are_those_of_the_file() -> None:
    rule = load(DOCKER / "k8s/prometheus-rule.yaml")
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == load(RULES)
