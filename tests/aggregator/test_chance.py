"""Two aggregators and what can happen to them and their store, by chance, in virtual time.

Whatever it was: nothing older is ever published, and when all is well again both publish the same
as one to which nothing happened.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.playing import cluster
from tests.cluster.replicas import (
    DEVICE,
    do_not_pause,
    nothing_older_came,
    numbered_state,
    pause_when_it_asks,
    replicas,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.apiserver import Client, Place
    from tests.cluster.playing import Cluster
    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

NODES = [f"n{number}" for number in range(6)]
PAUSES = (0.01, 0.1, 0.5, 1.0, 5.0, 12.0, 20.0)
BETWEEN = (0.0, 0.003, 0.05, 0.3, 2.0)
SEEDS = range(12)
_DEEDS = 25
_AT_LAST_SECONDS = 120


def reports(place: Place) -> bool:
    """Return whether it is a document of chips."""
    return place.namespace == "kube-system"


def own(place: Place) -> bool:
    """Return whether it is a document of aggregators or servers."""
    return place.namespace == "mindx-dl" and place.resource.endswith("configmaps")


class Chance:
    """What happens, by a seed; ``log`` lists it."""

    def __init__(self, site: Replicas, seed: int) -> None:
        self.log: list[str] = []
        self.states: dict[str, int] = {}
        self.lives: dict[str, Replica] = {}
        self._site = site
        self._chance = random.Random(seed)
        self._number = 0
        self._paused: set[str] = set()
        self._deeds = {
            "nothing": self._nothing,
            "paused": self._pause,
            "paused as it writes": self._pause_in_a_write,
            "killed": self._kill,
            "asked to end": self._end,
            "the store is away": self._outage,
            "the store is slow": self._slow,
            "writes are refused": self._refuse,
            "the Lease is refused": self._refuse_lease,
            "hears nothing of": self._go_blind,
            "hears late of": self._fall_behind,
            "a node is deleted": self._delete,
            "all is well": self._heal,
        }

    async def happens(self) -> None:
        """Run all random events of the test."""
        for node in NODES:
            await self._change(node)
        for name in ("one", "other"):
            self.lives[name] = await self._site.begin(name, 3)
        for _ in range(_DEEDS):
            name = self._chance.choice(sorted(self.lives))
            what = self._chance.choice([*self._deeds, "all is well"])
            seconds = self._chance.choice(PAUSES)
            self.log.append(f"{self._site.at_ms} ms: {name} {what}, {seconds} s")
            await self._deeds[what](name, seconds)
            for _ in range(self._chance.randint(0, 4)):
                await self._change(self._chance.choice(NODES))
                await self._site.pass_time(self._chance.choice(BETWEEN))
        for name in self.lives:
            await self._heal(name, 0)
        await self._site.pass_time(_AT_LAST_SECONDS)

    async def _change(self, node: str) -> None:
        self._number += 1
        self.states[node] = self._number
        self.log.append(f"{self._site.at_ms} ms: {node} is in state {self._number}")
        await self._site.device(node, numbered_state(self._number))

    def _client(self, name: str) -> Client:
        client = self.lives[name].client
        assert client is not None
        return client

    async def _nothing(self, _: str, seconds: float) -> None:
        await self._site.pass_time(seconds)

    async def _pause(self, name: str, seconds: float) -> None:
        self._paused.add(name)
        self._site.pause(self.lives[name])
        await self._site.pass_time(seconds)

    async def _pause_in_a_write(self, name: str, seconds: float) -> None:
        if name not in self._paused:
            self._paused.add(name)
            pause_when_it_asks(self._site, self.lives[name], "PUT", DEVICE)
        await self._change(self._chance.choice(NODES))
        await self._site.pass_time(seconds)

    async def _kill(self, name: str, seconds: float) -> None:
        self._paused.discard(name)
        await self._site.killed(self.lives[name])
        await self._site.pass_time(seconds)
        self.lives[name] = await self._site.begin(name, 1)

    async def _end(self, name: str, seconds: float) -> None:
        if name in self._paused:
            return
        await self._site.stop(self.lives[name])
        await self._site.pass_time(seconds)
        self.lives[name] = await self._site.begin(name, 1)

    async def _outage(self, _: str, seconds: float) -> None:
        self._site.api.go_down()
        await self._site.pass_time(seconds)
        self._site.api.come_back()

    async def _slow(self, _: str, seconds: float) -> None:
        self._site.api.seconds = self._chance.choice((2**-8, 2**-4, 0.5))
        await self._site.pass_time(seconds)

    async def _refuse(self, _: str, seconds: float) -> None:
        self._site.api.refuses = lambda method, place: method != "GET" and own(place)
        await self._site.pass_time(seconds)
        self._site.api.refuses = lambda *_: False

    async def _refuse_lease(self, _: str, seconds: float) -> None:
        self._site.api.refuses = lambda _, place: "leases" in place.resource
        await self._site.pass_time(seconds)
        self._site.api.refuses = lambda *_: False

    async def _go_blind(self, name: str, seconds: float) -> None:
        self._client(name).go_blind(self._chance.choice((reports, own)))
        await self._site.pass_time(seconds)

    async def _fall_behind(self, name: str, seconds: float) -> None:
        self._client(name).fall_behind(self._chance.choice((reports, own)))
        await self._site.pass_time(seconds)

    async def _delete(self, _: str, seconds: float) -> None:
        node = self._chance.choice(NODES)
        self.states.pop(node, None)
        self.log.append(f"{self._site.at_ms} ms: {node} is gone")
        await self._site.gone(node, seconds)

    async def _heal(self, name: str, seconds: float) -> None:
        self._site.api.seconds = 2**-8
        self._paused.discard(name)
        do_not_pause(self.lives[name])
        self._site.go_on(self.lives[name])
        self._client(name).catch_up()
        await self._site.pass_time(seconds)


def entries(site: Cluster) -> dict[str, Any]:
    """Return what is published of the nodes, without the stamps, which count changes."""
    return {node: one | {"UpdateTime": 0} for node, one in site.devices.items()}


async def undisturbed(place: Path, states: dict[str, int]) -> dict[str, Any]:
    """Return what an aggregator publishes to which nothing happens."""
    async with cluster(place) as site:
        for node, number in states.items():
            await site.device(node, numbered_state(number))
        site.start()
        await site.pass_time(5)
        return entries(site)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_older_is_published_and_both_agree_at_last(tmp_path: Path, seed: int) -> None:
    async with replicas(tmp_path / "two") as site:
        chance = Chance(site, seed)
        await chance.happens()
        log = "\n".join(chance.log)
        assert nothing_older_came(site), log
        found = entries(site)
        (leader,) = (one for one in chance.lives.values() if one.leads)
        (follower,) = (one for one in chance.lives.values() if not one.leads)
        assert follower.made.queries.leadership.follows, log
        for one in (leader, follower):
            pipeline = one.made.pipeline
            assert not one.made.publication.readiness.health().not_ready, log
            assert pipeline.unconfirmed == frozenset(), log
            text = site.outputs[DEVICE][DEVICE]
            known = (pipeline.device.entries[node].text for node in chance.states)
            assert all(entry in text for entry in known), log
        assert not leader.made.publication.publishers[0].outputs[DEVICE].conflict, log
    assert found == await undisturbed(tmp_path / "one", chance.states), log
