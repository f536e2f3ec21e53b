"""What the options do where parts of Kubernetes 1.36 have no switches for DeviceTaintRules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.node.scheduling import SERVER, PlainPlane, SchedulingSite
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.server, pytest.mark.daemon, pytest.mark.timeout(400)]

SEPARATE, SERVER_PRE_SEPARATE = "80E18402", "00000003"
OPTIONS = {"DEVICE_TAINTS_ENABLED": "true", "NODE_TAINTS_ENABLED": "true"}


def test_an_api_server_without_rules_is_named_and_nodes_are_tainted(
    tmp_path: Path, built: Path
) -> None:
    with SchedulingSite(PlainPlane(tmp_path), built, OPTIONS) as site:
        site.until(lambda: "--runtime-config=resource.k8s.io/v1beta2" in site.warnings(), "named")
        site.break_chip(3, SEPARATE)
        site.run("on-3", [3])
        site.until(lambda: site.is_placed("on-3"), "no rule keeps it away")
        site.break_server(SERVER_PRE_SEPARATE)
        site.until(lambda: bool(site.taints()), "the Node is tainted")
        site.run("waits")
        site.until(lambda: bool(site.refusal("waits")), "the taint keeps it away")
        site.repair(SERVER, SERVER_PRE_SEPARATE)
        site.until(lambda: site.is_placed("waits"), "the taint is lifted")


def test_a_rule_that_no_program_acts_on_evicts_no_pod(tmp_path: Path, built: Path) -> None:
    with SchedulingSite(ControlPlane(tmp_path), built, OPTIONS) as site:
        site.run("stays", [3])
        site.until(lambda: site.is_placed("stays"), "it runs")
        site.break_chip(3, SEPARATE)
        site.until(lambda: site.effect(3) == "None", "the first write")
        # The answer is late after 60 s.
        site.until(lambda: site.effect(3) == "NoSchedule", "it evicts no pod", seconds=120)
        assert site.is_placed("stays")
