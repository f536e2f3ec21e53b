"""What clients without the right certificate and a local user may do with a daemon.

One test for each row of the intruder's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.intruder.daemon import ROWS, Aggregator, aggregator
from tests.intruder.table import FileAccess, SocketPage
from tests.tiers import needs, only_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.intruder.table import Row

OF_A_USER = only_root("only root starts a program of another user")


def marked(row: Row) -> list[pytest.MarkDecorator]:
    """Return the marks of a row."""
    return [OF_A_USER] if isinstance(row.attempt, FileAccess | SocketPage) else []


@pytest.fixture(scope="module")
@needs("server")
def server() -> Iterator[Aggregator]:
    with aggregator() as server:
        yield server


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=marked(row)) for row in ROWS])
def test_row(server: Aggregator, row: Row) -> None:
    assert server.refusing(row.actor, row.attempt) is next(iter(row.protections), None)
