"""``SwitchInfoCfg``: example EX-36 of the specification and the rules around it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from agent.policy.state import PolicyState
from agent.publishing.switch_info import render_switch_info, restored_ports, switch_info_text
from contract.codes.families import FAMILIES
from contract.codes.levels import Severity
from contract.documents.device_info import SWITCH_INFO_KEY
from contract.documents.switch_info import SwitchPort, decode_switch_info, port_subject
from contract.observation import NODE, Assertion, Observation, SourceAnswered, SourceBlind
from tests.agent.policy.builders import T, after

AT = 1_700_000_100
A3 = FAMILIES["Ascend910A3"]
PORT = SwitchPort(chip=2, port=7, peer_device=1, peer_port=3)
NEVER = PolicyState("node-1", "boot")
PLANE = "[0x08520003,na,L2,na]"
FAULTY = (
    r'{"FaultCode":["{\"EventType\":15859445,\"AssembledFaultCode\":\"[0x00f1fef5,155914,npu,na]\",'
    r"\"PeerPortDevice\":1,\"PeerPortId\":3,\"SwitchChipId\":2,\"SwitchPortId\":7,\"Severity\":2,"
    r'\"Assertion\":1,\"AlarmRaisedTime\":1700000000000}"],"FaultLevel":"RestartRequest",'
    r'"UpdateTime":1700000100,"NodeStatus":"UnHealthy","FaultTimeAndLevelMap":'
    r'{"[0x00f1fef5,155914,npu,na]_2_7":{"fault_time":1700000000000,'
    r'"fault_level":"RestartRequest"}}}'
)
SUB_HEALTH = (
    r'{"FaultCode":["{\"EventType\":15859462,\"AssembledFaultCode\":\"[0x00f1ff06,155911,na,na]\",'
    r"\"PeerPortDevice\":65535,\"PeerPortId\":3,\"SwitchChipId\":2,\"SwitchPortId\":7,"
    r'\"Severity\":2,\"Assertion\":1,\"AlarmRaisedTime\":1700000000000}"],"FaultLevel":'
    r'"SubHealthFault","UpdateTime":1700000100,"NodeStatus":"SubHealthy","FaultTimeAndLevelMap":'
    r'{"[0x00f1ff06,155911,na,na]_2_7":{"fault_time":1700000000000,'
    r'"fault_level":"SubHealthFault"}}}'
)
UNKNOWN = (
    '{"FaultCode":[],"FaultLevel":"NotHandle","UpdateTime":1700000100,"NodeStatus":"Healthy",'
    '"FaultTimeAndLevelMap":{}}'
)
CLEAN = (
    '{"FaultCode":[],"FaultLevel":"","UpdateTime":1700000100,"NodeStatus":"Healthy",'
    '"FaultTimeAndLevelMap":{}}'
)
UNREAD = (
    '{"FaultCode":null,"FaultLevel":"","UpdateTime":0,"NodeStatus":"","FaultTimeAndLevelMap":null}'
)


def event(
    code: str,
    port: SwitchPort = PORT,
    assertion: Assertion = Assertion.OCCUR,
    at: int = T,
    raised: int | None = T,
) -> Observation:
    return Observation("switch", port_subject(port), code, assertion, at, Severity.MAJOR, raised)


def plane(ports: int, code: str = PLANE, peer: int = 2) -> PolicyState:
    return after(NEVER, [event(code, SwitchPort(4, port, peer, port)) for port in range(ports)])


@pytest.mark.parametrize(
    ("code", "port", "text"),
    [
        ("[0x00f1fef5,155914,npu,na]", PORT, FAULTY),
        ("[0x00f1ff06,155911,na,na]", SwitchPort(2, 7, 65535, 3), SUB_HEALTH),
        ("[0x00abcdef,1,npu,na]", PORT, UNKNOWN),
    ],
    ids=["RestartRequest", "sub-health", "unknown code"],
)
def test_example_36(code: str, port: SwitchPort, text: str) -> None:
    assert switch_info_text(after(NEVER, [event(code, port)]), A3, AT) == text


def test_clean_as_in_example_36() -> None:
    state = after(NEVER, [SourceAnswered("switch", NODE, T)])
    assert switch_info_text(state, A3, AT) == CLEAN


def test_switches_that_never_answered_are_not_reported_healthy() -> None:
    assert switch_info_text(NEVER, A3, AT) == UNREAD
    blind = after(NEVER, [SourceBlind("switch", NODE, T, "no library")])
    assert switch_info_text(blind, A3, AT) == UNREAD
    faulty = after(blind, [event("[0x00f1fef5,155914,npu,na]")])
    assert switch_info_text(faulty, A3, AT) == FAULTY
    over = event("[0x00f1fef5,155914,npu,na]", assertion=Assertion.RECOVER, at=T + 1)
    assert switch_info_text(after(faulty, [over]), A3, AT) == UNREAD


@pytest.mark.parametrize(
    ("ports", "level", "status"),
    [
        (15, "NotHandle", "Healthy"),
        (16, "Separate", "UnHealthy"),
        (17, "Separate", "UnHealthy"),  # upstream: NotHandle, Healthy (defect K23)
        (48, "Separate", "UnHealthy"),
    ],
)
def test_sixteen_ports_to_l2_are_a_plane(ports: int, level: str, status: str) -> None:
    found = render_switch_info(plane(ports), AT)
    assert (found.level, found.status) == (level, status)
    assert found.times is not None
    assert {own for _, _, own in found.times} == {"NotHandle"}


def test_ports_of_unknown_codes_count_for_the_plane_and_other_peers_do_not() -> None:
    assert render_switch_info(plane(16, "[0x00abcdef,1,L2,na]"), AT).level == "Separate"
    assert render_switch_info(plane(20, "[0x08520003,na,L2,na]", peer=1), AT).level == "NotHandle"


def test_ports_of_two_switch_chips_are_no_plane() -> None:
    reports = [event(PLANE, SwitchPort(n % 2, n, 2, n)) for n in range(20)]
    assert render_switch_info(after(NEVER, reports), AT).level == "NotHandle"


def test_events_are_in_order_of_arrival_and_their_map_is_sorted() -> None:
    ports = [SwitchPort(chip, 1, 1, 1) for chip in (5, 3, 4)]
    state = after(NEVER, [event("[0x00f1fef5,155914,npu,na]", port) for port in ports])
    again = event("[0x00f1fef5,155914,npu,na]", ports[0], at=T + 9, raised=T + 9)
    found = render_switch_info(after(state, [again]), AT)
    assert [one.switch_chip_id for one in found.events] == [5, 3, 4]
    assert [one.alarm_raised_time for one in found.events] == [T + 9, T, T]
    assert found.times is not None
    assert [key[-3:] for key, _, _ in found.times] == ["3_1", "4_1", "5_1"]


def test_an_event_without_a_time_has_the_time_at_which_it_was_seen() -> None:
    state = after(NEVER, [event("[0x00f1fef5,155914,npu,na]", raised=None)])
    assert switch_info_text(state, A3, AT) == FAULTY


def test_a_one_off_event_is_marked_as_one() -> None:
    state = after(NEVER, [event("[0x00f1ff06,155910,na,na]", assertion=Assertion.ONCE)])
    assert [one.assertion for one in render_switch_info(state, AT).events] == [2]


def test_a_blind_switch_keeps_its_last_state() -> None:
    state = after(NEVER, [event("[0x00f1fef5,155914,npu,na]")])
    blind = after(state, [SourceBlind("switch", NODE, T + 1, "the library does not answer")])
    assert switch_info_text(blind, A3, AT) == FAULTY


def test_only_the_a3_reports_switches() -> None:
    state = after(NEVER, [event("[0x00f1fef5,155914,npu,na]")])
    assert switch_info_text(state, FAMILIES["Ascend910B"], AT) is None
    text = switch_info_text(state, FAMILIES["Ascend910A5"], AT)
    assert text is not None
    assert '"FaultCode":null' in text


def test_a_document_remembers_its_ports() -> None:
    state = after(NEVER, [event("[0x00f1fef5,155914,npu,na]"), *(event(PLANE),)])
    text = switch_info_text(state, A3, AT)
    assert text is not None
    found = decode_switch_info("mine", {SWITCH_INFO_KEY: text})
    assert found is not None
    again = after(NEVER, restored_ports(found))
    assert render_switch_info(again, AT) == found


def test_ports_of_a_foreign_document_are_not_restored() -> None:
    state = after(NEVER, [event("[0x00f1fef5,155914,npu,na]")])
    found = render_switch_info(state, AT)
    wrong = [
        replace(found.events[0], assembled_fault_code="80E01801"),
        replace(found.events[0], assembled_fault_code="[0x00F1FEF5,155914,npu,na]"),
        replace(found.events[0], event_type=7),
        replace(found.events[0], alarm_raised_time=0),
    ]
    assert restored_ports(replace(found, events=tuple(wrong))) == ()
    assert len(restored_ports(found)) == 1
