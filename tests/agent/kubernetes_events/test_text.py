"""Events as they are written: names, places, messages that fit (``device-plugin#6.1``)."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.kubernetes_events.correlator import CorrelatedEvent, Other, ReleasedReasons
from agent.kubernetes_events.sender import reporter_of
from agent.kubernetes_events.text import Reporter, event_of, releases
from agent.policy.state import Change, ChangeKind
from contract.codes.levels import ChipLevel
from contract.observation import chip_subject
from contract.pages.agent_status import Upgrade
from dcmi_shim.values import Chip, Inventory
from stores.base import Involved, KubernetesEvent

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
A3 = Inventory(
    tuple(Chip(n, n, n // 2, n % 2) for n in range(16)), "Ascend910A3", "x", None, None, None, ""
)
POD = Reporter("node-1", "agent-abcde")
ONE = CorrelatedEvent(
    "1.2.3", "Occur", "RestartNPU", ("80CF8000",), (11,), 1_700_000_100_123, 1_700_000_100_123
)


def test_a_single_one_is_as_upstream_writes_it() -> None:
    event = event_of(ONE, POD, A3)
    assert event.name == "agent-abcde.1.2.3"
    assert event.message == (
        "device fault, nodeName:node-1, assertion:Occur, cardID:5, deviceID:1, "
        "faultCodes:80CF8000, faultLevelName:RestartNPU, alarmRaisedTime:2023-11-14 22:15:00"
    )
    assert event.involved == Involved("Node", "node-1", uid="node-1")
    assert event.instance == "agent-abcde"
    assert not event.normal


def test_several_name_all_chips_and_both_times() -> None:
    several = replace(ONE, chips=(0, 1, 11), count=7, last_ms=ONE.last_ms + 60_000)
    event = event_of(several, POD, A3)
    assert event.name == "agent-abcde.1.2.3.7"
    assert event.message == (
        "device fault, nodeName:node-1, assertion:Occur, cardID:0 0 5, deviceID:0 1 1, "
        "faultCodes:80CF8000, faultLevelName:RestartNPU, alarmRaisedTime:2023-11-14 22:15:00, "
        "lastRaisedTime:2023-11-14 22:16:00, count:7"
    )


def test_an_a5_has_logic_ids_and_an_unknown_driver_physical_ones() -> None:
    assert "logicID:11," in event_of(ONE, POD, replace(A3, family="Ascend910A5")).message
    assert "physicalID:11," in event_of(ONE, POD, None).message


@given(
    st.text(min_size=0, max_size=300),
    st.integers(1, 256),
    st.integers(1, 256),
    st.integers(0, 9),
)
def test_names_and_messages_are_such_that_kubernetes_takes_them(
    pod: str, codes: int, chips: int, unnamed: int
) -> None:
    group = replace(
        ONE,
        codes=tuple(f"{0x80000000 + code:08X}" for code in range(codes)),
        chips=tuple(range(chips)),
        count=codes + unnamed,
        codes_unnamed=unnamed,
    )
    inventory = replace(A3, chips=tuple(Chip(n, n, n // 4, n % 4) for n in range(256)))
    event = event_of(group, Reporter("n" * 230, pod), inventory)
    assert NAME.fullmatch(event.name)
    assert len(event.name) <= 253
    assert len(event.message.encode()) <= 1024
    assert 0 < len(event.instance) <= 128
    if chips <= 16:
        assert f"deviceID:{' '.join(str(n % 4) for n in range(chips))}," in event.message
        whole = event.message.count("80000") == codes and not unnamed
        assert whole or "and others in the journal" in event.message


def test_an_event_of_others_gets_a_reporter() -> None:
    involved = Involved("ConfigMap", "x", "kube-system")
    other = KubernetesEvent("kube-system", "x", involved, False, "R", "A", "ä" * 2000, 0, 0)
    event = event_of(Other(other), POD, None)
    assert (event.host, event.instance, event.component) == ("node-1", "agent-abcde", "npu-vigil")
    assert len(event.message.encode()) <= 1024


def released(chip: int, code: str) -> Change:
    upgrade = Upgrade(code, "FaultFrequency", ChipLevel.MANUALLY_SEPARATE_NPU, 7, "", "e")
    return Change(
        ChangeKind.RELEASED, chip_subject(chip), code, "e", 1000 + chip, "", upgrade=upgrade
    )


def test_releases_at_one_time_are_one_event() -> None:
    [release] = releases([released(2, "80C98008"), released(1, "AutofillFaultCode")], 9)
    event = event_of(release, POD, A3)
    assert (event.reason, event.action, event.normal) == (
        "EventReleaseUpgradeFault",
        "EventReleaseUpgradeFault",
        True,
    )
    assert event.message == (
        '{"Ascend910-1":[{"upgrade_time":7,"fault_code":"AutofillFaultCode",'
        '"fault_level":"ManuallySeparateNPU","upgrade_type":"FaultFrequency"}],'
        '"Ascend910-2":[{"upgrade_time":7,"fault_code":"80c98008",'
        '"fault_level":"ManuallySeparateNPU","upgrade_type":"FaultFrequency"}]}'
    )
    assert (event.first_ms, event.last_ms) == (1001, 1002)


def test_more_releases_than_a_message_holds_are_several_events() -> None:
    found = list(releases([released(chip, "80C98008") for chip in range(16)], 9))
    events = [event_of(release, POD, A3) for release in found]
    assert [isinstance(release, ReleasedReasons) for release in found] == [True] * 3
    assert len({event.name for event in events}) == 3
    assert sum(len(json.loads(event.message)) for event in events) == 16


@pytest.mark.parametrize(
    ("environment", "instance"),
    [
        ({"POD_NAME": "a", "HOSTNAME": "b"}, "a"),
        ({"HOSTNAME": "b"}, "b"),
        ({"HOSTNAME": ""}, "n"),
        ({}, "n"),
    ],
)
def test_events_are_about_the_node_whoever_reports(
    environment: dict[str, str], instance: str
) -> None:
    reporter = reporter_of("n", environment)
    assert reporter.instance == instance
