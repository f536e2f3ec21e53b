"""When a leader whose requests fail is not ready any more, and why; in virtual time."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from contract.pages.readiness import ReadinessPage
from service.failing_requests import FailingRequests
from tests.cluster.beating import agents
from tests.cluster.playing import broken
from tests.cluster.replicas import replicas
from tests.parts.examples import mostly_slow
from tests.parts.page_messages import messages_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.cluster.apiserver import Place
    from tests.cluster.replicas import Replica, Replicas

pytestmark = pytest.mark.looptime(resolution=2**-20)

LONG_SECONDS = 30
T0 = 1_760_000_500
_CONFIG_MAPS = "api/v1/configmaps"


@contextlib.asynccontextmanager
async def leader(place: Path) -> AsyncIterator[tuple[Replicas, Replica]]:
    """Return a leader of three nodes that beat, which has published everything."""
    names = ("n1", "n2", "n3")
    async with replicas(place) as site, agents(site, names):
        for node in names:
            await site.device(node, broken(update_time=T0))
        one = await site.begin("one", 10)
        assert not reasons(one)
        yield site, one


def reasons(one: Replica) -> tuple[str, ...]:
    """Return why it is not ready, in sentences that a verb can translate."""
    why = one.made.publication.readiness.health().not_ready
    assert messages_of(ReadinessPage(not why, why)).keys() == {*why}
    return why


async def becomes_not_ready(site: Replicas, one: Replica, within: int) -> tuple[str, ...]:
    """Wait until it is not ready, for more than 30 s; why."""
    await site.pass_time(LONG_SECONDS - 1)
    assert not reasons(one)
    for _ in range(within - LONG_SECONDS + 1):
        await site.pass_time(1)
        if reasons(one):
            return reasons(one)
    raise AssertionError(f"it is still ready after {within} s")


async def test_the_start_is_over_with_the_first_publication_or_10_s_after_all_was_read(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path) as (site, one):
        assert one.made.publication.readiness.is_past_start()
        # A leader that begins anew and cannot write shows what it knows.
        site.api.refuses_with = 503
        readiness = replace(one.made.publication.readiness)
        readiness.await_publication()
        assert not readiness.is_past_start()
        await site.pass_time(9)
        assert not readiness.is_past_start()
        await site.pass_time(1)
        assert readiness.is_past_start()


@pytest.mark.slow
@pytest.mark.parametrize("status", mostly_slow([429, 503, 403], 3))
async def test_a_leader_that_is_refused_everything(tmp_path: Path, status: int) -> None:
    async with leader(tmp_path) as (site, one):
        site.api.refuses_with = status
        site.api.refuses = lambda *_: True
        why = await becomes_not_ready(site, one, 45)
        assert any("the election by kubernetes: has failed for 3" in text for text in why)
        assert all("the test wants it" in text for text in why)
        await site.pass_time(30)
        assert reasons(one)
        site.api.refuses = lambda *_: False
        await site.pass_time(10)
        assert not reasons(one)
        assert one.leads


@pytest.mark.slow
async def test_a_leader_whose_writes_are_refused(tmp_path: Path) -> None:
    async with leader(tmp_path) as (site, one):
        site.api.refuses_with = 403

        def writes(method: str, place: Place) -> bool:
            return method != "GET" and (place.resource, place.namespace) == (
                _CONFIG_MAPS,
                "mindx-dl",
            )

        site.api.refuses = writes
        for name in list(site.outputs):
            if name.startswith("cluster-info"):
                await site.edit(name, None)
        (why,) = await becomes_not_ready(site, one, 40)
        assert why.startswith("the writing of our documents to kubernetes: has failed for 3")
        assert "cluster-info-" in why
        site.api.refuses = lambda *_: False
        await site.pass_time(10)
        assert not reasons(one)


@pytest.mark.slow
async def test_one_refused_document_of_many_is_no_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with leader(tmp_path) as (site, one):
        site.api.refuses_with = 422
        site.api.refuses = lambda method, place: (
            method != "GET" and place.name == "cluster-info-device-0"
        )
        await site.device("n1", broken(3, update_time=T0 + 1))
        for _ in range(180):
            await site.pass_time(1)
            assert not reasons(one)
        assert caplog.text.count("cluster-info-device-0 is not published, trying again") == 1
        assert site.unhealthy("n1") == ""
        status = one.made.queries.documents_page()
        lag = {d.document: d.lag_seconds for d in status.documents}
        assert (lag["cluster-info-device-0"] or 0) > 170


async def test_a_leader_whose_watch_of_the_nodes_fails(tmp_path: Path) -> None:
    async with leader(tmp_path) as (site, one):
        assert one.client is not None
        one.client.go_blind(lambda place: place.namespace == "kube-system")
        (why,) = await becomes_not_ready(site, one, 32)
        assert why.startswith("the watch of kube-system in kubernetes: has failed for 30 s")
        one.client.catch_up()
        await site.pass_time(10)
        assert not reasons(one)


@pytest.mark.slow
async def test_none_to_make_is_no_failure(tmp_path: Path) -> None:
    async with leader(tmp_path) as (site, one):
        for _ in range(60):
            await site.pass_time(10)
            assert not reasons(one)


def test_the_row_of_failures_ends_with_a_success() -> None:
    failing = FailingRequests()
    assert failing.problem("it", 10**9) is None
    failing.failed("a", "no", 0)
    assert failing.problem("it", 29_999) is None
    assert failing.problem("it", 30_000) == "it has failed for 30 s: no"
    assert failing.problem("it", 30_000, of_many=True) is None
    failing.failed("b", "never", 29_000)
    assert failing.problem("it", 30_000, of_many=True) == "it has failed for 30 s: never"
    failing.succeeded()
    assert failing.problem("it", 60_000) is None
    assert failing.seconds(60_000) == 0
