"""Node-info with the heartbeat in it, through the publisher that keeps every other document."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from agent.fault_state import FaultState
from agent.journal.journal import Journal
from agent.journal.rows import RowKind
from agent.node_documents import NodeDocuments
from agent.own_documents import DocumentsContext
from agent.policy.state import PolicyState
from agent.publishing.node_info import NodeInfoDocument
from agent.publishing.node_info_heartbeat import NodeInfoBeat, NodeInfoHeartbeat
from contract.codes import catalogue
from contract.documents.node_info import (
    FaultDevice,
    Generation,
    NodeBeat,
    NodeRecord,
    decode_node_info,
    encode_beating_node_info,
    encode_node_beat,
    encode_node_info,
)
from contract.names import NODE_INFO_NAMESPACE, node_info_name
from contract.observation import NODE, Assertion, Observation, SourceAnswered, host_subject
from service.watchdog import Watchdog
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from stores.directory.store import DirectoryStore
from tests.agent.held_claim import held_claim
from tests.agent.policy.builders import T, after, healthy
from tests.parts.deadlines import patience, stays, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

NAME = node_info_name("node-1")
LABELS = {"mx-consumer-cim": "true"}
FAN = FaultDevice("Fan", 3, ["06000025"], "PreSeparateFault")
ALARM = Observation("bmc", host_subject("Fan", 3), "06000025", Assertion.PRESENT, T)
ANSWERED = SourceAnswered("bmc", NODE, T)
C = Generation.C


def document(
    state: PolicyState, generation: Generation = C, *, stalls: dict[str, float] | None = None
) -> NodeInfoHeartbeat:
    beating = NodeInfoBeat(generation, 4.2, lambda: bool(stalls))
    return NodeInfoHeartbeat("node-1", lambda: state, beating)


def made(this: NodeInfoHeartbeat, stamp: int) -> NodeRecord:
    wanted = this.desired()
    assert wanted is not None
    assert wanted.stamped is not None
    written = wanted.stamped(stamp)
    this.verify(written)
    assert written.labels == LABELS
    assert list(written.data) == ["NodeInfo"]
    return decode_node_info(NAME, written.data)


def stored(data: dict[str, str]) -> Document:
    return Document(NODE_INFO_NAMESPACE, NAME, data, LABELS)


def test_it_beats_before_the_bmc_answers_and_never_reports_healthy_for_it() -> None:
    this = document(healthy())
    assert made(this, 100) == NodeRecord((), "Healthy", 100_000, C, NodeBeat(100, 5))
    for data in (
        encode_node_info([FAN], "PreSeparate", "2026-01-01T08:00:00Z"),
        encode_beating_node_info([FAN], "PreSeparate", NodeBeat(90, 5)),
    ):
        this = document(healthy())
        this.observe_stored(stored(data))
        assert made(this, 100).faults == (FAN,), "what was there stays until the BMC answers"
    answered = document(after(healthy(), [ALARM, ANSWERED], T))
    assert made(answered, 100).status == "PreSeparate"
    well = document(after(healthy(), [ANSWERED], T))
    well.observe_stored(stored(encode_node_info([FAN], "PreSeparate", "2026-01-01T08:00:00Z")))
    assert made(well, 100).faults == ()


def test_generation_b_has_the_beat_alone() -> None:
    this = document(after(healthy(), [ALARM, ANSWERED], T), Generation.B)
    assert made(this, 100) == NodeRecord((), "", 100_000, Generation.B, NodeBeat(100, 5))


def test_while_something_stalls_the_beat_stands_still_and_faults_do_not() -> None:
    stalls: dict[str, float] = {}
    this = document(healthy(), stalls=stalls)
    assert made(this, 100).beat == NodeBeat(100, 5)
    stalls["links"] = 61.0
    assert made(this, 105).beat == NodeBeat(100, 5)
    faulty = after(healthy(), [ALARM, ANSWERED], T)
    this._state = lambda: faulty
    assert made(this, 110).beat == NodeBeat(100, 5)
    assert made(this, 110).faults == (FAN,)
    stalls.clear()
    assert made(this, 115).beat == NodeBeat(115, 5)
    # A process that begins like that leaves what the last one reported.
    stalls["links"] = 61.0
    next_life = document(healthy(), stalls=stalls)
    next_life.observe_stored(stored(encode_beating_node_info([], "Healthy", NodeBeat(115, 5))))
    assert made(next_life, 120).beat == NodeBeat(115, 5)


def test_the_next_beat_is_due_after_the_interval_more_or_less() -> None:
    this = document(healthy())
    pauses = set()
    for stamp in range(300):
        made(this, stamp)
        wanted = this.desired()
        assert wanted is not None
        pauses.add(wanted.refresh_seconds)
        assert wanted.refresh_seconds in pauses, "drawn once per beat"
    assert 4.2 * 0.9 <= min(pauses) < 4.2 * 0.92
    assert 4.2 * 1.08 < max(pauses) <= 4.2 * 1.1
    assert math.isclose(sum(pauses) / len(pauses), 4.2, rel_tol=0.02)


@pytest.mark.parametrize(
    ("shown", "generation"),
    [
        (encode_node_info([FAN], "PreSeparate", "2026-01-01T08:00:00Z"), Generation.D),
        (encode_beating_node_info([FAN], "PreSeparate", NodeBeat(90, 5)), Generation.C),
        (encode_node_beat(NodeBeat(90, 5)), Generation.B),
        ({"NodeInfo": "{}"}, None),
        ({}, None),
    ],
)
def test_document_of_another_generation_is_deleted_before_a_write(
    shown: dict[str, str], generation: Generation | None
) -> None:
    for mine in (Generation.B, Generation.C):
        assert document(healthy(), mine).blocks_updates(stored(shown)) is (mine is not generation)
    modern = NodeInfoDocument("node-1", healthy)
    assert modern.blocks_updates(stored(shown)) is (generation is not Generation.D)


class NotingStore(DirectoryStore):
    """A directory that notes what is asked of it; its watch may show only the last of it."""

    def __init__(self, url: str, root: Path) -> None:
        super().__init__(url, root)
        self.generations: list[Generation | None] = []

    async def put(self, document: Document, *, expected: str | None = None) -> str:
        version = await super().put(document, expected=expected)
        self.generations.append(decode_node_info(NAME, document.data).generation)
        return version

    async def delete(self, namespace: str, name: str, *, expected: str | None = None) -> None:
        await super().delete(namespace, name, expected=expected)
        self.generations.append(None)


class Life:
    """An agent's node-info in a directory, and every state of it that a reader sees."""

    def __init__(self, root: Path, generation: Generation | None, interval_seconds: float) -> None:
        self.store = NotingStore(f"directory:{root}", root / "store")
        self.stalls = Watchdog()
        self.stalled: dict[str, float] = {}
        state = PolicyState("node-1", "boot")
        self.clock_seconds = 0
        self.fault_state = FaultState(state, catalogue.shipped(), self.now_ms, self._changed)
        self.journal = Journal(
            root, first_sequence=1, wall_clock=self.now_ms, on_recovered=self.fault_state.snapshot
        )
        self.kinds: list[RowKind] = []
        append = self.journal.append

        def noting(entries: Iterable[tuple[RowKind, str]], at_ms: int) -> int:
            rows = list(entries)
            self.kinds += [kind for kind, _ in rows]
            return append(rows, at_ms)

        self.journal.append = noting  # type: ignore[method-assign]
        desk = DocumentsContext(
            self.store,
            self.fault_state,
            self.journal,
            self.stalls,
            held_claim(),
            self.now_ms,
            on_chips_restored=lambda: None,
        )
        beating = None
        if generation is not None:
            beating = NodeInfoBeat(generation, interval_seconds, lambda: bool(self.stalled))
        self.documents = NodeDocuments("node-1", ["node-info"], desk, beating=beating)
        self.seen: list[NodeRecord | None] = []

    def now_ms(self) -> int:
        return int((time.time() + self.clock_seconds) * 1000)

    def _changed(self, at_ms: int) -> None:
        self.documents.wake(at_ms)

    def report(self, *reports: Observation | SourceAnswered) -> None:
        self.fault_state.apply_inputs(list(reports))

    @property
    def beats(self) -> list[int]:
        return [one.beat.at_seconds for one in self.seen if one is not None and one.beat]

    async def watch(self) -> None:
        async for event in self.store.watch(Selection(NODE_INFO_NAMESPACE, NAME)):
            match event:
                case DocumentsListed(documents):
                    self._saw(next(iter(documents), None))
                case Changed(changed):
                    self._saw(changed)
                case Deleted():
                    self._saw(None)

    def _saw(self, shown: Document | None) -> None:
        self.seen.append(None if shown is None else decode_node_info(NAME, shown.data))


@asynccontextmanager
async def life(
    root: Path, generation: Generation | None = C, interval_seconds: float = 0.15
) -> AsyncIterator[Life]:
    root.mkdir(exist_ok=True)
    this = Life(root, generation, interval_seconds)
    watching = asyncio.create_task(this.watch())
    await until(lambda: bool(this.seen), "the watch")
    this.fault_state.start_journaling(this.journal)
    (kind,) = this.documents.publishers
    task = asyncio.create_task(this.documents.publish(kind))
    try:
        yield this
    finally:
        for one in (task, watching):
            one.cancel()
        await asyncio.gather(task, watching, return_exceptions=True)
        this.fault_state.end()
        await this.journal.close()
        await this.store.close()


@pytest.mark.slow
async def test_it_is_written_every_interval_and_each_beat_differs(tmp_path: Path) -> None:
    async with life(tmp_path) as this:
        await until(lambda: len(this.beats) >= 6, "beats")
        assert all(earlier < later for earlier, later in pairwise(this.beats))
        assert this.seen[0] is None
        assert None not in this.seen[1:], "it is never blank"
        record = this.documents.records["node-info"]
        assert record.foreign.total == 0
        assert record.waiting_since_ms is None
        # Beats are no history.
        reported = this.kinds.count(RowKind.PUBLICATION)
        assert reported <= 2, this.kinds
        this.report(ALARM, ANSWERED)
        await until(lambda: bool(this.seen[-1] and this.seen[-1].faults), "the fault")
        await until(lambda: this.kinds.count(RowKind.PUBLICATION) > reported, "that is")


@pytest.mark.slow
async def test_a_clock_that_is_set_back_does_not_stop_it(tmp_path: Path) -> None:
    async with life(tmp_path) as this:
        await until(lambda: len(this.beats) >= 2, "beats")
        this.clock_seconds = -3600
        count = len(this.beats)
        await until(lambda: len(this.beats) >= count + 3, "beats go on")
        assert len(set(this.beats)) == len(this.beats)
    # Nor does a new process, which knows what is stored.
    async with life(tmp_path) as this:
        this.clock_seconds = -3600
        await until(lambda: len(this.beats) >= 4, "beats go on")
        assert all(earlier < later for earlier, later in pairwise(this.beats))


async def test_a_foreign_deletion_or_edit_is_repaired(tmp_path: Path) -> None:
    async with life(tmp_path, interval_seconds=60) as this:
        await until(lambda: len(this.beats) == 1, "the first beat")
        await this.store.delete(NODE_INFO_NAMESPACE, NAME)
        await until(lambda: len(this.beats) == 2, "it is back")
        assert this.beats[1] > this.beats[0]
        edited = encode_beating_node_info([FAN], "PreSeparate", NodeBeat(this.beats[1], 5))
        await this.store.put(stored(edited))
        # The watch of this test may miss the edit, but not the beat that follows.
        await until(lambda: this.beats[-1] > this.beats[1], "it is repaired")
        assert this.seen[-1] is not None
        assert this.seen[-1].faults == ()


@pytest.mark.parametrize(
    ("before", "now"), [(None, C), (C, None), (Generation.B, C), (C, Generation.B)]
)
async def test_a_change_of_generations_deletes_and_creates(
    tmp_path: Path, before: Generation | None, now: Generation | None
) -> None:
    for generation in (before, now):
        async with life(tmp_path, generation, 60) as this:
            this.report(ALARM, ANSWERED)
            wants = generation or Generation.D

            def is_there(this: Life = this, wants: Generation = wants) -> bool:
                return this.seen[-1] is not None and this.seen[-1].generation is wants

            await until(is_there, "it is there")
    # No reader is given one as an update of the other.
    assert this.store.generations == [None, now or Generation.D]


@pytest.mark.slow
async def test_nothing_of_it_is_written_while_the_collectors_stand_still(tmp_path: Path) -> None:
    async with life(tmp_path) as this:
        await until(lambda: len(this.beats) >= 2, "beats")
        this.stalled["bmc"] = 99.0
        await stays(patience(0.3), because="a beat that has begun is written")
        count = len(set(this.beats))
        await stays(0.6, because="a stall must outlast several beats")
        assert len(set(this.beats)) == count
        this.stalled.clear()
        await until(lambda: len(set(this.beats)) >= count + 2, "it beats again")


@pytest.mark.parametrize("generation", [None, C])
async def test_a_publisher_that_stands_still_stops_every_beat(
    tmp_path: Path, generation: Generation | None
) -> None:
    passed = 0.0
    life = Life(tmp_path, generation, 5.0)
    stalls = Watchdog(lambda: passed)
    desk = replace(life.documents._context, stalls=stalls)
    NodeDocuments("node-1", ["device-info", "node-info"], desk)
    assert stalls.stalled() == {}
    passed = 31.0
    kinds = ("device-info", "node-info")
    parts = {f"{part} of {kind}" for part in ("publisher", "ownership") for kind in kinds}
    assert set(stalls.stalled()) == parts
    await life.journal.close()
