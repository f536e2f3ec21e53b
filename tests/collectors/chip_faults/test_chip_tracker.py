"""The rules of the tracked state: events at once, audits compared only when they may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.chip_faults.chip_tracker import ChipQuery, ChipTracker
from collectors.driver_list_tracker import LAG_SECONDS
from contract.codes.chip_codes import CARD_DROP
from contract.codes.levels import Severity
from contract.observation import (
    Assertion,
    Observation,
    Report,
    SourceAnswered,
    SourceBlind,
    chip_subject,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

CHIP = chip_subject(3)
HBM = "80E01801"
AIC = "80C98009"
LOST_AFTER = 300.0


def seen(
    code: str,
    assertion: Assertion,
    at: float,
    *,
    serial: int = 1,
    severity: Severity | None = Severity.MAJOR,
) -> Observation:
    now_ms = round(at * 1000)
    return Observation("test", CHIP, code, assertion, now_ms, severity, now_ms - 5, serial)


@dataclass
class Chip:
    """The tracked state, and the state that a reader derives from its reports."""

    tracker: ChipTracker
    reported: set[str] = field(default_factory=set)
    reports: list[Report] = field(default_factory=list)

    def _take(self, reports: list[Report]) -> list[str]:
        for report in reports:
            if not isinstance(report, Observation):
                continue
            if report.assertion in (Assertion.OCCUR, Assertion.PRESENT):
                self.reported.add(report.code)
            elif report.assertion in (Assertion.RECOVER, Assertion.ABSENT):
                self.reported.discard(report.code)
        assert self.reported == self.tracker.present
        self.reports += reports
        return [_short(report) for report in reports]

    def occur(self, code: str, at: float, serial: int = 1) -> list[str]:
        return self._take(
            self.tracker.apply_event(seen(code, Assertion.OCCUR, at, serial=serial), at)
        )

    def recover(self, code: str, at: float, serial: int = 1) -> list[str]:
        return self._take(
            self.tracker.apply_event(seen(code, Assertion.RECOVER, at, serial=serial), at)
        )

    def once(self, code: str, at: float) -> list[str]:
        return self._take(self.tracker.apply_event(seen(code, Assertion.ONCE, at), at))

    def codes(self, codes: Iterable[str], at: float) -> list[str]:
        return self._take(self.tracker.observe_codes(codes, at, round(at * 1000)))

    def health(self, at: float, *, ready: bool = True) -> list[str]:
        return self._take(self.tracker.observe_health(ready, at, round(at * 1000)))

    def fail(self, query: ChipQuery, at: float, *, by_chip: bool = True) -> list[str]:
        now_ms = round(at * 1000)
        return self._take(self.tracker.observe_failure(query, "why", at, now_ms, by_chip=by_chip))


def _short(report: Report) -> str:
    if isinstance(report, Observation):
        return f"{report.assertion} {report.code}"
    return {SourceBlind: "blind", SourceAnswered: "answered"}.get(type(report), "other")


def chip(*tracked: str, answered: bool = True) -> Chip:
    made = Chip(ChipTracker("test", CHIP, tracked, LOST_AFTER), set(tracked))
    if answered:
        made.codes(tracked, -100.0)
        made.health(-100.0)
    return made


def test_the_first_answers() -> None:
    new = chip(answered=False)
    assert new.codes([HBM], 0.0) == [f"present {HBM}"]
    assert new.health(0.0) == ["answered"]
    assert new.codes([HBM], 10.0) == []


@pytest.mark.parametrize("codes", [(HBM, AIC), (AIC, HBM)])
def test_first_list_is_reported_in_its_order(codes: tuple[str, str]) -> None:
    one = chip()
    assert one.codes(codes, 1.0) == [f"present {code}" for code in codes]
    assert one.codes([], 2.0) == [f"absent {code}" for code in sorted(codes)]


def test_tracked_codes_of_the_journal_are_compared_with_the_list() -> None:
    restarted = chip(HBM, AIC, answered=False)
    assert restarted.codes([HBM, "80E18402"], 0.0) == [f"absent {AIC}", "present 80E18402"]


def test_events_are_reported_at_once() -> None:
    one = chip()
    assert one.occur(HBM, 1.0) == [f"occur {HBM}"]
    assert one.tracker.next_check(ChipQuery.CODES) == 1.0 + LAG_SECONDS
    assert one.tracker.next_check(ChipQuery.HEALTH) is None
    assert one.recover(HBM, 1.5) == [f"recover {HBM}"]
    assert one.tracker.next_check(ChipQuery.CODES) == 1.5 + LAG_SECONDS
    assert one.codes([], 3.5) == []
    assert one.tracker.next_check(ChipQuery.CODES) is None


def test_a_list_that_lags_is_not_compared() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    assert one.codes([], 2.9) == []
    assert one.codes([], 3.0) == [f"absent {HBM}"]


def test_other_codes_of_a_lagging_list_are_compared() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    assert one.codes([AIC], 1.1) == [f"present {AIC}"]


def test_a_recovery_that_was_none() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    one.recover(HBM, 5.0)
    assert one.codes([HBM], 6.0) == []
    assert one.codes([HBM], 7.0) == [f"present {HBM}"]
    returned = one.reports[-1]
    assert isinstance(returned, Observation)
    assert returned.seen_at_ms == 7000
    assert returned.driver_raised_at_ms == 995
    assert returned.text == "still listed after its recovery"


def test_a_repeated_occurrence_changes_nothing_and_a_new_one_is_reported() -> None:
    one = chip()
    one.codes([HBM], 0.0)
    event = seen(HBM, Assertion.OCCUR, 1.0)
    # A poll saw it first; the event brings the severity.
    assert one.tracker.apply_event(event, 1.0) == [event]
    assert one.tracker.apply_event(event, 1.1) == []
    one.reported.add(HBM)
    assert one.occur(HBM, 1.2, serial=2) == [f"occur {HBM}"]


def test_one_off_events_are_tracked_nowhere() -> None:
    one = chip()
    assert one.once(HBM, 1.0) == [f"once {HBM}"]
    assert one.once(HBM, 1.0) == [f"once {HBM}"]
    assert one.codes([], 10.0) == []
    assert one.tracker.next_check(ChipQuery.CODES) is None


def test_blind_once_and_answered_once() -> None:
    one = chip()
    assert one.fail(ChipQuery.CODES, 1.0) == ["blind"]
    assert one.fail(ChipQuery.CODES, 2.0) == []
    assert one.fail(ChipQuery.HEALTH, 2.0) == []
    assert one.codes([], 3.0) == []
    assert one.health(3.0) == ["answered"]
    assert one.codes([], 4.0) == []


def test_a_recovery_waits_while_the_code_query_is_blind() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    one.fail(ChipQuery.CODES, 2.0)
    assert one.recover(HBM, 3.0) == []
    assert one.tracker.present == {HBM}
    assert one.codes([], 6.0) == ["answered", f"recover {HBM}"]
    recovery = one.reports[-1]
    assert isinstance(recovery, Observation)
    assert recovery.seen_at_ms == 3000


def test_a_waiting_recovery_that_was_none() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    one.fail(ChipQuery.CODES, 2.0)
    one.recover(HBM, 3.0)
    assert one.codes([HBM], 6.0) == ["answered"]
    assert one.codes([], 7.0) == [f"absent {HBM}"]


def test_a_waiting_recovery_is_reported_when_the_answer_is_too_early_to_compare() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    one.fail(ChipQuery.CODES, 2.0)
    one.recover(HBM, 3.0)
    assert one.codes([HBM], 3.5) == ["answered", f"recover {HBM}"]
    assert one.codes([HBM], 5.0) == [f"present {HBM}"]


def test_a_waiting_recovery_is_reported_before_the_next_occurrence() -> None:
    one = chip()
    one.occur(HBM, 1.0)
    one.fail(ChipQuery.CODES, 2.0)
    one.recover(HBM, 3.0)
    assert one.occur(HBM, 4.0, serial=2) == [f"recover {HBM}", f"occur {HBM}"]


def test_a_recovery_before_the_first_answer_waits() -> None:
    restarted = chip(HBM, answered=False)
    assert restarted.recover(HBM, 1.0) == []
    assert restarted.codes([], 1.1) == [f"recover {HBM}"]


def test_a_dropped_card_is_not_blind() -> None:
    one = chip(HBM)
    assert one.health(1.0, ready=False) == [f"present {CARD_DROP}"]
    assert one.fail(ChipQuery.CODES, 1.1) == []
    assert one.tracker.present == {HBM, CARD_DROP}
    assert one.health(6.0, ready=False) == []
    assert one.health(11.0) == [f"absent {CARD_DROP}"]
    assert one.fail(ChipQuery.CODES, 11.0) == ["blind"]


def test_a_card_that_was_dropped_before_the_start() -> None:
    new = chip(answered=False)
    assert new.fail(ChipQuery.CODES, 0.0) == ["blind"]
    assert new.health(0.0, ready=False) == ["answered", f"present {CARD_DROP}"]


def test_a_remembered_drop_waits_for_the_health_answer() -> None:
    restarted = chip(CARD_DROP, answered=False)
    assert restarted.codes([], 0.0) == []
    assert restarted.health(0.0, ready=False) == ["answered"]
    assert restarted.health(5.0) == [f"absent {CARD_DROP}"]


def test_a_drop_that_the_driver_reports_and_lists() -> None:
    one = chip()
    assert one.occur(CARD_DROP, 1.0) == [f"occur {CARD_DROP}"]
    assert one.tracker.next_check(ChipQuery.HEALTH) == 3.0
    assert one.health(1.1) == []
    assert one.codes([CARD_DROP], 3.0) == []
    assert one.health(3.0) == []
    assert one.tracker.next_check(ChipQuery.HEALTH) is None
    assert one.recover(CARD_DROP, 9.0) == [f"recover {CARD_DROP}"]
    assert one.health(9.5, ready=False) == []
    assert one.codes([CARD_DROP], 9.6) == []
    assert one.health(11.0, ready=False) == [f"present {CARD_DROP}"]
    assert one.codes([], 11.1) == []
    assert one.health(16.0) == [f"absent {CARD_DROP}"]


def test_a_drop_that_only_an_event_reported_ends_with_the_list() -> None:
    one = chip()
    one.occur(CARD_DROP, 1.0)
    one.fail(ChipQuery.CODES, 3.0)
    assert one.health(3.0) == []
    assert one.codes([], 8.0) == ["answered", f"absent {CARD_DROP}"]


def test_a_waiting_recovery_of_a_drop() -> None:
    one = chip()
    one.occur(CARD_DROP, 1.0)
    one.fail(ChipQuery.CODES, 2.0)
    assert one.recover(CARD_DROP, 3.0) == []
    assert one.codes([], 6.0) == ["answered", f"recover {CARD_DROP}"]


def test_a_silent_card_is_lost() -> None:
    one = chip()
    for at in range(5, 305, 5):
        recorded = one.fail(ChipQuery.CODES, float(at)) + one.fail(ChipQuery.HEALTH, float(at))
        assert recorded == (["blind"] if at == 5 else [])
    assert one.fail(ChipQuery.HEALTH, 305.0) == [f"present {CARD_DROP}"]
    assert one.fail(ChipQuery.CODES, 310.0) == []
    assert one.codes([], 320.0) == []
    assert one.health(320.0) == ["answered", f"absent {CARD_DROP}"]


@pytest.mark.parametrize("spared", ["a health answer", "not by the chip"])
def test_a_card_is_not_lost_by_what_is_not_its_silence(spared: str) -> None:
    one = chip()
    for at in range(5, 1000, 5):
        one.fail(ChipQuery.CODES, float(at), by_chip=spared != "not by the chip")
        if spared == "a health answer":
            one.health(float(at))
        else:
            one.fail(ChipQuery.HEALTH, float(at), by_chip=False)
    assert one.tracker.present == set()


CODES = (HBM, AIC, CARD_DROP)
STEP = st.one_of(
    st.tuples(st.just("turn"), st.sampled_from(CODES), st.booleans()),
    st.tuples(st.just("once"), st.sampled_from(CODES)),
    st.tuples(st.just("audit")),
    st.tuples(st.just("fail"), st.sampled_from(ChipQuery), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.01, 4.0)),
)


@pytest.mark.slow
@given(st.lists(STEP, max_size=40), st.floats(0.0, 1.0))
def test_late_audit_corrects_every_history(steps: list[Any], lag: float) -> None:
    """Events may be lost, lists may lag, queries may fail: two quiet seconds repair it all."""
    at = 0.0
    truth: set[str] = set()
    changes: list[tuple[float, frozenset[str]]] = [(-100.0, frozenset())]

    def listed() -> frozenset[str]:
        return [codes for since, codes in changes if since + lag <= at][-1]

    one = chip(answered=False)
    for serial, step in enumerate(steps):
        match step:
            case ("turn", str() as code, delivered):
                truth ^= {code}
                changes.append((at, frozenset(truth)))
                if delivered:
                    (one.occur if code in truth else one.recover)(code, at, serial)
            case ("once", str() as code):
                one.once(code, at)
            case ("audit",):
                one.codes(listed(), at)
                one.health(at)
            case ("fail", ChipQuery() as query, by_chip):
                one.fail(query, at, by_chip=by_chip)
            case ("wait", float() as seconds):
                at += seconds
    at += LAG_SECONDS
    one.codes(listed(), at)
    one.health(at)
    assert one.tracker.present == truth
    assert one.reported == truth
    assert one.tracker.next_check(ChipQuery.CODES) is None
    assert one.tracker.next_check(ChipQuery.HEALTH) is None
