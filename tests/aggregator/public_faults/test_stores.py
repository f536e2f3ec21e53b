"""Public faults in every kind of store: the documents of nodes and of anybody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aggregator.public_faults.plugin import MESSAGES, PublicFaultsPlugin
from contract.names import PUBLIC_FAULT_LABEL, PUBLIC_FAULT_NAMESPACE, public_fault_name
from stores.address import open_store
from stores.base import Document
from tests.aggregator.public_faults.messages import (
    at,
    begun,
    document,
    fault_message,
    one,
    standing,
)
from tests.parts.broker import AGGREGATOR
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from stores.base import Store
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(f"directory:{tmp_path / 'store'}")
    yield store
    await store.close()


@pytest.fixture
async def mqtt(broker: Broker) -> AsyncIterator[Store]:
    store = open_store(broker.tls_url, mqtt=broker.certified(AGGREGATOR))
    yield store
    await store.close()


@pytest.fixture
async def kubernetes(control_plane: ControlPlane) -> AsyncIterator[Store]:
    store = open_store("kubernetes:", control_plane.kubeconfig)
    yield store
    await store.close()


@pytest.fixture(
    params=[
        "directory",
        pytest.param("mqtt", marks=pytest.mark.server),
        pytest.param("kubernetes", marks=pytest.mark.apiserver),
    ]
)
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


def of_node(node: str, resource: str, code: str, chip: int) -> Document:
    """Return the report of the agent of ``node`` about a storage client."""
    fault = one(f"fault-of-{node}-{chip}", node=node, code=code, devices=(chip,), kind="Node")
    name = public_fault_name(node, resource)
    return document(name, fault_message(fault, resource=resource), PUBLIC_FAULT_NAMESPACE)


async def test_documents_of_nodes_and_of_any_program_are_received(store: Store) -> None:
    faults = begun()
    more = asyncio.Event()

    async def follow() -> None:
        async for event in store.watch(MESSAGES):
            faults.observe(0, MESSAGES, event, at(0))
            more.set()

    async def until(happened: Callable[[PublicFaultsPlugin], bool]) -> None:
        async with asyncio.timeout(patience(30)):
            while not happened(faults):
                more.clear()
                await more.wait()

    unlabelled = document("other", fault_message(one("fault-0009", devices=(7,))))
    await store.put(of_node("n1", "dpcStorage", "110001020", 0))
    await store.put(of_node("n2", "dtfsStorage", "110001022", 1))
    await store.put(document("ccae", fault_message(one(devices=(2,))), "default"))
    await store.put(Document("default", "other", unlabelled.data, {PUBLIC_FAULT_LABEL[0]: "no"}))
    task = asyncio.create_task(follow())
    await until(lambda part: part.status().standing == 3)
    assert standing(faults, "n1") == {
        "0": ("110001020", "SubHealthFault"),
        "2": ("220001001", "SeparateNPU"),
    }
    assert standing(faults, "n2") == {"1": ("110001022", "PreSeparateNPU")}
    await store.put(of_node("n2", "dpcStorage", "110001021", 3))
    await store.put(
        document("pingmesh", fault_message(one(devices=(4,)), resource="pingmesh"), "default")
    )
    await until(lambda part: part.status().standing == 5)
    assert standing(faults, "n2").keys() == {"1", "3"}
    assert standing(faults, "n1").keys() == {"0", "2", "4"}
    await store.delete("default", "pingmesh")
    await until(lambda part: part.status().documents == 4)
    assert standing(faults, "n1").keys() == {"0", "2", "4"}, "a deletion says nothing"
    task.cancel()
    await asyncio.wait([task])
