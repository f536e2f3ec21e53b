"""The installed command, the other driver, and nodes on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.acceptance.daemons import Agent, Daemon
from tests.acceptance.hardware import GAPPED, Hardware, compile_library
from tests.acceptance.installed import install
from tests.acceptance.places import Cluster, Folder
from tests.parts.once import once
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.acceptance.hardware import Chip
    from tests.acceptance.places import Place
    from tests.parts.controlplane import ControlPlane


class MakeAgent(Protocol):
    """Makes a node with hardware and an agent that is not started."""

    def __call__(
        self,
        place: Place,
        name: str = "node-1",
        library: Path | None = None,
        chips: tuple[Chip, ...] = GAPPED,
    ) -> Agent: ...


@pytest.fixture(scope="session")
@needs("daemon")
def vigil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the product, once for a run; return the path of its command."""
    installed = once(tmp_path_factory.getbasetemp(), "installed", install)
    return installed / "environment" / "bin" / "vigil"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that compiles the library without the named symbols, each kind once."""
    directory = tmp_path_factory.mktemp("libraries")
    kinds: dict[tuple[str, ...], Path] = {}

    def library(*without: str) -> Path:
        if without not in kinds:
            kinds[without] = compile_library(directory, *without)
        return kinds[without]

    return library


@pytest.fixture
def make_agent(vigil: Path, compiled: Callable[..., Path], tmp_path: Path) -> Iterator[MakeAgent]:
    """Yield a function that makes nodes; end their agents afterwards.

    At the end it checks that only one call at a time entered the library.
    """
    agents: list[Agent] = []

    def make(
        place: Place,
        name: str = "node-1",
        library: Path | None = None,
        chips: tuple[Chip, ...] = GAPPED,
    ) -> Agent:
        hardware = Hardware(tmp_path / name / "driver", library or compiled(), chips)
        agents.append(Agent(vigil, tmp_path / name, place, hardware, name))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()
        assert not agent.hardware.was_entered_twice


@pytest.fixture
def make_aggregator(vigil: Path, tmp_path: Path) -> Iterator[Callable[[Place], Daemon]]:
    """Yield a function that makes aggregators that are not started; end them afterwards."""
    daemons: list[Daemon] = []

    def make(place: Place) -> Daemon:
        directory = tmp_path / f"aggregator-{len(daemons)}"
        daemons.append(Daemon(vigil, "aggregator", directory, place))
        return daemons[-1]

    yield make
    for daemon in daemons:
        daemon.close()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a directory store."""
    return Folder(tmp_path / "store")


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Cluster:
    """Return a store on a real API server."""
    return Cluster(control_plane)
