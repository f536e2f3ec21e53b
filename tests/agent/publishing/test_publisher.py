"""The publisher on a directory store that a test can make fail."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.publishing import publisher as publisher_module
from agent.publishing.publication import ACKNOWLEDGED, CONFLICT, FAILED, INVALID
from contract.errors import (
    StoreConflict,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from stores.base import Changed, Deleted, Document, DocumentsListed
from stores.directory.store import DirectoryStore
from stores.interruption import Interrupted
from tests.agent.publishing.published import (
    LABELS,
    NAME,
    SPACE,
    PublishedContent,
    TroubledStore,
    running,
)
from tests.parts.deadlines import patience, stand_in_waits, stays, time_passes, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import Selection, WatchEvent


async def test_desired_document_is_written_once_and_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bench.acknowledged == [("healthy", 1)], "the first write")
        assert bench.first_read == [None]
        bench.publisher.wake(0)
        await stays(0.2, because="what is woken writes at once")
        assert len(bench.store.written) == 1, "an unchanged document was written again"
        assert bench.record.waiting_since_ms is None
        bench.render("faulty")
        await until(lambda: bench.acknowledged[-1:] == [("faulty", 2)], "the change")
        assert bench.before_writes == 2
        assert dict(bench.record.writes) == {ACKNOWLEDGED: 2}


@pytest.mark.parametrize(
    ("error", "result"),
    [(StoreRefused("no right"), INVALID), (StoreUnavailable("no route"), FAILED)],
)
async def test_a_refused_write_is_counted_apart_from_one_without_an_answer(
    tmp_path: Path, error: StoreError, result: str
) -> None:
    async with running(tmp_path) as bench:
        await bench.wrote(1)
        bench.store.error = error
        bench.render("faulty")
        # It is tried again and again.
        await until(lambda: bench.record.writes[result] >= 1, "the write")
        assert bench.record.writes[ACKNOWLEDGED] == 1
        assert set(bench.record.writes) == {ACKNOWLEDGED, result}
        await until(lambda: bench.record.trouble == str(error), "its reason")


async def test_change_without_effect_on_the_document_is_reported_as_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bench.acknowledged == [("healthy", 1)], "the first write")
        before = bench.shown
        bench.render("healthy")
        await until(lambda: bench.shown > before, "it is shown already")
        assert len(bench.store.written) == 1


async def test_nothing_is_written_before_there_is_something_to_report(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.content = None
        bench.publisher.wake(0)
        await stays(0.2, because="what is woken writes at once")
        assert bench.store.tries == 0
        assert bench.record.waiting_since_ms is None, "nothing waits to be published"
        bench.render("healthy")
        await bench.shows("healthy")


@pytest.mark.slow
async def test_changes_during_a_write_go_out_together_in_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        tries = bench.store.tries
        bench.store.may_write.clear()
        bench.render("change 0")
        await until(lambda: bench.store.tries > tries, "a write is under way")
        for number in range(1, 10):
            bench.render(f"change {number}")
        bench.store.may_write.set()
        await until(
            lambda: [text for text, _ in bench.acknowledged[-1:]] == ["change 9"],
            "the last change",
        )
        contents = [document.data["content"] for document in bench.store.written]
        assert contents == ["healthy", "change 0", "change 9"]
        stamps = [int(document.data["stamp"]) for document in bench.store.written]
        assert stamps == sorted(set(stamps))


@pytest.mark.slow
async def test_a_burst_is_not_slowed_until_stamps_are_five_seconds_ahead(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        for number in range(4):
            bench.render(f"change {number}")
            assert await bench.shows(f"change {number}") < patience(0.5)
        for number in range(4, 20):
            bench.render(f"change {number}")
            await time_passes(0.01)
        await bench.shows("change 19")
        for document, at in zip(bench.store.written, [time.time()] * 99, strict=False):
            assert int(document.data["stamp"]) <= at + 5


async def test_an_existing_document_is_reported_and_its_stamp_gone_on_from(tmp_path: Path) -> None:
    store = DirectoryStore("directory:", tmp_path)
    ahead = int(time.time()) + 3
    await store.put(Document(SPACE, NAME, {"stamp": str(ahead), "content": "old"}, LABELS))
    async with running(tmp_path) as bench:
        await bench.shows("healthy")
        assert bench.first_read[0] is not None
        assert bench.first_read[0].data["content"] == "old"
        assert (await bench.stored())["stamp"] == str(ahead + 1)
        assert bench.record.foreign.total == 0


@pytest.mark.slow
async def test_an_outage_is_waited_for_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        bench.store.error = StoreUnavailable("no route to host")
        bench.render("faulty")
        await until(lambda: bench.record.trouble is not None, "the outage is noticed")
        await stays(1.2, because="the pauses between tries begin with 0.1 s and double")
        bench.render("very faulty")
        assert bench.record.trouble == "no route to host"
        assert bench.record.waiting_since_ms is not None
        tries = bench.store.tries
        assert tries < 10, "the store is asked without a pause"
        bench.store.error = None
        assert await bench.shows("very faulty") < patience(2.5)
        await until(lambda: bench.record.trouble is None, "the end is noticed")
    texts = [record.message for record in caplog.records if record.name == "agent.publisher"]
    assert sum("cannot be published" in text for text in texts) == 1
    assert sum("answers again" in text for text in texts) == 1


@pytest.mark.slow
async def test_a_store_that_is_away_at_start_is_waited_for(tmp_path: Path) -> None:
    bench = PublishedContent(tmp_path)
    bench.store.error = StoreUnavailable("connection refused")
    task = asyncio.create_task(bench.publisher.run())
    await stays(0.5, because="the pauses between tries begin with 0.1 s and double")
    assert bench.first_read == []
    bench.store.error = None
    assert await bench.shows("healthy") < patience(2.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_write_whose_answer_was_lost_is_not_made_twice(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        bench.store.loses_answers = True
        bench.render("faulty")
        await until(lambda: bench.acknowledged[-1:] == [("faulty", 2)], "the write is recognised")
        assert [document.data["content"] for document in bench.store.written] == [
            "healthy",
            "faulty",
        ]
        assert bench.record.foreign.total == 0


async def test_earlier_write_that_arrived_late_is_no_foreign_write(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        put = DirectoryStore.put
        sent: list[Document] = []

        async def lose(document: Document, *, expected: str | None = None) -> str:
            sent.append(document)
            if len(sent) == 2:  # the first one arrives now, and this one is refused over it
                await put(bench.store, sent[0])
                raise StoreConflict("it has another version")
            raise StoreUnavailable("connection reset")

        bench.store.put = lose  # type: ignore[method-assign]
        bench.render("faulty")
        await until(lambda: bench.acknowledged[-1:] == [("faulty", 2)], "it is recognised")
        assert bench.record.foreign.total == 0
        assert bench.record.trouble is None


async def test_reads_that_failed_are_no_trouble_once_the_store_shows_the_document(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        await until(lambda: bench.shown > 0, "the watch shows it")
        before = await bench.stored()
        bench.store.error = StoreUnavailable("away")
        await bench.writes_foreign("nonsense")
        await until(lambda: bench.record.trouble is not None, "it cannot be read")
        await bench.writes_foreign(before["content"], int(before["stamp"]))
        bench.store.error = None
        await until(lambda: bench.record.trouble is None, "the store shows it")
        assert len(bench.store.written) == 1, "there was nothing to write"


async def test_a_foreign_change_is_repaired_within_a_second(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        await until(lambda: bench.shown > 0, "the watch shows it")
        await bench.writes_foreign("nonsense", int(time.time()) + 2)
        assert await bench.shows("healthy") < patience(1)
        assert int((await bench.stored())["stamp"]) >= int(time.time()) + 2
        await bench.wrote(2)
        assert bench.record.foreign.total == 1
        await bench.foreign.delete(SPACE, NAME)
        assert await bench.shows("healthy") < patience(1)


@pytest.mark.slow
async def test_a_deletion_that_no_watch_can_show_is_repaired_soon(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        bench.store.vanishes = True
        await until(lambda: bench.acknowledged[:1] == [("healthy", 1)], "the first write")
        begin = time.monotonic()
        await until(lambda: bench.acknowledged[1:] == [("healthy", 1)], "the repair")
        assert time.monotonic() - begin < patience(2), "half a second is waited for the watch"
        assert (await bench.stored())["content"] == "healthy"
        assert bench.record.foreign.total == 1
        await stays(0.7, because="a second repair would wait _WATCH_SECONDS, 0.5")
        assert len(bench.store.written) == 2


class PlayedWatch(TroubledStore):
    """A store whose watch lists nothing at first, and then shows what a test plays."""

    def __init__(self, url: str, root: Path) -> None:
        super().__init__(url, root)
        self.events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.reads = 0

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        yield DocumentsListed(())
        while True:
            yield await self.events.get()

    async def get(self, namespace: str, name: str) -> Document | None:
        document = await super().get(namespace, name)
        self.reads += 1
        return document


class EarlyWatch(PlayedWatch):
    """A store whose watch shows things before the answer to a write comes."""

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        version = await super().put(document, expected=expected)
        shown = msgspec.structs.replace(document, version=version)
        self.events.put_nowait(Changed(shown))
        if len(self.written) == 1:
            await self.delete(SPACE, NAME)
            self.events.put_nowait(Deleted(SPACE, NAME))
        await stand_in_waits(0.05)
        return version


async def test_a_write_that_the_watch_does_not_show_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_WATCH_SECONDS", 0.05)
    bench = PublishedContent(tmp_path, PlayedWatch)
    bench.store.vanishes = True
    async with running(bench):
        await bench.noticed(1)
        await bench.shows("healthy")


async def test_a_read_without_a_watch_does_not_end_the_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_WATCH_SECONDS", 0.05)
    bench = PublishedContent(tmp_path, PlayedWatch)
    store = bench.store
    assert isinstance(store, PlayedWatch)
    async with running(bench):
        await bench.wrote(1)
        await until(lambda: store.reads == 2, "the first read, and one in place of the watch")
        older = await bench.foreign.get(SPACE, NAME)
        assert older is not None
        store.events.put_nowait(Interrupted("the disk is away"))
        await until(lambda: bench.record.watch_trouble is not None, "the interruption")
        bench.render("faulty")
        await bench.wrote(2)
        await until(lambda: store.reads == 3, "the read in place of the watch")
        # The disk comes back with what it had before the last write.
        await bench.foreign.put(older)
        store.events.put_nowait(DocumentsListed((older,)))
        await bench.wrote(3)
        assert (await bench.stored())["content"] == "faulty"
    assert bench.foreign_seen == []
    assert bench.record.foreign.total == 0


async def test_the_last_of_many_changes_is_in_the_journal_before_it_is_written(
    tmp_path: Path,
) -> None:
    bench = PublishedContent(tmp_path)

    def change() -> None:
        if bench.before_writes <= 3:
            bench.render(f"change {bench.before_writes}")

    bench.while_committing = change
    async with running(bench):
        await bench.shows("change 3")
    # Each of the four changes, the first and three during commits, has a commit of its own.
    assert bench.before_writes == 4
    assert [document.data["content"] for document in bench.store.written] == ["change 3"]


async def test_a_deletion_before_the_answer_to_the_first_write_is_repaired_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_WATCH_SECONDS", math.inf)
    bench = PublishedContent(tmp_path, EarlyWatch)
    async with running(bench):
        await until(lambda: bench.acknowledged[:1] == [("healthy", 1)], "the first write")
        await bench.noticed(1)
        await bench.shows("healthy")


async def test_an_earlier_document_of_ours_that_is_put_back_is_repaired(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        earlier = await bench.foreign.get(SPACE, NAME)
        assert earlier is not None
        bench.render("faulty")
        await until(lambda: bench.acknowledged[-1:] == [("faulty", 2)], "the change")
        for count in (1, 2):
            await bench.foreign.put(earlier)
            await bench.noticed(count)
            assert await bench.shows("faulty") < patience(1)


async def test_last_writer_is_read_before_a_repair(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        bench.loses_its_name = True
        await bench.writes_foreign("another agent's")
        await until(lambda: bench.before_repairs == 1, "it is asked")
        await stays(0.2, because="the repair follows the question at once")
        assert (await bench.stored())["content"] == "another agent's"
    assert bench.record.foreign.total == 0


@pytest.mark.slow
async def test_a_foreign_change_just_before_a_write_is_repaired_too(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        tries = bench.store.tries
        bench.store.may_write.clear()
        bench.render("faulty")
        await until(lambda: bench.store.tries > tries, "a write is under way")
        await bench.writes_foreign("nonsense")
        bench.store.may_write.set()
        assert await bench.shows("faulty") < patience(1.5)
        await until(lambda: bench.acknowledged[-1:] == [("faulty", 2)], "the change")
        assert bench.record.writes[CONFLICT] == 1


@pytest.mark.slow
async def test_a_foreign_change_while_the_last_one_is_read_is_repaired_too(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        stored = await bench.foreign.get(SPACE, NAME)
        assert stored is not None
        bench.store.get_delay_seconds = 0.6
        await bench.writes_foreign("nonsense")
        await time_passes(0.15)
        # The answer is our own document, but when it comes it is not there any more.
        await bench.foreign.put(stored)
        await time_passes(0.3)
        await bench.writes_foreign("more nonsense")
        assert await bench.shows("healthy") < patience(2)


@pytest.mark.slow
async def test_a_change_of_annotations_is_nobodys_business(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        stored = await bench.foreign.get(SPACE, NAME)
        assert stored is not None
        await bench.foreign.put(
            Document(SPACE, NAME, stored.data, stored.labels, annotations={"note": "mine"})
        )
        await stays(0.3, because="a watch shows a change of a directory at once")
        assert len(bench.store.written) == 1
        bench.render("faulty")
        assert await bench.shows("faulty") < patience(1)


@pytest.mark.slow
async def test_a_conflict_is_named_and_a_fault_is_shown_by_the_next_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.owned_documents.foreign_writes.QUIET_SECONDS", patience(1.5))
    monkeypatch.setattr("service.owned_documents.foreign_writes.FIRST_PAUSE_SECONDS", patience(1))
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        for number in range(3):
            await bench.writes_foreign("theirs")
            await bench.shows("healthy")
            assert bench.record.foreign.total == number + 1
        assert bench.record.conflict_since_ms is None
        await bench.writes_foreign("theirs")
        await until(lambda: bench.record.conflict_since_ms is not None, "the conflict is reported")
        assert f"conflict: another program writes {NAME}" in caplog.text
        bench.render("faulty")
        await stays(0.3, because="in a conflict a write waits longer")
        assert (await bench.stored())["content"] == "theirs"
        await bench.shows("faulty")
        assert "the conflict is over" not in caplog.text
        await until(lambda: bench.record.conflict_since_ms is None, "the end of the conflict")
        assert "the conflict is over: no other program writes it any more" in caplog.text


async def test_a_label_beside_ours_is_no_further_write_in_a_conflict(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.wrote(1)
        for number in range(3):
            await bench.writes_foreign("theirs")
            await bench.shows("healthy")
            assert bench.record.foreign.total == number + 1
        await bench.writes_foreign("theirs")
        await bench.noticed(4)
        document = await bench.foreign.get(SPACE, NAME)
        assert document is not None
        labelled = msgspec.structs.replace(document, labels=LABELS | {"team": "a"})
        await bench.foreign.put(labelled)
        await stays(0.2, because="a watch shows a change of a directory at once")
        assert (await bench.stored())["content"] == "theirs", "the conflict goes on"
        assert bench.record.foreign.total == 4


@pytest.mark.slow
async def test_writes_of_another_agent_with_this_name_are_no_conflict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        bench.is_other_agent_alive = True
        for _ in range(7):
            written = bench.record.writes[ACKNOWLEDGED]
            await bench.writes_foreign("theirs")
            await bench.wrote(written + 1)
        assert bench.record.conflict_since_ms is None
        assert bench.record.foreign.total == 0


async def test_a_conflict_with_another_agent_with_this_name_ends_when_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.owned_documents.foreign_writes.FIRST_PAUSE_SECONDS", patience(1))
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        for number in range(1, 5):
            await bench.writes_foreign(f"theirs {number}")
            await bench.noticed(number)
        await until(lambda: bench.record.conflict_since_ms is not None, "the conflict")
        bench.is_other_agent_alive = True
        bench.publisher.wake(0)
        assert await bench.shows("healthy") < patience(0.9), "no pause is waited for"
        await until(lambda: bench.record.conflict_since_ms is None, "its end")


async def test_a_conflict_ends_with_the_next_write_of_another_agent_with_this_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        for number in range(1, 5):
            await bench.writes_foreign(f"theirs {number}")
            await bench.noticed(number)
        await until(lambda: bench.record.conflict_since_ms is not None, "the conflict")
        bench.is_other_agent_alive = True
        await bench.writes_foreign("the rival's")
        await until(lambda: bench.record.conflict_since_ms is None, "its end")
        assert caplog.text.count("the conflict is over: another agent with this node name") == 1


@pytest.mark.slow
async def test_constant_foreign_writes_do_not_prevent_ours(
    tmp_path: Path,
) -> None:
    """In a conflict a write demands no version: there would always be another one by then."""
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")

        async def write_all_the_time() -> None:
            while not bench.stranger_stops:
                await bench.writes_foreign("theirs")
                await stand_in_waits(0.005)

        stranger = asyncio.create_task(write_all_the_time())
        await until(lambda: bench.record.conflict_since_ms is not None, "the conflict")
        bench.render("faulty")
        await until(lambda: ("faulty", 2) in bench.acknowledged, "it is written once", 20)
        bench.stranger_stops = True
        await stranger


@pytest.mark.slow
async def test_operators_edits_are_no_conflict(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        for _ in range(6):
            await bench.writes_foreign("an operator's")
            await bench.shows("healthy")
        assert bench.record.conflict_since_ms is None
        assert bench.record.foreign.total == 0


async def test_operators_edit_before_the_first_write_counts(tmp_path: Path) -> None:
    bench = PublishedContent(tmp_path)
    await bench.writes_foreign("of the last life")
    bench.content = None
    async with running(bench):
        await until(lambda: bool(bench.first_read), "the first read")
        await bench.writes_foreign("an operator's")
        await time_passes(0.1)
        bench.render("healthy")
        await bench.shows("healthy")
        assert bench.foreign_seen == ["an operator's"]
        bench.render("faulty")
        await bench.shows("faulty")
        assert bench.foreign_seen == ["an operator's"]


@pytest.mark.slow
async def test_an_unchanged_document_is_refreshed(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        bench.refresh_seconds = 0.5
        await until(lambda: bench.record.writes[ACKNOWLEDGED] >= 3, "two refreshes")
        assert len({document.data["stamp"] for document in bench.store.written}) >= 3


class MemoryStore(TroubledStore):
    """A store that notes when it is written; its watch shows nothing."""

    def __init__(self, url: str, root: Path) -> None:
        super().__init__(url, root)
        self.document: Document | None = None
        self.written_at: list[float] = []

    async def watch(self, selection: Selection) -> AsyncIterator[WatchEvent]:
        yield DocumentsListed(())
        await asyncio.Event().wait()

    async def get(self, namespace: str, name: str) -> Document | None:
        return self.document

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        self.written_at.append(asyncio.get_running_loop().time())
        version = str(len(self.written_at))
        self.document = msgspec.structs.replace(document, version=version)
        return version


@pytest.mark.slow
@pytest.mark.looptime
async def test_documents_that_changed_at_one_time_are_not_refreshed_at_one_time(
    tmp_path: Path,
) -> None:
    benches = [PublishedContent(tmp_path, MemoryStore) for _ in range(200)]
    async with contextlib.AsyncExitStack() as agents:
        for bench in benches:
            await agents.enter_async_context(running(bench))
        await asyncio.sleep(10)
        for bench in benches:
            bench.render("faulty")
        await asyncio.sleep(400)
    gaps = Counter[int]()
    for bench in benches:
        assert isinstance(bench.store, MemoryStore)
        _, changed_at, refreshed_at, *_ = bench.store.written_at
        gaps[int(refreshed_at - changed_at)] += 1
    assert set(gaps) <= set(range(270, 301)), "readers have a new one after 300 s at the latest"
    # By chance 7 in each of 30 seconds.
    assert max(gaps.values()) < 40


@pytest.mark.slow
async def test_a_change_does_not_wait_for_a_refresh_that_takes_long(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        bench.refresh_seconds = 0.2
        bench.store.delay_seconds = 60.0
        bench.publisher.wake(0)
        await until(lambda: bench.store.tries == 2, "a refresh is on its way")
        bench.store.delay_seconds = 0.0
        bench.refresh_seconds = 300.0
        bench.render("faulty")
        assert await bench.shows("faulty") < patience(3)
        assert bench.record.foreign.total == 0


async def test_document_that_readers_would_refuse_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as bench:
        await until(lambda: bool(bench.acknowledged), "the first write")
        bench.refuses = "bad"
        bench.render("bad content")
        await until(lambda: bench.record.trouble is not None, "the refusal is reported")
        assert (await bench.stored())["content"] == "healthy"
        assert "readers would refuse" in caplog.text
        bench.render("good content")
        assert await bench.shows("good content") < patience(1)


async def comes_back(bench: PublishedContent, root: Path, older: bytes | None) -> None:
    """Remove the store and bring it back, empty or with an older document."""
    draft = root.with_name("draft")
    (draft / SPACE).mkdir(parents=True)
    if older is not None:
        (draft / SPACE / f"{NAME}.json").write_bytes(older)
    while root.exists():
        wrote = len(bench.store.written)
        root.rename(root.with_name(f"away-{time.monotonic_ns()}"))
        # A repair may be first: it takes the document for deleted, and makes the folder anew.
        await until(
            lambda: bench.record.watch_trouble is not None or root.exists(), "the store is away"
        )
        await stays(0.05, because="a repair that has begun ends")
    draft.rename(root)
    await until(lambda: len(bench.store.written) > wrote, "it is written again", 10)


@pytest.mark.slow
async def test_lost_write_is_repeated_and_counts_as_no_foreign_write(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with running(root) as bench:
        await bench.shows("healthy")
        older = (root / SPACE / f"{NAME}.json").read_bytes()
        await stays(1.1, because="the next stamp must be that of a later second")
        bench.render("faulty")
        await bench.shows("faulty")
        for number in range(8):
            await comes_back(bench, root, older if number % 2 else None)
            assert await bench.shows("faulty") < patience(5)
        await until(lambda: bench.record.watch_trouble is None, "the watch works again")
        assert bench.record.foreign.total == 0
        assert bench.record.conflict_since_ms is None
        # An operator's release would be in a newer document.
        assert bench.foreign_seen == []
        await stays(3, because="stamps of repairs run ahead of the clock")
        # Whoever writes afterwards is a stranger again.
        await bench.writes_foreign("mine", int(time.time()) + 3)
        await bench.noticed(1)
        await bench.shows("faulty")


async def test_a_newer_document_after_a_break_is_a_strangers(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with running(root) as bench:
        await bench.shows("healthy")
        newer = msgspec.json.encode(
            {
                "labels": LABELS,
                "data": {"stamp": str(int(time.time()) + 4), "content": "a stranger's"},
            }
        )
        await comes_back(bench, root, newer)
        # On a slow machine the break is seen as a deletion, too, which counts as well.
        await until(lambda: bench.foreign_seen and bench.record.foreign.total, "it is noticed")
        assert bench.foreign_seen == ["a stranger's"]
