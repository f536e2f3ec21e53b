"""What is asked of a real API server so that state is kept, and what its webhooks make of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from aggregator.failover.persistent_state import PersistentState
from aggregator.publish.document_writer import WriterContext
from aggregator.publish.rate_limited_queue import WriteQueue
from contract.names import STATE_KEY, STATE_NAMESPACE, STATE_PREFIX
from service.clock import system_clock
from service.election.leadership import AlwaysLeader
from service.watchdog import Watchdog
from stores.address import open_store
from stores.base import Document
from tests.aggregator.counting import Counter
from tests.parts.admission import Webhook
from tests.parts.api_proxy import ApiProxy
from tests.parts.deadlines import patience, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Any

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

pytestmark = pytest.mark.apiserver

NAME = f"{STATE_PREFIX}counts-a"


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[ApiProxy]:
    with ApiProxy(control_plane) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: ApiProxy) -> AsyncIterator[Store]:
    """Yield a store with the namespace, which otherwise the first write would create."""
    store = open_store("kubernetes:", proxy.kubeconfig)
    await store.put(Document(STATE_NAMESPACE, "first", {}))
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def keeping(store: Store, counter: Counter) -> AsyncIterator[PersistentState]:
    turns = WriteQueue(16, system_clock)
    one = PersistentState(
        WriterContext(store, AlwaysLeader("me"), system_clock, Watchdog(), turns), [counter]
    )
    await one.restore_plugins(fence=False)
    async with asyncio.TaskGroup() as tasks:
        one.lead(tasks)
        yield one
        await one.follow()


async def test_each_change_costs_one_request(store: Store, proxy: ApiProxy) -> None:
    counter, begin = Counter(), time.monotonic()
    async with keeping(store, counter) as one:
        for _ in range(3):
            counter.count("a")
            await one.wait_until_stored(Counter.name)
    asked = [request.verb for request in proxy.requests(since=begin)]
    assert asked == ["list", "create", "update", "update"]


async def test_change_by_a_webhook_is_reported_without_another_read(
    store: Store, proxy: ApiProxy, control_plane: ControlPlane
) -> None:
    counter, begin = Counter(), time.monotonic()

    def change(found: dict[str, Any]) -> None:
        if found["metadata"]["name"] == NAME:
            found["data"][STATE_KEY] = "webhook"

    async with keeping(store, counter) as one:
        counter.count("a")
        await one.wait_until_stored(Counter.name)
        # Two changes within a minute: each answer is looked at, not one of many.
        with Webhook(control_plane, change):
            counter.count("a")
            one.poll()
            await until(lambda: one.conflicts, seconds=10)
        (conflict,) = one.conflicts
        assert f"our own write of {NAME} differs" in conflict
        assert f"key {STATE_KEY}" in conflict
        async with asyncio.timeout(patience(10)):
            await one.wait_until_stored(Counter.name)
        assert one.conflicts == ()
    asked = {request.verb for request in proxy.requests(since=begin)}
    assert asked == {"list", "create", "update"}
    found = await store.get(STATE_NAMESPACE, NAME)
    assert found is not None
    assert found.data == {STATE_KEY: "2"}
