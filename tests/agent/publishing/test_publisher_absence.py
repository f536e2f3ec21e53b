"""A document that must not be there: deleted until that is acknowledged, and kept away."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from agent.publishing.publication import ACKNOWLEDGED
from contract.errors import StoreUnavailable
from stores.base import Document
from stores.kubernetes_api.store import KubernetesStore
from tests.agent.publishing.published import (
    LABELS,
    PLACE,
    ContentOnApiServer,
    PublishedContent,
    running,
)
from tests.parts.deadlines import patience, stays, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.parts.controlplane import ControlPlane


def has_written(bench: PublishedContent, count: int) -> bool:
    return bench.record.writes[ACKNOWLEDGED] == count


def has_deleted(bench: PublishedContent, count: int) -> bool:
    return bench.store.deleted == count


async def test_absence_is_acknowledged_without_a_request_where_nothing_is(tmp_path: Path) -> None:
    bench = PublishedContent(tmp_path)
    bench.content = ""
    task = asyncio.create_task(bench.publisher.run())
    await until(lambda: bench.acknowledged == [("", 1)], "the absence")
    bench.render("")
    await stays(0.2, because="what is woken writes at once")
    assert bench.store.tries == 0
    assert bench.record.waiting_since_ms is None
    assert bench.record.acknowledged_at_ms is not None
    assert bench.record.acknowledged_stamp is None
    assert not bench.record.writes
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_document_that_is_not_desired_is_deleted_and_written_again_when_desired(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        stamp = int((await bench.stored())["stamp"])
        bench.render("")
        await until(lambda: bench.acknowledged[-1:] == [("", 2)], "the deletion")
        assert await bench.stored() == {}
        assert bench.record.writes[ACKNOWLEDGED] == 2
        bench.render("faulty")
        assert await bench.shows("faulty") < patience(1)
        assert int((await bench.stored())["stamp"]) > stamp, "readers drop what is not newer"
        assert bench.record.foreign.total == 0


@pytest.mark.slow
async def test_document_stored_at_the_start_is_deleted_only_when_absence_is_desired(
    tmp_path: Path,
) -> None:
    bench = PublishedContent(tmp_path)
    await bench.writes_foreign("old")
    bench.content = None
    task = asyncio.create_task(bench.publisher.run())
    await until(lambda: bool(bench.first_read), "the first read")
    bench.publisher.wake(0)
    await stays(0.3, because="what is woken writes at once")
    assert (await bench.stored())["content"] == "old"
    assert bench.store.tries == 0
    bench.render("")
    await until(lambda: bench.acknowledged == [("", 2)], "the deletion")
    assert await bench.stored() == {}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_document_of_another_program_is_deleted_again(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.render("")
        await until(lambda: bench.acknowledged[-1:] == [("", 2)], "the absence")
        written = bench.record.writes[ACKNOWLEDGED]
        for count in (1, 2):
            await bench.writes_foreign("theirs")
            await bench.noticed(count)
            await until(partial(has_written, bench, written + count), "the repair")
            assert await bench.stored() == {}


@pytest.mark.slow
async def test_program_that_keeps_writing_a_deleted_document_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.owned_documents.foreign_writes.QUIET_SECONDS", patience(1.5))
    monkeypatch.setattr("service.owned_documents.foreign_writes.FIRST_PAUSE_SECONDS", patience(1))
    async with running(tmp_path) as bench:
        bench.render("")
        await until(lambda: bool(bench.acknowledged), "the absence")
        for count in (1, 2, 3):
            await bench.writes_foreign("theirs", count)
            await bench.noticed(count)
            await until(partial(has_deleted, bench, count), "the deletion")
        await bench.writes_foreign("theirs", 4)
        await until(lambda: bench.record.conflict_since_ms is not None, "the conflict")
        assert bench.record.foreign.total == 4
        assert (await bench.stored())["content"] == "theirs"
        await until(lambda: bench.store.deleted == 4, "the deletion")
        assert await bench.stored() == {}
        await until(lambda: bench.record.conflict_since_ms is None, "the end of the conflict")


@pytest.mark.slow
async def test_a_deletion_during_an_outage_is_made_when_it_is_over(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        bench.store.error = StoreUnavailable("no route to host")
        bench.render("")
        await until(lambda: bench.record.trouble is not None, "the outage is reported")
        await stays(0.6, because="the pauses between tries begin with 0.1 s and double")
        assert bench.record.waiting_since_ms is not None
        assert (await bench.stored())["content"] == "healthy"
        bench.store.error = None
        await until(lambda: bench.acknowledged[-1:] == [("", 2)], "the deletion")
        assert await bench.stored() == {}
        assert bench.record.trouble is None


async def test_a_deletion_that_is_overtaken_by_a_fault_is_not_made(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        bench.store.error = StoreUnavailable("no route to host")
        bench.render("")
        await until(lambda: bench.record.trouble is not None, "the outage is reported")
        bench.render("faulty")
        bench.store.error = None
        await bench.shows("faulty")
        assert bench.store.deleted == 0


async def test_desired_document_that_changes_during_the_commit_is_written(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        bench.while_committing = lambda: setattr(bench, "content", None)
        bench.render("")
        await stays(0.2, because="a deletion follows the commit at once")
        assert bench.store.deleted == 0, "deleted although the source went blind"
        bench.while_committing = lambda: None
        bench.render("faulty")
        await bench.shows("faulty")


async def test_a_deletion_whose_answer_was_lost_is_recognised(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        bench.store.loses_answers = True
        bench.render("")
        await until(lambda: bench.acknowledged[-1:] == [("", 2)], "the absence is recognised")
        assert bench.store.deleted == 1
        assert bench.record.foreign.total == 0


@pytest.fixture
async def store(control_plane: ControlPlane) -> AsyncIterator[KubernetesStore]:
    store = KubernetesStore("kubernetes:", str(control_plane.kubeconfig))
    yield store
    await store.close()


@pytest.mark.apiserver
async def test_a_conflict_names_who_writes(
    control_plane: ControlPlane, store: KubernetesStore, caplog: pytest.LogCaptureFixture
) -> None:
    node = ContentOnApiServer(store)
    task = asyncio.create_task(node.publisher.run())
    record = node.publisher.record
    await until(lambda: len(node.acknowledged) == 1, "the write", 10)
    path = f"/api/v1/namespaces/{PLACE[0]}/configmaps/{PLACE[1]}?fieldManager=kubectl-edit"
    for number in range(1, 5):
        body = {"data": {"content": f"theirs {number}"}}
        await asyncio.to_thread(control_plane.request, "PATCH", path, body)
        await until(lambda number=number: record.foreign.total == number, "it is noticed", 10)  # type: ignore[misc]
    await until(lambda: record.conflict_since_ms is not None, "the conflict", 10)
    assert record.foreign.writer.manager == "kubectl-edit"
    assert f"conflict: 'kubectl-edit' writes {PLACE[1]}, 4 times within a minute" in caplog.text
    written = len(node.acknowledged)
    await until(lambda: len(node.acknowledged) > written, "the next try", 20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.apiserver
async def test_deletion_on_a_real_api_server(
    control_plane: ControlPlane, store: KubernetesStore
) -> None:
    node = ContentOnApiServer(store)
    task = asyncio.create_task(node.publisher.run())
    await until(lambda: len(node.acknowledged) == 1, "the write", 10)
    node.render("")
    await until(lambda: node.acknowledged[-1:] == [None], "the deletion", 10)
    assert await store.get(*PLACE) is None
    await store.put(Document(*PLACE, {"stamp": "7", "content": "theirs"}, LABELS))
    await until(lambda: node.publisher.record.writes[ACKNOWLEDGED] == 3, "repair", 10)
    assert await store.get(*PLACE) is None
    node.render("faulty")
    await until(lambda: node.acknowledged[-1:] not in ([], [None]), "the fault", 10)
    control_plane.stop_apiserver()
    node.render("")
    await until(lambda: node.publisher.record.trouble is not None, "the outage", 10)
    control_plane.recover()
    await until(lambda: node.acknowledged[-1:] == [None], "the deletion after the outage", 20)
    assert await store.get(*PLACE) is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
