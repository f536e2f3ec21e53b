"""The duration rule: when a code is upgraded and released, and what the document contains of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.chip_allocation import NOTHING_IN_USE, ChipAllocation
from agent.policy.state import Adopted, ChangeKind, Configured, PolicyState
from agent.policy.step import next_deadline_ms, step
from agent.publishing.chip_lists import render
from agent.publishing.device_info import DeviceInfoDocument
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.families import FAMILIES
from contract.codes.levels import ChipLevel, Severity
from contract.codes.policies import FAULT_DURATION, DurationPolicy
from contract.documents.device_info import encode
from contract.observation import Assertion, SourceAnswered, chip_subject
from stores.base import Document
from tests.agent.policy.builders import T, after, answered, changes, healthy, inventory, seen
from tests.agent.policy.worked_examples import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.policy.step import Input
    from contract.codes.catalogue import Catalogue
    from contract.documents.device_info import DeviceInfo

OCCUR, RECOVER, ONCE = Assertion.OCCUR, Assertion.RECOVER, Assertion.ONCE
PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT
DEVICE = "Ascend910-0"
LINK = chip_subject(0)
UPGRADE_TIME = T + 20_000
DOWN, UP = seen(OCCUR, LINK_DOWN), seen(RECOVER, LINK_DOWN, at=T + 90_000)


def document(state: PolicyState, in_use: ChipAllocation = NOTHING_IN_USE) -> DeviceInfo:
    return render(state, inventory(), 1_700_000_100, in_use)


def reasons(state: PolicyState) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(document(state).upgrade_reasons)
    return found.get(DEVICE, [])


def restarted(state: PolicyState) -> PolicyState:
    return msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)


def rules(**policies: DurationPolicy) -> Catalogue:
    return replace(shipped(), durations={k.removeprefix("c"): v for k, v in policies.items()})


class TestExamples:
    def test_ex_13_a_recovery_before_the_occurrence_takes_nothing_away(self) -> None:
        """Upstream removes the live fault at the end of its first cycle (defect K10)."""
        up = seen(RECOVER, LINK_DOWN, at=T - 900, serial=1, raised=T - 900)
        down = seen(OCCUR, LINK_DOWN, serial=2, raised=T)
        state = after(healthy(), [up, down], T + 20_001)
        judge("EX-23b", document(state), DEVICE)

    def test_ex_14_events_of_a_chip_code_count_in_their_order(self) -> None:
        code = "8C204E00"
        state = after(healthy(), [seen(RECOVER, code, at=T - 900), seen(OCCUR, code)])
        assert [fault.fault_code for fault in document(state).faults] == [code]
        again = [seen(OCCUR, code, at=T + 500), seen(RECOVER, code, at=T + 600)]
        assert document(after(state, again)).faults == (), "upstream keeps it (defect K10)"

    def test_ex_23a_exactly_the_timeout_is_not_too_long(self) -> None:
        """Upstream shows the fault after its recovery still; for ours it is over by then."""
        state = after(healthy(), [DOWN], T + 20_000)
        judge("EX-23a", document(state), DEVICE)
        state = after(state, [seen(RECOVER, LINK_DOWN, at=T + 20_000)], T + 20_001)
        assert document(state).faults == ()
        assert reasons(state) == []

    def test_ex_23b_one_millisecond_more_is(self) -> None:
        both = [DOWN, seen(RECOVER, LINK_DOWN, at=T + 20_001)]
        judge("EX-23b", document(after(healthy(), both, T + 20_001)), DEVICE)

    def test_ex_24_upgraded_kept_and_released(self) -> None:
        state = after(healthy(), [DOWN], T + 90_000)
        judge("EX-24a", document(state), DEVICE)
        assert DEVICE in document(state).free, "the chip itself is well"
        state = after(state, [UP], T + 90_000)
        judge("EX-24a", document(state), DEVICE)
        judge("EX-24a", document(after(state, [], T + 150_000)), DEVICE)
        state, found = step(state, [], T + 150_001, shipped())
        info = document(state)
        assert (info.faults, info.network_unhealthy, info.upgrade_reasons) == ((), (), "{}")
        assert [(c.kind, c.old_level, c.new_level, c.at_ms, c.because) for c in found] == [
            (
                ChangeKind.RELEASED,
                "PreSeparateNPU",
                None,
                T + 150_001,
                "81078603 was gone for longer than 60 s (FaultDuration)",
            )
        ]

    def test_ex_27_a_restart_does_not_move_the_upgrade(self) -> None:
        state = restarted(after(healthy(), [DOWN], T + 30_000))
        state = after(restarted(state), [], T + 600_000)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [UPGRADE_TIME]

    def test_ex_46_a_recovery_stamped_before_its_occurrence_does_not_latch(self) -> None:
        """Upstream keeps ``PreSeparateNPU`` until the link fails again (defect K43)."""
        down = seen(OCCUR, LINK_DOWN, raised=T + 500)
        up = seen(RECOVER, LINK_DOWN, at=T + 21_000, raised=T + 499)
        state = after(healthy(), [down, up], T + 26_999)
        assert document(state).network_unhealthy == (DEVICE,), "an audit may find that it is down"
        state = after(state, [], T + 27_000)
        assert state.chips[0].faults == {}
        assert len(reasons(state)) == 1
        assert reasons(after(state, [], T + 81_001)) == []


class TestRestart:
    """A snapshot between any two things that happen, in any phase, changes nothing."""

    TIMES = (0, 10_000, 20_000, 20_001, 50_000, 90_000, 120_000, 149_999, 150_000, 150_001)

    @pytest.mark.parametrize("phase", TIMES)
    def test_changes_nothing(self, phase: int) -> None:
        whole, halved = healthy(), healthy()
        for at in self.TIMES:
            inputs: Sequence[Input] = {0: [DOWN], 90_000: [UP]}.get(at, [])
            whole = after(whole, inputs, T + at)
            halved = after(restarted(halved) if at == phase else halved, inputs, T + at)
            assert next_deadline_ms(halved, shipped()) == next_deadline_ms(whole, shipped())
            assert document(halved) == document(whole)
        assert document(whole).upgrade_reasons == "{}"

    def test_of_a_long_time_catches_up(self) -> None:
        state = restarted(after(healthy(), [DOWN]))
        state = after(state, [], T + 3_600_000)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [UPGRADE_TIME]
        gone = seen(ABSENT, LINK_DOWN, at=T + 3_600_100)
        state = after(state, [gone], T + 3_660_100)
        assert len(reasons(state)) == 1
        assert reasons(after(state, [], T + 3_660_101)) == []

    def test_lets_sources_speak_before_a_rule_fires_or_releases(self) -> None:
        """A fault from before the start may have ended long ago; the time of the upgrade is the
        same.
        """
        state = msgspec.structs.replace(after(healthy(), [DOWN]), settled_at_ms=T + 65_000)
        assert next_deadline_ms(state, shipped()) == T + 65_000
        assert after(state, [], T + 64_999) is state
        assert reasons(after(state, [seen(ABSENT, LINK_DOWN, at=T + 61_000)], T + 700_000)) == []
        state = after(state, [], T + 65_000)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [UPGRADE_TIME]
        state = after(state, [UP], T + 90_000)
        state = msgspec.structs.replace(state, settled_at_ms=T + 305_000)
        still = seen(PRESENT, LINK_DOWN, at=T + 301_000)
        assert reasons(after(state, [still], T + 900_000)) == reasons(state)
        assert reasons(after(state, [], T + 305_000)) == []


class TestUpgrade:
    def test_is_a_change_with_both_levels_and_the_reason(self) -> None:
        state = after(healthy(), [DOWN])
        episode = state.chips[0].faults[LINK_DOWN].episode
        assert next_deadline_ms(state, shipped()) == T + 20_001
        assert step(state, [], T + 20_000, shipped()) == (state, ())
        state, found = step(state, [], T + 20_001, shipped())
        because = "81078603 held for longer than 20 s (FaultDuration)"
        assert [(c.kind, c.old_level, c.new_level, c.episode, c.because) for c in found] == [
            (ChangeKind.UPGRADED, "NotHandleFault", "PreSeparateNPU", episode, because)
        ]
        fault = state.chips[0].faults[LINK_DOWN]
        assert (fault.level, fault.because) == (ChipLevel.PRE_SEPARATE_NPU, because)
        assert next_deadline_ms(state, shipped()) is None, "it waits for the recovery"
        (ended,) = changes(state, [UP])
        assert (ended.kind, ended.new_level) == (ChangeKind.ENDED, "PreSeparateNPU"), "it stays"

    def test_that_is_back_in_time_goes_on(self) -> None:
        """A gap of exactly ``RecoverTimeout`` does not release; the upgrade keeps its time."""
        state = after(healthy(), [DOWN, UP])
        back = seen(OCCUR, LINK_DOWN, at=T + 150_000)
        (began,) = changes(state, [back])
        assert (began.kind, began.old_level, began.new_level) == (
            ChangeKind.BEGAN,
            "PreSeparateNPU",
            "PreSeparateNPU",
        )
        state = after(state, [back], T + 600_000)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [UPGRADE_TIME]
        again = seen(RECOVER, LINK_DOWN, at=T + 600_000)
        assert reasons(after(state, [again], T + 660_001)) == []

    def test_counts_from_the_first_time_after_a_recovery_that_was_none(self) -> None:
        """Upstream starts anew, or never, after a recovery that the driver contradicts."""
        state = after(healthy(), [DOWN, seen(RECOVER, LINK_DOWN, at=T + 15_000)])
        state = after(state, [seen(PRESENT, LINK_DOWN, at=T + 17_000)])
        assert next_deadline_ms(state, shipped()) == T + 20_001

    def test_of_an_unconfirmed_fault_waits(self) -> None:
        """Its recovery looked older; when that counts, it was over before the timeout."""
        down = seen(OCCUR, LINK_DOWN, raised=T + 500)
        unconfirmed = seen(RECOVER, LINK_DOWN, at=T + 16_000, raised=T + 499)
        state = after(healthy(), [down, unconfirmed], T + 21_999)
        assert reasons(state) == []
        assert reasons(after(state, [], T + 600_000)) == []
        still = seen(PRESENT, LINK_DOWN, at=T + 21_000)
        assert [r["upgrade_time"] for r in reasons(after(state, [still]))] == []
        assert [r["upgrade_time"] for r in reasons(after(state, [still], T + 21_000))] == [
            UPGRADE_TIME
        ]

    def test_of_a_one_off_event_never_comes(self) -> None:
        """Upstream upgrades a notice for good if ``FaultTimeout`` is 0: it never lasted.

        Source: docs/spec/device-plugin.md#3.5.
        """
        at_once = rules(c80E21007=DurationPolicy(0, 0, ChipLevel.SEPARATE_NPU))
        state = step(healthy(), [seen(ONCE, "80E21007")], T + 600_000, at_once)[0]
        assert next_deadline_ms(state, at_once) is None
        assert state.chips[0].upgrades == ()

    def test_of_a_repeated_occurrence_counts_from_the_first(self) -> None:
        state = after(healthy(), [DOWN, seen(OCCUR, LINK_DOWN, at=T + 15_000)], T + 20_001)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [UPGRADE_TIME]

    def test_of_a_rule_that_is_new_counts_from_the_faults_own_time(self) -> None:
        """Upstream never upgrades a fault that is older than the rule (device-plugin#3.5)."""
        state = step(healthy(), [DOWN], T + 300_000, rules())[0]
        assert reasons(state) == []
        new = Configured("new", T + 300_000)
        state, (change,) = step(state, [new], T + 300_000, shipped())
        assert (change.kind, change.at_ms) == (ChangeKind.UPGRADED, T + 300_000)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [UPGRADE_TIME]

    def test_of_a_removed_rule_ends_with_the_rule(self) -> None:
        """device-plugin#3.7; the code is at its own level again."""
        state = after(healthy(), [DOWN], T + 30_000)
        state, (change,) = step(state, [Configured("none", T + 40_000)], T + 40_000, rules())
        assert (change.kind, change.new_level) == (ChangeKind.RELEASED, "NotHandleFault")
        assert state.chips[0].faults[LINK_DOWN].level == "NotHandleFault"
        assert next_deadline_ms(state, rules()) is None

    def test_of_a_rule_with_another_level_keeps_its_time(self) -> None:
        state = after(healthy(), [DOWN], T + 30_000)
        harder = rules(c81078603=DurationPolicy(20_000, 60_000, ChipLevel.SEPARATE_NPU))
        state, (change,) = step(state, [Configured("new", T + 40_000)], T + 40_000, harder)
        assert (change.old_level, change.new_level) == ("PreSeparateNPU", "SeparateNPU")
        assert [(r["upgrade_time"], r["fault_level"]) for r in reasons(state)] == [
            (UPGRADE_TIME, "SeparateNPU")
        ]

    def test_to_a_milder_level_is_a_reason_and_no_more(self) -> None:
        """Nothing lowers a level (device-plugin#3.8), in no place of the document."""
        milder = rules(c80E3A201=DurationPolicy(5_000, 5_000, ChipLevel.SUB_HEALTH_FAULT))
        state = step(healthy(), [seen(OCCUR, "80E3A201")], T + 60_000, milder)[0]
        (entry,) = document(state).faults
        assert entry.fault_level == "SeparateNPU"
        assert entry.fault_time_and_level_map is not None
        assert entry.fault_time_and_level_map["80E3A201"].fault_level == "SeparateNPU"
        assert [reason["fault_level"] for reason in reasons(state)] == ["SubHealthFault"]

    def test_of_an_unknown_code_follows_its_severity_too(self) -> None:
        rule = rules(c80ABCDEF=DurationPolicy(5_000, 5_000, ChipLevel.RESTART_REQUEST))
        minor = seen(OCCUR, "80ABCDEF", severity=Severity.MINOR)
        state = step(healthy(), [minor], T + 6_000, rule)[0]
        assert state.chips[0].level is ChipLevel.RESTART_REQUEST
        critical = seen(OCCUR, "80ABCDEF", at=T + 7_000, severity=Severity.CRITICAL)
        state = step(state, [critical], T + 7_000, rule)[0]
        assert state.chips[0].level is ChipLevel.SEPARATE_NPU


class TestDocument:
    def test_of_a_chip_code_isolates_the_chip_until_the_release(self) -> None:
        rule = rules(c80E21007=DurationPolicy(5_000, 6_000, ChipLevel.SEPARATE_NPU))
        state = step(healthy(), [seen(OCCUR, "80E21007")], T + 5_001, rule)[0]
        gone = seen(RECOVER, "80E21007", at=T + 10_000)
        for now, inputs in ((5_001, []), (10_000, [gone]), (16_000, [])):
            state = step(state, inputs, T + now, rule)[0]
            info = document(state)
            assert (info.unhealthy, info.free) == ((DEVICE,), ("Ascend910-1",))
            assert [fault.fault_level for fault in info.faults] == ["SeparateNPU"]
        assert document(step(state, [], T + 16_001, rule)[0]).unhealthy == ()

    def test_shows_a_code_that_is_gone_only_while_it_matters(self) -> None:
        """``PreSeparateNPU`` does not hurt a chip in use: upstream has no entry then.

        Source: docs/spec/device-plugin.md#1.3.
        """
        rule = rules(c80E21007=DurationPolicy(5_000, 60_000, ChipLevel.PRE_SEPARATE_NPU))
        reports = [seen(OCCUR, "80E21007"), seen(RECOVER, "80E21007", at=T + 10_000)]
        state = step(healthy(), reports, T + 10_000, rule)[0]
        assert [fault.npu_name for fault in document(state).faults] == [DEVICE]
        used = document(state, ChipAllocation(frozenset({DEVICE})))
        assert (used.faults, used.unhealthy) == ((), ())
        assert used.upgrade_reasons == document(state).upgrade_reasons


class TestAdopted:
    """Started without a journal: the document alone contains the upgrade."""

    FOUND = Adopted(LINK, LINK_DOWN, FAULT_DURATION, T - 500_000, T)

    def test_upgrade_of_a_link_that_is_down_keeps_its_time(self) -> None:
        state = after(healthy(), [DOWN, self.FOUND], T + 600_000)
        assert [reason["upgrade_time"] for reason in reasons(state)] == [T - 500_000]

    def test_upgrade_of_a_link_that_is_up_is_released_in_time(self) -> None:
        state = after(healthy(), [self.FOUND], T + 60_000)
        assert document(state).network_unhealthy == (DEVICE,)
        assert document(after(state, [], T + 60_001)).network_unhealthy == ()

    def test_upgrade_that_the_journal_knows_is_not_replaced(self) -> None:
        state = after(healthy(), [DOWN], T + 30_000)
        assert after(state, [self.FOUND], T + 30_000) is state

    def test_is_what_a_document_gives_to_an_agent_without_a_journal(self) -> None:
        written = document(after(healthy(), [DOWN], T + 20_001))
        data = encode(written, FAMILIES["Ascend910B"])
        made = DeviceInfoDocument("node-1", healthy)
        found = Document(made.namespace, made.name, data, {})
        now = T + 300_000
        isolation = made.restore_isolation(found, now, has_journal=False)
        state = after(PolicyState("node-1", "boot"), [*isolation, *made.restore_from(found)], now)
        assert document(state).faults == written.faults
        assert document(state).upgrade_reasons == written.upgrade_reasons
        gone = seen(ABSENT, LINK_DOWN, at=T + 300_000)
        state = after(state, [*answered(0, at=T + 300_000), gone], T + 360_001)
        assert document(state).upgrade_reasons == "{}"


def test_answer_of_a_source_does_not_move_a_deadline() -> None:
    state = after(healthy(), [DOWN])
    state = after(state, [SourceAnswered("links", LINK, T + 5)])
    assert next_deadline_ms(state, shipped()) == T + 20_001
