"""From events to documents: healing, dropping, restarting, moving; nothing forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aggregator.cluster_documents.kinds import DEVICE
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline, lost_of
from contract.documents.cluster_info import cluster_device_index
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE, CLUSTER_NODE_NAME
from stores.base import Changed, Deleted, Document, DocumentsListed, WatchEvent
from stores.interruption import Interrupted
from tests.aggregator.nodes import T0, faulty, healthy, instant, published, report, unhealthy

if TYPE_CHECKING:
    from service.clock import Instant


NAME = "cluster-info-device-0"


class Bench:
    """A pipeline whose writes arrive when a test acknowledges them."""

    def __init__(self, stores: int = 1, outputs: dict[str, str] | None = None) -> None:
        self.pipeline = Pipeline((DocumentSource(f"store-{n}:") for n in range(stores)), 45)
        self.outputs = dict(outputs or {})
        self.pipeline.restore_documents(
            Document(CLUSTER_NAMESPACE, name, {name: text}, dict([CLUSTER_LABEL]))
            for name, text in self.outputs.items()
        )

    def observe(self, now: Instant, *events: WatchEvent, store: int = 0) -> frozenset[str]:
        """Observe events that arrive together; nothing is written."""
        for event in events:
            watch = self.pipeline.sources[store].devices
            self.pipeline.observe_event(watch, event, now)
        return self.pipeline.step(now)

    def write(self, now: Instant) -> None:
        """Write and acknowledge everything."""
        for name in self.pipeline.documents:
            value = self.pipeline.value(name)
            if cluster_device_index(name) is not None:
                self.outputs[name] = value.text
            self.pipeline.acknowledged(name, value.revision)
        self.pipeline.step(now)

    def shown(self) -> dict[str, Any]:
        """Return the entry of each node in all documents."""
        return {k: v for text in self.outputs.values() for k, v in published(text).items()}


def listed(**nodes: dict[str, str]) -> DocumentsListed:
    return DocumentsListed(tuple(report(node, data) for node, data in nodes.items()))


def gone(node: str) -> Deleted:
    return Deleted("kube-system", f"mindx-dl-deviceinfo-{node}")


def test_only_shards_that_changed_are_named() -> None:
    bench = Bench()
    assert bench.observe(instant(0), listed(n1=healthy(), n2=healthy())) == {NAME}
    assert bench.observe(instant(1)) == frozenset()
    assert bench.observe(instant(2), Changed(report("n1", healthy(T0 + 60)))) == frozenset()
    assert bench.observe(instant(3), Changed(report("n1", faulty()))) == {NAME}


def test_several_changes_at_once_are_one_state() -> None:
    bench = Bench()
    bench.observe(instant(10), listed(n1=healthy()))
    changes = [Changed(report("n1", faulty(chip, T0 + chip))) for chip in range(5)]
    bench.observe(instant(11), *changes, Changed(report("n1", faulty(6, T0 + 7))))
    bench.write(instant(11))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-6"
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 7


def test_e25_a_deleted_node_is_healthy_first_and_gone_one_touch_period_later() -> None:
    bench = Bench()
    bench.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    bench.write(instant(0))
    assert bench.observe(instant(10), gone("n1")) == {NAME}
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
    assert bench.observe(instant(145)) == {NAME}
    bench.write(instant(145))
    assert set(bench.shown()) == {"n2"}
    bench.observe(instant(200), gone("n2"))
    bench.write(instant(200))
    bench.observe(instant(245))
    bench.write(instant(245))
    assert bench.outputs == {"cluster-info-device-0": ""}


def test_a_node_that_returns_in_time_was_never_gone() -> None:
    bench = Bench()
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
    bench = Bench()
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


def test_deleted_and_created_at_once_is_one_change() -> None:
    bench = Bench()
    bench.observe(instant(0), listed(n1=healthy()))
    bench.write(instant(0))
    bench.observe(instant(5), gone("n1"), Changed(report("n1", faulty())))
    bench.write(instant(5))
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 1
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"


def test_document_missing_from_a_list_was_deleted() -> None:
    bench = Bench()
    bench.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    bench.write(instant(0))
    bench.observe(instant(1), Interrupted("away"))
    bench.write(instant(1))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"
    bench.observe(instant(2), listed(n2=healthy()))
    bench.write(instant(2))
    assert unhealthy(bench.shown()["n1"]) == ""


def test_a_restart_without_changes_changes_nothing() -> None:
    before = Bench()
    before.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    before.write(instant(0))
    after = Bench(outputs=before.outputs)
    later = listed(n1=faulty(update_time=T0 + 9), n2=healthy(T0 + 9))
    assert after.observe(instant(10), later) == frozenset()
    assert after.pipeline.value(NAME).text == before.outputs["cluster-info-device-0"]


def test_after_a_restart_stamps_go_on() -> None:
    before = Bench()
    before.observe(instant(0), listed(n1=healthy(T0 + 3)))
    for chip in range(2):
        before.observe(instant(0), Changed(report("n1", faulty(chip))))
    before.write(instant(0))
    assert before.shown()["n1"]["UpdateTime"] == T0 + 5
    after = Bench(outputs=before.outputs)
    after.observe(instant(1), listed(n1=faulty(7)))
    after.write(instant(1))
    assert after.shown()["n1"]["UpdateTime"] == T0 + 6


def test_a_node_that_left_while_the_aggregator_was_down_is_healed_then_dropped() -> None:
    before = Bench()
    before.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    before.write(instant(0))
    after = Bench(outputs=before.outputs)
    after.observe(instant(10), listed(n2=healthy()))
    after.write(instant(10))
    assert unhealthy(after.shown()["n1"]) == ""
    again = Bench(outputs=after.outputs)
    assert again.observe(instant(20), listed(n2=healthy())) == frozenset()
    again.write(instant(20))
    again.observe(instant(65))
    again.write(instant(65))
    assert set(again.shown()) == {"n2"}


def test_after_a_restart_a_document_that_is_refused_was_not_deleted() -> None:
    before = Bench()
    before.observe(instant(0), listed(n1=faulty()))
    before.write(instant(0))
    after = Bench(outputs=before.outputs)
    assert after.observe(instant(10), listed(n1={"DeviceInfoCfg": "{"})) == frozenset()
    assert unhealthy(after.shown()["n1"]) == "Ascend910-3"
    assert after.observe(instant(11), gone("n1")) == {NAME}


def test_surplus_documents_of_an_earlier_run_become_empty() -> None:
    outputs = {"cluster-info-device-0": "", "cluster-info-device-4": "", "unrelated": "x"}
    bench = Bench(outputs=outputs)
    bench.observe(instant(0), listed(n1=healthy()))
    assert bench.pipeline.device.layout.indices == (0, 4)
    assert bench.pipeline.value("cluster-info-device-4").text == ""
    strange = Document(CLUSTER_NAMESPACE, "cluster-info-device-9", {"cluster-info-device-9": "x"})
    assert bench.pipeline.adopt([strange]) == {"cluster-info-device-9"}
    assert bench.pipeline.adopt([strange]) == frozenset()
    assert bench.pipeline.value("cluster-info-device-9").text == ""


def test_a_node_in_two_documents_keeps_the_newer_entry() -> None:
    first, second = Bench(), Bench()
    first.observe(instant(0), listed(n1=healthy(), n2=healthy()))
    first.write(instant(0))
    second.observe(instant(9), listed(n1=faulty(update_time=T0 + 9)))
    second.write(instant(9))
    outputs = {
        "cluster-info-device-0": first.outputs["cluster-info-device-0"],
        "cluster-info-device-1": second.outputs["cluster-info-device-0"],
    }
    bench = Bench(outputs=outputs)
    now = listed(n1=faulty(update_time=T0 + 9), n2=healthy())
    bench.observe(instant(10), now)
    bench.write(instant(10))
    assert set(published(bench.outputs["cluster-info-device-0"])) == {"n2"}
    assert set(published(bench.outputs["cluster-info-device-1"])) == {"n1"}


def test_the_newer_entry_counts_where_it_stands_in_the_first_document() -> None:
    first, second = Bench(), Bench()
    first.observe(instant(9), listed(n1=faulty(update_time=T0 + 9)))
    first.write(instant(9))
    second.observe(instant(0), listed(n1=healthy(), n2=healthy()))
    second.write(instant(0))
    bench = Bench(
        outputs={
            "cluster-info-device-0": first.outputs["cluster-info-device-0"],
            "cluster-info-device-1": second.outputs["cluster-info-device-0"],
        }
    )
    bench.observe(instant(10), listed(n1=faulty(update_time=T0 + 9), n2=healthy()))
    bench.write(instant(10))
    assert set(published(bench.outputs["cluster-info-device-0"])) == {"n1"}
    assert set(published(bench.outputs["cluster-info-device-1"])) == {"n2"}


def test_unreadable_documents_of_an_earlier_run_are_reported_and_overwritten() -> None:
    good = Bench()
    good.observe(instant(0), listed(n1=healthy(T0 + 50)))
    good.write(instant(0))
    text = good.outputs["cluster-info-device-0"]
    broken = text[:-1] + ',"mindx-dl-deviceinfo-n2":{"UpdateTime":"x"}}'
    bench = Bench(outputs={"cluster-info-device-0": broken, "cluster-info-device-1": "{oops"})
    assert len(bench.pipeline.unreadable) == 2
    bench.observe(instant(1), listed(n1=healthy(), n2=healthy()))
    bench.write(instant(1))
    assert bench.shown()["n1"]["UpdateTime"] == T0 + 5
    assert set(bench.shown()) == {"n1", "n2"}


def test_a_stamp_that_cannot_grow_is_not_taken_over() -> None:
    bench = Bench()
    bench.observe(instant(0), listed(n1=healthy(), n2=healthy()))
    bench.write(instant(0))
    text = bench.outputs[NAME].replace(f'"UpdateTime":{T0}', f'"UpdateTime":{2**63 - 1}', 1)
    after = Bench(outputs={NAME: text})
    assert len(after.pipeline.unreadable) == 1
    after.observe(instant(1), listed(n1=faulty(), n2=healthy()))
    after.write(instant(1))
    DEVICE.verify(after.outputs[NAME], NAME, 2)
    assert unhealthy(after.shown()["n1"]) == "Ascend910-3"


def test_until_every_store_was_listed_earlier_nodes_are_kept() -> None:
    before = Bench()
    before.observe(instant(0), listed(n1=faulty(), n2=healthy()))
    before.write(instant(0))
    bench = Bench(stores=2, outputs=before.outputs)
    assert bench.observe(instant(1), listed(n2=healthy())) == frozenset()
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-3"
    assert bench.observe(instant(2), listed(n1=faulty()), store=1) == frozenset()
    assert bench.observe(instant(3), gone("n1"), store=1) == {NAME}


def test_a_change_that_must_wait_goes_out_by_itself() -> None:
    bench = Bench()
    bench.observe(instant(0), listed(n1=healthy()))
    for chip in range(5):
        bench.observe(instant(0), Changed(report("n1", faulty(chip))))
    assert bench.observe(instant(0.1), Changed(report("n1", faulty(5)))) == frozenset()
    assert bench.observe(instant(0.2), Changed(report("n1", faulty(6)))) == frozenset()
    assert bench.pipeline.next_due_ms() == 1000
    assert bench.observe(instant(1)) == {NAME}
    bench.write(instant(1))
    assert unhealthy(bench.shown()["n1"]) == "Ascend910-6"
    assert bench.pipeline.next_due_ms() is None


def test_a_document_of_another_name_has_no_nodes_and_no_revision() -> None:
    bench = Bench()
    bench.observe(instant(0), listed(n1=healthy()))
    other = Document(CLUSTER_NAMESPACE, "unrelated", {"unrelated": "{}"})
    assert bench.pipeline.follow(other, instant(1)) == (frozenset(), frozenset())
    with pytest.raises(KeyError, match="unrelated"):
        bench.pipeline.revision("unrelated")


def test_what_another_leader_published_stays_until_documents_are_read() -> None:
    leader, bench = Bench(), Bench()
    for one in (leader, bench):
        one.observe(instant(0), listed(n1=healthy(), n2=healthy()))
        one.write(instant(0))
    leader.observe(instant(1), Changed(report("n1", faulty(3, T0 + 1))))
    leader.write(instant(1))
    document = Document(CLUSTER_NAMESPACE, NAME, {NAME: leader.outputs[NAME]})
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


def test_names_of_lost_nodes_fit_into_an_annotation() -> None:
    bench = Bench()
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
    assert lost_of(Document(CLUSTER_NAMESPACE, NAME, {})) is None
