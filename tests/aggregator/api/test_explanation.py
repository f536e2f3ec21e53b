"""Why a node and its chips are published as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aggregator.api.explanation import ExplanationContext, explain
from aggregator.inputs.node_context import JobState, NodeContext, PodState
from aggregator.processors.frequent_fault_separation import Separated, SeparationPolicy
from aggregator.public_faults.values import ActivePublicFault
from contract.codes.reference import describe_code
from contract.documents.device_info import SWITCH_INFO_KEY
from contract.documents.node_info import FaultDevice
from contract.documents.switch_info import SwitchEvent, SwitchRecord, encode_switch_info
from contract.pages.aggregator_status import RelationStatus
from service.clock import shown_time
from stores.cluster import Snapshot
from tests.aggregator.api.explained import explained, status_of
from tests.aggregator.nodes import T0, faulty, healthy, node_report, report
from tests.aggregator.pipelines import WrittenPipeline
from tests.contract.documents.node_documents import config, fault

if TYPE_CHECKING:
    from aggregator.advising.status import AdviceAbout
    from contract.pages.explanation import ExplainedChip, ExplainedNode


def unwell(found: ExplainedNode[AdviceAbout]) -> tuple[ExplainedChip, ...]:
    """Return the chips that are not simply available."""
    well = ("available", "available")
    return tuple(one for one in found.chips if one.faults or (one.reported, one.published) != well)


def test_a_healthy_node_has_little_to_explain() -> None:
    found = explained(WrittenPipeline(report("n1", healthy())), "n1")
    assert found.because == ("its newest device-info counts",)
    assert found.documents == {"cluster-info-device-0": True}
    assert unwell(found) == ()
    assert {(one.reported, one.published) for one in found.chips} == {("available", "available")}
    assert len(found.chips) == 8, "chips that are well are listed, too"


def test_a_faulty_chip_is_the_nodes_own_word() -> None:
    (chip,) = unwell(explained(WrittenPipeline(report("n1", faulty(3))), "n1"))
    assert (chip.chip, chip.reported, chip.published) == (
        "Ascend910-3",
        "unhealthy",
        "unhealthy",
    )
    (one,) = chip.faults
    assert (one.code, one.reported, one.published) == ("80E18402", "RestartNPU", "RestartNPU")
    assert one.because == "the node reports it"
    assert one.name == one.summary
    assert one.name_zh == "设备的HBM总的多bit ECC隔离行数达到64个"


def test_a_refused_document_is_named_with_its_reason() -> None:
    bench = WrittenPipeline(report("n1", faulty(3)))
    bench.put(report("n1", {"DeviceInfoCfg": "{"}))
    found = explained(bench, "n1")
    assert found.because[0].startswith("its newest device-info is refused")
    assert "DeviceInfoCfg" in found.because[1]
    assert [chip.chip for chip in unwell(found)] == ["Ascend910-3"]


def test_pre_separation_shows_what_pods_have_to_do_with_it() -> None:
    bench = WrittenPipeline(
        report("n1", config([fault(3, "PreSeparateNPU", "80E18402")], update_time=T0))
    )
    (idle,) = unwell(explained(bench, "n1", frozenset()))
    assert idle.because[-1] == "PreSeparateNPU: no pod uses it, so it is unhealthy"
    (busy,) = unwell(explained(bench, "n1", frozenset({"Ascend910-3"})))
    assert busy.because[-1].startswith("PreSeparateNPU: a pod uses it")
    assert (idle.used_by_pod, busy.used_by_pod) == (False, True)


def test_pre_separation_is_not_blamed_for_what_it_does_not_do() -> None:
    link = fault(2, "PreSeparateNPU", "81078603", kind="CardNetwork")
    both = [fault(3, "PreSeparateNPU", "80E18402"), fault(3, "RestartNPU", "80C98000")]
    reported = config([link, *both], unhealthy=(3,), network=(2,), update_time=T0)
    bench = WrittenPipeline(report("n1", reported))
    used = frozenset({"Ascend910-2", "Ascend910-3"})
    parameter_plane, condemned = unwell(explained(bench, "n1", used))
    assert parameter_plane.because == ("the node reports: its network link is down",)
    assert condemned.because == (
        "the node reports: unhealthy",
        "PreSeparateNPU: a pod uses it, so it is unhealthy because of another fault",
    )


def test_a_chip_that_is_separated_by_its_node_and_here_shows_both() -> None:
    bench = WrittenPipeline(
        report("n1", config([fault(3, "ManuallySeparateNPU", "")], unhealthy=(3,)))
    )
    separation = bench.pipeline.processing.separation
    separation.chips["n1"] = {"Ascend910-3": Separated({"80C98000": T0 * 1000})}
    (by_node,) = unwell(explained(bench, "n1"))[0].faults
    assert (by_node.because, by_node.until_ms) == ("the node reports it", None), "the policy is off"
    separation.set_policy(SeparationPolicy(enabled=True))
    (both,) = unwell(explained(bench, "n1"))[0].faults
    assert both.because.startswith(
        "the node reports it; and here it is in manual separation, because"
    )
    assert both.until_ms == T0 * 1000 + 48 * 3_600_000


def test_a_server_that_is_published_otherwise_names_the_reason() -> None:
    part = FaultDevice("Fan", 4, ["06000025"], "PreSeparateFault")
    bench = WrittenPipeline(report("n1", healthy()), node_report("n1", [part], "PreSeparate"))
    bench.known.observe_pods(0, Snapshot({}))
    bench.pipeline.judge_again(["n1"])
    bench.step(1)
    found = explained(bench, "n1", frozenset())
    assert found.reported_status == "PreSeparate"
    assert found.node.node_status == "UnHealthy"
    assert found.because[-1] == (
        "its status PreSeparate is published as UnHealthy: no pod uses its chips"
    )


UCE, COMPANION = "80E01801", "80C98009"


def one(chip: int, level: str, code: str) -> dict[str, object]:
    return fault(chip, level, code, {code: (T0 * 1000, level)})


def test_a_companion_of_a_uce_fault_is_shown_as_one() -> None:
    faults = [one(3, "RestartBusiness", UCE), one(3, "RestartBusiness", COMPANION)]
    (chip,) = unwell(explained(WrittenPipeline(report("n1", config(faults, unhealthy=(3,)))), "n1"))
    by_code = {found.code: found for found in chip.faults}
    assert by_code[UCE].because == "the node reports it"
    held = by_code[COMPANION]
    assert (held.reported, held.published, held.until_ms) == ("RestartBusiness", None, None)
    assert held.since_ms == T0 * 1000
    assert held.because.startswith("held back from readers while it lasts: it came along with")


def test_a_possible_companion_of_a_uce_fault_shows_until_when_it_is_withheld() -> None:
    bench = WrittenPipeline(
        report("n1", config([one(3, "RestartBusiness", COMPANION)], unhealthy=(3,)))
    )
    (chip,) = unwell(explained(bench, "n1"))
    (held,) = chip.faults
    assert held.because.startswith("held back from readers until 2025-10-09 08:53:25 UTC at most")
    assert held.until_ms == T0 * 1000 + 5000
    assert chip.because == (
        "the node reports: unhealthy. The aggregator publishes: recovering",
        "no pod gets it while its fault is held back, and none is ended for it",
    )


def test_a_switch_event_that_a_job_filters_names_the_job() -> None:
    code = "[0x00f1ff09,155913,cpu,na]"
    event = SwitchEvent(assembled_fault_code=code, switch_chip_id=2, switch_port_id=7)
    times = ((f"{code}_2_7", T0 * 1000, "Separate"),)
    record = SwitchRecord((event,), "Separate", T0, "UnHealthy", times)
    bench = WrittenPipeline(report("n1", healthy()))
    seconds = {"huawei.com/schedule.filter.faultCode": f"{code}:60"}
    pods = {
        "u": PodState("u", "n1", "default", "rank-0", "job", ("Ascend910-1",), job_name="training")
    }
    bench.known.observe_pods(0, Snapshot(pods))
    bench.known.observe_jobs(0, Snapshot({"g": JobState("job", "default", "training", seconds)}))
    bench.put(report("n1", {**healthy(), SWITCH_INFO_KEY: encode_switch_info(record)}))
    facts = bench.known.node_context("n1")
    found = explained(bench, "n1", facts.used, ExplanationContext(facts))
    (held,) = found.switch_events
    assert (held.switch, held.port, held.reported, held.published) == (2, 7, "Separate", None)
    assert (held.name, held.name_zh, held.summary) == (None, None, ""), "it is in no table"
    assert held.because == (
        "held back from readers until 2025-10-09 08:54:20 UTC: filtered by job default/training"
    )
    assert found.because[-1] == (
        "the status UnHealthy of its switches is published as Healthy: 1 of their events are held "
        "back"
    )
    jobs = {f"job{n:02}": JobState(f"job{n:02}", "default", f"{n:02}", seconds) for n in range(22)}
    many = msgspec.structs.replace(
        facts,
        jobs=jobs,
        pods=tuple(
            PodState(key, "n1", "default", key, key, ("Ascend910-1",), job_name=job.name)
            for key, job in jobs.items()
        ),
    )
    (held,) = explained(bench, "n1", facts.used, ExplanationContext(many)).switch_events
    assert held.because.endswith(", job default/18, job default/19, 2 more jobs")
    assert held.because.count("job default/") == 20


def test_public_faults_and_relations_show_what_ends_them() -> None:
    about = ("n1", "CCAE", "fault-0001", "NPU", "220001001", "SeparateNPU", (3,), T0, T0 * 1000)
    lasting = ActivePublicFault(*about, T0 * 1000, T0 * 1000, None, placed=True)
    ending = msgspec.structs.replace(lasting, fault_id="fault-0002", ends_at_ms=T0 * 1000 + 5000)
    relations = tuple(
        RelationStatus("job", "n1", "Ascend910-3", "81078603", T0 * 1000, result, closed=closed)
        for result, closed in (("Separate", False), ("", False), ("", True))
    )
    context = ExplanationContext(
        NodeContext(frozenset()), (lasting, ending), jobs=(("job", None),), relations=relations
    )
    found = explained(WrittenPipeline(report("n1", healthy())), "n1", None, context)
    known = describe_code("220001001")
    assert known is not None
    assert {one.summary for one in found.public_faults} == {known.summary}
    assert [one.because for one in found.public_faults] == [
        "CCAE reported it; it holds until CCAE reports the end",
        "CCAE reported it; it ends at 2025-10-09 08:53:25 UTC",
    ]
    (job,) = found.jobs
    assert job.because[0] == "nothing on this node hits job job"
    assert "Separate follows for its pods here" in job.because[1]
    assert "would count against this node" in job.because[2]
    assert "too long ago" in job.because[3]


def test_a_lost_node_shows_since_when() -> None:
    bench = WrittenPipeline(report("n1", healthy()))
    lost = status_of(bench, "n1", heartbeat="lost", age=42.0)
    found = explain(bench.pipeline, lost, ExplanationContext(), {})
    assert found.because[-1] == (
        "its heartbeat fell silent 42 s ago (interval 5 s): it is lost, and published UnHealthy "
        "for that"
    )
    found = explain(bench.pipeline, lost, ExplanationContext(publish_lost=False), {})
    assert found.because[-1].endswith("it is lost, which is not to be published")


def test_a_time_that_no_calendar_has_does_not_spoil_the_page() -> None:
    assert shown_time(2**63) == f"{2**63} ms"
