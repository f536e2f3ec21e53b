"""State that is kept, views that are shown: a part of the tests in a real aggregator."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from aggregator.config import AggregatorConfiguration
from aggregator.daemon import Aggregator
from aggregator.failover.persistent_state import MAX_DOCUMENT_BYTES, PersistentState
from aggregator.notify.history import ClusterHistory
from aggregator.publish.document_writer import WriterContext
from aggregator.publish.rate_limited_queue import WriteQueue
from contract.names import STATE_KEY, STATE_LABEL, STATE_NAMESPACE, STATE_PREFIX
from service.clock import Instant, system_clock
from service.election.leadership import AlwaysLeader, Leadership, leadership
from service.watchdog import Watchdog
from stores.base import Changed, Deleted, Document, Selection
from stores.directory.store import DirectoryStore
from tests.aggregator.counting import SYSTEM, VIEW, Counter
from tests.parts.deadlines import time_passes, until
from tests.parts.tasks import beside
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

STATE = Selection(namespace=STATE_NAMESPACE, label=(STATE_LABEL, "counts"))


@contextlib.asynccontextmanager
async def running(
    root: Path, counter: Counter, lead: Leadership | None = None
) -> AsyncIterator[Aggregator]:
    """Run an aggregator with this plugin on a directory."""
    store = DirectoryStore(f"directory:{root}", root)
    configuration = AggregatorConfiguration(store=(store.url,), state_dir=root.parent / "state")
    aggregator = Aggregator(
        configuration,
        {store.url: store},
        ClusterHistory(configuration.state_dir, {}, system_clock),
        lead or leadership([store], f"a-{id(counter)}", 10, system_clock),
        plugins=[counter],
    )
    async with beside(aggregator.run()):
        yield aggregator


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> DirectoryStore:
    return DirectoryStore(f"directory:{root}", root)


def item(name: str, text: str = "") -> Document:
    return Document(SYSTEM, name, {"text": text}, {"count": "me"})


def kept(bucket: str) -> tuple[str, str]:
    return STATE_NAMESPACE, f"{STATE_PREFIX}counts-{bucket}"


@pytest.mark.slow
async def test_state_is_kept_and_found_again_before_anything_is_observed(
    root: Path, store: DirectoryStore
) -> None:
    counter = Counter()
    await store.put(item("a"))
    async with watching(store, STATE) as seen, running(root, counter):
        await seen.until(lambda seen: kept("a") in seen.documents)
        await store.put(item("a", "again"))
        await seen.until(lambda seen: seen.documents[kept("a")].data == {STATE_KEY: "2"})
    assert counter.led == [True, False]
    again = Counter()
    again.seen = dict(counter.seen)
    async with running(root, again), watching(store, STATE) as seen:
        await store.put(item("a", "and again"))
        await seen.until(lambda seen: seen.documents[kept("a")].data == {STATE_KEY: "3"})
    assert again.order[0] == "restore"
    assert "restore" in again.order


@pytest.mark.slow
async def test_last_changes_are_stored_when_the_aggregator_ends(
    root: Path, store: DirectoryStore
) -> None:
    counter = Counter()
    async with running(root, counter), watching(store, VIEW) as seen:
        await store.put(item("a"))
        await seen.until(lambda seen: (SYSTEM, "total") in seen.documents)
        for _ in range(5):
            counter.count("a")
    found = await store.get(*kept("a"))
    assert found is not None
    assert found.data == {STATE_KEY: "6"}


@pytest.mark.slow
async def test_a_view_is_written_repaired_and_taken_away(root: Path, store: DirectoryStore) -> None:
    counter, total = Counter(), (SYSTEM, "total")
    async with running(root, counter), watching(store, VIEW) as seen:
        await store.put(item("a"))
        await store.put(item("b"))
        right = {"a": "1", "b": "1"}
        await seen.until(
            lambda seen: total in seen.documents and seen.documents[total].data == right
        )
        assert seen.documents[total].labels == {"shows": "counts"}
        await store.put(Document(SYSTEM, "total", {"a": "9", "b": "1"}, {"shows": "counts"}))
        await seen.until(lambda seen: seen.documents[total].data["a"] == "9")
        await seen.until(lambda seen: seen.documents[total].data == right)
        await store.delete(SYSTEM, "total")
        await seen.until(lambda seen: any(isinstance(one, Deleted) for one in seen.events))
        await seen.until(lambda seen: seen.documents.get(total, item("")).data == right)
        # What an operator takes out is an input first: it is not put back.
        before = len(seen.events)
        await store.put(
            Document(SYSTEM, "total", {"a": "1", "by": "operator"}, {"shows": "counts"})
        )
        await seen.until(lambda seen: seen.documents[total].data == {"a": "1"})
        shown = [one.document.data for one in seen.events[before:] if isinstance(one, Changed)]
        assert right not in shown
        await store.put(Document(SYSTEM, "total", {"by": "operator"}, {"shows": "counts"}))
        await seen.until(lambda seen: total not in seen.documents)


@pytest.mark.slow
async def test_a_second_one_follows_and_takes_over_with_what_was_kept(
    root: Path, store: DirectoryStore
) -> None:
    one, other = Counter(), Counter()
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        leader = await first.enter_async_context(running(root, one))
        seen = await stack.enter_async_context(watching(store, STATE))
        await store.put(item("a"))
        await seen.until(lambda seen: kept("a") in seen.documents)
        follower = await stack.enter_async_context(running(root, other))
        await until(lambda: not follower.publication.readiness.health().not_ready, seconds=10)
        assert leader.queries.leadership.leads
        assert follower.queries.leader_page().leader.role == f"follower of a-{id(one)}"
        assert other.led == []
        one.count("a")
        leader.wake()
        await seen.until(lambda seen: seen.documents[kept("a")].data == {STATE_KEY: "2"})
        await first.aclose()
        await until(lambda: other.led == [True], seconds=10)
        assert other.counts == {"a": 2}
        other.count("a")
        await follower.publication.takeover.persistent_state.wait_until_stored("counts")
        found = await store.get(*kept("a"))
        assert found is not None
        assert found.data == {STATE_KEY: "3"}


class Texts:
    """A keeper of any texts."""

    name = "texts"

    def __init__(self, **texts: str) -> None:
        self.texts: dict[str, str] = dict(texts)
        self.changed = set(texts)
        self.problems: tuple[str, ...] = ()

    def pop_changed(self) -> frozenset[str]:
        changed, self.changed = frozenset(self.changed), set()
        return changed

    def text(self, bucket: str) -> str | None:
        return self.texts.get(bucket)

    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        return self.problems


@contextlib.asynccontextmanager
async def keeping(store: DirectoryStore, keeper: Texts) -> AsyncIterator[PersistentState]:
    def clock() -> Instant:
        return system_clock()

    context = WriterContext(store, AlwaysLeader("me"), clock, Watchdog(), WriteQueue(16, clock))
    one = PersistentState(context, [keeper])
    async with asyncio.TaskGroup() as tasks:
        one.lead(tasks)
        try:
            yield one
        finally:
            await one.follow()


async def test_a_text_that_is_too_large_stops_no_other_and_is_logged(
    store: DirectoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Texts(large="x" * (MAX_DOCUMENT_BYTES + 1), small="y")
    async with keeping(store, keeper) as one:
        await one.wait_until_stored("texts")
        (status,) = one.statuses()
        assert (status.documents, status.writes) == (1, 1)
        assert "at most" in status.problems[0]
        assert caplog.text.count("cannot be stored") == 1
        keeper.texts["large"] = "x"
        keeper.changed = {"large"}
        await one.wait_until_stored("texts")
        assert one.statuses()[0].problems == ()


async def test_unreadable_state_is_logged_and_begun_anew(
    store: DirectoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{STATE_PREFIX}texts-a"
    await store.put(Document(STATE_NAMESPACE, name, {STATE_KEY: "?"}, {STATE_LABEL: "texts"}))
    keeper = Texts(a="good")
    keeper.problems = ("a: is nothing",)
    async with keeping(store, keeper) as one:
        await one.restore_plugins(fence=True)
        assert "a: is nothing" in caplog.text
        await one.wait_until_stored("texts")
    found = await store.get(STATE_NAMESPACE, name)
    assert found is not None
    assert found.data == {STATE_KEY: "good"}


@pytest.mark.slow
async def test_an_edit_by_hand_is_replaced_and_a_fenced_write_refused(
    store: DirectoryStore,
) -> None:
    keeper, name = Texts(a="1"), f"{STATE_PREFIX}texts-a"
    async with keeping(store, keeper) as one:
        await one.wait_until_stored("texts")
        before = await store.get(STATE_NAMESPACE, name)
        assert before is not None
        await store.put(
            Document(STATE_NAMESPACE, name, {STATE_KEY: "mine"}, {STATE_LABEL: "texts"})
        )
        keeper.texts["a"] = "2"
        keeper.changed = {"a"}
        await one.wait_until_stored("texts")
        found = await store.get(STATE_NAMESPACE, name)
        assert found is not None
        assert found.data == {STATE_KEY: "2"}
        await one.restore_plugins(fence=True)
        fenced = await store.get(STATE_NAMESPACE, name)
        assert fenced is not None
        assert fenced.version != found.version
        assert fenced.data == found.data
        keeper.texts.clear()
        keeper.changed = {"a"}
        await one.wait_until_stored("texts")
    assert await store.get(STATE_NAMESPACE, name) is None


@pytest.mark.slow
async def test_many_changes_are_few_writes(store: DirectoryStore) -> None:
    keeper = Texts(a="0")
    async with keeping(store, keeper) as one:
        began = time.monotonic()
        for number in range(100):
            keeper.texts["a"] = str(number)
            keeper.changed = {"a"}
            one.poll()
            await time_passes(0.002)
        await one.wait_until_stored("texts")
        # A slow machine takes longer for the changes: one more write for each _SPACING_MS, 500.
        assert one.statuses()[0].writes <= 4 + (time.monotonic() - began) // 0.5
    found = await store.get(STATE_NAMESPACE, f"{STATE_PREFIX}texts-a")
    assert found is not None
    assert found.data == {STATE_KEY: "99"}
