"""A new leader whose watch of the nodes' documents is behind publishes nothing old."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aggregator.failover import read_repair
from contract.names import REPORT_LABEL
from tests.aggregator.nodes import T0
from tests.cluster.replicas import LEASE_SECONDS, begin_two, end_leader, replicas
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.apiserver import Place
    from tests.cluster.replicas import Replica

pytestmark = pytest.mark.looptime(resolution=2**-20)

BEHIND = pytest.mark.parametrize("interrupted", [True, False], ids=["interrupted", "late"])


def nodes(place: Place) -> bool:
    """Return whether it is a document of chips."""
    return place.namespace == "kube-system"


def blind(replica: Replica, *, interrupted: bool) -> None:
    """Stop the watch of a replica."""
    assert replica.client is not None
    (replica.client.go_blind if interrupted else replica.client.fall_behind)(nodes)


def sees(replica: Replica) -> None:
    """Resume the watch of a replica, with what it has missed."""
    assert replica.client is not None
    replica.client.catch_up()


@pytest.mark.slow
@BEHIND
async def test_a_fault_that_it_has_not_received_stays(tmp_path: Path, *, interrupted: bool) -> None:
    async with replicas(tmp_path) as site:
        for node in ("n1", "n2"):
            await site.device(node, config())
        one, other = await begin_two(site)
        blind(other, interrupted=interrupted)
        await site.device("n1", config(unhealthy=(3,), update_time=T0 + 1), 1)
        await site.device("n1", config(unhealthy=(3, 4), update_time=T0 + 2), 1)
        await end_leader(site, one, other, killed=True)
        assert site.unhealthy("n1") == "Ascend910-3,Ascend910-4"
        await site.device("n2", config(unhealthy=(1,), update_time=T0 + 3), 1)
        sees(other)
        await site.pass_time(10)
        assert site.shown_unhealthy("n1") == ["", "Ascend910-3", "Ascend910-3,Ascend910-4"]
        assert site.unhealthy("n2") == "Ascend910-1"
        await site.device("n1", config(update_time=T0 + 4), 1)
        assert site.unhealthy("n1") == ""


@pytest.mark.slow
async def test_document_newer_than_the_last_leader_is_read_by_name(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        await site.device("n1", config())
        one, other = await begin_two(site)
        blind(other, interrupted=False)
        await site.device("n1", config(unhealthy=(3,)), 1)
        await site.killed(one)
        await site.device("n1", config(unhealthy=(5,)), 1)
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        assert site.unhealthy("n1") == "Ascend910-5"
        sees(other)
        await site.device("n1", config(unhealthy=(6,)), 1)
        assert site.shown_unhealthy("n1") == ["", "Ascend910-3", "Ascend910-5", "Ascend910-6"]


@pytest.mark.slow
@BEHIND
async def test_a_node_that_it_has_not_received_stays(tmp_path: Path, *, interrupted: bool) -> None:
    async with replicas(tmp_path) as site:
        await site.device("n1", config())
        one, other = await begin_two(site)
        blind(other, interrupted=interrupted)
        await site.device("n2", config(unhealthy=(3,)), 1)
        await end_leader(site, one, other, killed=True)
        sees(other)
        await site.pass_time(60)
        assert site.shown_unhealthy("n2") == [None, "Ascend910-3"]


@pytest.mark.slow
async def test_one_that_was_deleted_meanwhile_is_dropped(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        for node in ("n1", "n2"):
            await site.device(node, config())
        one, other = await begin_two(site)
        blind(other, interrupted=True)
        await site.device("n1", config(unhealthy=(3,)), 1)
        await site.killed(one)
        await site.gone("n1", LEASE_SECONDS + 2)
        assert other.leads
        assert site.unhealthy("n1") == ""
        await site.pass_time(50)
        assert set(site.devices) == {"n2"}


@pytest.mark.slow
async def test_as_long_as_it_cannot_be_read_what_is_published_stays(tmp_path: Path) -> None:
    async with replicas(tmp_path) as site:
        for node in ("n1", "n2"):
            await site.device(node, config())
        one, other = await begin_two(site)
        blind(other, interrupted=True)
        faults = [fault(3, "RestartNPU", "80C98000")]
        await site.device("n1", config(faults, unhealthy=(3,)), 1)
        await site.killed(one)
        site.api.refuses = lambda _, place: nodes(place)
        await site.pass_time(100)
        assert other.leads
        assert site.unhealthy("n1") == "Ascend910-3"
        known = other.made.pipeline.published("n1").device
        assert known is not None
        assert known.unhealthy == ("Ascend910-3",), "jobs are informed of it too"
        assert [one.code for one in known.faults] == ["80C98000"]
        site.api.refuses = lambda *_: False
        await site.device("n1", config(unhealthy=(4,)), 10)
        assert site.shown_unhealthy("n1") == ["", "Ascend910-3", "Ascend910-4"]


@pytest.mark.slow
async def test_documents_of_many_nodes_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_repair, "_MAX_SINGLE_READS", 2)
    async with replicas(tmp_path) as site:
        names = [f"n{number}" for number in range(5)]
        for node in names:
            await site.device(node, config())
        one, other = await begin_two(site)
        blind(other, interrupted=False)
        for node in names[:3]:
            await site.device(node, config(unhealthy=(3,)), 1)
        await site.gone("n2")
        labels = {"labels": {REPORT_LABEL[0]: None}}
        path = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-n4"
        assert site.api.ask("PATCH", path, {"metadata": labels})[0] == 200
        await site.killed(one)
        asked = len(site.api.requests)
        await site.pass_time(LEASE_SECONDS + 2)
        assert other.leads
        reads = [place for method, place in site.api.requests[asked:] if nodes(place)]
        assert [place.name for place in reads] == [None]
        assert [site.unhealthy(node) for node in names[:2]] == ["Ascend910-3"] * 2
        sees(other)
        await site.pass_time(60)
        assert set(site.devices) == {"n0", "n1", "n3"}
        assert site.shown_unhealthy("n1") == ["", "Ascend910-3"]
