"""From events to documents: healing, dropping, restarting, moving; nothing forgotten."""

from __future__ import annotations

import pytest

from aggregator.cluster_documents.kinds import DEVICE
from aggregator.merge import entry_table
from aggregator.merge.pipeline import lost_of
from contract.names import CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from stores.base import Changed, Document, DocumentsListed, ListedPage
from stores.interruption import Interrupted
from tests.aggregator.nodes import T0, faulty, healthy, instant, published, report, unhealthy
from tests.aggregator.pipelines import DEVICES, PendingPipeline, gone, listed


def test_only_shards_that_changed_are_named() -> None:
    bench = PendingPipeline()
    assert bench.observe(instant(0), listed(n1=healthy(), n2=healthy())) == {DEVICES}
    assert bench.observe(instant(1)) == frozenset()
    assert bench.observe(instant(2), Changed(report("n1", healthy(T0 + 60)))) == frozenset()
    assert bench.observe(instant(3), Changed(report("n1", faulty()))) == {DEVICES}


def test_several_changes_at_once_are_one_state() -> None:
    bench = PendingPipeline()
    bench.observe(instant(10), listed(n1=healthy()))
    changes = [Changed(report("n1", faulty(chip, T0 + chip))) for chip in range(5)]
    bench.observe(instant(11), *changes, Changed(report("n1", faulty(6, T0 + 7))))
    bench.write(instant(11))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-6"
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 7


def test_e25_a_deleted_node_is_healthy_first_and_gone_one_touch_period_later() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    bench.write(instant(0))
    assert bench.observe(instant(10), gone("n1")) == {DEVICES}
    # As long as the healthy state is not stored, the period does not begin.
    assert bench.pipeline.next_due_ms() is None
    bench.observe(instant(60))
    bench.write(instant(100))
    entry = bench.shown()["n1"]
    assert entry["DeviceList"]["huawei.com/Ascend910-Fault"] == "[]"
    assert unhealthy(entry) == ""
    assert entry["UpdateTime"] == T0 + 1
    assert bench.pipeline.next_due_ms() == 145_000
    assert bench.observe(instant(144.9)) == frozenset()
    assert bench.observe(instant(145)) == {DEVICES}
    bench.write(instant(145))
    assert set(bench.shown()) == {"n2"}
    bench.observe(instant(200), gone("n2"))
    bench.write(instant(200))
    bench.observe(instant(245))
    bench.write(instant(245))
    assert bench.outputs == {"cluster-info-device-0": ""}


def test_a_node_that_returns_in_time_was_never_gone() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=faulty()))
    bench.write(instant(0))
    bench.observe(instant(1), gone("n1"))
    bench.write(instant(1))
    bench.observe(instant(2), Changed(report("n1", faulty())))
    bench.write(instant(2))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 2
    assert bench.pipeline.next_due_ms() is None


def test_a_node_that_returns_late_does_not_fall_behind_its_ghost() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=faulty()))
    bench.write(instant(0))
    bench.observe(instant(1), gone("n1"))
    bench.write(instant(1))
    bench.observe(instant(60))
    bench.write(instant(60))
    assert bench.shown() == {}
    bench.observe(instant(70), Changed(report("n1", healthy())))
    bench.write(instant(70))
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 2


def test_so_many_nodes_that_left_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_table, "_REMEMBERED", 2)
    bench = PendingPipeline()
    for begin, name in ((0, "n1"), (100, "n2"), (200, "n3")):
        bench.observe(instant(begin), listed(**{name: faulty()}))
        bench.write(instant(begin))
        bench.observe(instant(begin + 1), gone(name))
        bench.write(instant(begin + 1))
        bench.observe(instant(begin + 60))
        bench.write(instant(begin + 60))
        assert bench.shown() == {}
    for name in ("n1", "n2", "n3"):
        bench.observe(instant(300), Changed(report(name, healthy())))
    bench.write(instant(300))
    # A node that is remembered goes on from its last stamp, another one begins with its own.
    remembered = {name for name, entry in bench.shown().items() if entry["UpdateTime"] > T0}
    assert remembered == {"n2", "n3"}


def test_deleted_and_created_at_once_is_one_change() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=healthy()))
    bench.write(instant(0))
    bench.observe(instant(5), gone("n1"), Changed(report("n1", faulty())))
    bench.write(instant(5))
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 1
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"


def test_document_missing_from_a_list_was_deleted() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    bench.write(instant(0))
    bench.observe(instant(1), Interrupted("away"))
    bench.write(instant(1))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"
    bench.observe(instant(2), listed(n2=healthy()))
    bench.write(instant(2))
    assert unhealthy(bench.shown()["n1"]) == ""


def test_a_restart_without_changes_changes_nothing() -> None:
    before = PendingPipeline()
    before.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    before.write(instant(0))
    after = PendingPipeline(outputs=before.outputs)
    later = listed(n1=faulty(update_time=T0 + 9), n2=healthy(T0 + 9))
    assert after.observe(instant(10), later) == frozenset()
    assert after.pipeline.value(DEVICES).text == before.outputs["cluster-info-device-0"]


def test_after_a_restart_stamps_go_on() -> None:
    before = PendingPipeline()
    before.observe(instant(0), listed(n1=healthy(T0 + 3)))
    for chip in range(2):
        before.observe(instant(0), Changed(report("n1", faulty(chip))))
    before.write(instant(0))
    assert before.shown()["n1"]["UpdateTime"] == T0 + 5
    after = PendingPipeline(outputs=before.outputs)
    after.observe(instant(1), listed(n1=faulty(7)))
    after.write(instant(1))
    assert after.shown()["n1"]["UpdateTime"] == T0 + 6


def test_a_node_that_left_while_the_aggregator_was_down_is_healed_then_dropped() -> None:
    before = PendingPipeline()
    before.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    before.write(instant(0))
    after = PendingPipeline(outputs=before.outputs)
    after.observe(instant(10), listed(n2=healthy()))
    after.write(instant(10))
    assert unhealthy(after.shown()["n1"]) == ""
    again = PendingPipeline(outputs=after.outputs)
    assert again.observe(instant(20), listed(n2=healthy())) == frozenset()
    again.write(instant(20))
    again.observe(instant(65))
    again.write(instant(65))
    assert set(again.shown()) == {"n2"}


def test_a_cluster_that_had_no_node_heals_those_of_another_leader() -> None:
    leader = PendingPipeline()
    leader.observe(instant(0), listed(n1=faulty()))
    leader.write(instant(0))
    follower = PendingPipeline()
    follower.observe(instant(10), listed())
    follower.restore(leader.outputs)
    follower.observe(instant(20))
    follower.write(instant(20))
    assert unhealthy(follower.shown()["n1"]) == ""


def test_after_a_restart_a_document_that_is_refused_was_not_deleted() -> None:
    before = PendingPipeline()
    before.observe(instant(0), listed(n1=faulty()))
    before.write(instant(0))
    after = PendingPipeline(outputs=before.outputs)
    assert after.observe(instant(10), listed(n1={"DeviceInfoCfg": "{"})) == frozenset()
    assert unhealthy(after.shown()["n1"]) == "Ascend910-3"
    assert after.observe(instant(11), gone("n1")) == {DEVICES}


def test_surplus_documents_of_an_earlier_run_become_empty() -> None:
    outputs = {"cluster-info-device-0": "", "cluster-info-device-4": "", "unrelated": "x"}
    bench = PendingPipeline(outputs=outputs)
    bench.observe(instant(0), listed(n1=healthy()))
    assert bench.pipeline.device.layout.indices == (0, 4)
    assert bench.pipeline.value("cluster-info-device-4").text == ""
    strange = Document(CLUSTER_NAMESPACE, "cluster-info-device-9", {"cluster-info-device-9": "x"})
    assert bench.pipeline.adopt([strange]) == {"cluster-info-device-9"}
    assert bench.pipeline.adopt([strange]) == frozenset()
    assert bench.pipeline.value("cluster-info-device-9").text == ""


@pytest.mark.parametrize(("older_at", "newer_at"), [(0, 1), (1, 0)])
def test_a_node_in_two_documents_keeps_the_newer_entry(older_at: int, newer_at: int) -> None:
    older, newer = PendingPipeline(), PendingPipeline()
    older.observe(instant(0), listed(n1=healthy(), n2=healthy()))
    older.write(instant(0))
    newer.observe(instant(9), listed(n1=faulty(update_time=T0 + 9)))
    newer.write(instant(9))
    names = {"n2": f"cluster-info-device-{older_at}", "n1": f"cluster-info-device-{newer_at}"}
    texts = [pending.outputs["cluster-info-device-0"] for pending in (older, newer)]
    bench = PendingPipeline(outputs=dict(sorted(zip(names.values(), texts, strict=True))))
    bench.observe(instant(10), listed(n1=faulty(update_time=T0 + 9), n2=healthy()))
    bench.write(instant(10))
    assert {node: set(published(bench.outputs[name])) for node, name in names.items()} == {
        node: {node} for node in names
    }


def test_unreadable_documents_of_an_earlier_run_are_reported_and_overwritten() -> None:
    good = PendingPipeline()
    good.observe(instant(0), listed(n1=healthy(T0 + 50)))
    good.write(instant(0))
    text = good.outputs["cluster-info-device-0"]
    broken = text[:-1] + ',"mindx-dl-deviceinfo-n2":{"UpdateTime":"x"}}'
    bench = PendingPipeline(
        outputs={"cluster-info-device-0": broken, "cluster-info-device-1": "{oops"}
    )
    assert len(bench.pipeline.unreadable) == 2
    bench.observe(instant(1), listed(n1=healthy(), n2=healthy()))
    bench.write(instant(1))
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 5
    assert set(bench.shown()) == {"n1", "n2"}


def test_a_stamp_that_cannot_grow_is_not_taken_over() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=healthy(), n2=healthy()))
    bench.write(instant(0))
    text = bench.outputs[DEVICES].replace(f'"UpdateTime":{T0}', f'"UpdateTime":{2**63 - 1}', 1)
    after = PendingPipeline(outputs={DEVICES: text})
    (error,) = after.pipeline.unreadable
    place = f"{DEVICES}: $.mindx-dl-deviceinfo-n1.UpdateTime"
    assert str(error) == f"{place}: is not a valid time: {2**63 - 1}"
    after.observe(instant(1), listed(n1=faulty(), n2=healthy()))
    after.write(instant(1))
    DEVICE.verify(after.outputs[DEVICES], DEVICES, 2)
    assert unhealthy(after.shown()["n1"]) == "Ascend910-3"


def test_until_every_store_was_listed_earlier_nodes_are_kept() -> None:
    before = PendingPipeline()
    before.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    before.write(instant(0))
    bench = PendingPipeline(stores=2, outputs=before.outputs)
    assert bench.observe(instant(1), listed(n2=healthy())) == frozenset()
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"
    assert bench.observe(instant(2), listed(n1=faulty()), store=1) == frozenset()
    assert bench.observe(instant(3), gone("n1"), store=1) == {DEVICES}


def test_a_change_that_must_wait_goes_out_by_itself() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=healthy()))
    for chip in range(5):
        bench.observe(instant(0), Changed(report("n1", faulty(chip))))
    assert bench.observe(instant(0.1), Changed(report("n1", faulty(5)))) == frozenset()
    assert bench.observe(instant(0.2), Changed(report("n1", faulty(6)))) == frozenset()
    assert bench.pipeline.next_due_ms() == 1000
    assert bench.observe(instant(1)) == {DEVICES}
    bench.write(instant(1))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-6"
    assert bench.pipeline.next_due_ms() is None


def test_a_document_of_another_name_has_no_nodes_and_no_revision() -> None:
    bench = PendingPipeline()
    bench.observe(instant(0), listed(n1=healthy()))
    other = Document(CLUSTER_NAMESPACE, "unrelated", {"unrelated": "{}"})
    assert bench.pipeline.follow(other, instant(1)) == (frozenset(), frozenset())
    with pytest.raises(KeyError, match="unrelated"):
        bench.pipeline.revision("unrelated")


def test_what_another_leader_published_stays_until_documents_are_read() -> None:
    leader, bench = PendingPipeline(), PendingPipeline()
    for one in (leader, bench):
        one.observe(instant(0), listed(n1=healthy(), n2=healthy()))
        one.write(instant(0))
    leader.observe(instant(1), Changed(report("n1", faulty(3, T0 + 1))))
    leader.write(instant(1))
    document = Document(CLUSTER_NAMESPACE, DEVICES, {DEVICES: leader.outputs[DEVICES]})
    differ, nodes = bench.pipeline.follow(document, instant(2), unconfirm=True)
    assert differ == {"n1"}
    assert nodes == {"n1", "n2"}
    assert bench.pipeline.unconfirmed == {"n1"}
    bench.observe(instant(3))
    bench.write(instant(3))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"
    bench.pipeline.confirm({"n1"})
    assert bench.pipeline.unconfirmed == frozenset()
    bench.observe(instant(4))
    bench.write(instant(4))
    assert unhealthy(bench.shown()["n1"]) == ""


@pytest.mark.slow
def test_names_of_lost_nodes_fit_into_an_annotation() -> None:
    bench = PendingPipeline()
    nodes = frozenset(f"node-{number:04}.{'x' * 90}" for number in range(3000))
    bench.pipeline.set_lost(nodes)
    bench.observe(instant(0))
    value = bench.pipeline.value(CLUSTER_NODE_NAME)
    document = Document(CLUSTER_NAMESPACE, CLUSTER_NODE_NAME, {}, annotations=value.annotations)
    names = lost_of(document)
    assert names is not None
    assert sum(len(name) + 1 for name in names) <= 200 * 1024
    assert sorted(names) == sorted(nodes)[: len(names)]
    assert len(names) == 200 * 1024 // 101
    bench.pipeline.set_lost(frozenset())
    bench.observe(instant(1))
    assert bench.pipeline.value(CLUSTER_NODE_NAME).annotations == {}


def test_of_another_document_no_node_is_lost() -> None:
    assert lost_of(Document(CLUSTER_NAMESPACE, DEVICES, {})) is None


def test_a_page_does_not_end_the_failure_of_a_watch() -> None:
    bench = PendingPipeline()
    watch = bench.pipeline.sources[0].devices
    bench.pipeline.observe_event(watch, Interrupted("away"), instant(0))
    page = ListedPage((report("n1", healthy()),), is_first=True)
    bench.pipeline.observe_event(watch, page, instant(90))
    assert watch.reading.problem("a watch", 90_000) == "a watch has failed for 90 s: away"
    bench.pipeline.observe_event(watch, DocumentsListed(()), instant(91))
    assert watch.reading.problem("a watch", 91_000) is None
