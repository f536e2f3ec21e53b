"""Nodes for tests, with the driver built once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from dcmi_shim.emulator.install import install
from tests.end_to_end.isolation_site import site_on
from tests.end_to_end.node import Node
from tests.parts.chromium import Chromium
from tests.parts.places import Cluster, Folder
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.end_to_end.isolation_site import Site
    from tests.parts.places import Place


@pytest.fixture(params=["directory", pytest.param("kubernetes", marks=pytest.mark.apiserver)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return each kind of store in turn."""
    if request.param == "directory":
        return Folder(tmp_path / "store")
    return Cluster(request.getfixturevalue("control_plane"))


@pytest.fixture(scope="session")
@needs("daemon")
def built_a3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the emulated driver of an A3, whose library of switches is built, too."""
    place = tmp_path_factory.mktemp("built-a3")
    install(place / "driver", place / "emulator", "a3")
    return place


@pytest.fixture
def node(tmp_path: Path, built: Path, place: Place) -> Iterator[Node]:
    """Yield a node on each kind of store in turn; its agent is not started."""
    node = Node(tmp_path, built, place)
    yield node
    node.close()


@pytest.fixture
def folder_node(tmp_path: Path, built: Path) -> Iterator[Node]:
    """Yield a node on a directory store; its agent is not started."""
    node = Node(tmp_path, built, Folder(tmp_path / "store"))
    yield node
    node.close()


@pytest.fixture
def folder_site(tmp_path: Path, built: Path) -> Iterator[Site]:
    """Yield a healthy node with an aggregator, on a directory store."""
    yield from site_on(Folder(tmp_path / "store"), tmp_path, built)


@pytest.fixture
def cluster(control_plane: object) -> Cluster:
    """Return the cluster of the real API server."""
    from tests.parts.controlplane import ControlPlane

    assert isinstance(control_plane, ControlPlane)
    return Cluster(control_plane)


@pytest.fixture
def cluster_node(tmp_path: Path, built: Path, cluster: Cluster) -> Iterator[Node]:
    """Yield a node on a real API server; its agent is not started."""
    node = Node(tmp_path, built, cluster)
    yield node
    node.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
@needs("server")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chromium]:
    """Yield one browser, to which one connection is made, for all tests of a worker.

    Its tests run in the loop of the session, as the connection does.
    """
    async with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
