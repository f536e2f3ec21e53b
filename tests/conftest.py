"""Real parts that all tests share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from dcmi_shim.emulator.install import install
from tests.parts.broker import Broker
from tests.parts.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_sessionstart() -> None:
    """Say that this thread has no event loop.

    looptime asks for one before synchronous tests too, and asyncio would make one that nobody
    closes.
    """
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def running_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One API server for the session, with what earlier tests left in it."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture
def control_plane(running_control_plane: ControlPlane) -> ControlPlane:
    """A real API server that runs and holds no documents."""
    running_control_plane.recover()
    running_control_plane.clean()
    return running_control_plane


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A real mosquitto with nothing in it."""
    place = tmp_path / "broker"
    place.mkdir()
    with Broker(place) as running:
        yield running


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emulated driver, built: its root is ``driver``."""
    place = tmp_path_factory.mktemp("built")
    install(place / "driver", place / "emulator")
    return place
