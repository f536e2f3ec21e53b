"""A client of one agent joins what holds with what comes, and reads what was."""

from __future__ import annotations

import json
import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from agent.pages.routes import OPERATIONS
from contract.codes.levels import Severity
from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.end_to_end.node import Node

FIRST, SECOND = "80E18402", "80C98009"


@contextmanager
def listening(node: Node, last: str) -> Iterator[BinaryIO]:
    with closing(socket.socket(socket.AF_UNIX)) as client:
        client.settimeout(patience(30))
        client.connect(str(node.state_dir / "agent.sock"))
        head = f"Host: localhost\r\nLast-Event-ID: {last}\r\n\r\n"
        client.sendall(f"GET /api/v1/stream HTTP/1.1\r\n{head}".encode())
        with client.makefile("rb") as answer:
            yield answer


def next_change(answer: BinaryIO) -> dict[str, Any]:
    """Read the stream up to the next change of a fault; return it with the id of its event."""
    fields: dict[str, str] = {}
    while line := answer.readline():
        name, colon, value = line.decode().strip().partition(": ")
        if colon and name:
            fields[name] = value
        if name == "data" and fields.get("event") == "change":
            found: dict[str, Any] = json.loads(fields["data"])
            return found | {"id": fields["id"]}
    raise AssertionError("the stream ended")


def history(node: Node, **query: int) -> dict[str, Any]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    status, page = node.ask(f"/api/v1/history?{asked}")
    assert status == 200
    found: dict[str, Any] = page
    return found


def test_snapshot_stream_and_history_of_an_agent_fit_together(folder_node: Node) -> None:
    node = folder_node
    node.start()
    node.healthy()
    node.emulator.occur(3, FIRST, Severity.MAJOR)
    node.until(lambda now: FIRST in now.codes(3), "it is published")
    snapshot = node.ask("/api/v1/faults")[1]
    assert [one["code"] for one in snapshot["faults"]] == [FIRST]
    node.emulator.occur(4, SECOND, Severity.MAJOR)
    node.until(lambda now: SECOND in now.codes(4), "so is the other one")
    with listening(node, snapshot["stream"]) as answer:
        came = next_change(answer)
        assert (came["node"], came["subject"], came["code"]) == (node.name, "Ascend910-4", SECOND)
        assert came["severity_source"] == "agent"
        node.emulator.recover(3, FIRST)
        ended = next_change(answer)
        assert (ended["subject"], ended["code"]) == ("Ascend910-3", FIRST)
        assert ended["level"] is None

    # The journal commits beside the publication.
    node.wait(lambda: len(codes_of(history(node))) == 3, "the history has all of it")
    everything = history(node)
    assert codes_of(everything) == [(FIRST, "began"), (SECOND, "began"), (FIRST, "ended")]
    first = history(node, after=0, limit=1)
    assert first["more"]
    rest = history(node, after=first["next"])
    assert codes_of(first) + codes_of(rest) == codes_of(everything)

    described = node.ask("/api/v1/openapi.json")[1]["paths"]
    assert described.keys() == {one.path for one in OPERATIONS}
    for one in OPERATIONS:
        status, refusal = node.ask(f"{one.path}?nonsense=1")
        assert status == 400
        assert "not a valid parameter" in refusal["error"]
        if one.content == "application/json":
            msgspec.convert(node.ask(one.path)[1], one.answer)


def codes_of(page: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the codes of changed faults with the kind of each change."""
    events = [row["event"] for row in page["events"] if row["event"]]
    return [(event["code"], event["kind"]) for event in events]
