"""Each store, empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stores.address import open_store
from stores.settings import Mqtt
from tests.parts.api_proxy import ApiProxy
from tests.parts.broker import AGGREGATOR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from stores.base import Store
    from tests.parts.broker import Broker
    from tests.parts.controlplane import ControlPlane


@pytest.fixture
async def kubernetes(control_plane: ControlPlane) -> AsyncIterator[Store]:
    store = open_store("kubernetes:", control_plane.kubeconfig)
    yield store
    await store.close()


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[ApiProxy]:
    with ApiProxy(control_plane) as proxy:
        yield proxy


@pytest.fixture
async def proxied(proxy: ApiProxy) -> AsyncIterator[Store]:
    store = open_store("kubernetes:", proxy.kubeconfig)
    yield store
    await store.close()


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(f"directory:{tmp_path / 'store'}")
    yield store
    await store.close()


@pytest.fixture
async def mqtt_5(broker: Broker) -> AsyncIterator[Store]:
    store = open_store(broker.tls_url, mqtt=broker.certified(AGGREGATOR))
    yield store
    await store.close()


@pytest.fixture
async def mqtt_3(broker: Broker) -> AsyncIterator[Store]:
    store = open_store(broker.url, mqtt=Mqtt(protocol="3.1.1"))
    yield store
    await store.close()


@pytest.fixture(
    params=[
        "directory",
        pytest.param("mqtt_5", marks=pytest.mark.server),
        pytest.param("mqtt_3", marks=pytest.mark.server),
        pytest.param("kubernetes", marks=pytest.mark.apiserver),
    ]
)
def store(request: pytest.FixtureRequest) -> Store:
    """Return each kind of store in turn."""
    found: Store = request.getfixturevalue(request.param)
    return found
