"""A server for each test of ``vigil scan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.parts.places import Folder
from tests.vigil.scan.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path, built: Path) -> Iterator[Server]:
    """Yield a server with a BMC on a directory store; its agent is not started."""
    server = Server(tmp_path, built, Folder(tmp_path / "store"))
    server.give_bmc(tmp_path)
    yield server
    server.close()
