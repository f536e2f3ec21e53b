"""What ends what a broker or a directory lacks, and what does not; without any store."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aggregator.absence.last_known_documents import LastingFeed
from aggregator.absence.rules import Absence
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from contract.documents.cluster_info import cluster_device_name
from contract.documents.forget_record import ForgetRecord
from contract.documents.write_numbers import encode_writes
from contract.names import CLUSTER_NAMESPACE
from stores.base import Beat, Changed, Deleted, Document, DocumentsListed
from tests.aggregator.nodes import (
    T0,
    faulty,
    healthy,
    moment,
    node_report,
    published,
    report,
    unhealthy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from contract.documents.node_info import FaultDevice
    from stores.base import WatchEvent

URL = "mqtt://broker"
_NO_FAULTS: list[FaultDevice] = []


class World:
    """A broker with nodes, and what is published of them."""

    def __init__(
        self,
        nodes: Iterable[str] = ("n1", "n2"),
        has_agent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.seconds = 0.0
        feed = partial(LastingFeed, has_agent=has_agent)
        self.pipeline = Pipeline([DocumentSource(URL, feed)], 45, deleted_after_ms=2000)
        (self.source,) = self.pipeline.sources
        devices, servers = self.source.devices, self.source.nodes
        assert isinstance(devices, LastingFeed)
        assert isinstance(servers, LastingFeed)
        self.devices, self.servers = devices, servers
        self.absence = Absence(self.source, {"device-info": devices, "node-info": servers})
        self.beating: dict[str, bool | None] = {}
        self.nodes = tuple(nodes)
        self.tell(DocumentsListed(tuple(report(node, faulty()) for node in self.nodes)))
        self.tell(DocumentsListed(()), self.servers)
        self.beat()
        self.step()

    def tell(self, event: WatchEvent, feed: LastingFeed | None = None) -> None:
        self.pipeline.observe(feed or self.devices, event, moment(self.seconds))

    def beat(self, **writes: str) -> None:
        """Heartbeats are listed; all that beat, these with a text about their writes."""
        self.beating |= dict.fromkeys(writes, True)
        at_ms = (T0 + int(self.seconds)) * 1000
        self.absence.hear(
            Beat(node, "host", 5.0, at_ms, writes=writes.get(node, ""))
            for node, beats in self.beating.items()
            if beats
        )

    def step(self, seconds: float = 0.0) -> None:
        self.seconds += seconds
        now = moment(self.seconds)
        if self.absence.is_due(now):
            beats = self.beating.get
            self.pipeline.judge_again(self.absence.step(lambda node: beats(node, False), now))
            self.absence.say(now)
        self.pipeline.step(now)
        for name in self.pipeline.documents:
            self.pipeline.acknowledged(name, self.pipeline.revision(name))
        self.pipeline.step(now)

    def delete(self, node: str, *, by_list: bool = False) -> None:
        gone = report(node, {})
        self.tell(Deleted(gone.namespace, gone.name, by_list))

    def shown(self) -> dict[str, str]:
        """Node to its unhealthy chips, as published."""
        name = cluster_device_name(0)
        text = self.pipeline.value(name).text if name in self.pipeline.documents else ""
        return {node: unhealthy(entry) for node, entry in published(text).items()}


ILL = "Ascend910-3"


def test_what_a_list_lacks_stays_for_good() -> None:
    world = World()
    world.tell(DocumentsListed((report("n1", faulty()),)))
    world.step(3600)
    assert world.shown() == {"n1": ILL, "n2": ILL}
    assert [one.node for one in world.absence.missing(moment(world.seconds))] == ["n2"]
    assert not world.devices.has("n2")
    world.tell(Changed(report("n2", healthy(T0 + 4000))))
    world.step()
    assert world.shown() == {"n1": ILL, "n2": ""}
    assert world.absence.missing(moment(world.seconds)) == ()


def test_a_deletion_that_a_listing_found_ends_nothing() -> None:
    world = World()
    world.delete("n2", by_list=True)
    world.step(60)
    assert world.shown() == {"n1": ILL, "n2": ILL}


def test_a_deletion_ends_a_silent_node_after_two_seconds_and_drops_it_later() -> None:
    world = World()
    world.delete("n2")
    world.step(1.9)
    assert world.shown() == {"n1": ILL, "n2": ILL}
    world.step(0.2)
    assert world.shown() == {"n1": ILL, "n2": ""}
    world.step(44)
    assert "n2" in world.shown()
    world.step(2)
    assert world.shown() == {"n1": ILL}


def test_a_document_that_is_back_in_time_was_not_deleted() -> None:
    world = World()
    world.delete("n2")
    world.step(1)
    world.tell(Changed(report("n2", faulty(update_time=T0 + 1))))
    world.step(60)
    assert world.shown() == {"n1": ILL, "n2": ILL}


@pytest.mark.parametrize("beats", [True, None])
def test_a_node_that_beats_or_may_beat_is_not_ended_by_a_deletion(beats: bool | None) -> None:
    world = World()
    world.beating["n2"] = beats
    world.beat()
    world.delete("n2")
    world.step(60)
    assert world.shown()["n2"] == ILL
    world.beating["n2"] = False
    world.beat()
    world.step()
    assert world.shown()["n2"] == "", "it stands, and the node does not beat any more"


def test_an_agent_that_names_no_documents_deletes_its_node_info_and_nothing_else() -> None:
    world = World()
    world.tell(Changed(node_report("n1", _NO_FAULTS, "UnHealthy")), world.servers)
    world.beat(n1="")
    gone = node_report("n1", _NO_FAULTS, "")
    world.tell(Deleted(gone.namespace, gone.name), world.servers)
    world.delete("n1")
    world.step(1)
    assert world.servers.absent.keys() == {"n1"}
    world.step(60)
    assert world.servers.present == {}
    assert world.shown()["n1"] == ILL


def test_many_deletions_are_held_back_with_one_error(caplog: pytest.LogCaptureFixture) -> None:
    world = World(f"n{number:02}" for number in range(20))
    for number in range(4):
        world.delete(f"n{number:02}")
        world.step(1)
    world.step(60)
    assert set(world.shown().values()) == {"", ILL}, "4 of 20 are a fifth, and not more"
    world = World(f"n{number:02}" for number in range(19))
    caplog.clear()
    for number in range(4):
        world.delete(f"n{number:02}")
        world.step(0.4)
    world.step(600)
    assert set(world.shown().values()) == {ILL}
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "vigil forget" in errors[0]
    text, are_many = world.absence.problem(moment(world.seconds))
    assert text is not None
    assert "of 4 a deletion is held back" in text
    assert are_many, "4 of 19 miss a document"


def test_slow_deletions_are_no_crowd() -> None:
    world = World(f"n{number:02}" for number in range(8))
    for number in range(5):
        world.delete(f"n{number:02}")
        world.step(10)
    assert set(world.shown().values()) == {"", ILL}
    assert world.absence.missing(moment(world.seconds)) == ()


def test_the_agent_says_what_it_owns_and_what_it_deleted() -> None:
    world = World()
    world.tell(Changed(node_report("n1", _NO_FAULTS, "UnHealthy")), world.servers)
    world.tell(Changed(node_report("n2", _NO_FAULTS, "UnHealthy")), world.servers)
    world.beat(n1="", n2="")
    for feed in (world.devices, world.servers):
        world.tell(DocumentsListed(()), feed)
    number = world.servers.number("n1") // 1000
    own = {"device-info": T0, "node-info": 0}
    for text in (
        "",
        encode_writes(own, whole=True),
        encode_writes(own | {"node-info": 1 - number}, whole=True),
        encode_writes({"device-info": T0}),
        '{"version":2}',
    ):
        world.beat(n1=text, n2=text)
        world.step(5)
        assert world.servers.absent.keys() == {"n1", "n2"}, text
    world.beat(n1=encode_writes(own | {"node-info": -number}), n2=encode_writes({}, whole=True))
    world.step()
    assert world.servers.absent == {}
    assert world.servers.present == {}
    assert world.devices.absent.keys() == {"n1"}
    assert world.shown() == {"n1": ILL, "n2": ""}


def test_an_operator_ends_what_is_absent_and_not_later_than_the_record() -> None:
    world = World()
    world.tell(DocumentsListed((report("n1", faulty()),)))
    world.absence.tell(ForgetRecord("n1", (T0 + 10) * 1000, "a test"))
    world.absence.tell(ForgetRecord("n2", (T0 - 1) * 1000, "a test"))
    world.step(1)
    assert world.shown() == {"n1": ILL, "n2": ILL}, "one is there, of the other it is too old"
    world.absence.tell(ForgetRecord("n2", T0 * 1000, "a test"))
    world.step()
    assert world.shown() == {"n1": ILL, "n2": ""}


def test_nothing_ends_while_the_store_is_another_one() -> None:
    world = World()
    world.absence.hold(True)
    world.delete("n1")
    world.tell(DocumentsListed(()))
    world.absence.tell(ForgetRecord("n2", T0 * 1000, "a test"))
    world.step(60)
    assert world.shown() == {"n1": ILL, "n2": ILL}
    world.absence.hold(False)
    world.step()
    assert world.shown() == {"n1": ILL, "n2": ""}


def test_an_older_document_in_a_list_is_the_one_of_a_store_that_was_set_back() -> None:
    world = World(has_agent=lambda _: True)
    world.tell(DocumentsListed((report("n1", healthy(T0 - 5)), report("n2", healthy(T0 + 5)))))
    world.step()
    assert world.shown() == {"n1": ILL, "n2": ""}
    world.beat(n1=encode_writes({"device-info": T0 - 5}))
    world.step()
    assert world.shown() == {"n1": "", "n2": ""}, "its agent says that this was its last write"


def test_who_beats_for_nobody_is_taken_by_the_list() -> None:
    world = World()
    world.tell(DocumentsListed((report("n1", healthy(T0 - 5)), report("n2", faulty()))))
    world.step()
    assert world.shown() == {"n1": "", "n2": ILL}


def test_what_only_an_earlier_run_published_stays_unless_all_was_known() -> None:
    text = World().pipeline.value(cluster_device_name(0)).text
    name = cluster_device_name(0)
    before = Document(CLUSTER_NAMESPACE, name, {name: text})
    for knows_all, after in ((False, {"n1": ILL, "n2": ILL}), (True, {"n1": ILL, "n2": ""})):
        world = World(())
        world.pipeline = Pipeline([DocumentSource(URL, LastingFeed)], 45, deleted_after_ms=2000)
        world.pipeline.restore([before])
        world.pipeline.note_complete(knows_all)
        (world.source,) = world.pipeline.sources
        devices, servers = world.source.devices, world.source.nodes
        assert isinstance(devices, LastingFeed)
        assert isinstance(servers, LastingFeed)
        world.devices, world.servers = devices, servers
        world.tell(DocumentsListed((report("n1", faulty()),)))
        world.tell(DocumentsListed(()), servers)
        world.step()
        assert world.shown() == after


def test_lists_of_kubernetes_stay_authoritative() -> None:
    source = DocumentSource("kubernetes:")
    source.devices.observe(DocumentsListed((report("n1", faulty()),)), 1)
    assert source.devices.observe(DocumentsListed(()), 2) == {"n1"}
    assert source.devices.present == {}
