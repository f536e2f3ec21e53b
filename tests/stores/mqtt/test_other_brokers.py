"""A broker that is not mosquitto (mochi), and what it does not offer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from contract.errors import StoreError
from stores.address import open_store
from stores.base import Beat, Changed, Deleted, Document, Selection
from stores.mqtt.settings import Mqtt
from tests.parts.mochi import Mochi
from tests.parts.watching import watching

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store

pytestmark = pytest.mark.server

ONE = Document("kube-system", "mindx-dl-deviceinfo-node-1", {"text": "x"}, {"a": "b"})
PROTOCOLS = pytest.mark.parametrize("protocol", ["5", "3.1.1"])


def opened(broker: Mochi, protocol: str, node: str | None = None) -> Store:
    return open_store(broker.url, mqtt=Mqtt.model_validate({"protocol": protocol}), node=node)


async def problem(store: Store) -> str:
    """Return why no write succeeds, after any temporary failure."""
    async with asyncio.timeout(30):
        for _ in range(3):
            with pytest.raises(StoreError) as caught:
                await store.put(ONE)
            await asyncio.sleep(0.2)
    return str(caught.value)


@PROTOCOLS
@pytest.mark.parametrize(
    ("flag", "setting"),
    [("-retain=false", "retain_available true"), ("-qos=0", "max_qos 1")],
)
@pytest.mark.parametrize("node", [None, "node-1"])
async def test_one_that_cannot_be_used_is_named_and_used_once_it_can(
    tmp_path: Path, protocol: str, flag: str, setting: str, node: str | None
) -> None:
    with Mochi(tmp_path, flag) as broker:
        # That of an agent has a will, which is retained and has QoS 1, too.
        store = opened(broker, protocol, node)
        assert f"set {setting}" in await problem(store)
        broker.restart()
        async with asyncio.timeout(20):
            while await fails(store):  # noqa: ASYNC110  (a broker does not announce that it is back)
                await asyncio.sleep(0.1)
        assert await store.get(ONE.namespace, ONE.name) is not None
        await store.close()


async def fails(store: Store) -> bool:
    try:
        await store.put(ONE)
    except StoreError:
        return True
    return False


async def test_one_without_mqtt_5_is_named_with_what_to_set(tmp_path: Path) -> None:
    with Mochi(tmp_path, "-only-3.1.1") as broker:
        store = opened(broker, "5")
        assert "set mqtt.protocol to the other one" in await problem(store)
        await store.close()


async def test_one_without_mqtt_5_keeps_documents_and_beats(tmp_path: Path) -> None:
    with Mochi(tmp_path, "-only-3.1.1") as broker:
        await assert_serves(opened(broker, "3.1.1", "node-1"), opened(broker, "3.1.1"))


@PROTOCOLS
async def test_one_with_everything(tmp_path: Path, protocol: str) -> None:
    with Mochi(tmp_path) as broker:
        await assert_serves(opened(broker, protocol, "node-1"), opened(broker, protocol))


async def assert_serves(agent: Store, aggregator: Store) -> None:
    """Check documents, their changes and deletions, heartbeats and a last will."""
    await agent.put(ONE)
    async with watching(aggregator, Selection("kube-system")) as seen:
        (document,) = seen.documents.values()
        assert document.data == ONE.data
        await agent.put(Document(ONE.namespace, ONE.name, {"text": "y"}))
        await seen.until(lambda seen: len(seen.of(Changed)) == 1)
        await agent.delete(ONE.namespace, ONE.name)
        await seen.until(lambda seen: len(seen.of(Deleted)) == 1)
    await agent.beat(Beat("node-1", "host", 5.0, 7))
    (beat,) = await aggregator.beats()
    assert (beat.node, beat.beaten_at_ms, beat.is_broken) == ("node-1", 7, False)
    await agent.close()
    await aggregator.close()


@PROTOCOLS
async def test_a_larger_document_than_it_takes_holds_nothing_else_up(
    tmp_path: Path, protocol: str
) -> None:
    with Mochi(tmp_path, "-largest=20000") as broker:
        store = opened(broker, protocol)
        await store.put(ONE)
        large = Document("mindx-dl", "mindx-dl-nodeinfo-node-1", {"text": "x" * 40_000})
        text = ""
        async with asyncio.timeout(30):
            while "bytes as a packet" not in text:
                try:
                    await store.put(large)
                except StoreError as error:
                    text = str(error)
                await asyncio.sleep(0.1)
        await store.put(ONE)
        await store.beat(Beat("node-1", "host", 5.0, 7))
        await store.close()


async def bridged(broker: Mochi, protocol: str, caplog: pytest.LogCaptureFixture) -> int:
    """Receive documents without the retain flag; return how often a message reports that."""
    node, reader = opened(broker, "5"), opened(broker, protocol)
    async with watching(reader, Selection("kube-system")) as seen:
        for text in "abc":
            await node.put(Document(ONE.namespace, ONE.name, {"text": text}))
            await seen.until(lambda seen: text in str(seen.documents))  # noqa: B023
    await node.close()
    await reader.close()
    return sum("come without the retain flag" in one.getMessage() for one in caplog.records)


async def test_a_bridge_that_drops_the_retain_flag_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Mochi(tmp_path, "-drops-retain") as broker:
        assert await bridged(broker, "5", caplog) == 1
        caplog.clear()
        assert await bridged(broker, "3.1.1", caplog) == 0, "there no message shows it"


async def test_documents_that_are_retained_are_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Mochi(tmp_path) as broker:
        assert await bridged(broker, "5", caplog) == 0
