"""The chains in the pipeline: dirty nodes only, by events and by time, and nothing forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.inputs.node_context import JobState, PodState
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from aggregator.processors import separation_documents
from aggregator.processors.record_edits import add_faults
from aggregator.processors.separation_documents import POLICY_KEY
from aggregator.processors.state import (
    PersistedNode,
    bucket_of_node,
    decode_buckets,
    encode_bucket,
)
from aggregator.processors.state_types import DeviceState
from contract.documents.cluster_device import CodeFault, DeviceRecord
from stores.base import Deleted, Document, DocumentsListed
from tests.aggregator.nodes import (
    faulty,
    healthy,
    instant,
    report,
    with_switch,
)
from tests.aggregator.pipelines import DEVICES, ProcessingPipeline
from tests.aggregator.processors.cases import chip, policy_text
from tests.contract.documents.node_documents import KEY as RESOURCE

if TYPE_CHECKING:
    from aggregator.processors.chains import PublicFaultProcessor
    from aggregator.processors.frequent_fault_separation import Counts
    from service.clock import Instant


def test_nodes_at_rest_cost_nothing() -> None:
    bench = ProcessingPipeline()
    bench.start(n1=healthy(), n2=healthy())
    assert (bench.asked, bench.due(), bench.kept) == ([], None, {})
    assert bench.processing.nodes == frozenset()
    assert bench.put(1, "n1", healthy(1_760_000_060)) == frozenset()
    assert bench.asked == [], "nobody asks for pods of a healthy node"


def test_a_filter_ends_by_time_alone() -> None:
    bench = ProcessingPipeline()
    bench.start(n1=healthy(), n2=healthy())
    bench.use("n1", 3, Code="80E18402:10")
    assert bench.put(5, "n1", faulty()) == {DEVICES}
    assert bench.changed == {"n1"}
    entry = bench.entry("n1")["DeviceList"]
    assert (entry[f"{RESOURCE}-Fault"], entry[f"{RESOURCE}-Recovering"]) == ("[]", chip(3))
    shown = bench.pipeline.published("n1")
    assert [hidden.fault.code for hidden in shown.hidden] == ["80E18402"]
    assert shown.received_ms == {chip(3): {"80E18402": instant(5).wall_ms}}
    assert shown.device is not None
    assert shown.device.faults == ()
    assert bench.due() == 15.001
    bench.asked.clear()
    assert bench.step(15) == frozenset()
    assert bench.asked == []
    assert bench.step(15.001) == {DEVICES}
    assert bench.unhealthy("n1") == chip(3)
    assert bench.entry("n1")["UpdateTime"] == 1_760_000_002
    assert bench.pipeline.published("n1").hidden == ()
    assert (bench.due(), set(bench.changed), set(bench.asked)) == (None, {"n1"}, {"n1"})


def test_switch_events_are_filtered_too() -> None:
    bench = ProcessingPipeline()
    bench.start(n1=healthy())
    bench.use("n1", 3, Level="SeparateFault:10")
    bench.put(0, "n1", with_switch("n1", "", "Healthy").data)
    faulty_switch = with_switch("n1", "Separate", "UnHealthy").data
    # The key of the map is that of the event, or nothing is hidden.
    faulty_switch = {
        name: reported.replace('"k":', '"[0x00f1ff09,155913,cpu,na]_0_0":')
        for name, reported in faulty_switch.items()
    }
    bench.put(1, "n1", faulty_switch)
    shown = bench.pipeline.published("n1")
    assert shown.switch is not None
    assert shown.switch.status == "Healthy"
    assert len(shown.hidden_events) == 1
    assert bench.due() == 11.001
    bench.step(11.001)
    shown = bench.pipeline.published("n1")
    assert shown.switch is not None
    assert (shown.switch.status, shown.hidden_events) == ("UnHealthy", ())


def test_a_chip_whose_fault_comes_too_often_is_separated_and_released() -> None:
    bench = ProcessingPipeline()
    bench.separating(how=policy_text(threshold=2, free=1))
    bench.start(n1=healthy(), n2=healthy())
    bench.use("n1", 3)
    for at in (10, 50):
        bench.put(at, "n1", faulty())
        bench.put(at + 5, "n1", healthy())
        bench.run(at + 5, at + 29.9)
        assert bench.unhealthy("n1") == ""
        assert bench.due() == at + 30
        assert bench.step(at + 30) == ({DEVICES} if at == 50 else frozenset())
    assert bench.changed == {"n1"}
    assert bench.unhealthy("n1") == chip(3)
    shown = bench.view()
    assert shown is not None
    assert "ManuallySeparateNPU" in shown["n1"]
    bench.run(80, 50 + 3600 - 1)
    assert bench.unhealthy("n1") == chip(3)
    bench.run(3650, 3650)
    assert (bench.unhealthy("n1"), bench.view()) == ("", None)
    assert bench.due() is None
    assert bench.kept.keys() <= {"policy"}


def test_an_operator_releases_a_chip() -> None:
    bench = ProcessingPipeline()
    bench.separating()
    bench.start(n1=healthy())
    bench.use("n1", 3)
    bench.put(0, "n1", faulty())
    bench.put(1, "n1", healthy())
    bench.run(1, 40)
    assert bench.unhealthy("n1") == chip(3)
    bench.apply(41, separation_documents.CHIPS_NAME, bench.view())
    assert bench.unhealthy("n1") == chip(3)
    assert bench.apply(42, separation_documents.CHIPS_NAME, None) == {DEVICES}
    assert bench.unhealthy("n1") == ""


def test_a_policy_that_is_switched_off_releases_and_one_that_is_on_counts_what_stands() -> None:
    bench = ProcessingPipeline()
    bench.start(n1=faulty())
    bench.use("n1", 3)
    bench.step(0)
    bench.separating(1)
    bench.run(1, 40)
    assert "ManuallySeparateNPU" in str(bench.entry("n1"))
    assert bench.apply(
        50, separation_documents.POLICY_NAME, {POLICY_KEY: policy_text("false")}
    ) == {DEVICES}
    assert "ManuallySeparateNPU" not in str(bench.entry("n1"))
    assert bench.processing.devices["n1"].seen == {}


def test_the_same_code_on_two_nodes_of_a_job_separates_no_chip() -> None:
    bench = ProcessingPipeline()
    bench.separating()
    bench.start(n1=healthy(), n2=healthy())
    bench.use("n1", 3)
    bench.use("n2", 3)
    bench.put(1, "n1", faulty())
    bench.put(2, "n2", faulty())
    bench.run(2, 100)
    assert bench.view() is None


def test_a_restart_goes_on_where_it_was() -> None:
    first = ProcessingPipeline()
    first.separating()
    first.start(n1=healthy())
    first.use("n1", 3, Code="80E18402:10")
    first.put(0, "n1", faulty())
    # The filter ends at 10 s, the window of the job 30 s after the fault came.
    second = ProcessingPipeline(first.kept, at=4)
    second.use("n1", 3, Code="80E18402:10")
    second.start(4, n1=faulty())
    assert second.due() == 10.001
    second.run(4, 12)
    assert second.unhealthy("n1") == chip(3)
    third = ProcessingPipeline(second.kept, at=12)
    third.use("n1", 3)
    third.start(12, n1=faulty())
    assert third.due() == 30
    third.step(30)
    assert "ManuallySeparateNPU" in str(third.entry("n1"))
    fourth = ProcessingPipeline(third.kept, at=31)
    fourth.start(31, n1=healthy())
    assert fourth.unhealthy("n1") == chip(3)
    assert fourth.processing.separation.policy.threshold == 1


def test_a_follower_takes_over_before_it_leads() -> None:
    leader, follower = ProcessingPipeline(), ProcessingPipeline()
    for bench in (leader, follower):
        bench.separating()
        bench.start(n1=healthy(), n2=faulty())
    leader.use("n1", 3)
    leader.put(0, "n1", faulty())
    leader.put(1, "n1", healthy())
    leader.run(1, 40)
    follower.put(1, "n1", healthy())
    follower.processing.restore(leader.kept, instant(41))
    follower.step(41)
    assert follower.unhealthy("n1") == chip(3)
    assert follower.pipeline.published("n2").received_ms == {
        chip(3): {"80E18402": instant(0).wall_ms}
    }


def test_a_release_while_no_replica_leads_counts() -> None:
    leader, follower = ProcessingPipeline(), ProcessingPipeline()
    for bench in (leader, follower):
        bench.separating()
        bench.start(n1=healthy(), n2=healthy())
    for node in ("n1", "n2"):
        leader.use(node, 3, job=node)
        leader.put(0, node, faulty())
        leader.put(1, node, healthy())
    leader.run(1, 40)
    shown = leader.view()
    assert shown is not None
    follower.apply(41, separation_documents.CHIPS_NAME, shown)
    assert follower.view() is None, "who follows decides nothing"
    follower.apply(50, separation_documents.CHIPS_NAME, {"n1": shown["n1"]})
    follower.processing.restore(leader.kept, instant(51))
    follower.step(51)
    assert set(follower.view() or {}) == {"n1"}
    assert (follower.unhealthy("n1"), follower.unhealthy("n2")) == (chip(3), "")
    follower.apply(52, separation_documents.CHIPS_NAME, None)
    assert follower.unhealthy("n1") == "", "it was seen to be in the document"


def test_unreadable_state_is_logged_and_harms_no_other_state() -> None:
    first = ProcessingPipeline()
    first.start(n1=faulty(), n2=faulty())
    bad = {bucket: reported.replace("n1", "n1", 1) for bucket, reported in first.kept.items()}
    bucket = next(iter(bad))
    bad[bucket] = bad[bucket][:-1] + ',"n3":{"device":{"received":7}}}'
    bad |= {"zz": "{", "policy": "[]"}
    second = ProcessingPipeline(bad)
    assert [reported.partition(":")[0] for reported in sorted(second.problems)] == [
        f"bucket {bucket}",
        "bucket policy",
        "bucket zz",
    ]
    assert second.processing.nodes == {"n1", "n2"}


def test_a_deleted_node_leaves_no_state() -> None:
    bench = ProcessingPipeline()
    bench.start(n1=faulty(), n2=faulty())
    assert bench.processing.nodes == {"n1", "n2"}
    gone = Deleted("kube-system", "mindx-dl-deviceinfo-n1")
    bench.pipeline.observe_event(bench.devices, gone, instant(1))
    bench.step(1)
    assert bench.processing.nodes == {"n2"}
    after = ProcessingPipeline({**bench.kept, **ProcessingPipeline().kept}, at=2)
    after.start(2)
    assert (after.processing.nodes, after.kept) == (frozenset(), {})


def test_a_change_rewrites_one_bucket() -> None:
    bench = ProcessingPipeline()
    names = [f"n{number}" for number in range(100)]
    bench.start(**dict.fromkeys(names, faulty()))
    assert len(bench.kept) > 20
    before = dict(bench.kept)
    bench.put(1, "n7", faulty(5))
    differ = [bucket for bucket in before if bench.kept[bucket] != before[bucket]]
    assert len(differ) == 1
    bench.put(2, "n7", faulty(5, update_time=1_760_000_100))
    assert bench.processing.pop_changed() == frozenset()


class Public:
    """Public faults on one node."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()

    def add_public_faults(self, node: str, record: DeviceRecord, now: Instant) -> DeviceRecord:
        if node not in self.nodes:
            return record
        fault = CodeFault("PublicFault", chip(1), "SeparateNPU", "220001001", 1, "SeparateNPU")
        return msgspec.structs.replace(add_faults(record, [fault]), update_time=now.wall_ms // 1000)


def test_public_faults_are_the_first_processor() -> None:
    public: PublicFaultProcessor = (mine := Public())
    bench = ProcessingPipeline(public=public)
    bench.start(n1=healthy())
    mine.nodes.add("n1")
    bench.pipeline.judge_again(["n1"])
    assert bench.step(9) == {DEVICES}
    assert bench.unhealthy("n1") == chip(1)
    assert bench.entry("n1")["UpdateTime"] == 1_760_000_009
    mine.nodes.clear()
    bench.pipeline.judge_again(["n1"])
    bench.step(10)
    assert bench.unhealthy("n1") == ""
    assert bench.entry("n1")["UpdateTime"] == 1_760_000_010
    assert bench.processing.nodes == frozenset()


def test_controllers_of_servers_dirty_only_nodes_with_faults() -> None:
    bench = ProcessingPipeline()
    bench.start(n1=healthy(), n2=faulty(code="80CB8002"))
    labels = {"app": "mindie-ms-server", "jobID": "m1"}
    bench.jobs["job"] = JobState("job", labels=labels)
    bench.pods["n2"] = (PodState("p", "n2", job="job", chips=(chip(3),)),)
    bench.jobs["job"] = msgspec.structs.replace(
        bench.jobs["job"],
        annotations={"huawei.com/schedule.filter.faultCode": "80CB8002"},
    )
    bench.pipeline.judge_again(["n2"])
    bench.step(1)
    assert bench.unhealthy("n2") == chip(3)
    bench.asked.clear()
    bench.pipeline.set_controllers(frozenset({"m1"}))
    bench.step(2)
    assert set(bench.asked) == {"n2"}
    assert bench.unhealthy("n2") == ""
    bench.pipeline.set_controllers(frozenset())
    bench.step(3)
    assert bench.unhealthy("n2") == chip(3)


def test_after_a_restart_what_is_published_of_an_unchanged_node_is_whole() -> None:
    first = ProcessingPipeline()
    first.start(n1=faulty())
    value = first.pipeline.value(DEVICES)
    second = Pipeline([DocumentSource("s:")], 45, node_context=first._node_context)
    second.restore_documents([Document("mindx-dl", DEVICES, {DEVICES: value.text})])
    second.observe_event(
        second.sources[0].devices, DocumentsListed((report("n1", faulty()),)), instant(9)
    )
    assert DEVICES not in second.step(instant(9))
    assert second.changed == {"n1"}
    shown = second.published("n1").device
    assert shown is not None
    assert [fault.code for fault in shown.faults] == ["80E18402"]


def test_a_node_with_too_much_to_remember_costs_no_other_node_its_memory() -> None:
    names = [
        name for name in (f"n{number}" for number in range(500)) if bucket_of_node(name) == "00"
    ]
    small = PersistedNode(DeviceState({chip(0): {"80C98000": 1}}))
    counted: Counts = {chip(0): {"80C98000": (1, 2)}}
    big = PersistedNode(
        DeviceState({chip(0): {f"{code:08X}": 1 for code in range(70_000)}}), counts=counted
    )
    kept_text, left_out = encode_bucket({names[0]: big, **dict.fromkeys(names[1:], small)})
    assert kept_text is not None
    assert left_out == 1
    least = {names[0]: PersistedNode(counts=counted)}
    nodes, problems = decode_buckets({"00": kept_text})
    assert (dict(nodes), problems) == (dict.fromkeys(names[1:], small) | least, [])
