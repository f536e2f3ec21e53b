"""Switch ports and parts of the server go through the same rules as chips."""

from __future__ import annotations

import msgspec
import pytest

from agent.policy.episodes import RETURN_WINDOW_MS
from agent.policy.state import (
    CHIP_SOURCE,
    Acknowledged,
    Blindness,
    ChipState,
    PolicyState,
    subject_of,
    tracked,
)
from agent.policy.step import ONCE_VISIBLE_MS, next_deadline_ms
from collectors.chip_faults.collector import ChipFaultsCollector
from contract.codes.catalogue import shipped
from contract.codes.levels import ChipLevel, NodeLevel, Severity, SwitchLevel
from contract.documents.switch_info import SwitchPort, port_subject
from contract.names import device_info_name, node_info_name
from contract.observation import (
    NODE,
    Assertion,
    Observation,
    SourceAnswered,
    SourceBlind,
    Subject,
    chip_subject,
    host_subject,
)
from tests.agent.policy.builders import T, after, changes, healthy, seen

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT
PORT = port_subject(SwitchPort(chip=2, port=7, peer_device=1, peer_port=3))
DISK = host_subject("Disk BP", 255)
SWITCH_CODE = "[0x00f1fef5,155914,npu,na]"
HOST_CODE = "02000007"


def after_reports(
    subject: Subject,
    assertion: Assertion,
    code: str,
    at: int = T,
    severity: Severity | None = None,
    raised: int | None = None,
) -> Observation:
    source = "switch" if subject.kind == "switch" else "bmc"
    return Observation(source, subject, code, assertion, at, severity, raised)


def codes(state: PolicyState, subject: Subject) -> list[str]:
    return list(state.of(subject).faults)


@pytest.mark.parametrize("subject", [PORT, DISK, NODE, host_subject("HMM/CMC", 2)], ids=str)
def test_a_subject_is_read_back_from_its_text(subject: Subject) -> None:
    assert subject_of(str(subject)) == subject


def test_each_kind_is_judged_by_its_own_table() -> None:
    state = after(
        healthy(),
        [
            after_reports(PORT, OCCUR, SWITCH_CODE, severity=Severity.MAJOR),
            after_reports(DISK, PRESENT, HOST_CODE),
        ],
    )
    port, disk = state.of(PORT).faults[SWITCH_CODE], state.of(DISK).faults[HOST_CODE]
    assert (port.level, port.severity) == (SwitchLevel.RESTART_REQUEST, Severity.MAJOR)
    assert disk.level == NodeLevel.PRE_SEPARATE_FAULT
    assert all(chip.level is ChipLevel.NORMAL_NPU for chip in state.chips.values())


@pytest.mark.parametrize("subject", [PORT, DISK], ids=str)
def test_a_code_in_no_table_is_kept_without_a_level(subject: Subject) -> None:
    state = after(
        healthy(), [after_reports(subject, PRESENT, "000000EE", severity=Severity.CRITICAL)]
    )
    fault = state.of(subject).faults["000000EE"]
    assert (fault.level, fault.severity) == ("", Severity.CRITICAL)
    assert "in no level table" in fault.because


def test_the_severity_that_a_list_contains_counts_beyond_chips() -> None:
    state = after(healthy(), [after_reports(DISK, PRESENT, HOST_CODE, severity=Severity.MAJOR)])
    assert state.of(DISK).faults[HOST_CODE].severity is Severity.MAJOR


@pytest.mark.parametrize("subject", [PORT, DISK], ids=str)
@pytest.mark.parametrize("end", [RECOVER, ABSENT])
def test_a_fault_ends_by_event_and_by_audit(subject: Subject, end: Assertion) -> None:
    code = SWITCH_CODE if subject is PORT else HOST_CODE
    state = after(healthy(), [after_reports(subject, OCCUR, code, raised=T)])
    ended = after_reports(subject, end, code, at=T + 10, raised=T + 10)
    assert [change.subject for change in changes(state, [ended])] == [subject]
    assert codes(after(state, [ended]), subject) == []


def test_a_subject_of_which_nothing_is_known_any_more_is_forgotten() -> None:
    state = after(healthy(), [after_reports(DISK, PRESENT, HOST_CODE)])
    assert list(state.others) == [str(DISK)]
    assert after(state, [after_reports(DISK, ABSENT, HOST_CODE, at=T + 1)]).others == {}


def test_a_port_that_recovered_is_forgotten_when_nothing_can_bring_it_back() -> None:
    state = after(
        healthy(),
        [after_reports(PORT, OCCUR, SWITCH_CODE), after_reports(PORT, RECOVER, SWITCH_CODE)],
    )
    assert list(state.others) == [str(PORT)], "the list may still say otherwise"
    assert next_deadline_ms(state, shipped()) == T + RETURN_WINDOW_MS
    assert after(state, [], T + RETURN_WINDOW_MS - 1) is state
    state = after(state, [], T + RETURN_WINDOW_MS)
    assert (state.others, next_deadline_ms(state, shipped())) == ({}, None)


def test_a_one_off_is_released_when_its_own_document_was_acknowledged() -> None:
    state = after(
        healthy(), [after_reports(PORT, ONCE, SWITCH_CODE), after_reports(DISK, ONCE, HOST_CODE)]
    )
    seen_by = [
        Acknowledged(device_info_name("node-1"), state.revision, T + 1),
        Acknowledged(node_info_name("node-1"), state.revision, T + 9),
    ]
    state = after(state, seen_by, T + 9)
    assert next_deadline_ms(state, shipped()) == T + 1 + ONCE_VISIBLE_MS
    state = after(state, [], T + 1 + ONCE_VISIBLE_MS)
    assert (codes(state, PORT), codes(state, DISK)) == ([], [HOST_CODE])
    assert codes(after(state, [], T + 9 + ONCE_VISIBLE_MS), DISK) == []


def test_sources_are_blind_and_answer_for_the_node() -> None:
    state = after(healthy(), [SourceBlind("bmc", NODE, T + 1, "no answer")])
    assert state.of(NODE).blind == {"bmc": Blindness(T + 1, "no answer")}
    assert after(state, [SourceBlind("bmc", NODE, T + 1, "no answer")]) is state
    state = after(state, [SourceAnswered("bmc", NODE, T + 2)])
    assert (state.of(NODE).blind, state.of(NODE).answered) == ({}, ("bmc",))
    assert after(state, [SourceAnswered("bmc", NODE, T + 3)]) is state


def test_only_the_chips_own_source_counts_as_reading_it() -> None:
    assert ChipFaultsCollector.name == CHIP_SOURCE
    state = after(PolicyState("node-1", "boot"), [SourceAnswered("links", chip_subject(0), T)])
    assert not state.chips[0].was_read
    state = after(state, [SourceAnswered(CHIP_SOURCE, chip_subject(0), T)])
    assert state.chips[0].was_read


def test_every_source_is_given_its_tracked_faults() -> None:
    reports = [
        after_reports(PORT, OCCUR, SWITCH_CODE, T + 1),
        after_reports(DISK, PRESENT, HOST_CODE, T + 2),
    ]
    state = after(healthy(), [*reports, seen(OCCUR, "80E18005")])
    assert tracked(state, "switch") == {(PORT, SWITCH_CODE): T + 1}
    assert tracked(state, "bmc") == {(DISK, HOST_CODE): T + 2}
    assert tracked(state, CHIP_SOURCE) == {(chip_subject(0), "80E18005"): T}


def test_a_state_is_the_same_after_the_journal() -> None:
    state = after(
        healthy(),
        [after_reports(PORT, OCCUR, SWITCH_CODE), after_reports(DISK, PRESENT, HOST_CODE)],
    )
    again = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
    assert again == state
    assert again.of(PORT) == state.of(PORT)


def test_a_state_of_chips_alone_from_an_older_journal_is_understood() -> None:
    old = (
        b'{"node":"node-1","boot_id":"boot","revision":3,"chips":{"1":{"faults":{"80E01801":'
        b'{"code":"80E01801","episode":"e","source":"chip-faults","level":"RestartBusiness",'
        b'"because":"b","first_seen_ms":1,"revision":2,"severity":1}},"answered":["chip-faults"]}}}'
    )
    state = msgspec.json.decode(old, type=PolicyState)
    assert isinstance(state.of(chip_subject(1)), ChipState)
    assert state.chips[1].level is ChipLevel.RESTART_BUSINESS
    assert (state.chips[1].was_read, state.others) == (True, {})
