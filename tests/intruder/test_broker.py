"""What a node's certificate and a client without one may do at a broker with the shipped rights.

One test for each row of the intruder's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.intruder.broker import ROWS, RightsOfBroker, intruders_broker
from tests.intruder.contents import ON_BROKER, Contents, OnBroker, contents
from tests.tiers import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.intruder.table import Row


@pytest.fixture(scope="module")
@needs("server")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsOfBroker]:
    with intruders_broker(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(server: RightsOfBroker, row: Row) -> None:
    assert server.refusing(row.actor, row.attempt) is next(iter(row.protections), None)


@pytest.fixture(scope="module")
def reading(server: RightsOfBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    with contents(OnBroker(server.broker), tmp_path_factory.mktemp("aggregator")) as reading:
        yield reading


@pytest.mark.parametrize("row", ON_BROKER, ids=lambda row: row.name)
def test_row_of_contents(reading: Contents, row: Row) -> None:
    assert (reading.refusing(row.actor, row.attempt),) == row.protections
