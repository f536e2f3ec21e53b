"""What token of an agent, tenant, taken Device Plugin and no credentials may do at an API server.

One test for each row of the intruder's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.intruder import account_rows, agent_rows
from tests.intruder.api_server import ApiServer, api_server
from tests.intruder.contents import ON_API_SERVER, Contents, OnApiServer, contents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.intruder.table import Row
    from tests.parts.controlplane import ControlPlane


@pytest.fixture(scope="module")
def server(running_control_plane: ControlPlane) -> Iterator[ApiServer]:
    with api_server(running_control_plane) as server:
        yield server


@pytest.mark.apiserver
@pytest.mark.parametrize("row", [*agent_rows.ROWS, *account_rows.ROWS], ids=lambda row: row.name)
def test_row(server: ApiServer, row: Row) -> None:
    assert server.refusing(row.actor, row.attempt) is next(iter(row.protections), None)


@pytest.fixture(scope="module")
def reading(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    with contents(OnApiServer(server), tmp_path_factory.mktemp("aggregator")) as reading:
        yield reading


@pytest.mark.apiserver
@pytest.mark.parametrize("row", ON_API_SERVER, ids=lambda row: row.name)
def test_row_of_contents(reading: Contents, row: Row) -> None:
    assert (reading.refusing(row.actor, row.attempt),) == row.protections
