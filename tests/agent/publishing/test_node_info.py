"""The node-info document: the examples of NodeD's specification, and when it must not change."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import UTC, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from agent.policy.step import step
from agent.publishing.node_info import NodeInfoDocument, time_text
from agent.publishing.update_times import Stamps
from collectors.bmc import BmcTracker
from contract.codes.catalogue import shipped
from contract.codes.host_codes import (
    FILE_SYSTEM,
    HOST_MEMORY,
    KERNEL,
    KERNEL_LOG,
    OOM_KILL,
    READ_ONLY,
    SOFT_LOCKUP,
)
from contract.codes.levels import NodeLevel
from contract.documents.node_info import (
    FaultDevice,
    NodeBeat,
    decode_node_info,
    encode_beating_node_info,
    encode_node_beat,
    encode_node_info,
)
from contract.documents.vigil_key import VIGIL_KEY
from contract.errors import DocumentError
from contract.go import encode as go_json
from contract.observation import (
    NODE,
    Assertion,
    Observation,
    SourceAnswered,
    SourceBlind,
    host_subject,
)
from dcmi_shim.ipmi.alarms import reading
from stores.base import Document
from tests.agent.policy.builders import T, after, healthy
from tests.compatibility import check, different
from tests.vectors import VECTORS

if TYPE_CHECKING:
    from agent.policy.state import PolicyState

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


def document(state: PolicyState) -> NodeInfoDocument:
    return NodeInfoDocument("node-1", lambda: state)


def published(state: PolicyState) -> Document | None:
    """Return the desired document as it is stored; ``None`` for no document."""
    wanted = document(state).desired()
    assert wanted is not None, "nothing is wanted"
    if wanted.stamped is None:
        return None
    made = wanted.stamped(STAMP)
    document(state).verify(made)
    return made


def of_replies(replies: list[str], tables: Any) -> PolicyState:
    """Return the state after one reading of a BMC with these pages."""
    pages = [bytes.fromhex(reply) for reply in replies]
    asking = reading(None)
    request = next(asking)
    while True:
        index = int.from_bytes(request.data[5:7], "little")
        try:
            request = asking.send(pages[1 if index else 0])
        except StopIteration as done:
            reports = BmcTracker("bmc", {}).observe_alarms(done.value, T)
            return step(healthy(), reports, T, tables)[0]


def tree(text: str) -> Any:
    """Return a document as a tree with sorted devices: the real program's order varies."""
    decode_node_info("example", {"NodeInfo": text})
    found = json.loads(text)
    found["NodeInfo"]["FaultDevList"].sort(key=lambda one: (one["DeviceType"], one["DeviceId"]))
    found["CheckCode"] = "right"
    return found


READINGS = ("E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10", "E11", "E12")


@pytest.mark.parametrize("name", READINGS)
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
    assert document(healthy()).desired() is None
    assert document(after(healthy(), [alarm()])).desired() is None
    assert document(after(healthy(), [alarm(), blind()])).desired() is None


def test_a_blind_bmc_keeps_what_is_known_and_deletes_nothing() -> None:
    state = after(healthy(), [answered(), alarm()])
    before, now = document(state).desired(), document(after(state, [blind(T + 1)])).desired()
    assert before is not None
    assert now is not None
    assert now.content == before.content
    assert (before.refresh_seconds, now.refresh_seconds) == (1800, math.inf)
    recovered = after(state, [alarm(assertion=Assertion.ABSENT)])
    assert published(recovered) is None
    assert document(after(recovered, [blind(T + 1)])).desired() is None
    assert published(after(recovered, [blind(T + 1), answered(T + 2)])) is None


KEY_TEXT = '{"version":1,"blind":[{"source":"bmc","since_ms":1}]}'


class WithKey:
    """The document while it carries our own data key, or ceases to."""

    def __init__(self, state: PolicyState, existing: Document | None) -> None:
        self.state = state
        self.key: str | None = KEY_TEXT
        self.made = NodeInfoDocument("n1", lambda: self.state, lambda: self.key)
        self.made.observe_stored(existing)

    def data(self) -> dict[str, str] | None:
        """Return the desired data: empty for no document, ``None`` to keep the stored one."""
        wanted = self.made.desired()
        if wanted is None:
            return None
        return {} if wanted.stamped is None else wanted.stamped(T // 1000).data


def test_our_own_key_is_carried_without_a_part_and_takes_the_document_along() -> None:
    one = WithKey(healthy(), None)
    data = one.data()
    assert data is not None
    assert data.pop(VIGIL_KEY) == KEY_TEXT
    assert data == encode_node_info([], "Healthy", time_text(T // 1000))
    one.key = None
    assert [one.data(), one.data()] == [{}, {}], "until it is gone"
    left = Document("mindx-dl", "n1", data | {VIGIL_KEY: KEY_TEXT})
    again = WithKey(healthy(), left)
    again.key = None
    assert again.data() == {}, "also after a restart, whatever the BMC does"


def test_our_own_key_is_carried_beside_parts_and_ends_none() -> None:
    state = after(healthy(), [answered(), alarm()])
    one = WithKey(state, None)
    data = one.data()
    assert data is not None
    assert data.pop(VIGIL_KEY) == KEY_TEXT
    assert json.loads(data["NodeInfo"])["NodeInfo"]["FaultDevList"]
    one.key = None
    assert one.data() == data


def test_our_own_key_never_ends_what_a_silent_bmc_reported() -> None:
    there = Document(
        "mindx-dl",
        "n1",
        encode_node_info(
            [FaultDevice("Fan", 3, ["06000025"], "PreSeparateFault")],
            "PreSeparate",
            time_text(T // 1000),
        ),
    )
    assert WithKey(healthy(), there).data() is None
    recovered = after(healthy(), [answered(), alarm(), alarm(assertion=Assertion.ABSENT)])
    assert WithKey(after(recovered, [blind(T + 1)]), there).data() is None


def lockup(assertion: Assertion = Assertion.OCCUR) -> Observation:
    return Observation(KERNEL_LOG, host_subject(KERNEL, 0), SOFT_LOCKUP, assertion, T)


def codes(state: PolicyState, made: NodeInfoDocument) -> list[str] | None:
    """Return the desired codes: empty for no document, ``None`` to keep the stored one."""
    wanted = made.desired()
    if wanted is None or wanted.stamped is None:
        return None if wanted is None else []
    record = decode_node_info("mine", wanted.stamped(STAMP).data)
    return [code for part in record.faults for code in part.fault_code or ()]


def test_host_checks_come_and_go_though_the_bmc_never_answered() -> None:
    state = healthy()
    made = NodeInfoDocument("node-1", lambda: state)
    made.observe_stored(None)
    state = after(state, [blind()])
    assert codes(state, made) is None
    state = after(state, [lockup()])
    assert codes(state, made) == [SOFT_LOCKUP]
    wanted = made.desired()
    assert wanted is not None
    assert wanted.refresh_seconds == 1800, "nothing in it is the BMC's"
    state = after(state, [lockup(Assertion.RECOVER)])
    assert codes(state, made) == []


@pytest.mark.parametrize("remembers", [False, True], ids=["late", "in time"])
def test_stored_parts_of_the_bmc_stay_until_it_answers(remembers: bool) -> None:
    stored = published(after(healthy(), [answered(), alarm(), lockup()]))
    state = healthy()
    made = NodeInfoDocument("node-1", lambda: state)
    made.observe_stored(stored)
    if remembers:
        state = after(state, made.restore_from(stored))
        assert state.of(host_subject(KERNEL, 0)).faults[SOFT_LOCKUP].source == KERNEL_LOG
        assert state.of(FAN).faults["06000025"].source == "bmc"
    else:
        state = after(state, [lockup()])
    assert codes(state, made) == ["06000025", SOFT_LOCKUP]
    state = after(state, [lockup(Assertion.RECOVER)])
    assert codes(state, made) == ["06000025"]
    wanted = made.desired()
    assert wanted is not None
    assert wanted.refresh_seconds == math.inf
    gone = [alarm(assertion=Assertion.ABSENT)] if remembers else []
    state = after(state, [answered(), *gone])
    assert codes(state, made) == []


def test_a_host_check_does_not_delete_what_a_blind_bmc_left() -> None:
    state = after(healthy(), [answered(), alarm(), lockup(), blind()])
    made = NodeInfoDocument("node-1", lambda: state)
    state = after(state, [lockup(Assertion.RECOVER)])
    assert codes(state, made) == ["06000025"]


def test_a_host_check_ends_while_the_bmc_is_blind() -> None:
    state = after(healthy(), [answered(), lockup(), blind()])
    made = NodeInfoDocument("node-1", lambda: state)
    assert codes(state, made) == [SOFT_LOCKUP]
    state = after(state, [lockup(Assertion.RECOVER)])
    assert codes(state, made) == []


def test_a_part_without_codes_is_nobodys() -> None:
    part = FaultDevice("Fan", 3, [], "")
    stored = Document("ns", "name", encode_node_info([part], "Healthy", "2026-01-01T00:00:00Z"))
    made = document(healthy())
    made.observe_stored(stored)
    assert made.desired() is None, "the BMC has not answered"


def test_one_off_event_is_not_restored() -> None:
    kill = Observation(KERNEL_LOG, host_subject(HOST_MEMORY, 0), OOM_KILL, Assertion.ONCE, T)
    stored = published(after(healthy(), [answered(), kill]))
    assert stored is not None
    made = document(healthy())
    made.observe_stored(stored)
    assert made.restore_from(stored) == ()
    assert codes(healthy(), made) == [], "nobody else could have left anything"


@pytest.mark.parametrize(
    ("level", "status"),
    [
        (None, "Healthy"),
        (NodeLevel.PRE_SEPARATE_FAULT, "PreSeparate"),
        (NodeLevel.SEPARATE_FAULT, "UnHealthy"),
    ],
)
def test_the_level_of_a_host_check_is_the_operators(level: NodeLevel | None, status: str) -> None:
    tables = shipped() if level is None else replace(shipped(), node_levels={SOFT_LOCKUP: level})
    state, _ = step(healthy(), [answered(), lockup()], T, tables)
    made = published(state)
    assert made is not None
    record = decode_node_info("mine", made.data)
    (part,) = record.faults
    assert (record.status, part.device_type, part.device_id) == (status, "Kernel", 0)
    assert part.fault_level == (level or NodeLevel.NOT_HANDLE_FAULT)


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
    stamps.record_stored_stamp(made.stamp_of(stored))
    stamp, _ = stamps.next(STAMP * 1000, 1.0)
    assert time_text(stamp, UTC) == "2023-11-14T22:13:20Z"


def test_a_document_is_the_memory_of_an_agent_without_a_journal() -> None:
    state = after(healthy(), [answered(), alarm("0100000D"), alarm()])
    made = published(state)
    assert made is not None
    forgetful = document(healthy())
    again = after(healthy(), forgetful.restore_from(made))
    assert document(again).desired() is None, "it is no answer of the BMC"
    assert published(after(again, [answered()])) == made
    assert forgetful.stamp_of(made) == STAMP


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"NodeInfo":{"FaultDevList":[]}}'])
def test_a_document_that_makes_no_sense_is_no_memory(text: str) -> None:
    broken = Document("mindx-dl", "mindx-dl-nodeinfo-node-1", {"NodeInfo": text}, {})
    assert document(healthy()).restore_from(broken) == ()
    assert document(healthy()).stamp_of(broken) is None
    with pytest.raises(DocumentError):
        document(healthy()).verify(broken)
    assert document(healthy()).restore_from(None) == ()


@pytest.mark.parametrize("has_parts", [False, True])
def test_a_heartbeat_that_is_not_sent_any_more_goes_without_the_bmc(has_parts: bool) -> None:
    """``cm-v5`` or ``cm-v6rc`` was taken back, on a server whose BMC never answers."""
    beat = NodeBeat(STAMP, 5)
    data = encode_node_beat(beat)
    if has_parts:
        fan = FaultDevice("Fan", 3, ["06000025"], "PreSeparateFault")
        data = encode_beating_node_info([fan], "PreSeparate", beat)
    state = after(healthy(), [blind()])
    made = document(state)
    made.observe_stored(Document("ns", "name", data))
    assert codes(state, made) == (["06000025"] if has_parts else [])


def test_a_code_of_a_host_check_on_a_part_of_another_owner_is_not_taken_over() -> None:
    """The check would never take it back: it does not know of it."""
    parts = [FaultDevice("Fan", 3, [SOFT_LOCKUP, "06000025"], "PreSeparateFault")]
    parts += [FaultDevice(KERNEL, 1, [SOFT_LOCKUP], "NotHandleFault")]
    parts += [FaultDevice(FILE_SYSTEM, 2049, [READ_ONLY], "NotHandleFault")]
    data = encode_node_info(parts, "PreSeparate", "2026-01-01T00:00:00Z")
    taken = document(healthy()).restore_from(Document("ns", "name", data))
    assert [(str(one.subject), one.code) for one in taken if isinstance(one, Observation)] == [
        (str(FAN), "06000025"),
        (str(host_subject(FILE_SYSTEM, 2049)), READ_ONLY),
    ]
