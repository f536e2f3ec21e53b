"""Episodes over a real broker: what arrives, what stays, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pytest

from contract.codes.levels import Severity
from contract.documents.episodes import EpisodeEvent
from contract.observation import chip_subject
from contract.refusal import Reason
from contract.topics import ack_topic, events_topic
from stores.address import open_store
from stores.base import EventChannel, HistoryAck, HistoryBatch, Store
from stores.mqtt.channel import MAX_BYTES, decode_batch
from tests.parts.broker import Broker
from tests.parts.deadlines import until
from tests.parts.processes import Running, program
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.interruption import Interrupted

T = TypeVar("T")

EVENT = EpisodeEvent(
    7, 0, "abc", "began", chip_subject(3), "80E01801", 1_800_000_000_000, None, "x", Severity.MAJOR
)
BATCH = HistoryBatch("node-1", "j", 6, 7, (EVENT,))


@pytest.fixture(scope="module")
@needs("server")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
async def store(broker: Broker) -> AsyncIterator[Store]:
    opened = open_store(broker.url)
    yield opened
    await opened.close()


def channel_of(store: Store) -> EventChannel:
    assert store.channel is not None
    return store.channel


class Listening:
    """Receives batches until the end of the block."""

    def __init__(self, events: AsyncIterator[T | Interrupted]) -> None:
        self.seen: list[object] = []
        self._task = asyncio.ensure_future(self._listen(events))

    async def _listen(self, events: AsyncIterator[T | Interrupted]) -> None:
        async for event in events:
            self.seen.append(event)

    async def until(self, wanted: object) -> None:
        await until(lambda: wanted in self.seen, lambda: (wanted, self.seen), 10)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def publish(broker: Broker, tmp_path: Path, topic: str, payload: bytes) -> None:
    """Publish a message as another program."""
    file = tmp_path / "payload"
    file.write_bytes(payload)
    sent = Running(
        [program("mosquitto_pub"), "-p", str(broker.port), "-t", topic, "-q", "1", "-f", file],
        tmp_path / "pub.log",
    )
    assert await asyncio.to_thread(sent.wait, 10) == 0


async def received_once(listening: Listening, store: Store) -> None:
    """Send the batch until it is received, from when on the subscription is there."""
    listening.seen.clear()

    async def is_received() -> bool:
        await channel_of(store).send(BATCH)
        return BATCH in listening.seen

    await until(is_received, "the batch is received", step_seconds=0.05)


@pytest.mark.server
async def test_batches_arrive_and_are_not_retained(store: Store) -> None:
    await channel_of(store).send(BATCH)
    first = Listening(channel_of(store).batches())
    later = msgspec.structs.replace(BATCH, lost=1)

    async def is_received() -> bool:
        await channel_of(store).send(later)
        return bool(first.seen)

    await until(is_received, "the subscription is there", step_seconds=0.05)
    await first.until(later)
    assert BATCH not in first.seen
    await first.close()


async def test_acknowledgement_is_there_for_a_later_reader(store: Store) -> None:
    await channel_of(store).acknowledge(HistoryAck("node-2", "j", 7))
    listening = Listening(channel_of(store).acks("node-2"))
    await listening.until(HistoryAck("node-2", "j", 7))
    await channel_of(store).acknowledge(HistoryAck("node-2", "j", 9))
    await listening.until(HistoryAck("node-2", "j", 9))
    await listening.close()
    assert len(listening.seen) == 2


@pytest.mark.server
async def test_bad_batches_are_logged_once_and_nothing_comes_of_them(
    store: Store, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listening = Listening(channel_of(store).batches())
    await received_once(listening, store)
    good = msgspec.json.encode(BATCH)
    for payload in (b"nonsense", b"{}", good.replace(b"node-1", b"node-9"), good[:-1]):
        await publish(broker, tmp_path, events_topic("node-1"), payload)
    await publish(broker, tmp_path, ack_topic("node-1"), b"nonsense")
    await received_once(listening, store)
    assert set(map(type, listening.seen)) == {HistoryBatch}
    logged = [one.getMessage() for one in caplog.records if "changes nothing" in one.getMessage()]
    assert len(logged) == 1
    assert "history batch of node-1" in logged[0]
    assert store.refusals.counts == {Reason.UNREADABLE: 3, Reason.OTHER_NODE: 1}
    assert store.refusals.is_empty, "a good one came since"
    await listening.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"node": "node-9"}, "$.node: is of 'node-9'"),
        ({"journal": ""}, "$.journal: names no journal"),
        ({"journal": "a\nb"}, "$.journal: names no journal"),
        ({"after": 8}, "$.upto: 8 to 7 is no range"),
        ({"after": -1}, "$.upto"),
        ({"upto": 1 << 63}, "$"),
        ({"lost": 2}, "$.lost"),
        ({"lost": -1}, "$.lost"),
        ({"after": 7}, "$.events: one is not in the range"),
        ({"events": [EVENT, EVENT]}, "$.events: they are not in order"),
        ({"events": "x" * MAX_BYTES}, "bytes, at most"),
    ],
)
def test_malformed_batch_is_refused(change: dict[str, object], what: str) -> None:
    from contract.errors import DocumentError

    body = msgspec.to_builtins(BATCH) | msgspec.to_builtins(change)
    with pytest.raises(DocumentError) as refused:
        decode_batch("node-1", msgspec.json.encode(body))
    assert what in str(refused.value)


def test_a_batch_is_the_same_on_the_other_side() -> None:
    assert decode_batch("node-1", msgspec.json.encode(BATCH)) == BATCH
