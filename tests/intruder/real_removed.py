"""Each row that is refused, with its protections removed: then nothing else may refuse it.

``make test-intruder`` runs it. A row that is refused all the same names the wrong protection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.intruder import account_rows, agent_rows
from tests.intruder.api_server import ApiServer, api_server
from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.intruder.table import Row
    from tests.parts.controlplane import ControlPlane

REFUSED = [row for row in (*agent_rows.ROWS, *account_rows.ROWS) if row.protections]
# Rows with the same protections follow each other, so each of them is removed once.
REFUSED.sort(key=lambda row: (row.actor.name, [one.name for one in row.protections]))


@pytest.fixture(scope="module")
def server(running_control_plane: ControlPlane) -> Iterator[ApiServer]:
    with api_server(running_control_plane) as server:
        yield server


@pytest.mark.apiserver
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_row_is_open_without_its_protections(server: ApiServer, row: Row) -> None:
    server.remove(row.actor, row.protections)
    wait_until(
        lambda: server.refusing(row.actor, row.attempt) is None,
        lambda: f"{server.refusing(row.actor, row.attempt)} refuses it",
    )
