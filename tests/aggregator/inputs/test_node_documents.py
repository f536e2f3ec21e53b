"""What arrives: verified, newest wins, a good document is never lost to a bad one."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import msgspec
import pytest

from aggregator.cluster_documents.kinds import SWITCH
from aggregator.inputs.node_documents import DocumentCache, DocumentSource, DocumentWatch, newest
from contract.documents.device_info import DEVICE_INFO_KEY, SWITCH_INFO_KEY
from stores.base import Changed, Deleted, Document, DocumentsListed, ListedPage
from stores.interruption import Interrupted
from tests.aggregator.nodes import T0, faulty, healthy, record, report, with_switch
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from contract.documents.cluster_device import DeviceRecord

BAD = [config(CheckCode="x"), {}, {"DeviceInfoCfg": ""}, {"DeviceInfoCfg": "{"}]


def device(watch: DocumentWatch) -> DocumentCache[DeviceRecord]:
    found: DocumentCache[DeviceRecord] = watch.caches[0]
    return found


def record_of(watch: DocumentWatch, node: str = "n1") -> DeviceRecord | None:
    one = newest([device(watch)], node)
    return None if one is None else one.record


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_document_leaves_the_good_one_and_is_remembered_with_its_reason(
    bad: dict[str, str],
) -> None:
    watch = DocumentSource("test:").devices
    assert watch.observe_event(Changed(report("n1", healthy())), 1) == {"n1"}
    assert watch.observe_event(Changed(report("n1", bad)), 2) == {"n1"}
    assert record_of(watch) == record(healthy())
    assert device(watch).rejected["n1"].since_ms == 2
    assert "mindx-dl-deviceinfo-n1" in device(watch).rejected["n1"].reason
    assert watch.observe_event(Changed(report("n1", bad)), 3) == frozenset()
    assert device(watch).rejected_total == 1
    assert watch.observe_event(Changed(report("n1", faulty())), 4) == {"n1"}
    assert record_of(watch) == record(faulty())
    assert device(watch).rejected == {}


def test_texts_of_documents_are_not_kept() -> None:
    watch = DocumentSource("test:").devices
    tracemalloc.start()
    try:
        for number in range(20):
            data = {DEVICE_INFO_KEY: f"{number}" + "x" * 100_000}
            assert watch.observe_event(Changed(report(f"n{number}", data)), 1)
        assert len(device(watch).rejected) == 20
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_other_bad_documents_count_and_do_not_hide_since_when() -> None:
    watch = DocumentSource("test:").devices
    for at_ms, bad in enumerate(BAD):
        watch.observe_event(Changed(report("n1", bad)), 10 + at_ms)
    assert device(watch).rejected_total == len(BAD)
    assert device(watch).rejected["n1"].since_ms == 10
    assert record_of(watch) is None


def at(version: str, document: Document) -> Document:
    return msgspec.structs.replace(document, version=version)


def test_older_events_of_the_watch_do_not_replace_a_document_read_by_name() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    assert watch.read("n1", at("13", report("n1", faulty(3))), 2) == {"n1"}
    place = report("n1", {})
    for old in (
        Changed(at("9", report("n1", faulty(1)))),
        Changed(at("11", report("n1", faulty(1)))),
        Deleted(place.namespace, place.name),
        Changed(at("12", report("n1", faulty(2)))),
    ):
        assert watch.observe_event(old, 3) == frozenset()
        assert record_of(watch) == record(faulty(3))
    assert watch.observe_event(Changed(at("13", report("n1", faulty(3)))), 4) == frozenset()
    assert watch.observe_event(Changed(at("14", report("n1", faulty(4)))), 5) == {"n1"}
    assert record_of(watch) == record(faulty(4))
    assert watch.observe_event(Deleted(place.namespace, place.name), 6) == {"n1"}
    assert record_of(watch) is None


def test_deletion_after_a_read_of_the_shown_version_counts() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    watch.read("n1", at("10", report("n1", healthy())), 2)
    place = report("n1", {})
    assert watch.observe_event(Deleted(place.namespace, place.name), 3) == {"n1"}
    assert record_of(watch) is None


def test_a_document_that_is_gone_by_its_name_does_not_come_back_before_the_watch_reports_it() -> (
    None
):
    watch = DocumentSource("test:").devices
    place = report("n1", {})
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    assert watch.read("n1", None, 2) == {"n1"}
    assert watch.observe_event(Changed(at("11", report("n1", faulty()))), 3) == frozenset()
    assert watch.observe_event(Deleted(place.namespace, place.name), 4) == frozenset()
    assert record_of(watch) is None
    assert watch.observe_event(Changed(at("15", report("n1", faulty()))), 5) == {"n1"}
    assert record_of(watch) == record(faulty())


def test_a_list_ends_what_was_read_by_name() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    watch.read("n1", None, 2)
    watch.read("n2", at("12", report("n2", healthy())), 2)
    watch.observe_event(DocumentsListed((at("14", report("n1", faulty())),)), 3)
    assert record_of(watch, "n1") == record(faulty())
    assert record_of(watch, "n2") is None
    watch.observe_event(Changed(at("11", report("n2", healthy()))), 4)
    assert record_of(watch, "n2") == record(healthy())


def test_where_versions_are_no_numbers_the_order_of_events_decides() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("a1", report("n1", healthy()))), 1)
    watch.read("n1", at("b2", report("n1", faulty(3))), 2)
    watch.observe_event(Changed(at("c0", report("n1", faulty(4)))), 3)
    assert record_of(watch) == record(faulty(4))
    watch.read("n1", at("d4", report("n1", faulty(5))), 4)
    place = report("n1", {})
    assert watch.observe_event(Deleted(place.namespace, place.name), 5) == {"n1"}
    watch.observe_event(Changed(at("e5", report("n1", healthy()))), 6)
    watch.read("n1", None, 7)
    watch.observe_event(Changed(at("f6", report("n1", faulty(6)))), 8)
    assert record_of(watch) == record(faulty(6))


def test_the_good_document_comes_back_unchanged() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("n1", healthy())), 1)
    watch.observe_event(Changed(report("n1", BAD[0])), 2)
    assert watch.observe_event(Changed(report("n1", healthy())), 3) == {"n1"}
    assert device(watch).rejected == {}
    assert watch.observe_event(Changed(report("n1", healthy())), 4) == frozenset()


def test_a_good_document_ends_what_a_refused_part_before_it_left_standing() -> None:
    source = DocumentSource("test:")
    watch = source.devices
    watch.observe_event(Changed(with_switch("n1", "Separate", "UnHealthy")), 1)
    watch.observe_event(Changed(report("n1", healthy() | {SWITCH_INFO_KEY: "{"})), 2)
    assert source.switch.reports["n1"].record.status == "UnHealthy", "the last good one counts"
    watch.observe_event(Changed(report("n1", {DEVICE_INFO_KEY: "{"})), 3)
    assert source.switch.knows("n1"), "who is refused ends nothing"
    assert watch.observe_event(Changed(report("n1", healthy())), 4) == {"n1"}
    assert not source.switch.knows("n1")
    assert not watch.has_report(SWITCH, "n1")


def test_a_list_replaces_what_was_known() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(DocumentsListed((report("n1", healthy()), report("n2", healthy()))), 1)
    watch.observe_event(Changed(report("n3", BAD[0])), 2)
    watch.observe_event(Interrupted("gone"), 3)
    watch.observe_event(Interrupted("still gone"), 4)
    assert (watch.interrupted, watch.interruptions_total) == ("still gone", 1)
    assert record_of(watch) == record(healthy())
    after = DocumentsListed((report("n2", faulty()), report("n4", healthy())))
    assert watch.observe_event(after, 5) == {"n1", "n2", "n3", "n4"}
    assert watch.interrupted is None
    assert set(device(watch).reports) == {"n2", "n4"}
    assert device(watch).rejected == {}


def a_page(*nodes: str, is_first: bool = False) -> ListedPage:
    return ListedPage(tuple(report(node, faulty()) for node in nodes), is_first)


def test_a_list_in_pages_replaces_what_was_known_at_its_end() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("n1", healthy())), 1)
    with watch.listening() as changed:
        assert watch.observe_event(a_page("n2", is_first=True), 2) == {"n2"}
        assert watch.observe_event(a_page("n3"), 3) == {"n3"}
        was_listed = watch.listed
        assert set(device(watch).reports) == {"n1", "n2", "n3"}
        assert watch.observe_event(DocumentsListed(()), 4) == {"n1"}
    assert (was_listed, watch.listed) == (False, True)
    assert set(device(watch).reports) == {"n2", "n3"}
    assert changed == {"n1", "n2", "n3"}


def test_a_list_that_begins_again_does_not_count_its_earlier_pages() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(a_page("n1", is_first=True), 1)
    watch.observe_event(a_page("n2"), 2)
    watch.observe_event(Interrupted("gone"), 3)
    assert watch.observe_event(a_page("n2", is_first=True), 4) == frozenset()
    while_listing = watch.interrupted
    assert watch.observe_event(DocumentsListed(()), 5) == {"n1"}
    assert set(device(watch).reports) == {"n2"}
    assert (while_listing, watch.interrupted) == ("gone", None)
    assert watch.observe_event(DocumentsListed(()), 6) == {"n2"}, "the pages were of another list"


def test_what_is_read_by_name_between_two_pages_is_newer_than_the_list() -> None:
    watch = DocumentSource("test:").devices
    watch.read("n1", at("10", report("n1", faulty(1))), 1)
    page = ListedPage((at("20", report("n1", faulty(2))),), is_first=True)
    assert watch.observe_event(page, 2) == {"n1"}
    watch.read("n2", at("30", report("n2", faulty(3))), 3)
    watch.read("n3", None, 3)
    page = ListedPage((at("15", report("n2", faulty(4))),), is_first=False)
    assert watch.observe_event(page, 4) == frozenset()
    assert watch.observe_event(DocumentsListed(()), 5) == frozenset()
    assert record_of(watch, "n1") == record(faulty(2))
    assert record_of(watch, "n2") == record(faulty(3))


def test_a_node_that_is_read_between_two_pages_stays_where_the_list_lacks_it() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    watch.observe_event(ListedPage((), is_first=True), 2)
    watch.read("n1", at("30", report("n1", faulty())), 3)
    watch.observe_event(DocumentsListed(()), 4)
    assert record_of(watch) == record(faulty())


def test_a_node_that_is_read_as_gone_between_two_pages_comes_back() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    watch.observe_event(ListedPage((), is_first=True), 2)
    # Its deletion was before the list, so no event shows it.
    assert watch.read("n1", None, 3) == {"n1"}
    watch.observe_event(DocumentsListed(()), 4)
    assert watch.observe_event(Changed(at("20", report("n1", faulty()))), 5) == {"n1"}


def test_a_node_whose_deletion_was_shown_before_it_was_read_as_gone_comes_back() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(at("10", report("n1", healthy()))), 1)
    watch.observe_event(Deleted("kube-system", "mindx-dl-deviceinfo-n1"), 2, 2000)
    assert watch.read("n1", None, 3) == {"n1"}
    assert watch.observe_event(Changed(at("20", report("n1", faulty()))), 4) == {"n1"}


def test_deleted() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("n1", healthy())), 1)
    gone = Deleted("kube-system", "mindx-dl-deviceinfo-n1")
    assert watch.observe_event(gone, 2) == {"n1"}
    assert watch.observe_event(gone, 3) == frozenset()
    assert record_of(watch) is None


@pytest.mark.parametrize(("has_agent", "deleted_at_ms"), [(False, 2000), (True, 62_000)])
def test_a_document_that_an_agent_repairs_counts_as_deleted_after_a_minute(
    has_agent: bool, deleted_at_ms: int
) -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("n1", faulty())), 1)
    watch.observe_event(Deleted("kube-system", "mindx-dl-deviceinfo-n1"), 2, 2000)
    due_ms = watch.next_due_ms()
    while due_ms is not None and due_ms < deleted_at_ms:
        assert watch.settle(due_ms, lambda _: has_agent) == frozenset()
        assert record_of(watch) == record(faulty())
        later_ms = watch.next_due_ms()
        assert later_ms is not None
        assert due_ms < later_ms <= due_ms + 2000, "an agent that falls silent is seen"
        due_ms = later_ms
    assert due_ms == deleted_at_ms
    assert watch.settle(deleted_at_ms, lambda _: has_agent) == {"n1"}
    assert record_of(watch) is None
    assert watch.next_due_ms() is None


def test_a_document_whose_agent_falls_silent_counts_as_deleted() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("n1", faulty())), 1)
    watch.observe_event(Deleted("kube-system", "mindx-dl-deviceinfo-n1"), 2, 2000)
    assert watch.settle(2000, lambda _: True) == frozenset()
    assert watch.settle(4000, lambda _: False) == {"n1"}


def test_foreign_documents_are_left_alone() -> None:
    watch = DocumentSource("test:").devices
    for namespace, name in (("kube-system", "other"), ("mindx-dl", "mindx-dl-deviceinfo-n1")):
        assert watch.observe_event(Changed(Document(namespace, name, healthy())), 1) == frozenset()
        assert watch.observe_event(Deleted(namespace, name), 1) == frozenset()
    assert device(watch).reports == {}
    assert device(watch).rejected == {}


def test_a_name_that_is_no_node_is_refused() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("Not_A_Node", healthy())), 1)
    watch.observe_event(Changed(report("", healthy())), 1)
    assert set(device(watch).rejected) == {"Not_A_Node", ""}
    assert "not a Kubernetes node name" in device(watch).rejected["Not_A_Node"].reason


def test_above_the_cap_new_nodes_are_refused_and_known_ones_go_on() -> None:
    watch = DocumentSource("test:", max_nodes=2).devices
    watch.observe_event(DocumentsListed((report("n1", healthy()), report("n2", healthy()))), 1)
    watch.observe_event(Changed(report("n3", healthy())), 2)
    assert "already 2 nodes (max_nodes)" in device(watch).rejected["n3"].reason
    watch.observe_event(Changed(report("n2", faulty())), 3)
    assert record_of(watch, "n2") == record(faulty())


def test_between_stores_the_greater_time_counts() -> None:
    one, other = DocumentSource("one:").devices, DocumentSource("other:").devices
    one.observe_event(Changed(report("n1", healthy(T0 + 5))), 1)
    other.observe_event(Changed(report("n1", faulty(update_time=T0 + 4))), 2)
    first = newest([device(one), device(other)], "n1")
    assert first is not None
    assert first.record == record(healthy(T0 + 5))
    one.observe_event(Deleted("kube-system", "mindx-dl-deviceinfo-n1"), 3)
    second = newest([device(one), device(other)], "n1")
    assert second is not None
    assert second.record == record(faulty(update_time=T0 + 4))


def test_e11_an_unreadable_fault_list_is_logged() -> None:
    watch = DocumentSource("test:").devices
    watch.observe_event(Changed(report("n1", config("{oops", unhealthy=(3,)))), 1)
    assert device(watch).reports["n1"].record.unhealthy == ("Ascend910-3",)
    assert device(watch).reports["n1"].problem is not None
