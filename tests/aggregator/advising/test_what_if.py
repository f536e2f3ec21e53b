"""Assumptions about an aggregator's own cluster: on a copy, one at a time, within limits."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from aggregator.advising import what_if
from aggregator.advising.cluster_objects import AdvisedObjects
from aggregator.advising.sessions import PERIOD_MS, Sessions
from aggregator.advising.what_if import Busy, UnknownObject, WhatIf, WrongAssumption
from aggregator.api.operations import ADVICE_WHAT_IF_PATH
from aggregator.api.routes import application
from tests.aggregator.advising.advised import NOW_MS, decided, filled, ill
from tests.aggregator.api.given_queries import GivenQueries
from tests.parts.deadlines import patience, until_succeeds
from tests.vigil.advise import cluster

if TYPE_CHECKING:
    from aggregator.advising.status import AssumedAdvice

ASSUMED = "chip 3 of n1 SeparateNPU"


@pytest.fixture
def objects() -> AdvisedObjects:
    return filled(cluster.two_pods_on_two_of_three_nodes())


@pytest.fixture
def sessions(objects: AdvisedObjects) -> Sessions:
    found = Sessions()
    found.look(objects.snapshot(NOW_MS))
    return found


@pytest.fixture
def asked(objects: AdvisedObjects, sessions: Sessions) -> WhatIf:
    return WhatIf(objects, lambda: sessions.states, lambda: NOW_MS)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that lets computations continue."""
    opened, computed = threading.Event(), what_if._computed

    def waits(*given: Any) -> tuple[AssumedAdvice, float]:
        assert opened.wait(patience(20))
        return computed(*given)

    monkeypatch.setattr(what_if, "_computed", waits)
    return opened


async def test_it_changes_nothing_of_what_is_assumed_to_be_in_the_scheduler(
    objects: AdvisedObjects, sessions: Sessions, asked: WhatIf
) -> None:
    states = dict(sessions.states)
    found = await asked.answer([ASSUMED], None, None)
    assert [len(one.deletions) for one in found.reports] == [2, 2]
    assert [len(one.deletions) for one in found.bases] == [0, 0]
    assert [[v.node for v in one.node_verdicts] for one in found.bases] == [["n1"]] * 2
    assert (found.what_if, found.at_ms, found.not_known) == ((ASSUMED,), NOW_MS, {})
    assert sessions.states == states
    sessions.look(objects.snapshot(NOW_MS + PERIOD_MS))
    assert decided(sessions) == []


async def test_it_goes_on_from_what_the_scheduler_has_done(
    objects: AdvisedObjects, sessions: Sessions, asked: WhatIf
) -> None:
    """A job that waits is not deleted again for another card."""
    ill(objects, NOW_MS)
    sessions.look(objects.snapshot(NOW_MS + PERIOD_MS))
    found = await asked.answer([ASSUMED], "default/j", None)
    for reports in (found.reports, found.bases):
        assert [one.decisions[0].action for one in reports] == ["WAIT_COMPLETION"] * 2


async def test_a_wrong_assumption_is_a_bad_request(asked: WhatIf) -> None:
    queries = GivenQueries([], []).queries
    queries.advising.what_if = asked
    async with TestClient(TestServer(application(queries))) as client:
        answer = await client.get(ADVICE_WHAT_IF_PATH, params={"what_if": "n9 is unwell"})
        assert (answer.status, list(await answer.json())) == (400, ["error"])
        answer = await client.get(ADVICE_WHAT_IF_PATH, params={"what_if": ASSUMED})
        assert answer.status == 200


async def test_one_at_a_time(asked: WhatIf, gate: threading.Event) -> None:
    """Also after its client has left."""
    first = asyncio.create_task(asked.answer([ASSUMED], None, None))
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="another one is computed"):
        await asked.answer([ASSUMED], None, None)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(Busy):
        await asked.answer([ASSUMED], None, None)
    gate.set()
    found = await until_succeeds(lambda: asked.answer([ASSUMED], None, None), Busy)
    assert len(found.reports) == 2


async def test_it_rests_after_each(asked: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "_IDLE_SHARE", 1_000_000)
    await asked.answer([ASSUMED], None, None)
    with pytest.raises(Busy):
        await asked.answer([ASSUMED], None, None)


async def test_refused_assumption_does_not_block_the_next_request(asked: WhatIf) -> None:
    for _ in range(2):
        with pytest.raises(WrongAssumption, match="there is no Node n9"):
            await asked.answer(["n9 gone"], None, None)


@pytest.mark.parametrize(
    ("texts", "refusal"),
    [
        (["heal n1"] * 21, "more than 20 times"),
        (["heal " + "n" * 400], "more than 400 characters"),
        (["<b> heal"], "^a what_if is none of: chip NUMBER of NODE LEVEL;"),
        (["heal <b>"], "^a what_if is none of"),
        (["pod <b>/<i> exits 1"], "^there is no such pod$"),
    ],
)
async def test_too_many_or_wrong_assumptions_are_refused(
    asked: WhatIf, texts: list[str], refusal: str
) -> None:
    with pytest.raises(WrongAssumption, match=refusal):
        await asked.answer(texts, None, None)


async def test_unknown_subjects(asked: WhatIf) -> None:
    with pytest.raises(UnknownObject, match="podgroup"):
        await asked.answer([], "default/k", None)
    with pytest.raises(UnknownObject, match="node"):
        await asked.answer([], None, "n9")


async def test_nothing_is_assumed_before_all_is_listed(sessions: Sessions) -> None:
    asked = WhatIf(AdvisedObjects(), lambda: sessions.states, lambda: NOW_MS)
    with pytest.raises(Busy, match="not all listed yet"):
        await asked.answer([], None, None)
