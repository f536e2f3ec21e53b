"""The node-info document: the examples of NodeD's specification, and when it must not change."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from agent.policy.stepping import step
from agent.publishing.node_info import NodeInfoDocument, time_text
from agent.publishing.stamps import Stamps
from collectors.bmc import BmcBeliefs
from contract import go_json
from contract.catalogue import shipped
from contract.errors import DocumentError
from contract.levels import NodeLevel
from contract.node_info import FaultDevice, decode_node_info, encode_node_info
from contract.observation import (
    NODE,
    Assertion,
    Observation,
    SourceAnswered,
    SourceBlind,
    host_subject,
)
from dcmi_shim.ipmi_alarms import reading
from stores.base import Document
from tests.compatibility import check, different
from tests.policy.builders import T, after, healthy
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from agent.policy.state import State

EXAMPLES = {
    row["id"]: row
    for row in map(
        json.loads, (VECTORS / "noded/worked-examples.jsonl").read_text().split("\n")[:-1]
    )
}
NAMES = {"E14": ("A&B<C>", 0, "2C000031"), "E15": ('风扇\u2028"\\/', 7, "06000025")}
CUSTOM = replace(shipped(), node_levels={"ABCDEF12": NodeLevel.PRE_SEPARATE_FAULT})
STAMP = T // 1000
FAN = host_subject("Fan", 3)


def alarm(code: str = "06000025", assertion: Assertion = Assertion.PRESENT) -> Observation:
    return Observation("bmc", FAN, code, assertion, T)


def answered(at: int = T) -> SourceAnswered:
    return SourceAnswered("bmc", NODE, at)


def blind(at: int = T) -> SourceBlind:
    return SourceBlind("bmc", NODE, at, "no answer within 10 s")


def document(state: State) -> NodeInfoDocument:
    return NodeInfoDocument("node-1", lambda: state)


def published(state: State) -> Document | None:
    """What is wanted, as stored; ``None`` for no document."""
    wanted = document(state).wanted()
    assert wanted is not None, "nothing is wanted"
    if wanted.stamped is None:
        return None
    made = wanted.stamped(STAMP)
    document(state).verify(made)
    return made


def of_replies(replies: list[str], tables: Any) -> State:
    """The state after one reading of a BMC with these pages."""
    pages = [bytes.fromhex(reply) for reply in replies]
    asking = reading(None)
    request = next(asking)
    while True:
        index = int.from_bytes(request.data[5:7], "little")
        try:
            request = asking.send(pages[1 if index else 0])
        except StopIteration as done:
            reports = BmcBeliefs("bmc", {}).listed(done.value, T)
            return step(healthy(), reports, T, tables)[0]


def tree(text: str) -> Any:
    """A document as a tree; the order of its devices varies with the real program."""
    decode_node_info("example", {"NodeInfo": text})
    found = json.loads(text)
    found["NodeInfo"]["FaultDevList"].sort(key=lambda one: (one["DeviceType"], one["DeviceId"]))
    found["CheckCode"] = "right"
    return found


@pytest.mark.parametrize("name", [name for name, row in EXAMPLES.items() if row["replies"]])
def test_example_of_a_reading(name: str) -> None:
    example = EXAMPLES[name]
    made = published(of_replies(example["replies"], CUSTOM if name == "E11" else shipped()))
    if example["node_info"] is None:
        assert made is None
        return
    assert made is not None
    check(f"noded/{name}", different(tree(example["node_info"]), tree(made.data["NodeInfo"])))
    if len(tree(made.data["NodeInfo"])["NodeInfo"]["FaultDevList"]) == 1:
        assert made.data["NodeInfo"] == example["node_info"], "to the byte"
    assert made.labels == {"mx-consumer-cim": "true"}
    assert (made.namespace, made.name) == ("mindx-dl", "mindx-dl-nodeinfo-node-1")


@pytest.mark.parametrize("name", NAMES)
def test_example_of_names_that_are_escaped(name: str) -> None:
    device, number, code = NAMES[name]
    report = Observation("bmc", host_subject(device, number), code, Assertion.PRESENT, T)
    made = published(after(healthy(), [answered(), report]))
    assert made is not None
    assert made.data["NodeInfo"] == EXAMPLES[name]["node_info"]


def test_example_of_the_manual() -> None:
    part = FaultDevice("CPU", 1, ["00000011"], "SeparateFault")
    assert encode_node_info([part], "UnHealthy", "")["NodeInfo"] == EXAMPLES["E17"]["node_info"]


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (
            '{"FaultDevList":[{"DeviceType":"CPU","DeviceId":1,"FaultCode":["00000011"],'
            '"FaultLevel":"SeparateFault"}],"HeartbeatTime":1710907679,"HeartbeatInterval":5,'
            '"NodeStatus":"UnHealthy"}',
            "3a2934c3cb875f2256c770c75a6fdf24594fcf64481ac6cd0d0f74b8fea88855",
        ),
        (
            '{"FaultDevList":null,"HeartbeatTime":0,"HeartbeatInterval":1,"NodeStatus":""}',
            "ade0c5676e5fb5a070232c70f0903c0b166f2a222fdf66e4f8361ba9b61e4269",
        ),
        (
            '{"FaultDevList":null,"NodeStatus":""}',
            "4c97cddcb947bd707778eb50b0986a69768afc2ef3e4f351db0b92e9d07d1fed",
        ),
    ],
    ids=["K1", "K2", "K3"],
)
def test_known_answers_of_the_check_code(text: str, digest: str) -> None:
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    assert go_json.check_code(json.loads(text)) == digest


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (0, "2026-01-01T00:00:00Z"),
        (480, "2026-01-01T08:00:00+08:00"),
        (-210, "2025-12-31T20:30:00-03:30"),
    ],
)
def test_the_time_is_local_and_has_its_offset(minutes: int, text: str) -> None:
    zone = timezone(timedelta(minutes=minutes))
    assert time_text(1_767_225_600, zone) == text
    data = encode_node_info([], "Healthy", text)
    assert decode_node_info("mine", data).update_time_ms == 1_767_225_600_000


def test_nothing_is_wanted_before_the_bmc_has_answered() -> None:
    assert document(healthy()).wanted() is None
    assert document(after(healthy(), [alarm()])).wanted() is None
    assert document(after(healthy(), [alarm(), blind()])).wanted() is None


def test_a_blind_bmc_keeps_what_is_known_and_deletes_nothing() -> None:
    state = after(healthy(), [answered(), alarm()])
    before, now = document(state).wanted(), document(after(state, [blind(T + 1)])).wanted()
    assert before is not None
    assert now is not None
    assert now.content == before.content
    assert (before.refresh_seconds, now.refresh_seconds) == (1800, math.inf)
    recovered = after(state, [alarm(assertion=Assertion.ABSENT)])
    assert published(recovered) is None
    assert document(after(recovered, [blind(T + 1)])).wanted() is None
    assert published(after(recovered, [blind(T + 1), answered(T + 2)])) is None


def test_codes_are_in_order_of_first_sight_and_unknown_ones_in_no_document() -> None:
    codes = ["06000025", "0100000D", "7F0000A1", "01000017"]
    state = after(healthy(), [answered(), *map(alarm, codes)])
    made = published(state)
    assert made is not None
    (part,) = decode_node_info("mine", made.data).faults
    assert part.fault_code == ["06000025", "0100000D", "01000017"]
    assert state.of(FAN).faults["7F0000A1"].level == ""


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59"])
def test_a_time_at_the_end_of_all_times_is_not_gone_on_from(text: str) -> None:
    made = document(healthy())
    stored = Document("ns", "name", encode_node_info((), "Healthy", text))
    stamps = Stamps()
    stamps.saw(made.stamp_of(stored))
    stamp, _ = stamps.next(STAMP * 1000, 1.0)
    assert time_text(stamp, UTC) == "2023-11-14T22:13:20Z"


def test_a_document_is_the_memory_of_an_agent_without_a_journal() -> None:
    state = after(healthy(), [answered(), alarm("0100000D"), alarm()])
    made = published(state)
    assert made is not None
    forgetful = document(healthy())
    again = after(healthy(), forgetful.take_over(made))
    assert document(again).wanted() is None, "it is no answer of the BMC"
    assert published(after(again, [answered()])) == made
    assert forgetful.stamp_of(made) == STAMP


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"NodeInfo":{"FaultDevList":[]}}'])
def test_a_document_that_makes_no_sense_is_no_memory(text: str) -> None:
    broken = Document("mindx-dl", "mindx-dl-nodeinfo-node-1", {"NodeInfo": text}, {})
    assert document(healthy()).take_over(broken) == ()
    assert document(healthy()).stamp_of(broken) is None
    with pytest.raises(DocumentError):
        document(healthy()).verify(broken)
    assert document(healthy()).take_over(None) == ()
