"""What arrives: verified, newest wins, a good document is never lost to a bad one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aggregator import intake
from aggregator.intake import Feed, Inbox, Source, newest
from aggregator.kinds import SWITCH
from contract.device_info import DEVICE_INFO_KEY, SWITCH_INFO_KEY
from stores.base import Changed, Deleted, Document, Interrupted, Listed
from tests.aggregator.nodes import T0, faulty, healthy, record, report
from tests.aggregator.test_kinds import with_switch
from tests.contract.test_cluster_device import config

if TYPE_CHECKING:
    from contract.cluster_device import DeviceRecord

BAD = [config(CheckCode="x"), {}, {"DeviceInfoCfg": ""}, {"DeviceInfoCfg": "{"}]


def device(feed: Feed) -> Inbox[DeviceRecord]:
    found: Inbox[DeviceRecord] = feed.inboxes[0]
    return found


def said(feed: Feed, node: str = "n1") -> DeviceRecord | None:
    one = newest([device(feed)], node)
    return None if one is None else one.record


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_document_leaves_the_good_one_and_is_remembered_with_its_reason(
    bad: dict[str, str],
) -> None:
    feed = Source("test:").devices
    assert feed.observe(Changed(report("n1", healthy())), 1) == {"n1"}
    assert feed.observe(Changed(report("n1", bad)), 2) == {"n1"}
    assert said(feed) == record(healthy())
    assert device(feed).rejected["n1"].since_ms == 2
    assert "mindx-dl-deviceinfo-n1" in device(feed).rejected["n1"].reason
    assert feed.observe(Changed(report("n1", bad)), 3) == frozenset()
    assert device(feed).rejected_total == 1
    assert feed.observe(Changed(report("n1", faulty())), 4) == {"n1"}
    assert said(feed) == record(faulty())
    assert device(feed).rejected == {}


def test_other_bad_documents_count_and_do_not_hide_since_when() -> None:
    feed = Source("test:").devices
    for at_ms, bad in enumerate(BAD):
        feed.observe(Changed(report("n1", bad)), 10 + at_ms)
    assert device(feed).rejected_total == len(BAD)
    assert device(feed).rejected["n1"].since_ms == 10
    assert said(feed) is None


def test_the_good_document_comes_back_unchanged() -> None:
    feed = Source("test:").devices
    feed.observe(Changed(report("n1", healthy())), 1)
    feed.observe(Changed(report("n1", BAD[0])), 2)
    assert feed.observe(Changed(report("n1", healthy())), 3) == {"n1"}
    assert device(feed).rejected == {}
    assert feed.observe(Changed(report("n1", healthy())), 4) == frozenset()


def test_a_good_document_ends_what_a_refused_part_before_it_left_standing() -> None:
    source = Source("test:")
    feed = source.devices
    feed.observe(Changed(with_switch("n1", "Separate", "UnHealthy")), 1)
    feed.observe(Changed(report("n1", healthy() | {SWITCH_INFO_KEY: "{"})), 2)
    assert source.switch.reports["n1"].record.status == "UnHealthy", "the last good one counts"
    feed.observe(Changed(report("n1", {DEVICE_INFO_KEY: "{"})), 3)
    assert source.switch.knows("n1"), "who is refused ends nothing"
    assert feed.observe(Changed(report("n1", healthy())), 4) == {"n1"}
    assert not source.switch.knows("n1")
    assert not feed.tells(SWITCH, "n1")


def test_a_list_replaces_what_was_known() -> None:
    feed = Source("test:").devices
    feed.observe(Listed((report("n1", healthy()), report("n2", healthy()))), 1)
    feed.observe(Changed(report("n3", BAD[0])), 2)
    feed.observe(Interrupted("gone"), 3)
    feed.observe(Interrupted("still gone"), 4)
    assert (feed.interrupted, feed.interruptions_total) == ("still gone", 1)
    assert said(feed) == record(healthy())
    after = Listed((report("n2", faulty()), report("n4", healthy())))
    assert feed.observe(after, 5) == {"n1", "n2", "n3", "n4"}
    assert feed.interrupted is None
    assert set(device(feed).reports) == {"n2", "n4"}
    assert device(feed).rejected == {}


def test_deleted() -> None:
    feed = Source("test:").devices
    feed.observe(Changed(report("n1", healthy())), 1)
    gone = Deleted("kube-system", "mindx-dl-deviceinfo-n1")
    assert feed.observe(gone, 2) == {"n1"}
    assert feed.observe(gone, 3) == frozenset()
    assert said(feed) is None


def test_foreign_documents_are_left_alone() -> None:
    feed = Source("test:").devices
    for namespace, name in (("kube-system", "other"), ("mindx-dl", "mindx-dl-deviceinfo-n1")):
        assert feed.observe(Changed(Document(namespace, name, healthy())), 1) == frozenset()
        assert feed.observe(Deleted(namespace, name), 1) == frozenset()
    assert device(feed).reports == {}
    assert device(feed).rejected == {}


def test_a_name_that_is_no_node_is_refused() -> None:
    feed = Source("test:").devices
    feed.observe(Changed(report("Not_A_Node", healthy())), 1)
    feed.observe(Changed(report("", healthy())), 1)
    assert set(device(feed).rejected) == {"Not_A_Node", ""}
    assert "not a Kubernetes node name" in device(feed).rejected["Not_A_Node"].reason


def test_above_the_cap_new_nodes_are_refused_and_known_ones_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake, "MAX_NODES", 2)
    feed = Source("test:").devices
    feed.observe(Listed((report("n1", healthy()), report("n2", healthy()))), 1)
    feed.observe(Changed(report("n3", healthy())), 2)
    assert "already 2 nodes" in device(feed).rejected["n3"].reason
    feed.observe(Changed(report("n2", faulty())), 3)
    assert said(feed, "n2") == record(faulty())


def test_between_stores_the_greater_time_counts() -> None:
    one, other = Source("one:").devices, Source("other:").devices
    one.observe(Changed(report("n1", healthy(T0 + 5))), 1)
    other.observe(Changed(report("n1", faulty(update_time=T0 + 4))), 2)
    first = newest([device(one), device(other)], "n1")
    assert first is not None
    assert first.record == record(healthy(T0 + 5))
    one.observe(Deleted("kube-system", "mindx-dl-deviceinfo-n1"), 3)
    second = newest([device(one), device(other)], "n1")
    assert second is not None
    assert second.record == record(faulty(update_time=T0 + 4))


def test_e11_an_unreadable_fault_list_is_said() -> None:
    feed = Source("test:").devices
    feed.observe(Changed(report("n1", config("{oops", unhealthy=(3,)))), 1)
    assert device(feed).reports["n1"].record.unhealthy == ("Ascend910-3",)
    assert device(feed).reports["n1"].problem is not None
