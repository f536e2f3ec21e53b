"""The component with which the aggregator advises: switched on, with the rights for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aggregator.advising.cluster_objects import KINDS
from aggregator.config import load_aggregator
from tests.parts.kustomize import aggregator_container, build_with, object_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.server
def test_it_is_switched_on_and_may_read_each_kind(tmp_path: Path) -> None:
    items = build_with(tmp_path, "overlays/beside-device-plugin", "advice")
    environment = {
        entry["name"]: entry["value"] for entry in aggregator_container(items).get("env", [])
    }
    assert load_aggregator(None, environment, {}).advice.enabled
    granted = {
        (group, resource, verb)
        for item in items
        if item["kind"] == "ClusterRole" and item["metadata"]["name"].startswith("npu-vigil-aggreg")
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for kind in KINDS.values():
        parts = kind.path.split("/")
        group = "" if parts[1] == "api" else parts[2]
        assert {(group, parts[-1], "list"), (group, parts[-1], "watch")} <= granted, kind.name
    binding = object_of(items, "ClusterRoleBinding", "npu-vigil-aggregator-advice")
    assert binding["subjects"][0]["namespace"] == "mindx-dl"
