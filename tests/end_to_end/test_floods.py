"""Floods of driver events, and events that are over in a moment, in a real agent."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contract.codes.chip_codes import LINK_DOWN
from contract.names import CLUSTER_NAMESPACE
from tests.aggregator.daemon import Daemon
from tests.parts.deadlines import let_time_pass, nothing_happens_for, patience
from tests.parts.places import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dcmi_shim.emulator.control import Emulator
    from tests.end_to_end.node import Node, Shown

FAULT, ONCE = "80E01801", "80E3A201"
CODES = ("80E18402", "80C98009", "80E21007", "8C204E00")
CHIPS = range(8)
EVENTS = 10_000


def _flood(emulator: Emulator, events: int = EVENTS) -> dict[int, set[str]]:
    """Make so many events as fast as possible; return the final active codes of each chip."""
    chance = random.Random(7)
    active: dict[int, set[str]] = {chip: set() for chip in CHIPS}
    active[0].add(FAULT)
    emulator.occur(0, FAULT)
    for number in range(events - 1):
        if number % 1000 == 0:
            let_time_pass(0.05)  # what recovered stays in the library's list for a moment
        chip, code, kind = chance.choice(CHIPS), chance.choice(CODES), chance.random()
        if kind < 0.4:
            emulator.once(chip, ONCE)
        elif code not in active[chip] or kind < 0.85:
            emulator.occur(chip, code)
            active[chip].add(code)
        else:
            emulator.recover(chip, code)
            active[chip].remove(code)
    return active


def _shows(active: dict[int, set[str]]) -> Callable[[Shown], bool]:
    return lambda now: all(now.codes(chip) - {ONCE} == active[chip] for chip in CHIPS)


def _waiting(emulator: Emulator) -> int:
    """Return how many events the library has for the driver process."""
    status: Any = emulator.status()
    return sum(subscriber["waiting"] for subscriber in status["subscribers"])


def _memory_mib(node: Node) -> float:
    pages = int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


@contextmanager
def _slowest_answer(node: Node) -> Iterator[list[float]]:
    """Yield the duration of the agent's slowest answer within the block (s)."""
    slowest, over = [0.0], threading.Event()

    def ask() -> None:
        while not over.is_set():
            began = time.monotonic()
            node.ask("/healthz")
            slowest[0] = max(slowest[0], time.monotonic() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield slowest
    finally:
        over.set()
        asking.join()


@pytest.mark.exec
@pytest.mark.alone
def test_ten_thousand_events_in_a_second(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    memory = _memory_mib(node)
    result: list[dict[int, set[str]]] = []
    with _slowest_answer(node) as slowest:
        flooding = threading.Thread(target=lambda: result.append(_flood(node.emulator)))
        flooding.start()
        node.until(lambda now: FAULT in now.codes(0), "the first one is shown meanwhile", 2.0)
        flooding.join()
        node.until(_shows(result[0]), "the last state is shown", 10)
        node.until(lambda now: not any(ONCE in now.codes(chip) for chip in CHIPS), "all is quiet")
    assert slowest[0] < 2.0, "nothing waits for the flood"
    node.until(_shows(result[0]), "and it stays", 1)
    assert _memory_mib(node) - memory < 32
    status: Any = node.emulator.status()
    (driver,) = status["subscribers"]
    assert driver["dropped"] == 0, "the library's own queue is read in time"
    assert node.assertions(FAULT) == ["occur"]


def test_events_beyond_the_queue_are_a_gap_and_the_lists_supply_them(
    folder_node: Node,
) -> None:
    node = folder_node
    # A child that answers too late is replaced, and what it has dropped is not known then.
    node.environment["VIGIL_DRIVER_CALL_DEADLINE_SECONDS"] = str(patience(0.5))
    node.start()
    node.healthy()
    os.kill(node.process.pid, signal.SIGSTOP)
    try:
        active = _flood(node.emulator, 14_000)
        node.wait(lambda: _waiting(node.emulator) == 0, "the driver process has read all")
        nothing_happens_for(
            1.0, because="the process stands still while the driver fills its queue"
        )
    finally:
        os.kill(node.process.pid, signal.SIGCONT)
    node.until(_shows(active), "the state is right in the end", 20)
    node.waits_for_text("events dropped")
    assert node.status()["driver"]["gaps"] >= 1


def test_a_link_that_goes_up_and_down_within_a_second(folder_node: Node) -> None:
    """Upstream loses the last of these (K10); in either order the last one counts."""
    node = folder_node
    node.start()
    node.healthy()
    for chip, changes in ((2, (False, True, False)), (5, (False, True, False, True))):
        for up in changes:
            node.emulator.link(chip, up=up)
            let_time_pass(0.05)

    def events() -> list[str]:
        return [word for word in node.assertions(LINK_DOWN) if word in ("occur", "recover")]

    expected = ["occur", "recover", "occur", *["occur", "recover"] * 2]
    # The state of the end is also that of the first event.
    node.wait(lambda: len(events()) >= len(expected), "every event is journaled")
    node.until(lambda now: LINK_DOWN in now.codes(2) and not now.codes(5), "what came last", 3)
    nothing_happens_for(3, because="the list is asked for LAG_SECONDS, 2, after an event")
    now = node.shown()
    assert now is not None
    assert now.codes(2) == {LINK_DOWN}
    assert not now.codes(5)
    assert events() == expected


def test_a_once_event_is_seen_for_five_seconds(folder_node: Node, tmp_path: Path) -> None:
    """In device-info and in cluster-info: a scheduler looks once a second."""
    node = folder_node
    assert isinstance(node.place, Folder)
    node.start()
    node.healthy()
    aggregator = Daemon(tmp_path / "aggregator", "--store", f"directory:{node.place.root}")
    cluster = node.place.root / CLUSTER_NAMESPACE / "cluster-info-device-0.json"
    # The last look before it was there, and the first one after: looks may be far apart.
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    seen: set[str] = set()

    def look() -> bool:
        began = time.monotonic()
        now = node.shown()
        is_in_device_info = now is not None and ONCE in now.codes(4)
        is_in_cluster_info = ONCE in json.dumps(_content(cluster))
        ended = time.monotonic()
        for document, is_there in (
            ("device-info", is_in_device_info),
            ("cluster-info", is_in_cluster_info),
        ):
            if is_there:
                seen.add(document)
                after.pop(document, None)
            elif document in seen:
                after.setdefault(document, ended)
            else:
                before[document] = began
        return len(after) == 2 and ended - max(after.values()) > 1.5

    try:
        aggregator.start()
        look()
        node.emulator.once(4, ONCE)
        node.wait(look, "it was seen and is gone", 15)
    finally:
        aggregator.stop()
    for document, gone in after.items():
        assert gone - before[document] >= 5.0, document


def _content(file: Path) -> Any:
    return json.loads(file.read_text())
