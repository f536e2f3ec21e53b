"""Which chips pods have, as one store reports it for the agent's node."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.chip_allocation import ChipAllocation, StoreAllocation
from agent.journal.file import FILE_NAME, JournalFile, read_restored
from agent.journal.journal import Journal
from agent.journal.rows import JournalRow, RowKind
from agent.publishing.device_info import FIRST_DOCUMENT_SECONDS, DeviceInfoDocument
from contract.observation import Assertion
from stores.base import PodUsage
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted
from tests.agent.policy.builders import NODE, T, after, answered, healthy, inventory, seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stores.base import UsageEvent


def pod(uid: str, *chips: str, assigned: tuple[str, ...] = ()) -> PodUsage:
    return PodUsage(uid, NODE, chips, assigned)


def listed(*pods: PodUsage) -> Snapshot[PodUsage]:
    return Snapshot({pod.uid: pod for pod in pods})


def changed(pod: PodUsage) -> Update[PodUsage]:
    return Update(pod.uid, pod)


def ended(uid: str) -> Update[PodUsage]:
    return Update(uid, None)


class Followed:
    """A ``StoreAllocation`` whose store answers as a test chooses."""

    def __init__(self, directory: Path, remembered: JournalRow | None = None) -> None:
        self.journal = Journal(
            directory, first_sequence=1, wall_clock=lambda: T, on_recovered=lambda: None
        )
        self.changes: list[int] = []
        self._queue: asyncio.Queue[UsageEvent] = asyncio.Queue()
        self.usage = StoreAllocation(NODE, self._events(), self.journal, lambda: T)
        self.usage.notify(self.changes.append)
        self.usage.restore_allocation(remembered)
        self._task = asyncio.create_task(self.usage.run())

    async def _events(self) -> AsyncIterator[UsageEvent]:
        while True:
            yield await self._queue.get()
            self._queue.task_done()

    async def send(self, *events: UsageEvent) -> ChipAllocation:
        for event in events:
            self._queue.put_nowait(event)
        await self._queue.join()
        return self.usage.chips

    async def end(self, directory: Path) -> JournalRow | None:
        """End it; what its journal remembers."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        assert await self.journal.close()
        return read_restored(directory / FILE_NAME).usage


async def test_pods_come_and_go(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    chips = await followed.send(listed(pod("a", "x-0", "x-1"), pod("b", assigned=("x-2",))))
    assert chips == ChipAllocation(frozenset({"x-0", "x-1"}), frozenset({"x-2"}))
    assert followed.usage.answered
    chips = await followed.send(changed(pod("b", "x-2", assigned=("x-2",))), ended("a"))
    assert chips == ChipAllocation(frozenset({"x-2"}), frozenset({"x-2"}))
    assert len(followed.changes) == 3
    row = await followed.end(tmp_path)
    assert row is not None
    assert json.loads(row.body) == {"node": NODE, "used": ["x-2"], "assigned": ["x-2"]}


async def test_only_changes_are_reported_and_journaled(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    await followed.send(listed(pod("a", "x-0")))
    rows = followed.journal.last_sequence
    # A second pod of the same chip, one that is replaced, and the same again.
    await followed.send(changed(pod("b", "x-0")), ended("a"), listed(pod("c", "x-0")))
    assert followed.changes == [T]
    assert followed.journal.last_sequence == rows == 1
    await followed.end(tmp_path)


async def test_no_use_is_an_answer_and_no_change(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    await followed.send(listed())
    assert followed.usage.answered
    assert followed.changes == [T], "who waits for the answer is reported"
    assert await followed.end(tmp_path) is None


async def test_last_known_allocation_stays_while_the_store_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    followed = Followed(tmp_path)
    known = await followed.send(listed(pod("a", "x-0")))
    assert await followed.send(Interrupted("away"), Interrupted("still away")) == known
    blind = followed.usage.blind
    assert blind is not None
    assert (blind.source, blind.since_ms, blind.reason) == ("pods", T, "away")
    assert await followed.send(listed()) == ChipAllocation()
    assert followed.usage.blind is None
    assert len(caplog.messages) == 2, "once when it begins, once when it ends"
    await followed.end(tmp_path)


async def test_a_restart_remembers_until_the_store_answers(tmp_path: Path) -> None:
    first = Followed(tmp_path / "state")
    known = await first.send(listed(pod("a", "x-0", assigned=("x-0", "x-1"))))
    row = await first.end(tmp_path / "state")
    second = Followed(tmp_path / "second", row)
    assert second.usage.chips == known
    assert await second.send(Interrupted("away")) == known
    assert await second.send(listed()) == ChipAllocation()
    await second.end(tmp_path / "second")


@pytest.mark.parametrize("body", ['{"node":"other","used":["x-0"],"assigned":[]}', "[1]"])
async def test_another_node_or_nonsense_is_not_remembered(tmp_path: Path, body: str) -> None:
    followed = Followed(tmp_path, JournalRow(1, T, RowKind.USAGE, body))
    assert followed.usage.chips == ChipAllocation()
    await followed.end(tmp_path)


def test_the_journal_keeps_the_last_usage_however_old(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / FILE_NAME)
    usages = [JournalRow(number, number, RowKind.USAGE, str(number)) for number in (1, 2)]
    later = [JournalRow(3, T, RowKind.REPORTS, "[]"), JournalRow(4, T, RowKind.SNAPSHOT, "{}")]
    file.write([*usages, *later])
    file.prune(older_than_ms=T, max_bytes=1 << 30)
    file.close()
    assert read_restored(tmp_path / FILE_NAME).usage == usages[1]


NONE = ChipAllocation()


@dataclass(frozen=True)
class Allocated:
    """What a store that knows of pods has answered."""

    chips: ChipAllocation = NONE
    answered: bool = True


def document(allocation: Allocated) -> DeviceInfoDocument:
    state = after(healthy(), [*answered(0, 1), seen(Assertion.OCCUR, "8118043C")])
    made = DeviceInfoDocument(NODE, lambda: state, allocation=allocation)
    made.identify(inventory())
    return made


def lists(made: DeviceInfoDocument) -> tuple[str, str]:
    wanted = made.desired()
    assert wanted is not None
    assert wanted.stamped is not None
    text = wanted.stamped(1).data["DeviceInfoCfg"]
    chips = msgspec.json.decode(text)["DeviceInfo"]["DeviceList"]
    return chips["huawei.com/Ascend910"], chips["huawei.com/Ascend910-Unhealthy"]


NO_CHIPS: frozenset[str] = frozenset()
CHIP_0 = frozenset({"Ascend910-0"})


@pytest.mark.parametrize(
    ("in_use", "free", "unhealthy"),
    [
        (ChipAllocation(), "Ascend910-1", "Ascend910-0"),
        (ChipAllocation(CHIP_0, NO_CHIPS), "Ascend910-1", ""),
        (ChipAllocation(NO_CHIPS, CHIP_0), "Ascend910-1", ""),
        (ChipAllocation(NO_CHIPS, frozenset({"Ascend910-1"})), "Ascend910-1", "Ascend910-0"),
        (ChipAllocation(frozenset({"Ascend910-1"}), NO_CHIPS), "", "Ascend910-0"),
        (
            ChipAllocation(frozenset({"Ascend910-4c-100-1", "1"}), NO_CHIPS),
            "Ascend910-1",
            "Ascend910-0",
        ),
    ],
)
def test_pre_separation_spares_a_chip_in_use_and_pods_take_chips_off_the_free_list(
    in_use: ChipAllocation, free: str, unhealthy: str
) -> None:
    made = document(Allocated(in_use))
    assert lists(made) == (free, unhealthy)


def test_the_first_document_waits_for_pods_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("agent.publishing.device_info.time.monotonic", lambda: now)
    made = document(Allocated(answered=False))
    assert made.desired() is None
    now += FIRST_DOCUMENT_SECONDS + 0.01
    assert made.desired() is not None
