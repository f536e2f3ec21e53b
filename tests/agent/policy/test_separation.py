"""Isolation is state: the key and its reasons come from the upgrades of the chips, and an operator
takes a chip out by its name. The worked examples are those of ``docs/spec/device-plugin.md#8.1``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agent.policy.state import Acknowledged, Adopted, ChangeKind, Configured, PolicyState, Released
from agent.policy.step import next_deadline_ms, step
from agent.publishing.chip_lists import render
from agent.publishing.device_info import DeviceInfoDocument
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.families import FAMILIES
from contract.documents.device_info import DeviceFault, TimeAndLevel, encode, verify_published
from contract.documents.isolation_request import (
    ISOLATION_ANNOTATION,
    IsolationRequest,
    encode_requests,
)
from contract.documents.separation import chip_of, read_names, read_reasons
from contract.observation import Assertion, chip_subject
from dcmi_shim.values import Chip
from stores.base import Document
from tests.agent.policy.builders import NODE, T, after, answered, healthy, inventory, seen
from tests.agent.policy.frequencies import CODE, DAY, FREQ3, MANUAL, occurs, rule, rules
from tests.agent.policy.worked_examples import EXAMPLES, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.codes.catalogue import Catalogue
    from contract.documents.device_info import DeviceInfo

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
FAMILY = FAMILIES["Ascend910B"]
STAMP = 1_700_000_100
NAME = f"mindx-dl-deviceinfo-{NODE}"
KEYS = ("ManuallySeparateNPU", "UpgradeFaultReason")


def document(state: PolicyState, chips: int = 2) -> DeviceInfo:
    return render(state, inventory(chips), STAMP)


def stored(state: PolicyState, **edits: str) -> Document:
    """Return the stored document after ``state`` was published and an operator made ``edits``."""
    data = encode(document(state), FAMILY)
    assert verify_published(data, NAME) == document(state)
    return Document("kube-system", NAME, data | edits, {})


def of(keys: Mapping[str, str], state: PolicyState | None = None) -> Document:
    """Return an older document with these ``keys`` of isolation."""
    base = stored(healthy() if state is None else state)
    data = {key: text for key, text in base.data.items() if key not in KEYS}
    return Document(base.namespace, base.name, {**data, **keys}, {})


def acknowledged(state: PolicyState, at: int = T) -> PolicyState:
    made = DeviceInfoDocument(NODE, lambda: state)
    ack = Acknowledged(NAME, state.revision, at, made.separated_chips(stored(state)))
    return after(state, [ack], at, FREQ3)


def started(existing: Document | None, now: int = T, tables: Catalogue = FREQ3) -> PolicyState:
    """Return the state of a new agent without a journal that found ``existing``."""
    state = PolicyState(NODE, "boot")
    made = DeviceInfoDocument(NODE, lambda: state)
    isolation = made.restore_isolation(existing, now, has_journal=False)
    state = after(state, [*isolation, *made.restore_from(existing)], now, tables)
    return after(state, answered(0, 1, at=now), now, tables)


def restarted(state: PolicyState, existing: Document | None, now: int) -> PolicyState:
    """Return the state of an agent whose journal had ``state`` and that found ``existing``."""
    state = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
    made = DeviceInfoDocument(NODE, lambda: state)
    return after(state, made.restore_isolation(existing, now, has_journal=True), now, FREQ3)


def reason(code: str, level: str, kind: str, at: int = T) -> dict[str, Any]:
    return {"upgrade_time": at, "fault_code": code, "fault_level": level, "upgrade_type": kind}


def text(reasons: object) -> str:
    return json.dumps(reasons, separators=(",", ":"))


def autofill(at: int) -> dict[str, Any]:
    return reason("AutofillFaultCode", "ManuallySeparateNPU", "FaultAutofill", at)


ISOLATED = after(healthy(), occurs(T, T + 10_000, T + 20_000), T + 20_000, FREQ3)
KEPT = acknowledged(ISOLATED, T + 20_100)
EX_19A_KEYS = {
    "ManuallySeparateNPU": "Ascend910-1",
    "UpgradeFaultReason": text(EXAMPLES["EX-19a"]["expect"]["reason"]),
}


class TestRelease:
    def test_ex_18_by_an_operator_is_at_once(self) -> None:
        """Upstream's first write has the key empty and the chip isolated still."""
        state = after(KEPT, [seen(RECOVER, CODE, at=T + 25_000)], T + 25_000, FREQ3)
        made = DeviceInfoDocument(NODE, lambda: state)
        released = made.operator_releases(stored(state, ManuallySeparateNPU=""), T + 30_000)
        state, (change,) = step(state, released, T + 30_000, FREQ3)
        event = EXAMPLES["EX-18b"]["expect"]["event"]
        (shown,) = json.loads(event["message"])["Ascend910-0"]
        judge("EX-18b", document(state), "Ascend910-0")
        assert (change.kind, change.new_level) == (ChangeKind.RELEASED, None)
        upgrade = change.upgrade
        assert upgrade is not None
        assert shown == reason("80e18005", upgrade.level, upgrade.kind, upgrade.upgraded_at_ms)
        assert state.named == ()
        again = after(state, occurs(T + 40_000, T + 50_000), T + 50_000, FREQ3)
        assert not again.chips[0].isolated, "it is counted from the beginning"

    def test_takes_all_reasons_of_that_level_and_no_other_chip(self) -> None:
        tables = rules(
            c80E18005=rule(2), c80CB8002=rule(2), c80C98008=rule(2, DAY, MANUAL.SEPARATE_NPU, 60)
        )
        codes = ("80E18005", "80CB8002", "80C98008")
        inputs = [
            o for code in codes for chip in (0, 1) for o in occurs(T, T, code=code, chip=chip)
        ]
        state = after(healthy(), inputs, T, tables)
        assert document(state).manually_separated == "Ascend910-0,Ascend910-1"
        state = after(state, [Released(chip_subject(0), T + 9)], T + 9, tables)
        assert document(state).manually_separated == "Ascend910-1"
        assert [upgrade.code for upgrade in state.chips[0].upgrades] == ["80C98008"]
        assert len(state.chips[1].upgrades) == 3
        assert {counter.occurred_ms for counter in state.chips[0].counters.values()} == {()}

    @pytest.mark.parametrize(
        "keys", [{}, {"UpgradeFaultReason": "{}"}], ids=("no keys", "no names")
    )
    def test_is_not_what_a_document_without_the_key_means(self, keys: dict[str, str]) -> None:
        made = DeviceInfoDocument(NODE, lambda: KEPT)
        assert made.operator_releases(of(keys), T + 30_000) == ()
        assert restarted(KEPT, of(keys), T + 30_000) == KEPT

    def test_is_not_what_a_deleted_document_means(self) -> None:
        """EX-22; upstream releases everybody (defect K02)."""
        assert restarted(KEPT, None, T + 30_000) == KEPT

    def test_ex_21_is_not_what_a_write_that_never_arrived_looks_like(self) -> None:
        """Upstream releases the chip when the first write fails (defect K01)."""
        made = DeviceInfoDocument(NODE, lambda: ISOLATED)
        assert made.operator_releases(stored(healthy()), T + 30_000) == ()
        assert restarted(ISOLATED, stored(healthy()), T + 30_000) == ISOLATED

    def test_of_one_chip_while_the_write_that_names_another_is_on_its_way(self) -> None:
        both = after(KEPT, occurs(T, T, T, chip=1), T + 30_000, FREQ3)
        made = DeviceInfoDocument(NODE, lambda: both)
        edited = stored(KEPT, ManuallySeparateNPU="")
        assert [item.subject.id for item in made.operator_releases(edited, T)] == [0]

    def test_that_was_taken_is_not_taken_again(self) -> None:
        """The stored document has no name until the chip that is isolated again was written."""
        edited = stored(KEPT, ManuallySeparateNPU="")
        state = restarted(KEPT, edited, T + 30_000)
        assert not state.chips[0].isolated
        three = [seen(RECOVER, CODE, at=T + 31_000), *occurs(T + 32_000, T + 33_000, T + 34_000)]
        state = after(state, three, T + 34_000, FREQ3)
        made = DeviceInfoDocument(NODE, lambda: state)
        assert made.operator_releases(edited, T + 35_000) == ()
        assert state.chips[0].isolated

    def test_while_no_agent_ran(self) -> None:
        """EX-19c with a journal."""
        state = restarted(KEPT, stored(KEPT, ManuallySeparateNPU=""), T + 30_000)
        info = document(state)
        assert (info.manually_separated, info.upgrade_reasons) == ("", "{}")
        assert [fault.fault_level for fault in info.faults] == ["RestartNPU"], "it holds still"

    def test_name_that_is_added_while_an_agent_runs_is_no_business_of_operators(self) -> None:
        """EX-59: it is a foreign change, and repaired."""
        made = DeviceInfoDocument(NODE, lambda: KEPT)
        edited = stored(KEPT, ManuallySeparateNPU="Ascend910-0,Ascend910-1")
        assert made.operator_releases(edited, T + 30_000) == ()


class TestStartWithoutJournal:
    def test_ex_19a_isolation_stays_and_keeps_its_time(self) -> None:
        state = started(of(EX_19A_KEYS), T + 600_000)
        judge("EX-19a", document(state), "Ascend910-1")
        assert {key: encode(document(state), FAMILY)[key] for key in KEYS} == EX_19A_KEYS
        again = started(stored(state), T + 900_000)
        assert document(again) == document(state)

    def test_ex_19b_the_same_with_the_fault_still_present(self) -> None:
        state = started(stored(ISOLATED), T + 600_000)
        assert document(state) == document(ISOLATED)
        found = [seen(Assertion.PRESENT, CODE, at=T + 600_100)]
        assert document(after(state, found, T + 600_100, FREQ3)) == document(ISOLATED)

    def test_ex_19c_released_while_no_agent_ran(self) -> None:
        reasons = text(EXAMPLES["EX-19a"]["expect"]["reason"])
        state = started(of({"ManuallySeparateNPU": "", "UpgradeFaultReason": reasons}))
        judge("EX-19c", document(state), "Ascend910-1")

    def test_ex_19d_reason_whose_rule_is_not_known_waits_for_the_next_configuration(self) -> None:
        """The operator's rules may not have been read yet."""
        other = {"Ascend910-0": [reason("80e21007", "PreSeparateNPU", "FaultFrequency")]}
        state = started(of({"ManuallySeparateNPU": "", "UpgradeFaultReason": text(other)}))
        assert json.loads(document(state).upgrade_reasons) == other
        assert document(state).unhealthy == ("Ascend910-0",)
        assert after(state, [], T + 10**12, FREQ3) is state
        state, (change,) = step(state, [Configured("new", T + 1)], T + 1, FREQ3)
        assert change.kind is ChangeKind.RELEASED
        assert document(state).upgrade_reasons == "{}"

    def test_ex_20_name_without_a_reason_gets_one_and_is_isolated(self) -> None:
        """Upstream writes the reason, and schedules on (defect K04)."""
        state = started(of({"ManuallySeparateNPU": "Ascend910-1"}), T)
        example = json.loads(text(EXAMPLES["EX-20"]).replace('"S"', str(T)))["expect"]
        info = document(state)
        judge("EX-20", info, "Ascend910-1", example)
        assert info.faults == (BARE,)

    def test_missing_keys_release_no_chip(self) -> None:
        reasons = text(EXAMPLES["EX-19a"]["expect"]["reason"])
        state = started(of({"UpgradeFaultReason": reasons}))
        assert document(state).manually_separated == "Ascend910-1"
        assert document(started(of({}))).manually_separated == ""

    def test_ex_26_of_two_reasons_of_one_code_the_worse_one_counts_always(self) -> None:
        """Upstream picks one at random in every evaluation (defect K06)."""
        both = [
            reason("81078603", "PreSeparateNPU", "FaultDuration", T + 7),
            reason("81078603", "ManuallySeparateNPU", "FaultFrequency", T),
        ]
        keys = {"ManuallySeparateNPU": "Ascend910-0"}
        for listed in (both, both[::-1]):
            found = of(keys | {"UpgradeFaultReason": text({"Ascend910-0": listed})})
            info = document(started(found, T + 100_000, shipped()))
            assert json.loads(info.upgrade_reasons) == {"Ascend910-0": both}
            (entry,) = info.faults
            assert entry.fault_time_and_level_map == {LINK_DOWN: TimeAndLevel(T, MANUAL)}
            assert (info.network_unhealthy, info.unhealthy) == (("Ascend910-0",), ())

    def test_ex_47_each_name_and_each_reason_counts_for_itself(self) -> None:
        """One of them that makes no sense voids all others for upstream (defect K42)."""
        good = reason("80e18005", "ManuallySeparateNPU", "FaultFrequency")
        keys = {
            "ManuallySeparateNPU": "Ascend910-1,bogus,Ascend910-x, Ascend910-0extra, Ascend910-0",
            "UpgradeFaultReason": text({"Ascend910-1": [good], "weird": [good], "npu-x": 5}),
        }
        info = document(started(of(keys), T + 5_000))
        assert info.manually_separated == "Ascend910-0,Ascend910-1"
        assert json.loads(info.upgrade_reasons) == {
            "Ascend910-0": [autofill(T + 5_000)],
            "Ascend910-1": [good],
        }

    @pytest.mark.parametrize(
        "found",
        [
            reason("80e18005", "ManuallySeparateNPU", "FaultOfTheMoon"),
            reason("80e18005", "ManuallySeparateNPU", ""),
            reason("no code", "ManuallySeparateNPU", "FaultFrequency"),
            reason("80e18005", "manuallyseparatenpu", "FaultFrequency"),
        ],
        ids=("type", "no type", "code", "level"),
    )
    def test_unknown_reason_does_not_cost_the_name(self, found: dict[str, Any]) -> None:
        reasons = text({"Ascend910-1": [found]})
        edited = of({"ManuallySeparateNPU": "Ascend910-1", "UpgradeFaultReason": reasons})
        for state in (started(edited, T + 5), restarted(KEPT, edited, T + 5)):
            info = document(state)
            assert "Ascend910-1" in info.manually_separated
            assert json.loads(info.upgrade_reasons)["Ascend910-1"] == [autofill(T + 5)]

    def test_document_that_makes_no_sense_isolates_all_the_same(self) -> None:
        state = started(Document("kube-system", NAME, EX_19A_KEYS | {"DeviceInfoCfg": "{}"}, {}))
        assert document(state).manually_separated == "Ascend910-1"

    def test_ex_51_codes_that_only_reasons_hold_are_always_in_one_order(self) -> None:
        """Upstream orders them anew in every cycle (defect K35)."""
        listed = [
            reason(code, "SeparateNPU", "FaultFrequency")
            for code in ("80e3a202", "80c98008", "80e18005")
        ]
        for given in (listed, listed[::-1]):
            found = of({"UpgradeFaultReason": text({"Ascend910-0": given})})
            info = document(started(found, T, rules()))
            assert info.faults[0].fault_code == "80C98008,80E18005,80E3A202"
            codes = [r["fault_code"] for r in json.loads(info.upgrade_reasons)["Ascend910-0"]]
            assert codes == ["80c98008", "80e18005", "80e3a202"]


class TestStartWithJournal:
    def test_journal_and_document_agree(self) -> None:
        assert restarted(KEPT, stored(KEPT), T + 30_000) == KEPT

    def test_name_that_an_operator_added_while_no_agent_ran_is_taken(self) -> None:
        edited = stored(KEPT, ManuallySeparateNPU="Ascend910-0,Ascend910-1")
        info = document(restarted(KEPT, edited, T + 30_000))
        assert info.manually_separated == "Ascend910-0,Ascend910-1"
        assert json.loads(info.upgrade_reasons)["Ascend910-1"] == [autofill(T + 30_000)]

    def test_name_that_is_stale_is_not_taken(self) -> None:
        """The isolation ended while the store was away, and the name is there still."""
        tables = rules(c80E18005=rule(3, DAY, MANUAL, 60))
        over = after(KEPT, [seen(RECOVER, CODE, at=T + 25_000)], T + 85_001, tables)
        assert document(restarted(over, stored(KEPT), T + 90_000)).manually_separated == ""

    def test_journal_of_an_earlier_release_leaves_the_reasons_to_the_document(self) -> None:
        old = msgspec.json.decode(
            '{"node":"node-1","boot_id":"boot","revision":7,"chips":{"0":{"answered":'
            '["chip-faults"]}},"others":{},"settled_at_ms":5}',
            type=PolicyState,
        )
        info = document(restarted(old, stored(KEPT), T + 30_000))
        assert info.manually_separated == "Ascend910-0"
        assert info.upgrade_reasons == document(KEPT).upgrade_reasons


BARE = DeviceFault(
    fault_type="CardUnhealthy",
    npu_name="Ascend910-1",
    large_model_fault_level="ManuallySeparateNPU",
    fault_level="ManuallySeparateNPU",
    fault_handling="ManuallySeparateNPU",
    fault_code="",
    fault_time_and_level_map={},
)


class TestAutofill:
    FILLED = started(of({"ManuallySeparateNPU": "Ascend910-1"}), T)

    def test_stands_beside_the_codes_of_the_chip(self) -> None:
        state = after(self.FILLED, [seen(OCCUR, "80E21007", 1)], T, FREQ3)
        first, second = document(state).faults
        assert first == BARE
        assert second.fault_time_and_level_map == {"80E21007": TimeAndLevel(T, "NotHandleFault")}
        assert document(state).unhealthy == ("Ascend910-1",)

    def test_survives_every_restart_with_its_time(self) -> None:
        state = started(stored(self.FILLED), T + 900_000)
        assert document(state) == document(self.FILLED)

    def test_ends_with_the_longest_window_of_any_rule(self) -> None:
        """Upstream forgets the time in a restart (defect K05)."""
        assert next_deadline_ms(self.FILLED, FREQ3) is None
        tables = rules(c80E18005=rule(3, DAY, MANUAL, 60), c81078603=rule(5, DAY, MANUAL, 7_200))
        assert next_deadline_ms(self.FILLED, tables) == T + 7_200_001
        state, (change,) = step(self.FILLED, [], T + 7_200_001, tables)
        assert (change.kind, change.code) == (ChangeKind.RELEASED, "AutofillFaultCode")
        assert document(state).upgrade_reasons == "{}"
        assert document(state).free == ("Ascend910-0", "Ascend910-1")

    def test_is_an_operators_to_release(self) -> None:
        state = acknowledged(self.FILLED)
        made = DeviceInfoDocument(NODE, lambda: state)
        released = made.operator_releases(stored(state, ManuallySeparateNPU=""), T + 9)
        assert document(after(state, released, T + 9, FREQ3)).upgrade_reasons == "{}"

    def test_is_kept_by_a_new_configuration(self) -> None:
        assert after(self.FILLED, [Configured("new", T + 9)], T + 9, rules()) == self.FILLED


class TestKey:
    def test_ex_63_chips_above_15_are_named_too(self) -> None:
        """Upstream isolates them without a name (defect K22)."""
        state = after(healthy(18), occurs(T, T, T, chip=17), T, FREQ3)
        assert document(state, 18).manually_separated == "Ascend910-17"

    def test_names_are_in_the_order_of_logic_ids_and_strangers_last(self) -> None:
        chips = tuple(Chip(physical, 11 - physical, 0, 0) for physical in range(12))
        isolated = (0, 2, 10, 11, 31, 13)
        inputs = [o for chip in isolated for o in occurs(T, T, T, chip=chip)]
        state = after(healthy(12), inputs, T, FREQ3)
        listed = msgspec.structs.replace(inventory(12), chips=chips)
        info = render(state, listed, 1)
        numbers = [chip_of(name) for name in info.manually_separated.split(",")]
        assert numbers == [11, 10, 2, 0, 13, 31]
        assert len(json.loads(info.upgrade_reasons)) == 6

    def test_is_empty_while_levels_are_milder(self) -> None:
        tables = rules(c80E18005=rule(1, DAY, MANUAL.SEPARATE_NPU, 60))
        state = after(healthy(), occurs(T), T, tables)
        assert document(state).manually_separated == ""
        assert document(state).upgrade_reasons != "{}"


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Ascend910-0", 0),
        (" npu-17 ", 17),
        ("Ascend310P-3", 3),
        ("Ascend310-3", 3),
        ("Ascend910-", None),
        ("Ascend910--1", None),
        ("Ascend910-1x", None),
        ("Ascend910-٣", None),
        ("Ascend910-" + "9" * 40, None),
        ("Ascend910", None),
        ("MyNpu-1", None),
        ("", None),
    ],
)
def test_device_names(name: str, chip: int | None) -> None:
    assert chip_of(name) == chip


def test_names_of_a_document() -> None:
    assert read_names({}) is None
    assert read_names({"ManuallySeparateNPU": ""}) == frozenset()
    assert read_names({"ManuallySeparateNPU": "Ascend910-3,,x, Ascend910-1"}) == frozenset({1, 3})


@pytest.mark.parametrize(
    "reasons",
    [
        "",
        "null",
        "[]",
        '{"Ascend910-0":',
        '{"Ascend910-0":[{"upgrade_time":"7"}]}',
        '{"Ascend910-0":[{"fault_code":"80e18005","fault_level":"Grave"}]}',
        '{"Ascend910-0":[{"fault_code":"zz","fault_level":"SeparateNPU"}]}',
        '{"Ascend910-0":{}}',
        '{"\ud800":[]}',
        "[" * 100_000,
    ],
)
def test_reasons_that_make_no_sense_are_none(reasons: str) -> None:
    assert [one for listed in read_reasons(reasons).values() for one in listed] == []


def test_reason_of_an_unknown_kind_is_dropped() -> None:
    item = Adopted(chip_subject(0), CODE, "FaultWhim", T, T, "SeparateNPU")
    state = healthy()
    assert after(state, [item], T, FREQ3) is state


class TestRequest:
    """What an operator isolates with a request."""

    request = IsolationRequest("alice@laptop", T, "its HBM is replaced")

    def edited(self) -> Document:
        annotations = {ISOLATION_ANNOTATION: encode_requests({"Ascend910-1": self.request})}
        document = stored(healthy(), ManuallySeparateNPU="Ascend910-0,Ascend910-1")
        return msgspec.structs.replace(document, annotations=annotations)

    def test_no_time_ends_it_and_a_name_alone_isolates_nothing(self) -> None:
        state = healthy()
        made = DeviceInfoDocument(NODE, lambda: state)
        state = after(state, made.operator_requests(self.edited(), T), T, FREQ3)
        assert [chip for chip, known in state.chips.items() if known.isolated] == [1]
        later = after(state, [], T + 10 * 365 * 86_400_000, FREQ3)
        (upgrade,) = later.chips[1].upgrades
        assert upgrade.request == self.request
        assert upgrade.because == "alice@laptop (as stated) isolated it: its HBM is replaced"
        made = DeviceInfoDocument(NODE, lambda: later)
        made.identify(inventory(2))
        desired = made.desired()
        assert desired is not None
        assert desired.stamped is not None
        assert desired.stamped(1).annotations == self.edited().annotations

    def test_an_agent_without_a_journal_takes_who_asked_from_the_document(self) -> None:
        state = started(self.edited())
        assert [one.request for one in state.chips[1].upgrades] == [self.request]
        assert [one.request for one in state.chips[0].upgrades] == [None]

    def test_isolation_request_survives_a_restart(self) -> None:
        state = restarted(acknowledged(healthy()), self.edited(), T + 1)
        state = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
        assert [one.request for one in state.chips[1].upgrades] == [self.request]
