"""The tracked state from the kernel's log, and how far the log was read."""

from __future__ import annotations

import pytest

from collectors.kernel_log.messages import MessageMatch
from collectors.kernel_log.tracker import KernelLogTracker, LogTime, Position, SavedLogPosition
from contract.codes.host_codes import (
    DRIVER_ERROR,
    HUNG_TASK,
    KERNEL_LOG,
    KERNEL_OOPS,
    MEMORY_ERROR,
    OOM_KILL,
    SOFT_LOCKUP,
)
from contract.observation import Gap, Observation
from tests.collectors.scripted import word

NOW_MS = 1_800_000_000_000
HOLD = 300.0


def at(seconds: float) -> LogTime:
    return LogTime(NOW_MS + round(seconds * 1000), 50 + seconds)


def tracker(*tracked: str, kept: SavedLogPosition | None = None) -> KernelLogTracker:
    return KernelLogTracker(KERNEL_LOG, tracked, kept, lambda _: HOLD)


def test_a_lockup_holds_until_it_was_not_repeated_for_long_enough() -> None:
    known = tracker()
    known.start_boot_log(at(0), same_boot=True)
    (observe,) = known.observe_message(MessageMatch(SOFT_LOCKUP, "stuck"), at(0), 0.0)
    assert isinstance(observe, Observation)
    assert (word(observe), observe.text) == (f"host 0 Kernel occur {SOFT_LOCKUP}", "stuck")
    assert known.observe_message(MessageMatch(SOFT_LOCKUP, "stuck"), at(200), 0.0) == []
    assert known.next_end() == 50 + 200 + HOLD
    assert known.expire(at(499)) == []
    assert list(map(word, known.expire(at(500)))) == [f"host 0 Kernel absent {SOFT_LOCKUP}"]
    assert known.next_end() is None
    assert len(known.observe_message(MessageMatch(SOFT_LOCKUP, "stuck"), at(600), 0.0)) == 1


def test_each_kill_is_reported() -> None:
    known = tracker()
    for _ in range(2):
        (observe,) = known.observe_message(
            MessageMatch(OOM_KILL, "Killed process 9 (x)"), at(0), 0.0
        )
        assert word(observe) == f"host 0 Host Memory once {OOM_KILL}"
    assert known.next_end() is None


def test_a_restart_goes_on_with_the_time_that_is_left() -> None:
    kept = SavedLogPosition(
        "boot", 9, {SOFT_LOCKUP: NOW_MS - 100_000, DRIVER_ERROR: NOW_MS - 301_000}
    )
    known = tracker(SOFT_LOCKUP, DRIVER_ERROR, HUNG_TASK, kept=kept)
    assert known.start_boot_log(at(0), same_boot=True) == []
    assert list(map(word, known.expire(at(0)))) == [f"host 0 NPU Driver absent {DRIVER_ERROR}"]
    assert list(map(word, known.expire(at(200)))) == [f"host 0 Kernel absent {SOFT_LOCKUP}"]
    assert list(map(word, known.expire(at(300)))) == [f"host 0 Kernel absent {HUNG_TASK}"]


def test_codes_of_another_boot_end() -> None:
    kept = SavedLogPosition("boot", 9, {SOFT_LOCKUP: NOW_MS - 1})
    gone = tracker(SOFT_LOCKUP, kept=kept).start_boot_log(at(0), same_boot=False)
    assert list(map(word, gone)) == [f"host 0 Kernel absent {SOFT_LOCKUP}"]


def test_an_old_message_is_history_with_its_own_time() -> None:
    known = tracker()
    (observe,) = known.observe_message(MessageMatch(HUNG_TASK, "hung"), at(0), 1000.0)
    assert isinstance(observe, Observation)
    assert (observe.seen_at_ms, observe.driver_raised_at_ms) == (NOW_MS, NOW_MS - 1_000_000)
    assert list(map(word, known.expire(at(0)))) == [f"host 0 Kernel absent {HUNG_TASK}"]


def test_a_clock_that_was_set_back_makes_nothing_last_longer() -> None:
    kept = SavedLogPosition("boot", 9, {SOFT_LOCKUP: NOW_MS + 9_000_000})
    known = tracker(SOFT_LOCKUP, kept=kept)
    known.start_boot_log(at(0), same_boot=True)
    assert known.next_end() == 50 + HOLD


@pytest.mark.parametrize(
    ("sequences", "gaps"),
    [((7, 8, 9), []), ((7, 9, 12), ["1 records", "2 records"]), ((0, 1), ["9 records"])],
)
def test_gaps_of_sequence_numbers(sequences: tuple[int, ...], gaps: list[str]) -> None:
    position = Position(KERNEL_LOG, None if sequences[0] else -10)
    found = [gap for one in sequences for gap in position.record_read(one, NOW_MS)]
    assert all(isinstance(gap, Gap) for gap in found)
    assert [" ".join(word(gap).split()[1:3]) for gap in found] == gaps
    assert position.sequence == sequences[-1]


def test_an_overrun_is_a_gap_even_if_no_number_is_missing() -> None:
    position = Position(KERNEL_LOG, 4)
    position.record_overrun()
    assert len(position.record_read(5, NOW_MS)) == 1
    assert position.record_read(6, NOW_MS) == []


def test_a_log_that_begins_again_is_followed() -> None:
    position = Position(KERNEL_LOG, 100)
    assert not position.is_news(7)
    assert position.finish_reading()
    assert position.sequence == 7
    assert position.is_news(8)
    again = Position(KERNEL_LOG, 100)
    assert not again.finish_reading(), "nothing was there"
    assert not again.is_news(100)
    assert not again.finish_reading(), "nothing is new"


def test_what_the_kernel_does_not_repeat_holds_until_the_next_boot() -> None:
    known = tracker()
    known.observe_message(MessageMatch(KERNEL_OOPS, "Oops"), at(0), 0.0)
    known.observe_message(MessageMatch(MEMORY_ERROR, "Memory failure"), at(0), 0.0)
    assert known.expire(at(1e9)) == []
    assert known.next_end() is None
    gone = tracker(KERNEL_OOPS).start_boot_log(at(0), same_boot=False)
    assert list(map(word, gone)) == [f"host 0 Kernel absent {KERNEL_OOPS}"]


def test_silence_that_proves_nothing_begins_anew() -> None:
    known = tracker()
    known.observe_message(MessageMatch(SOFT_LOCKUP, "stuck"), at(0), 0.0)
    assert known.expire(at(300), lambda _: False) == []
    assert known.next_end() == 50 + 300 + HOLD
    known.restart_silence((SOFT_LOCKUP, HUNG_TASK), at(400))
    assert known.lasting == {SOFT_LOCKUP}
    assert known.next_end() == 50 + 400 + HOLD
