"""A real aggregator on each store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pytest

from stores.address import open_store
from tests.aggregator.daemon import Daemon
from tests.tiers import needs

if TYPE_CHECKING:
    from pathlib import Path

    from stores.base import Store
    from tests.parts.controlplane import ControlPlane

Make: TypeAlias = Callable[..., Daemon]


@pytest.fixture(params=["directory", pytest.param("kubernetes", marks=pytest.mark.apiserver)])
def kind(request: pytest.FixtureRequest) -> str:
    """Return each kind of store in turn."""
    found: str = request.param
    return found


@pytest.fixture
def address(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path | None]:
    """Return the URL and the kubeconfig of an empty store."""
    if kind == "directory":
        return f"directory:{tmp_path / 'store'}", None
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return "kubernetes:", plane.kubeconfig


@pytest.fixture
async def store(address: tuple[str, Path | None]) -> AsyncIterator[Store]:
    """Yield a store for the test beside that of the aggregator."""
    opened = open_store(*address)
    yield opened
    await opened.close()


@pytest.fixture
@needs("daemon")
def make(tmp_path: Path) -> Iterator[Make]:
    """Yield a function that makes aggregators; stop them after the test."""
    made: list[Daemon] = []

    def new(url: str, kubeconfig: Path | None, *options: str) -> Daemon:
        where = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
        directory = tmp_path / f"aggregator-{len(made)}"
        made.append(Daemon(directory, "--store", url, *where, *options))
        return made[-1]

    yield new
    for daemon in made:
        daemon.stop()


@pytest.fixture
def daemon(make: Make, address: tuple[str, Path | None]) -> Daemon:
    """Return an aggregator that is not started; it drops deleted nodes after a second."""
    return make(*address, "--touch-period-seconds", "1")
