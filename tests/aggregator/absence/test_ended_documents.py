"""What ends what a broker or a directory lacks, and what does not; without any store."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aggregator.absence.ended_documents import Absence
from aggregator.absence.last_known_documents import LastingDocumentWatch
from aggregator.absence.lasting_stores import LastingStores
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from contract.documents.cluster_info import cluster_device_name
from contract.documents.forget_record import ForgetRecord
from contract.documents.write_numbers import encode_writes
from contract.names import CLUSTER_NAMESPACE
from stores.base import Beat, Changed, Deleted, Document, DocumentsListed
from stores.directory.store import DirectoryStore
from tests.aggregator.nodes import (
    T0,
    faulty,
    healthy,
    instant,
    node_report,
    published,
    report,
    unhealthy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from contract.documents.node_info import FaultDevice
    from stores.base import WatchEvent

URL = "mqtt://broker"
_NO_FAULTS: list[FaultDevice] = []


class Bench:
    """A broker with nodes, and what is published of them."""

    def __init__(
        self,
        nodes: Iterable[str] = ("n1", "n2"),
        has_agent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.seconds = 0.0
        watch = partial(LastingDocumentWatch, has_agent=has_agent)
        self.pipeline = Pipeline([DocumentSource(URL, watch)], 45, deleted_after_ms=2000)
        (self.source,) = self.pipeline.sources
        devices, servers = self.source.devices, self.source.nodes
        assert isinstance(devices, LastingDocumentWatch)
        assert isinstance(servers, LastingDocumentWatch)
        self.devices, self.servers = devices, servers
        self.absence = Absence(self.source)
        self.beating: dict[str, bool | None] = {}
        self.nodes = tuple(nodes)
        self.apply_event(DocumentsListed(tuple(report(node, faulty()) for node in self.nodes)))
        self.apply_event(DocumentsListed(()), self.servers)
        self.beat()
        self.step()

    def apply_event(self, event: WatchEvent, watch: LastingDocumentWatch | None = None) -> None:
        self.pipeline.observe_event(watch or self.devices, event, instant(self.seconds))

    def beat(self, **writes: str) -> None:
        """Observe the heartbeats of all nodes that send some; ``writes`` has texts about writes."""
        self.beating |= dict.fromkeys(writes, True)
        at_ms = (T0 + int(self.seconds)) * 1000
        self.absence.observe_beats(
            Beat(node, "host", 5.0, at_ms, writes=writes.get(node, ""))
            for node, beats in self.beating.items()
            if beats
        )

    def step(self, seconds: float = 0.0) -> None:
        self.seconds += seconds
        now = instant(self.seconds)
        if self.absence.is_due(now):
            beats = self.beating.get
            self.pipeline.judge_again(self.absence.step(lambda node: beats(node, False), now))
            self.absence.log_changes(now)
        self.pipeline.step(now)
        for name in self.pipeline.documents:
            self.pipeline.acknowledged(name, self.pipeline.revision(name))
        self.pipeline.step(now)

    def delete(self, node: str, *, by_list: bool = False) -> None:
        gone = report(node, {})
        self.apply_event(Deleted(gone.namespace, gone.name, by_list))

    def shown(self) -> dict[str, str]:
        """Return the published unhealthy chips of each node."""
        name = cluster_device_name(0)
        text = self.pipeline.value(name).text if name in self.pipeline.documents else ""
        return {node: unhealthy(entry) for node, entry in published(text).items()}


ILL = "Ascend910-3"


def test_document_missing_from_a_list_stays() -> None:
    bench = Bench()
    bench.apply_event(DocumentsListed((report("n1", faulty()),)))
    bench.step(3600)
    assert bench.shown() == {"n1": ILL, "n2": ILL}
    assert [one.node for one in bench.absence.missing(instant(bench.seconds))] == ["n2"]
    assert not bench.devices.has("n2")
    bench.apply_event(Changed(report("n2", healthy(T0 + 4000))))
    bench.step()
    assert bench.shown() == {"n1": ILL, "n2": ""}
    assert bench.absence.missing(instant(bench.seconds)) == ()


def test_a_deletion_that_a_listing_found_ends_nothing() -> None:
    bench = Bench()
    bench.delete("n2", by_list=True)
    bench.step(60)
    assert bench.shown() == {"n1": ILL, "n2": ILL}


def test_a_deletion_ends_a_silent_node_after_two_seconds_and_drops_it_later() -> None:
    bench = Bench()
    bench.delete("n2")
    bench.step(1.9)
    assert bench.shown() == {"n1": ILL, "n2": ILL}
    bench.step(0.2)
    assert bench.shown() == {"n1": ILL, "n2": ""}
    bench.step(44)
    assert "n2" in bench.shown()
    bench.step(2)
    assert bench.shown() == {"n1": ILL}


def test_a_document_that_is_back_in_time_was_not_deleted() -> None:
    bench = Bench()
    bench.delete("n2")
    bench.step(1)
    bench.apply_event(Changed(report("n2", faulty(update_time=T0 + 1))))
    bench.step(60)
    assert bench.shown() == {"n1": ILL, "n2": ILL}


@pytest.mark.parametrize("beats", [True, None])
def test_a_node_that_beats_or_may_beat_is_not_ended_by_a_deletion(beats: bool | None) -> None:
    bench = Bench()
    bench.beating["n2"] = beats
    bench.beat()
    bench.delete("n2")
    bench.step(60)
    assert bench.shown()["n2"] == ILL
    bench.beating["n2"] = False
    bench.beat()
    bench.step()
    assert bench.shown()["n2"] == "", "it stands, and the node does not beat any more"


def test_an_agent_that_names_no_documents_deletes_its_node_info_and_nothing_else() -> None:
    bench = Bench()
    bench.apply_event(Changed(node_report("n1", _NO_FAULTS, "UnHealthy")), bench.servers)
    bench.beat(n1="")
    gone = node_report("n1", _NO_FAULTS, "")
    bench.apply_event(Deleted(gone.namespace, gone.name), bench.servers)
    bench.delete("n1")
    bench.step(1)
    assert bench.servers.absent.keys() == {"n1"}
    bench.step(60)
    assert bench.servers.present == {}
    assert bench.shown()["n1"] == ILL


def test_many_deletions_are_held_back_with_one_error(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(f"n{number:02}" for number in range(20))
    for number in range(4):
        bench.delete(f"n{number:02}")
        bench.step(1)
    bench.step(60)
    assert set(bench.shown().values()) == {"", ILL}, "4 of 20 are a fifth, and not more"
    bench = Bench(f"n{number:02}" for number in range(19))
    caplog.clear()
    for number in range(4):
        bench.delete(f"n{number:02}")
        bench.step(0.4)
    bench.step(600)
    assert set(bench.shown().values()) == {ILL}
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "vigil forget" in errors[0]
    text, are_many = bench.absence.problem(instant(bench.seconds))
    assert text is not None
    assert "of 4 a deletion is held back" in text
    assert are_many, "4 of 19 miss a document"


def test_slow_deletions_are_no_crowd() -> None:
    bench = Bench(f"n{number:02}" for number in range(8))
    for number in range(5):
        bench.delete(f"n{number:02}")
        bench.step(10)
    assert set(bench.shown().values()) == {"", ILL}
    assert bench.absence.missing(instant(bench.seconds)) == ()


def test_the_agent_reports_what_it_owns_and_what_it_deleted() -> None:
    bench = Bench()
    bench.apply_event(Changed(node_report("n1", _NO_FAULTS, "UnHealthy")), bench.servers)
    bench.apply_event(Changed(node_report("n2", _NO_FAULTS, "UnHealthy")), bench.servers)
    bench.beat(n1="", n2="")
    for watch in (bench.devices, bench.servers):
        bench.apply_event(DocumentsListed(()), watch)
    number = (bench.servers.written_at_ms("n1") or 0) // 1000
    own = {"device-info": T0, "node-info": 0}
    for text in (
        "",
        encode_writes(own, whole=True),
        encode_writes(own | {"node-info": 1 - number}, whole=True),
        encode_writes({"device-info": T0}),
        '{"version":2}',
    ):
        bench.beat(n1=text, n2=text)
        bench.step(5)
        assert bench.servers.absent.keys() == {"n1", "n2"}, text
    bench.beat(n1=encode_writes(own | {"node-info": -number}), n2=encode_writes({}, whole=True))
    bench.step()
    assert bench.servers.absent == {}
    assert bench.servers.present == {}
    assert bench.devices.absent.keys() == {"n1"}
    assert bench.shown() == {"n1": ILL, "n2": ""}


def test_an_operator_ends_what_is_absent_and_not_later_than_the_record() -> None:
    bench = Bench()
    bench.apply_event(DocumentsListed((report("n1", faulty()),)))
    bench.absence.observe_forgotten(ForgetRecord("n1", (T0 + 10) * 1000, "a test"))
    bench.absence.observe_forgotten(ForgetRecord("n2", (T0 - 1) * 1000, "a test"))
    bench.step(1)
    assert bench.shown() == {"n1": ILL, "n2": ILL}, "one is there, of the other it is too old"
    bench.absence.observe_forgotten(ForgetRecord("n2", T0 * 1000, "a test"))
    bench.step()
    assert bench.shown() == {"n1": ILL, "n2": ""}


def test_nothing_ends_while_the_store_is_another_one() -> None:
    bench = Bench()
    bench.absence.hold(True)
    bench.delete("n1")
    bench.apply_event(DocumentsListed(()))
    bench.absence.observe_forgotten(ForgetRecord("n2", T0 * 1000, "a test"))
    bench.step(60)
    assert bench.shown() == {"n1": ILL, "n2": ILL}
    bench.absence.hold(False)
    bench.step()
    assert bench.shown() == {"n1": ILL, "n2": ""}


def test_an_older_document_in_a_list_is_the_one_of_a_store_that_was_set_back() -> None:
    bench = Bench(has_agent=lambda _: True)
    bench.apply_event(
        DocumentsListed((report("n1", healthy(T0 - 5)), report("n2", healthy(T0 + 5))))
    )
    bench.step()
    assert bench.shown() == {"n1": ILL, "n2": ""}
    bench.beat(n1=encode_writes({"device-info": T0 - 5}))
    bench.step()
    assert bench.shown() == {"n1": "", "n2": ""}, "its agent says that this was its last write"


def test_a_beat_without_a_holder_is_taken_by_the_list() -> None:
    bench = Bench()
    bench.apply_event(DocumentsListed((report("n1", healthy(T0 - 5)), report("n2", faulty()))))
    bench.step()
    assert bench.shown() == {"n1": "", "n2": ILL}


def test_entry_of_an_earlier_run_stays_unless_all_its_documents_were_known() -> None:
    text = Bench().pipeline.value(cluster_device_name(0)).text
    name = cluster_device_name(0)
    before = Document(CLUSTER_NAMESPACE, name, {name: text})
    for knows_all, after in ((False, {"n1": ILL, "n2": ILL}), (True, {"n1": ILL, "n2": ""})):
        bench = Bench(())
        bench.pipeline = Pipeline(
            [DocumentSource(URL, LastingDocumentWatch)], 45, deleted_after_ms=2000
        )
        bench.pipeline.restore_documents([before])
        bench.pipeline.note_complete(knows_all)
        (bench.source,) = bench.pipeline.sources
        devices, servers = bench.source.devices, bench.source.nodes
        assert isinstance(devices, LastingDocumentWatch)
        assert isinstance(servers, LastingDocumentWatch)
        bench.devices, bench.servers = devices, servers
        bench.apply_event(DocumentsListed((report("n1", faulty()),)))
        bench.apply_event(DocumentsListed(()), servers)
        bench.step()
        assert bench.shown() == after


async def test_a_document_that_a_directory_lacks_is_not_deleted(tmp_path: Path) -> None:
    store = DirectoryStore(f"directory:{tmp_path}", tmp_path)
    lasting = LastingStores({store.url: store}, tmp_path, lambda: instant(0), lambda: None)
    watch = lasting.source(store.url, lambda _: False).devices
    document = report("n1", faulty())
    await store.put(document)
    for is_there in (True, False):
        listed = DocumentsListed(await store.list(watch.selection))
        assert len(listed.documents) == is_there
        watch.observe_event(listed, 1)
        await store.delete(document.namespace, document.name)
    assert watch.present.keys() == {"n1"}, "decision 21"
    await store.close()
