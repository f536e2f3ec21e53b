"""The example of routes on a real Alertmanager."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.alerts.files import all_rules
from tests.alerts.watcher import Alertmanager, Receiver
from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.server

LOST = "NpuVigilNodeLost"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    with contextlib.closing(receiver):
        yield receiver


@pytest.fixture
def alertmanager(tmp_path: Path, receiver: Receiver) -> Iterator[Alertmanager]:
    alertmanager = Alertmanager(tmp_path, receiver.url)
    yield alertmanager
    alertmanager.stop()


def test_each_alert_that_was_sent_has_its_end_sent_while_the_node_is_lost(
    alertmanager: Alertmanager, receiver: Receiver
) -> None:
    """Alertmanager mutes the end of an alert, too: who has its message would wait for ever."""
    alerts = [
        {
            "alertname": rule.name,
            "component": rule.component,
            "severity": "critical" if "{{" in rule.severity else rule.severity,
            "node": "node-1",
        }
        for rule in all_rules()
    ]

    def sent(status: str) -> set[str]:
        return {n.labels["alertname"] for n in receiver.notices if n.status == status}

    wait_until(alertmanager.is_ready, "Alertmanager answers")
    others = [labels for labels in alerts if labels["alertname"] != LOST]
    for labels in others:
        alertmanager.post(labels)
    names = {labels["alertname"] for labels in others}
    wait_until(lambda: sent("firing") == names, lambda: names - sent("firing"))
    (lost,) = (labels for labels in alerts if labels["alertname"] == LOST)
    alertmanager.post(lost)
    wait_until(lambda: LOST in sent("firing"), "that the node is lost is sent")
    for labels in others:
        alertmanager.post(labels, is_over=True)
    wait_until(lambda: sent("resolved") == names, lambda: names - sent("resolved"))
