"""The socket of an aggregator in its state directory."""

from __future__ import annotations

import stat
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from aggregator.config import SOCKET_NAME
from tests.aggregator.daemon import Daemon
from vigil.daemon_client import SocketConnection

if TYPE_CHECKING:
    from pathlib import Path


def ready(path: Path) -> bool:
    """Return whether the aggregator on this socket is ready."""
    with closing(SocketConnection(str(path), 10)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTPStatus.OK


@pytest.mark.daemon
def test_it_is_for_the_own_user_and_no_other_aggregator_takes_it(tmp_path: Path) -> None:
    place = tmp_path / "state"
    options = ("--store", f"directory:{tmp_path / 'store'}")
    first, second = Daemon(place, *options), Daemon(place, *options)
    try:
        first.start()
        path = place / SOCKET_NAME
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ready(path)
        inode = path.stat().st_ino
        second.spawn()
        assert path.stat().st_ino == inode
        second.stop()
        first.kill()
        first.start()
        assert ready(path)
    finally:
        second.stop()
        first.stop()
