"""The frequency rule: what is counted, when a code is upgraded and released.

The worked examples are those of ``device-plugin#8.1``; what happens there in a cycle happens at its
millisecond here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.policy.state import Acknowledged, ChangeKind, Configured, PolicyState
from agent.policy.step import ONCE_VISIBLE_MS, next_deadline_ms, step
from agent.publishing.chip_lists import render
from contract.codes.catalogue import shipped
from contract.codes.chip_codes import LINK_DOWN
from contract.codes.levels import ChipLevel
from contract.codes.policies import FAULT_DURATION, FAULT_FREQUENCY, DurationPolicy
from contract.observation import Assertion
from tests.agent.policy.builders import NODE, T, after, healthy, inventory, seen
from tests.agent.policy.frequencies import (
    CODE,
    DAY,
    FREQ3,
    MANUAL,
    OCCUR,
    ONCE,
    RECOVER,
    occurs,
    rule,
    rules,
)
from tests.agent.policy.worked_examples import judge

if TYPE_CHECKING:
    from agent.policy.step import Input
    from contract.codes.catalogue import Catalogue
    from contract.documents.device_info import DeviceInfo

PRESENT, ABSENT = Assertion.PRESENT, Assertion.ABSENT
OTHER = "80CB8002"
DEVICE = "Ascend910-0"


def document(state: PolicyState, chips: int = 2) -> DeviceInfo:
    return render(state, inventory(chips), 1_700_000_100)


def upgrades(state: PolicyState, chip: int = 0) -> list[tuple[str, str, int]]:
    return [(u.code, u.level, u.upgraded_at_ms) for u in state.chips[chip].upgrades]


def reasons(state: PolicyState) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(document(state).upgrade_reasons)
    return found


class TestExamples:
    def test_ex_15_to_17_third_occurrence_isolates(self) -> None:
        state = after(healthy(), occurs(T, T + 10_000), T + 10_000, FREQ3)
        judge("EX-15a", document(state), DEVICE)
        third = [seen(RECOVER, CODE, at=T + 15_000), seen(OCCUR, CODE, at=T + 20_000)]
        state, found = step(state, third, T + 20_000, FREQ3)
        judge("EX-15b", document(state), DEVICE)
        assert found[-1].kind is ChangeKind.UPGRADED
        assert found[-1].upgrade == state.chips[0].upgrades[0]
        assert found[-1].because == f"{CODE} occurred 3 times within 86400 s (FaultFrequency)"
        state = after(state, [seen(RECOVER, CODE, at=T + 25_000)], T + 25_000, FREQ3)
        judge("EX-15c", document(state), DEVICE)
        state = after(state, [seen(OCCUR, "80C98008", at=T + 26_000)], T + 26_000, FREQ3)
        judge("EX-17", document(state), DEVICE)

    @pytest.mark.parametrize("anew", [False, True])
    def test_return_counts_if_the_list_did_not_have_it_in_between(self, anew: bool) -> None:
        """Its occurrence event was lost; else its recovery was none, and it is the same one."""
        tables = rules(c80E18005=rule(2, 60))
        state = after(healthy(), [*occurs(T), seen(RECOVER, CODE, at=T + 9)], T + 9, tables)
        back = msgspec.structs.replace(seen(PRESENT, CODE, at=T + 6_000), anew=anew)
        state = after(state, [back], T + 6_000, tables)
        assert bool(upgrades(state)) is anew
        assert state.chips[0].faults[CODE].first_seen_ms == (T + 6_000 if anew else T)

    @pytest.mark.parametrize(("before_edge_ms", "isolated"), [(0, True), (1, False)])
    @pytest.mark.parametrize("within_second_ms", [0, 1, 999])
    def test_ex_16_window_is_in_whole_seconds_and_its_edge_belongs_to_it(
        self, before_edge_ms: int, isolated: bool, within_second_ms: int
    ) -> None:
        tables, now = rules(c80E18005=rule(2, 60)), T + within_second_ms
        inputs = occurs(T - 60_000 - before_edge_ms, now)
        state = after(healthy(), inputs, now, tables)
        assert bool(upgrades(state)) is isolated
        assert document(state).manually_separated == (DEVICE if isolated else "")

    def test_ex_25_fifth_of_five_short_link_outages_isolates(self) -> None:
        """The duration rule feeds the frequency rule; the chip itself stays free."""
        state = healthy()
        for turn in range(5):
            at = T + 150_000 * turn
            state = after(state, [seen(OCCUR, LINK_DOWN, at=at)], at + 20_001, shipped())
            kinds = [reason["upgrade_type"] for reason in reasons(state)[DEVICE]]
            assert kinds == [FAULT_DURATION, FAULT_FREQUENCY][: 1 + (turn == 4)]
            state = after(state, [seen(RECOVER, LINK_DOWN, at=at + 25_000)], at + 85_000, shipped())
            assert len(reasons(state)[DEVICE]) == 1 + (turn == 4)
            state = after(state, [], at + 85_001, shipped())
            assert bool(reasons(state)) is (turn == 4)
        info = document(state)
        assert reasons(state)[DEVICE] == [
            {
                "upgrade_time": T + 620_000,
                "fault_code": "81078603",
                "fault_level": "ManuallySeparateNPU",
                "upgrade_type": "FaultFrequency",
            }
        ]
        assert (info.manually_separated, info.network_unhealthy) == (DEVICE, (DEVICE,))
        assert (info.unhealthy, DEVICE in info.free) == ((), True)
        released_ms = T + 685_000 + 172_800_000
        assert after(state, [], released_ms, shipped()) is state
        assert reasons(after(state, [], released_ms + 1, shipped())) == {}

    def test_ex_28_released_only_by_a_recovery_that_is_old_enough(self) -> None:
        tables = rules(c80E18005=rule(2, 60, ChipLevel.PRE_SEPARATE_NPU, 60))
        state = after(healthy(), occurs(T, T + 1_000), T + 1_000, tables)
        state = after(state, [seen(RECOVER, CODE, at=T + 2_000)], T + 52_000, tables)
        assert upgrades(state) == [(CODE, "PreSeparateNPU", T + 1_000)]
        state = after(state, [seen(OCCUR, CODE, at=T + 53_000)], T + 53_000, tables)
        assert upgrades(state) == [(CODE, "PreSeparateNPU", T + 53_000)]
        state = after(state, [], T + 600_000, tables)
        assert upgrades(state), "the recovery is older than the last occurrence"
        state = after(state, [seen(RECOVER, CODE, at=T + 600_000)], T + 660_000, tables)
        assert upgrades(state)
        state, (change,) = step(state, [], T + 660_001, tables)
        assert upgrades(state) == []
        assert (change.kind, change.at_ms) == (ChangeKind.RELEASED, T + 660_001)
        assert change.upgrade is not None
        assert change.upgrade.upgraded_at_ms == T + 53_000

    def test_ex_52_counters_of_two_codes_are_independent(self) -> None:
        """Upstream empties one of the two (defect K13)."""
        tables = rules(c80E18005=rule(2), c80CB8002=rule(2))
        both = [*occurs(T, T + 10), *occurs(T + 20, T + 30, code=OTHER)]
        state = after(healthy(), both, T + 30, tables)
        assert [code for code, _, _ in upgrades(state)] == [OTHER, CODE]
        counters = state.chips[0].counters
        assert [counters[code].occurred_ms for code in (CODE, OTHER)] == [(), ()]

    def test_ex_53_mild_code_beside_an_isolation_keeps_its_level(self) -> None:
        """Upstream lifts it, too (defect K34)."""
        state = after(healthy(), occurs(T, T + 10, T + 20), T + 20, FREQ3)
        state = after(state, [seen(OCCUR, "80E21007", at=T + 30)], T + 30, FREQ3)
        (entry,) = document(state).faults
        assert entry.fault_level == "ManuallySeparateNPU"
        assert entry.fault_time_and_level_map is not None
        levels = {c: e.fault_level for c, e in entry.fault_time_and_level_map.items()}
        assert levels == {CODE: "ManuallySeparateNPU", "80E21007": "NotHandleFault"}

    def test_ex_56_removed_rule_does_not_disturb_the_counters_of_others(self) -> None:
        """Upstream leaves them full or empties them by chance (defect K13)."""
        tables = rules(c80E18005=rule(2), c80CB8002=rule(2))
        state = after(healthy(), occurs(T, T + 10), T + 10, tables)
        left = rules(c80CB8002=rule(2))
        state = after(state, [Configured("left", T + 20)], T + 20, left)
        assert upgrades(state) == []
        state = after(state, occurs(T + 30, T + 40, code=OTHER, chip=1), T + 40, left)
        assert state.chips[1].counters[OTHER].occurred_ms == ()
        assert upgrades(state, 1) == [(OTHER, "ManuallySeparateNPU", T + 40)]

    def test_ex_58_one_off_events_are_released_too(self) -> None:
        """A notice has no recovery; ours recovers when it is released (defect K14)."""
        tables = rules(c8C204E00=rule(2, 60, ChipLevel.SEPARATE_NPU, 60))
        state = healthy()
        for at in (T, T + 10_000):
            once = seen(ONCE, "8C204E00", at=at)
            state = after(state, [once], at, tables)
            shown = Acknowledged(f"mindx-dl-deviceinfo-{NODE}", state.revision, at + 100)
            released_ms = at + 100 + ONCE_VISIBLE_MS
            state = after(state, [shown], released_ms, tables)
        assert upgrades(state) == [("8C204E00", "SeparateNPU", T + 10_000)]
        assert after(state, [], released_ms + 60_000, tables) is state
        assert upgrades(after(state, [], released_ms + 60_001, tables)) == []

    def test_ex_62_release_counts_from_when_the_recovery_was_reported(self) -> None:
        """Upstream trusts an old stamp, and releases in the cycle of the event."""
        tables = rules(c80E18005=rule(2, 60, MANUAL, 60))
        state = after(healthy(), occurs(T, T + 10), T + 10, tables)
        late = seen(RECOVER, CODE, at=T + 100_000, raised=T + 10)
        state = after(state, [late], T + 160_000, tables)
        assert upgrades(state)
        assert upgrades(after(state, [], T + 160_001, tables)) == []


class TestOccurrence:
    TWICE = rules(c80E18005=rule(2))

    @pytest.mark.parametrize(
        "again",
        [
            [seen(OCCUR, CODE, serial=7, raised=T)],
            [seen(OCCUR, CODE, at=T + 900, serial=8, raised=T + 900)],
            [seen(PRESENT, CODE, at=T + 2_000)],
            [seen(PRESENT, CODE, at=T + 2_000, source="links")],
            [seen(ONCE, CODE, at=T + 900, serial=8)],
            [seen(RECOVER, CODE, at=T + 900), seen(PRESENT, CODE, at=T + 2_000)],
            [seen(RECOVER, CODE, at=T + 900, raised=T - 5), seen(PRESENT, CODE, at=T + 2_000)],
        ],
        ids=("duplicate", "second", "audit", "other source", "notice", "no recovery", "doubt"),
    )
    def test_is_counted_once_whatever_reports_it(self, again: list[Input]) -> None:
        """Upstream counts each, and so isolates a chip for good."""
        first = seen(OCCUR, CODE, serial=7, raised=T)
        state = after(healthy(), [first, *again], T + 60_000, self.TWICE)
        assert upgrades(state) == []
        assert state.chips[0].counters[CODE].occurred_ms == (T,)
        again = [seen(RECOVER, CODE, at=T + 70_000), seen(OCCUR, CODE, at=T + 80_000)]
        assert upgrades(after(state, again, T + 80_000, self.TWICE))

    def test_that_an_audit_found_counts(self) -> None:
        found: list[Input] = [seen(PRESENT, CODE), seen(ABSENT, CODE, at=T + 10)]
        state = after(
            healthy(), [*found, seen(PRESENT, CODE, at=T + 20_000)], T + 20_000, self.TWICE
        )
        assert upgrades(state) == [(CODE, "ManuallySeparateNPU", T + 20_000)]

    def test_whose_recovery_arrived_first_counts(self) -> None:
        swapped = [
            seen(RECOVER, CODE, at=T, serial=1, raised=T - 10),
            seen(OCCUR, CODE, at=T + 5, serial=1, raised=T - 20),
        ]
        tables = rules(c80E18005=rule(1, 60, ChipLevel.SEPARATE_NPU, 60))
        state = after(healthy(), swapped, T + 60_005, tables)
        assert state.chips[0].faults == {}
        assert upgrades(state) == [(CODE, "SeparateNPU", T + 5)]
        assert upgrades(after(state, [], T + 60_006, tables)) == []

    def test_of_one_off_events_is_each_of_them(self) -> None:
        """Also while the one before it is still shown; two reports of the same one count once."""
        first, second = (seen(ONCE, CODE, at=T + n, serial=n, raised=T + n) for n in (1, 2))
        state = after(healthy(), [first, first], T + 3, self.TWICE)
        assert upgrades(state) == []
        state = after(state, [second, first], T + 3, self.TWICE)
        assert upgrades(state) == [(CODE, "ManuallySeparateNPU", T + 2)]

    def test_of_a_code_without_a_rule_leaves_nothing_behind(self) -> None:
        state = after(healthy(), occurs(T, T + 10, code="80E21007"), T + 10, self.TWICE)
        assert state.chips[0].counters == {}

    def test_of_a_code_with_a_duration_rule_is_its_upgrade(self) -> None:
        durations = {CODE: DurationPolicy(5_000, 10_000, ChipLevel.RESTART_NPU)}
        tables = rules(durations, c80E18005=rule(2, 3_600, MANUAL, 60))
        short = [*occurs(T, T + 4_000), seen(RECOVER, CODE, at=T + 8_000)]
        state = after(healthy(), short, T + 30_000, tables)
        assert state.chips[0].counters == {}
        for at in (T + 100_000, T + 200_000):
            state = after(state, [seen(OCCUR, CODE, at=at)], at + 6_000, tables)
            state = after(state, [seen(RECOVER, CODE, at=at + 6_000)], at + 16_001, tables)
        assert upgrades(state) == [(CODE, "ManuallySeparateNPU", T + 205_000)]
        assert after(state, [], T + 276_000, tables) is state
        assert upgrades(after(state, [], T + 276_001, tables)) == [], "60 s after that release"

    def test_while_upgraded_only_makes_the_upgrade_younger(self) -> None:
        state = after(healthy(), occurs(T, T + 10), T + 10, self.TWICE)
        for at in range(T + 1_000, T + 200_000, 1_000):
            again = [seen(RECOVER, CODE, at=at - 1), seen(OCCUR, CODE, at=at)]
            state, found = step(state, again, at, self.TWICE)
            assert [change.kind for change in found] == [ChangeKind.ENDED, ChangeKind.BEGAN]
            assert upgrades(state) == [(CODE, "ManuallySeparateNPU", at)]
            assert state.chips[0].counters[CODE].occurred_ms == ()


class TestState:
    def test_is_all_that_is_remembered_and_bounded(self) -> None:
        tables = rules(c80E18005=rule(100, 60, MANUAL))
        state = healthy()
        for turn in range(500):
            at = T + turn * 700
            restored = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState)
            assert restored == state
            state = after(
                restored,
                [seen(OCCUR, CODE, at=at), seen(RECOVER, CODE, at=at + 1)],
                at + 1,
                tables,
            )
            assert len(state.chips[0].counters[CODE].occurred_ms) <= 99
        assert upgrades(state) == [], "86 in a minute are not 100"

    def test_clock_that_is_set_back_loses_nothing(self) -> None:
        tables = rules(c80E18005=rule(3, 60))
        state = after(healthy(), occurs(T, T + 10), T + 10, tables)
        state = after(state, [seen(RECOVER, CODE, at=T - 900_000)], T - 900_000, tables)
        state = after(state, [seen(OCCUR, CODE, at=T - 890_000)], T - 890_000, tables)
        assert upgrades(state) == [(CODE, "ManuallySeparateNPU", T - 890_000)]

    def test_rule_waits_after_a_start_for_reports_of_sources(self) -> None:
        tables = rules(c80E18005=rule(1, 60, MANUAL, 60))
        state = after(
            healthy(), [seen(OCCUR, CODE), seen(RECOVER, CODE, at=T + 10)], T + 10, tables
        )
        state = msgspec.structs.replace(state, settled_at_ms=T + 905_000)
        assert next_deadline_ms(state, tables) == T + 905_000
        back = seen(PRESENT, CODE, at=T + 901_000)
        assert upgrades(after(state, [back], T + 990_000, tables)) == [
            (CODE, "ManuallySeparateNPU", T + 901_000)
        ]
        assert upgrades(after(state, [], T + 905_000, tables)) == []


class TestConfigured:
    """device-plugin#3.7, EX-40 and EX-55: reasons and key follow the rules as they are now."""

    ISOLATED = after(healthy(), occurs(T, T + 10, T + 20), T + 20, FREQ3)

    def configured(self, tables: Catalogue, state: PolicyState | None = None) -> PolicyState:
        state = self.ISOLATED if state is None else state
        return after(state, [Configured("new", T + 30)], T + 30, tables)

    def test_ex_40_milder_rule_gives_the_key_up_and_no_rule_everything(self) -> None:
        """Upstream leaves the name in the key (defect K33)."""
        mild = rules(c80E18005=rule(3, DAY, ChipLevel.SEPARATE_NPU, 60))
        state = self.configured(mild)
        assert upgrades(state) == [(CODE, "SeparateNPU", T + 20)]
        info = document(state)
        assert (info.manually_separated, info.unhealthy) == ("", (DEVICE,))
        state = self.configured(rules(), state)
        info = document(state)
        assert (info.upgrade_reasons, info.faults[0].fault_level) == ("{}", "RestartNPU")
        assert state.chips[0].counters == {}

    def test_ex_55_rule_that_isolates_now_names_the_chip(self) -> None:
        """Upstream leaves the key empty, and forgets the isolation at a restart (defect K51)."""
        mild = rules(c80E18005=rule(3, DAY, ChipLevel.SEPARATE_NPU, 60))
        state = self.configured(FREQ3, self.configured(mild))
        assert document(state).manually_separated == DEVICE
        assert upgrades(state) == [(CODE, "ManuallySeparateNPU", T + 20)]

    def test_counters_stay_and_may_be_full_now(self) -> None:
        state = after(healthy(), occurs(T, T + 10), T + 10, FREQ3)
        assert self.configured(rules(c80E18005=rule(3, 600)), state) == state
        twice = self.configured(rules(c80E18005=rule(2)), state)
        assert upgrades(twice) == [(CODE, "ManuallySeparateNPU", T + 10)]
        over = after(state, [seen(RECOVER, CODE, at=T + 15)], T + 15, FREQ3)
        tables = rules(c80E18005=rule(2, DAY, MANUAL, 60))
        twice = self.configured(tables, over)
        assert upgrades(twice) == [(CODE, "ManuallySeparateNPU", T + 10)]
        assert next_deadline_ms(twice, tables) == T + 60_016

    def test_shorter_window_counts_from_the_next_occurrence(self) -> None:
        state = after(healthy(), occurs(T, T + 10), T + 10, FREQ3)
        tables = rules(c80E18005=rule(3, 60))
        state = self.configured(tables, state)
        later = [seen(RECOVER, CODE, at=T + 90_000), seen(OCCUR, CODE, at=T + 100_000)]
        state = after(state, later, T + 100_000, tables)
        assert state.chips[0].counters[CODE].occurred_ms == (T + 100_000,)

    def test_levels_of_live_faults_follow_the_table(self) -> None:
        levels = {**shipped().chip_levels, CODE: ChipLevel.SUB_HEALTH_FAULT}
        tables = replace(FREQ3, chip_levels=levels)
        state = after(healthy(), [seen(OCCUR, CODE)], T, FREQ3)
        state, (change,) = step(state, [Configured("new", T + 9)], T + 9, tables)
        assert (change.kind, change.old_level, change.new_level) == (
            ChangeKind.CHANGED,
            "RestartNPU",
            "SubHealthFault",
        )
        assert document(state).unhealthy == ()
        assert step(state, [Configured("new", T + 10)], T + 10, tables) == (state, ())

    def test_release_window_is_the_one_of_now(self) -> None:
        never = after(self.ISOLATED, [seen(RECOVER, CODE, at=T + 25)], T + 25, FREQ3)
        assert next_deadline_ms(never, FREQ3) is None
        tables = rules(c80E18005=rule(3, DAY, MANUAL, 60))
        state = self.configured(tables, never)
        assert next_deadline_ms(state, tables) == T + 60_026
