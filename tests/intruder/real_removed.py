"""Each row that is refused, with its protections removed: then nothing else may refuse it.

Where the protection is a check in the code of a daemon, its setting is removed, and in a second run
the check itself. ``make test-intruder`` runs it. A row that is refused all the same names the wrong
protection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.intruder import account_rows, agent_rows, broker, daemon
from tests.intruder.api_server import ApiServer, api_server
from tests.intruder.broker import RightsOfBroker, intruders_broker
from tests.intruder.contents import (
    ON_API_SERVER,
    ON_BROKER,
    Contents,
    OnApiServer,
    OnBroker,
    contents,
)
from tests.intruder.daemon import Aggregator, aggregator
from tests.intruder.without_checks import REMOVALS
from tests.parts.deadlines import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.intruder.table import Row
    from tests.parts.controlplane import ControlPlane


def refused(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are refused; those with the same protections follow each other."""
    return sorted(
        (row for row in rows if row.protections),
        key=lambda row: (row.actor.name, [protection.name for protection in row.protections]),
    )


def check(server: ApiServer | RightsOfBroker | Aggregator | Contents, row: Row) -> None:
    """Remove the protections of a row; wait until nothing refuses it."""
    server.remove(row.actor, row.protections)
    wait_until(
        lambda: server.refusing(row.actor, row.attempt) is None,
        lambda: f"{server.refusing(row.actor, row.attempt)} refuses it",
    )


@pytest.fixture(scope="module")
def server(running_control_plane: ControlPlane) -> Iterator[ApiServer]:
    with api_server(running_control_plane) as server:
        yield server


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "row", refused([*agent_rows.ROWS, *account_rows.ROWS]), ids=lambda row: row.name
)
def test_api_server_permits_row_without_its_protections(server: ApiServer, row: Row) -> None:
    check(server, row)


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RightsOfBroker]:
    with intruders_broker(tmp_path_factory.mktemp("broker")) as rights:
        yield rights


@pytest.mark.server
@pytest.mark.parametrize("row", refused(broker.ROWS), ids=lambda row: row.name)
def test_broker_permits_row_without_its_protections(rights: RightsOfBroker, row: Row) -> None:
    check(rights, row)


@pytest.fixture(scope="module")
def running() -> Iterator[Aggregator]:
    with aggregator() as running:
        yield running


@pytest.mark.server
@pytest.mark.parametrize("row", refused(daemon.ROWS), ids=lambda row: row.name)
def test_daemon_permits_row_without_its_protections(running: Aggregator, row: Row) -> None:
    check(running, row)


@pytest.fixture(scope="module")
def running_without_checks() -> Iterator[Aggregator]:
    with aggregator(in_code=True) as running:
        yield running


@pytest.mark.server
@pytest.mark.parametrize(
    "row",
    [row for row in refused(daemon.ROWS) if REMOVALS.keys() & set(row.protections)],
    ids=lambda row: row.name,
)
def test_daemon_permits_row_without_the_checks_in_its_code(
    running_without_checks: Aggregator, row: Row
) -> None:
    check(running_without_checks, row)


@pytest.fixture(scope="module")
def reading_cluster(
    server: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Contents]:
    server.restore()
    with contents(OnApiServer(server), tmp_path_factory.mktemp("aggregator")) as reading:
        yield reading


@pytest.mark.apiserver
@pytest.mark.parametrize("row", refused(ON_API_SERVER), ids=lambda row: row.name)
def test_aggregator_on_api_server_accepts_contents_without_its_checks(
    reading_cluster: Contents, row: Row
) -> None:
    check(reading_cluster, row)


@pytest.fixture(scope="module")
def reading_topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    with intruders_broker(tmp_path_factory.mktemp("broker")) as rights:
        place = OnBroker(rights.broker)
        with contents(place, tmp_path_factory.mktemp("aggregator")) as reading:
            yield reading


@pytest.mark.server
@pytest.mark.parametrize("row", refused(ON_BROKER), ids=lambda row: row.name)
def test_aggregator_on_broker_accepts_contents_without_its_checks(
    reading_topics: Contents, row: Row
) -> None:
    check(reading_topics, row)
