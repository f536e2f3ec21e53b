"""Conditions that follow from what is known of a node, and what of them is written."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.cluster_documents.published_node import PublishedNode
from aggregator.scheduler_signals.node_conditions import (
    Wanted,
    next_condition,
    wanted_conditions,
)
from aggregator.scheduler_signals.node_evidence import (
    NodeEvidence,
    NodeFault,
    faults_of,
)
from contract.codes.levels import ENDING_LEVELS, UNITED_LEVELS
from contract.documents.cluster_device import CodeFault, DeviceRecord
from contract.documents.node_info import FaultDevice, NodeRecord
from contract.documents.switch_info import SwitchEvent, SwitchRecord
from contract.node_signals import MAX_MESSAGE_BYTES, NodeCondition
from contract.pages.blind import BlindStatus

GOOD = NodeEvidence(chips=frozenset({"Ascend910-0"}), is_watched=True, blind=())
HBM = NodeFault("chip", "Ascend910-3", "80E01801", "RestartNPU")
SUB = NodeFault("chip", "Ascend910-1", "80CD8008", "SubHealthFault")


def statuses(evidence: NodeEvidence, levels: tuple[str, ...] = ENDING_LEVELS) -> dict[str, str]:
    return {wanted.type: wanted.status for wanted in wanted_conditions(evidence, levels)}


def one(evidence: NodeEvidence, type_: str) -> Wanted:
    return next(w for w in wanted_conditions(evidence, ENDING_LEVELS) if w.type == type_)


def evidence(**changes: object) -> NodeEvidence:
    members = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    return NodeEvidence(**members | changes)


def test_a_healthy_node_that_is_watched_is_true_in_all() -> None:
    assert set(statuses(GOOD).values()) == {"True"}
    assert one(GOOD, "NPUHealthy") == ("NPUHealthy", "True", "ChipsHealthy", "")


def test_levels_that_end_or_refuse_jobs_make_a_condition_false() -> None:
    for level in UNITED_LEVELS:
        found = statuses(evidence(faults=(NodeFault("chip", "Ascend910-3", "80E01801", level),)))
        expected = "True" if level == "SubHealthFault" else "False"
        assert (found["NPUHealthy"], found["NPULinksHealthy"]) == (expected, "True"), level


def test_the_table_of_levels_is_an_option() -> None:
    assert statuses(evidence(faults=(SUB,)), ("SubHealthFault",))["NPUHealthy"] == "False"
    assert statuses(evidence(faults=(HBM,)), ())["NPUHealthy"] == "True"


def test_the_reason_is_a_word_of_the_catalogue_and_the_message_has_the_worst_first() -> None:
    wanted = one(evidence(faults=(HBM, SUB)), "NPUHealthy")
    assert wanted.reason.isalnum()
    assert wanted.reason[0].isupper()
    assert wanted.message.startswith("Ascend910-3: 80E01801 (")
    assert "RestartNPU; Ascend910-1: 80CD8008" in wanted.message


def test_sub_health_is_true_with_its_reason() -> None:
    wanted = one(evidence(faults=(SUB,)), "NPUHealthy")
    assert wanted.status == "True"
    assert wanted.reason != "ChipsHealthy"
    assert "Ascend910-1" in wanted.message


def test_a_code_in_no_table_has_a_reason_too() -> None:
    odd = NodeFault("chip", "Ascend910-3", "12345678", "SeparateNPU")
    wanted = one(evidence(faults=(odd,)), "NPUHealthy")
    assert (wanted.reason, wanted.message) == ("UnknownFault", "Ascend910-3: 12345678 SeparateNPU")


@pytest.mark.parametrize(
    ("source", "type_"),
    [
        ("chip-faults", "NPUHealthy"),
        ("hang", "NPUHealthy"),
        ("links", "NPULinksHealthy"),
        ("switch", "NPULinksHealthy"),
        ("bmc", "NodeHardwareHealthy"),
        ("kernel-log", "NodeHardwareHealthy"),
    ],
)
def test_a_blind_source_makes_its_condition_unknown(source: str, type_: str) -> None:
    blind = evidence(blind=(BlindStatus(source, 1_767_225_600_000, "no answer", "Ascend910-3"),))
    found = statuses(blind)
    assert found.pop("NPUWatched") == "False"
    assert found.pop(type_) == "Unknown"
    assert set(found.values()) == {"True"}
    text = f"{source} of Ascend910-3 since 2026-01-01 00:00:00 UTC: no answer"
    assert one(blind, type_)[2:] == ("SourceBlind", text)


def test_a_heartbeat_that_is_blind_concerns_chips_and_links() -> None:
    found = statuses(evidence(blind=(BlindStatus("heartbeat"),)))
    assert found["NPUHealthy"] == found["NPULinksHealthy"] == "Unknown"
    assert found["NodeHardwareHealthy"] == "True"


def test_false_beats_unknown() -> None:
    both = evidence(faults=(HBM,), blind=(BlindStatus("chip-faults"),), is_silent=True)
    assert statuses(both)["NPUHealthy"] == "False"


def test_a_silent_node_is_unknown_in_all_with_since_when() -> None:
    silent = evidence(is_silent=True, silent_since_ms=1_767_225_600_000)
    assert set(statuses(silent).values()) == {"Unknown"}
    text = "the agent sends no heartbeats since 2026-01-01 00:00:00 UTC"
    assert one(silent, "NPUWatched")[2:] == ("AgentSilent", text)


def test_what_no_document_reports_is_unknown() -> None:
    assert set(statuses(NodeEvidence()).values()) == {"Unknown"}
    # NodeD of upstream reports parts and sends no heartbeat that counts.
    assert statuses(NodeEvidence(has_parts=True))["NodeHardwareHealthy"] == "True"


@given(st.lists(st.text(min_size=1, max_size=600), max_size=40))
def test_a_message_always_fits(subjects: list[str]) -> None:
    many = tuple(NodeFault("chip", s, "80E01801", "SeparateNPU") for s in subjects)
    message = one(evidence(faults=many), "NPUHealthy").message
    assert len(message.encode()) <= MAX_MESSAGE_BYTES
    assert bool(message) is bool(many)


def test_faults_of_documents_are_of_chips_links_and_parts() -> None:
    chip = CodeFault("CardUnhealthy", "Ascend910-3", "RestartNPU", "80E01801", 5, "RestartNPU")
    link = CodeFault("CardNetworkUnhealthy", "Ascend910-2", "PreSeparateNPU", "81078603", 6, "")
    public = CodeFault("PublicFault", "Ascend910-1", "SeparateNPU", "020001001", 7, "")
    mild = CodeFault("CardUnhealthy", "Ascend910-0", "NotHandleFault", "80E18005", 0, "")
    names = tuple(f"Ascend910-{number}" for number in range(4))
    device = DeviceRecord("Ascend910", names, (), (), (), (chip, link, public, mild), 0, 0, 0, 0)
    event = SwitchEvent(assembled_fault_code="[0x00f1ff06,132114,na,na]", switch_chip_id=1)
    switch = SwitchRecord((event,), "Separate", 0, "UnHealthy", None)
    node = NodeRecord((FaultDevice("CPU", 0, ["00000001"], "SeparateFault"),), "UnHealthy", 0)
    faults = faults_of(PublishedNode(device, switch, node))
    assert [(fault.of, fault.key, fault.level, fault.began_ms) for fault in faults] == [
        ("chip", "Ascend910-1 020001001", "SeparateNPU", 7000),
        ("part", "CPU 0 00000001", "SeparateFault", 0),
        ("link", "switch 1/0 [0x00f1ff06,132114,na,na]", "Separate", 0),
        ("link", "Ascend910-2 81078603", "PreSeparateNPU", 6),
        ("chip", "Ascend910-3 80E01801", "RestartNPU", 5),
    ]


WANTED = Wanted("NPUHealthy", "False", "Hbm", "chip 3")


def test_a_condition_that_is_there_is_not_written() -> None:
    assert next_condition(WANTED, NodeCondition(*WANTED), 5) is None


def test_the_transition_time_moves_only_with_the_status() -> None:
    seen = NodeCondition("NPUHealthy", "False", "Other", "chip 2", 1000, 2000)
    assert next_condition(WANTED, seen, 9000) == NodeCondition(*WANTED, 1000, 9000)
    healthy = NodeCondition("NPUHealthy", "True", "ChipsHealthy", "", 1000, 2000)
    assert next_condition(WANTED, healthy, 9000) == NodeCondition(*WANTED, 9000, 9000)
    assert next_condition(WANTED, None, 9000) == NodeCondition(*WANTED, 9000, 9000)


def test_no_time_goes_back_by_a_clock_that_is_behind() -> None:
    """Another leader's clock was ahead."""
    seen = NodeCondition("NPUHealthy", "True", "ChipsHealthy", "", 50_000, 60_000)
    assert next_condition(WANTED, seen, 9000) == NodeCondition(*WANTED, 50_000, 60_000)


def test_another_leader_lets_the_time_of_silence_stand() -> None:
    seen = NodeCondition("NPUWatched", "Unknown", "AgentSilent", "since noon", 1, 1)
    wanted = Wanted("NPUWatched", "Unknown", "AgentSilent", "")
    assert next_condition(wanted, seen, 9000) is None


_STATUS = st.sampled_from(["True", "False", "Unknown"])


@given(st.lists(st.tuples(_STATUS, st.sampled_from("ab"), st.integers(0, 10**12))))
def test_times_of_any_sequence_only_grow(steps: list[tuple[str, str, int]]) -> None:
    seen: NodeCondition | None = None
    shown: list[NodeCondition] = []
    for status, message, now_ms in steps:
        written = next_condition(Wanted("NPUHealthy", status, "Reason", message), seen, now_ms)
        if written is not None:
            seen = written
            shown.append(written)
    for before, after in itertools.pairwise(shown):
        assert before.changed_at_ms <= after.changed_at_ms
        assert before.written_at_ms <= after.written_at_ms
        if before.status == after.status:
            assert before.changed_at_ms == after.changed_at_ms or before.changed_at_ms == 0
