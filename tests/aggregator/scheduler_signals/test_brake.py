"""When nothing may get stricter."""

from __future__ import annotations

import pytest

from aggregator.scheduler_signals.service import why_held


@pytest.mark.parametrize(
    ("leads_for_ms", "alarm", "unread", "reason"),
    [
        (None, False, (), "does not lead"),
        (14_999, False, (), "less than 15 s"),
        (15_000, True, (), "at once"),
        (15_000, False, ("b", "a"), "a, b"),
        (15_000, False, (), None),
    ],
)
def test_nothing_gets_stricter_while_silence_may_be_our_own(
    leads_for_ms: int | None, alarm: bool, unread: tuple[str, ...], reason: str | None
) -> None:
    held = why_held(leads_for_ms=leads_for_ms, silence_alarm=alarm, unread=unread)
    assert held is None if reason is None else held is not None and reason in held
