"""Sizes of ended jobs are computed from cluster-info as it is stored, not as a watch shows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from advisor.inputs import kubernetes_objects
from aggregator.advising import advice
from aggregator.advising.advice import AdviceService
from aggregator.advising.cluster_objects import KINDS
from aggregator.advising.sessions import Sessions
from contract.errors import StoreUnavailable
from service.clock import Instant
from stores.cluster import Snapshot, Update
from tests.advisor.checks.ended_jobs import ended, snapshot
from tests.advisor.controllers.elastic_fleet import CARDS, entry
from tests.parts.kubernetes_object import made_of
from tests.vigil.advise import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.cluster import ObjectKind

_UID = "u-document"


def _document(version: str) -> Any:
    raw = cluster.configmap("mindx-dl", "cluster-info-device-0", "{}", 20)
    raw["metadata"] |= {"uid": _UID, "resourceVersion": version}
    return kubernetes_objects.configmap(made_of(raw))


class _Behind:
    """A cluster whose watch has document 5, and shows 7 once ``arrives`` is set."""

    def __init__(self, stored: str | None) -> None:
        self.arrives = asyncio.Event()
        self.asked = asyncio.Event()
        self.is_listed = asyncio.Event()
        self._left = {kind.name for kind in KINDS.values()}
        self._stored = stored

    async def objects(self, kind: ObjectKind[Any]) -> AsyncIterator[Any]:
        """See ``Cluster``."""
        # Each kind is watched once, and these by the aggregator itself.
        assert kind.path.rpartition("/")[2] not in ("nodes", "pods", "podgroups")
        is_document = kind is KINDS["documents"]
        yield Snapshot({_UID: _document("5")} if is_document else {})
        self.is_listed_now(kind)
        if is_document:
            await self.arrives.wait()
            yield Update(_UID, _document("7"))
        await asyncio.Event().wait()

    def is_listed_now(self, kind: ObjectKind[Any]) -> None:
        """Note that a kind is listed."""
        self._left.remove(kind.name)
        if not self._left:
            self.is_listed.set()

    async def versions(self, kind: ObjectKind[Any]) -> dict[str, str]:
        """See ``Cluster``."""
        assert kind is KINDS["documents"]
        self.asked.set()
        if self._stored is None:
            raise StoreUnavailable("no answer in time")
        return {_UID: self._stored}


async def _not_known(stored: str | None, *, arrives: bool) -> tuple[str, ...]:
    """Return why nothing is known of ended jobs, asked while the watch shows document 5."""
    behind = _Behind(stored)
    loop = asyncio.get_running_loop()

    def clock() -> Instant:
        at_ms = int(loop.time() * 1000)
        return Instant(at_ms, at_ms)

    advising = AdviceService(cast("Any", behind), clock, lambda _: None)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(advising.run())
        for name, kind in advising.shared_kinds.items():
            advising.observe_objects(name, Snapshot({}))
            behind.is_listed_now(kind)
        await behind.is_listed.wait()
        asked = tasks.create_task(advising.ended((), ()))
        await behind.asked.wait()
        assert asked.done() is (stored is None), "it does not wait"
        if arrives:
            behind.arrives.set()
        found = await asked
        following.cancel()
    return tuple(one for one in found.not_known if "documents" in one)


async def test_the_answer_waits_for_what_is_stored() -> None:
    assert await _not_known("7", arrives=True) == ()


async def test_a_watch_that_stays_behind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "_CATCH_UP_MS", 50)
    (found,) = await _not_known("7", arrives=False)
    assert "older than what is stored" in found


async def test_nothing_is_known_before_the_store_was_read() -> None:
    (found,) = await _not_known(None, arrives=False)
    assert "no answer in time" in found


@pytest.mark.parametrize("after_ms", [0, 1, 999, 1000, 1001])
def test_a_fault_within_the_second_of_a_session_counts(after_ms: int) -> None:
    """The scheduler stamps its lists in whole seconds, and takes it in with its next session."""
    job, key = ended("a", 3), ("ns", "a")
    sessions = Sessions()
    sessions.look(snapshot(3, job))
    later = snapshot(3, job, entries={"n0": entry(unhealthy=CARDS[3])})
    later = msgspec.structs.replace(later, now_ms=later.now_ms + after_ms)
    (found,) = sessions.ended(later, [key], ()).jobs
    assert found.advice is not None
    assert found.advice.replicas == 2
