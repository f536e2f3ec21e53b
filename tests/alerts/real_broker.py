"""What agents and the aggregator need a broker for, and a broker that is away, raise alerts."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from agent.journal.file import FILE_NAME, MAX_BYTES
from contract.codes.levels import ChipLevel
from tests.alerts.cluster import Cluster, code_of
from tests.alerts.times import FACTOR, Cause, Product
from tests.end_to_end.mqtt_node import OnBroker
from tests.parts.broker import AGGREGATOR, Broker
from tests.parts.certificates import make_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.alerts.times import Times
    from tests.end_to_end.node import Node

pytestmark = [pytest.mark.daemon, pytest.mark.server, pytest.mark.timeout(600)]

_ROW_BYTES = 1 << 20
LIMITED = Product(begin=60, why="an agent checks once a minute whether its journal is too large.")
READ_AGAIN = Product(begin=30, end=30, why="a daemon reads its certificates every 30 s.")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, built: Path, broker: Broker
) -> Iterator[Cluster]:
    """Yield two nodes; the second one may be away for a quarter of a minute."""
    place = OnBroker(broker, AGGREGATOR)
    cluster = Cluster(tmp_path_factory.mktemp("mqtt"), built, place, nodes=2)
    cluster.aggregator.environment |= place.environment
    for node in cluster.nodes:
        own = OnBroker(broker, node.name)
        node.place = own
        node.environment |= own.environment
    cluster.nodes[1].options[-1] = "5"
    with contextlib.closing(cluster):
        cluster.start(FACTOR)
        yield cluster


def fill_journal(node: Node) -> None:
    """Put as much unacknowledged history into the journal of a stopped agent as it may have."""
    with contextlib.closing(sqlite3.connect(node.state_dir / FILE_NAME)) as connection, connection:
        (last,) = connection.execute("SELECT max(sequence) FROM rows").fetchone()
        # A change of nothing; the spaces take the room of many changes.
        body = "[" + " " * _ROW_BYTES + "]"
        at_ms = int(time.time() * 1000)
        connection.executemany(
            "INSERT INTO rows VALUES (?, ?, 'changes', ?)",
            [(last + n, at_ms, body) for n in range(1, MAX_BYTES // _ROW_BYTES + 2)],
        )


def test_history_that_is_not_acknowledged_and_a_certificate(
    cluster: Cluster, times: Times, broker: Broker
) -> None:
    first, second = cluster.nodes
    aggregator, code = cluster.aggregator.process.pid, code_of(ChipLevel.NOT_HANDLE_FAULT)
    before = resource.prlimit(aggregator, resource.RLIMIT_FSIZE)

    def fill_disk() -> None:
        resource.prlimit(aggregator, resource.RLIMIT_FSIZE, (8192, before[1]))
        first.emulator.occur(0, code)

    def empty_disk() -> None:
        resource.prlimit(aggregator, resource.RLIMIT_FSIZE, before)
        first.emulator.recover(0, code)

    def restart_with_full_journal() -> None:
        second.stop()
        fill_journal(second)
        second.start()

    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilHistoryNotAcknowledged",
            {},
            "the kernel refuses longer files to the aggregator, as on a full disk",
            fill_disk,
            empty_disk,
        ),
        Cause(
            "NpuVigilRowsDropped",
            {"node": second.name},
            "a journal of 64 MiB that no aggregator acknowledged",
            restart_with_full_journal,
            lambda: None,
            LIMITED,
        ),
        Cause(
            "NpuVigilCertificateEnds",
            {"node": first.name, "file": str(broker.directory / f"{first.name}.crt")},
            "a certificate that ends in 9 days",
            lambda: make_client(broker.directory, first.name, "npu-vigil", days=9),
            lambda: make_client(broker.directory, first.name, "npu-vigil"),
            READ_AGAIN,
        ),
    )


def test_a_broker_that_is_killed(cluster: Cluster, times: Times, broker: Broker) -> None:
    times.measure(
        cluster.watcher,
        Cause(
            "NpuVigilStoreAway",
            {},
            "the broker is killed, and started again",
            broker.kill,
            broker.start,
        ),
    )
