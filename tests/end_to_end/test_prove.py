"""``vigil prove`` with a real agent and aggregator, on a directory, an API server and a broker."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.aggregator.daemon import Daemon
from tests.parts.verbs import run_verb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.end_to_end.node import Node

SEPARATES = "80E18402"
RESTARTS = "80E01801"


@pytest.fixture
def aggregator(node: Node, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "aggregator", *node.place.options)
    daemon.start()
    yield daemon
    daemon.stop()


def prove(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON of ``vigil prove``."""
    status, output, errors = run_verb("prove", "--json", *arguments)
    assert output, errors
    return status, json.loads(output)


def shown(aggregator: Daemon) -> set[tuple[str, str]]:
    faults = aggregator.ask("/api/v1/faults")[1]["faults"]
    return {(fault["subject"], fault["code"]) for fault in faults}


def altered(node: Node, directory: Path, *statements: str) -> Path:
    """Return a state directory with a copy of the node's journal that SQL has changed."""
    directory.mkdir()
    with (
        closing(sqlite3.connect(node.state_dir / "journal.sqlite")) as journal,
        closing(sqlite3.connect(directory / "journal.sqlite")) as copy,
    ):
        journal.backup(copy)
        for statement in statements:
            assert copy.execute(statement).rowcount > 0, statement
        copy.commit()
    return directory


_AN_HOUR_EARLIER = "UPDATE rows SET at_ms = at_ms - 3600000"


def test_faults_are_proved_over_a_kill_and_each_missing_row_is_a_gap(
    node: Node, aggregator: Daemon, tmp_path: Path
) -> None:
    node.start()
    node.healthy()
    for chip in (1, 3):
        node.emulator.occur(chip, SEPARATES)
    node.wait(lambda: len(shown(aggregator)) == 2, "both are shown")
    node.kill()
    node.start()
    node.up()
    node.emulator.recover(3, SEPARATES)
    node.wait(lambda: len(shown(aggregator)) == 1, "one is over")
    node.emulator.occur(5, RESTARTS)
    node.wait(lambda: len(shown(aggregator)) == 2, "another one is shown")

    local = ("--state-dir", str(node.state_dir))

    def is_proved_here() -> bool:
        # The journal commits beside the publication.
        status, proof = prove(*local)
        return (status, proof["episodes"], proof["gaps"]) == (0, 3, [])

    node.wait(is_proved_here, "all is proved with the journal")
    _, proof = prove(*local)
    assert "that nothing else is published" in proof["not_proved"]
    # The name of the node is a part of the address: its agent answers at its socket.
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "node-1").symlink_to(node.state_dir)
    pages = ("--agents", f"unix:{tmp_path}/agents/{{node}}/agent.sock")
    server = ("--server", aggregator.url)

    def is_proved() -> bool:
        # The history gathers changes for a second.
        status, proof = prove(*local, *server)
        return (status, proof["proved"], proof["counts"]) == (0, 3, {})

    node.wait(is_proved, "all is proved with the aggregator")
    status, proof = prove(*pages, *server)
    assert (status, proof["nodes"], proof["proved"]) == (0, 1, 3)
    assert proof["steps"]["verdict to write"]["count"] == 3
    assert proof["steps"]["write to entry"]["count"] == 3
    assert proof["slowest"]["took_ms"] < 60_000
    status, proof = prove(*local, *node.place.options)
    assert (status, proof["proved"]) == (0, 3)

    began = "kind = 'changes' AND body LIKE '%\"began\"%'"
    # Many inputs are followed by a further snapshot, which has the fault.
    later = f"kind = 'snapshot' AND sequence > (SELECT max(sequence) FROM rows WHERE {began})"
    copy = altered(node, tmp_path / "no-change", f"DELETE FROM rows WHERE {began} OR {later}")
    status, proof = prove("--state-dir", str(copy), *server)
    # The snapshot at the second start has the two faults from before it.
    assert (status, proof["gaps_by_name"]) == (1, {"no journal explains it": 1})
    assert proof["gaps"][0]["part"] == "chip 5"
    copy = altered(
        *(node, tmp_path / "no-write", _AN_HOUR_EARLIER),
        "UPDATE rows SET body = json_set(body, '$.through', 1) WHERE kind = 'publication'",
    )
    status, proof = prove("--state-dir", str(copy))
    # The one that is over may have been over before its store answered.
    assert (status, proof["gaps_by_name"]) == (1, {"never published": 2})
    status, output, _ = run_verb("prove", "--state-dir", str(copy), "--utc")
    assert (status, output.decode().splitlines()[0]) == (1, "not proved: 2 gaps")
    assert "never published: node-1 chip 5 80E01801, since " in output.decode()


def test_what_cannot_be_proved_ends_with_3_or_2(tmp_path: Path) -> None:
    status, proof = prove("--state-dir", str(tmp_path))
    assert (status, proof["nodes"]) == (3, 0)
    assert "cannot be read" in proof["not_known"][str(tmp_path)]
    status, _, errors = run_verb("prove", "--agents", "http://127.0.0.1:1")
    assert (status, "needs the aggregator at --server" in errors) == (2, True)
