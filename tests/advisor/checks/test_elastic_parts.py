"""Commands and forced deletions by ``vigil elastic`` are foretold where its parts are on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from advisor.advise import advise
from advisor.options import AdvisorOptions
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import ClusterSnapshot, LifecyclePolicy
from tests.advisor.controllers.elastic_fleet import CARDS, Fleet, entry

if TYPE_CHECKING:
    from advisor.report import Finding

NOW_MS = 1_795_450_000_000
POLICY = LifecyclePolicy(("PodEvicted",), "TerminateJob")


def cut(seconds: int | None) -> dict[str, object]:
    """Return an entry of a node whose link has been down for so long, as far as is known."""
    found = entry(network=CARDS[3])
    if seconds is not None:
        lists: Any = found["DeviceList"]
        times = {"81078603": {"fault_time": NOW_MS - seconds * 1000, "fault_level": "NotHandle"}}
        fault = {"fault_type": "CardNetworkUnhealthy", "npu_name": CARDS[3]}
        fault |= {"fault_time_and_level_map": times}  # type: ignore[dict-item]
        lists["huawei.com/Ascend910-Fault"] = json.dumps([fault])
    return found


def fleet(*names: str, nodes: int, **entries: dict[str, object]) -> ClusterSnapshot:
    """Return jobs of two pods that run on ``n0``, ``n1``, …, in this order."""
    made = Fleet(nodes, **entries)
    for number, name in enumerate(names):
        made.job(name, 2, created_at_ms=number)
    made.vcjobs = [
        msgspec.structs.replace(
            job, policies=(POLICY,), template=made.pods[0], phase="Running", version="5"
        )
        for job in made.vcjobs
    ]
    return made.snapshot()


def foretold(snapshot: ClusterSnapshot, **parts: bool) -> list[Finding]:
    """Return the findings about elastic training."""
    options = msgspec.structs.replace(AdvisorOptions(), **parts)
    report, _ = advise(snapshot, SchedulerState(), options)
    return [one for one in report.findings if one.code.startswith("ELASTIC_")]


@pytest.mark.parametrize(
    ("seconds", "shows"),
    [(19, None), (20, "for 20 s"), (95, "for 95 s"), (None, "since when is not known")],
)
def test_a_command_follows_a_link_that_is_down_for_20_seconds(
    seconds: int | None, shows: str | None
) -> None:
    snapshot = fleet("a", nodes=3, n0=cut(seconds))
    assert foretold(snapshot) == []
    found = foretold(snapshot, ends_on_network_faults=True)
    assert [(one.code, one.object) for one in found] == (
        [] if shows is None else [("ELASTIC_COMMAND", "Job ns/a")]
    )
    for one in found:
        assert f"a link on n0 is down, {shows}: " in one.text
        assert one.text.endswith("there is room for 2 pods")


def test_one_job_at_a_time() -> None:
    snapshot = fleet("a", "b", nodes=6, n0=cut(30), n2=cut(60))
    first, second = foretold(snapshot, ends_on_network_faults=True)
    assert "by a Command;" in first.text
    assert "by a Command once ns/a runs again;" in second.text


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {"minReplicas": "2"}},
        {"policies": ()},
        {"phase": "Pending"},
        {"annotations": {"minReplicas": "1", "npu-vigil/elastic": "off"}},
    ],
)
def test_no_command_without_another_place_or_a_condition(change: dict[str, Any]) -> None:
    """Of two nodes one has a link down, so there is room for one pod."""
    snapshot = fleet("a", nodes=2, n0=cut(30))
    assert len(foretold(snapshot, ends_on_network_faults=True)) == 1
    (job,) = snapshot.vcjobs
    snapshot = msgspec.structs.replace(snapshot, vcjobs=(msgspec.structs.replace(job, **change),))
    assert foretold(snapshot, ends_on_network_faults=True) == []


def dead(*, is_ready: bool, is_silent: bool, is_terminating: bool) -> ClusterSnapshot:
    """Return job ``a``, of which one pod is on ``n0``."""
    snapshot = fleet("a", nodes=3)
    nodes = tuple(
        msgspec.structs.replace(one, is_ready=is_ready or one.name != "n0")
        for one in snapshot.nodes
    )
    pods = tuple(
        msgspec.structs.replace(one, is_terminating=is_terminating) for one in snapshot.pods
    )
    name = "cluster-info-node-cm"
    status = "UnHealthy" if is_silent else "Healthy"
    text = json.dumps({"mindx-dl-nodeinfo-n0": {"FaultDevList": [], "NodeStatus": status}})
    (document,) = snapshot.configmaps
    host = msgspec.structs.replace(document, name=name, data={name: text})
    return msgspec.structs.replace(snapshot, nodes=nodes, pods=pods, configmaps=(document, host))


@pytest.mark.parametrize("is_terminating", [True, False])
def test_a_pod_of_a_dead_node_that_ends_or_is_deleted_now_is_deleted_by_force(
    is_terminating: bool,
) -> None:
    snapshot = dead(is_ready=False, is_silent=True, is_terminating=is_terminating)
    assert foretold(snapshot) == []
    (one,) = foretold(snapshot, deletes_on_dead_nodes=True)
    assert (one.code, one.object) == ("ELASTIC_FORCED_DELETION", "Pod ns/a-0")
    assert "for more than 900 s" in one.text


@pytest.mark.parametrize(("is_ready", "is_silent"), [(True, True), (False, False), (True, False)])
def test_no_pod_is_deleted_by_one_sign(is_ready: bool, is_silent: bool) -> None:
    snapshot = dead(is_ready=is_ready, is_silent=is_silent, is_terminating=True)
    assert foretold(snapshot, deletes_on_dead_nodes=True) == []
