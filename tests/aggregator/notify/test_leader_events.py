"""A client of the stream is sent who leads, each time that it is another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from aggregator.notify.leader_events import LeaderEvents
from contract.pages.changes import LeaderChange
from service.pages.event_stream import Stream
from tests.aggregator.nodes import instant

if TYPE_CHECKING:
    import msgspec

    from service.election.leadership import Leadership


class Sent(Stream):
    def __init__(self) -> None:
        super().__init__("run")
        self.events: list[tuple[str, msgspec.Struct]] = []

    def send(self, name: str, change: msgspec.Struct, nodes: object = ()) -> None:
        assert nodes == (), "it is about no node"
        self.events.append((name, change))


def test_each_other_leader_is_sent_once() -> None:
    leadership = SimpleNamespace(leads=False, holder="a")
    rows: Leadership = leadership
    stream = Sent()
    events = LeaderEvents(rows, stream, lambda: instant(7))
    events.send_if_changed()
    leadership.holder = ""
    events.send_if_changed()
    events.send_if_changed()
    leadership.leads, leadership.holder = True, "b"
    events.send_if_changed()
    at_ms = instant(7).wall_ms
    assert stream.events == [
        ("leader", LeaderChange(at_ms, "follower", False, "")),
        ("leader", LeaderChange(at_ms, "leader", True, "b")),
    ]
