"""Server-sent events of a real aggregator: at once, once more after a break, and slow readers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.aggregator.notify.event_reader import ANSWER_SECONDS, listening, next_event
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from stores.base import Store
    from tests.aggregator.daemon import Daemon


@pytest.fixture
def kind() -> str:
    return "directory"


def began(node: str, chip: int) -> tuple[object, ...]:
    return node, f"Ascend910-{chip}", "80E18402", None, "RestartNPU"


async def test_an_event_arrives_and_what_was_missed_is_sent_again(
    daemon: Daemon, store: Store
) -> None:
    for node in ("n1", "n2"):
        await store.put(report(node, healthy()))
    await asyncio.to_thread(daemon.start)
    with listening(daemon) as answer, listening(daemon, query="?node=n2") as other:
        await store.put(report("n1", faulty(3, T0 + 1)))
        first = next_event(answer)
        assert (first.kind, first.received) == ("change", began("n1", 3))
        assert daemon.node("n1")["update_time"] == T0 + 1
        await store.put(report("n2", faulty(4, T0 + 2)))
        second = next_event(answer)
        assert second == next_event(other)
    await store.put(report("n1", healthy(T0 + 3)))
    with listening(daemon, last=first.id) as answer:
        assert next_event(answer) == second
        assert next_event(answer).received == ("n1", "Ascend910-3", "80E18402", "RestartNPU", None)
    daemon.kill()
    await asyncio.to_thread(daemon.start)
    with listening(daemon, last=second.id) as answer:
        assert next_event(answer).kind == "gap", "another process does not know what it missed"


def much(round_: int) -> dict[str, str]:
    """Return a hundred faults on each of eight chips, others in every round."""
    codes = [f"80{round_:02X}{number:04X}" for number in range(100)]
    listed = [fault(chip, "RestartNPU", ",".join(codes)) for chip in range(8)]
    return config(listed, unhealthy=tuple(range(8)), update_time=T0 + 10 * round_)


async def test_a_slow_reader_learns_what_it_misses_and_blocks_no_other(
    daemon: Daemon, store: Store
) -> None:
    await store.put(report("n1", healthy()))
    await store.put(report("n2", healthy()))
    await asyncio.to_thread(daemon.start)
    with listening(daemon) as slow, listening(daemon, query="?node=n2") as quick:
        round_ = 0
        while daemon.metric("npu_vigil_stream_gaps_total") == 0:
            round_ += 1
            assert round_ < 100
            await store.put(report("n1", much(round_)))
        await store.put(report("n2", faulty(4, T0 + 1)))
        assert next_event(quick).received == began("n2", 4)
        begun = time.monotonic()
        while next_event(slow).kind != "gap":
            assert time.monotonic() < begun + ANSWER_SECONDS
