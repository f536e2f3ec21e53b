"""Labels of pods: set once by the leader, tried again; one pod does not delay the others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from aggregator.jobs.relation_state import PodLabel
from aggregator.notify.pod_labels import PodLabelWriter
from contract.errors import StoreError, StoreNotFound, StoreUnavailable
from tests.parts.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from stores.cluster import Cluster

pytestmark = pytest.mark.looptime

WANTED = tuple(PodLabel("default", f"train-{n}", f"uid-{n}", "Separate") for n in range(40))


class Pods:
    """A cluster's pods, of which some cannot be labelled."""

    def __init__(self) -> None:
        self.errors: dict[str, StoreError] = {}
        self.labels: dict[str, tuple[str | None, str | None]] = {}
        self.asked = 0
        self.seconds = 0.0

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str | None], uid: str | None = None
    ) -> None:
        self.asked += 1
        assert namespace == "default"
        await asyncio.sleep(self.seconds)
        if name in self.errors:
            raise self.errors[name]
        self.labels[name] = (labels["fault-type"], uid)


class Lead:
    """May write while the clock allows it."""

    leads = True


class Bench:
    def __init__(self, *pods: Pods) -> None:
        self.lead = Lead()
        self.wanted: tuple[PodLabel, ...] = ()
        clusters: list[Cluster] = list(pods)  # type: ignore[arg-type]
        self.labelling = PodLabelWriter(clusters, lambda: self.wanted, self.lead)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def labelling(*pods: Pods) -> AsyncIterator[Bench]:
    bench = Bench(*pods)
    async with beside(bench.labelling.run()):
        yield bench


async def test_a_follower_sets_no_labels_and_a_new_leader_sets_the_missing_ones() -> None:
    pods = Pods()
    async with labelling(pods) as bench:
        bench.wanted = WANTED[:1]
        bench.labelling.wake.set()
        await asyncio.sleep(10)
        assert pods.asked == 0
        await bench.labelling.set_leading(True)
        await asyncio.sleep(0.1)
        assert pods.labels == {"train-0": ("Separate", "uid-0")}
        await bench.labelling.set_leading(False)
        await asyncio.sleep(10)
        assert pods.asked == 1


async def test_it_is_set_again_only_when_the_store_does_not_show_it_for_long() -> None:
    pods = Pods()
    async with labelling(pods) as bench:
        await bench.labelling.set_leading(True)
        bench.wanted = WANTED[:1]
        bench.labelling.wake.set()
        await asyncio.sleep(1.9)
        assert pods.asked == 1
        await asyncio.sleep(1)
        assert pods.asked == 2
        bench.wanted = ()
        await asyncio.sleep(60)
        assert pods.asked == 2


async def test_one_that_cannot_be_set_is_in_nobodys_way(caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods()
    pods.errors["train-0"] = StoreError("no such luck")
    async with labelling(pods) as bench:
        await bench.labelling.set_leading(True)
        bench.wanted = WANTED
        bench.labelling.wake.set()
        await asyncio.sleep(0.1)
        assert len(pods.labels) == 39
        bench.wanted = WANTED[:1]
        await asyncio.sleep(60)
        assert pods.asked < 90, "it waits longer each time"
        del pods.errors["train-0"]
        await asyncio.sleep(10)
        assert len(pods.labels) == 40
    output = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert output == ["pod default/train-0 gets no label, trying again: no such luck"]


async def test_a_pod_of_another_store_and_one_that_is_gone() -> None:
    here, there = Pods(), Pods()
    here.errors["train-0"] = StoreNotFound("another pod")
    for pods in (here, there):
        pods.errors["train-1"] = StoreNotFound("gone")
    async with labelling(here, there) as bench:
        await bench.labelling.set_leading(True)
        bench.wanted = WANTED[:2]
        bench.labelling.wake.set()
        await asyncio.sleep(0.1)
        assert not here.labels
        assert there.labels.keys() == {"train-0"}


async def test_labelling_stops_between_two_pods_without_the_lease() -> None:
    """Check the clock before each label: a store refuses none of a replica that was paused."""
    pods = Pods()
    pods.seconds = 1.0
    async with labelling(pods) as bench:
        await bench.labelling.set_leading(True)
        bench.wanted = WANTED
        bench.labelling.wake.set()
        await asyncio.sleep(0.5)
        assert pods.asked == 8, "so many at once"
        bench.lead.leads = False
        await asyncio.sleep(60)
        assert pods.asked == 8


async def test_a_store_that_is_away_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods()
    pods.errors = {one.name: StoreUnavailable("away") for one in WANTED[:3]}
    async with labelling(pods) as bench:
        await bench.labelling.set_leading(True)
        bench.wanted = WANTED[:3]
        bench.labelling.wake.set()
        await asyncio.sleep(30)
        pods.errors.clear()
        await asyncio.sleep(6)
        assert len(pods.labels) == 3
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 1
