"""Every document gets an event at least every 60 s, and no more often than it must."""

from __future__ import annotations

from aggregator.publish.document_writer import TouchSchedule
from tests.aggregator.nodes import instant

NAMES = [f"cluster-info-device-{number}" for number in range(12)]


def test_after_a_start_documents_are_spread_over_15_s() -> None:
    touches = [TouchSchedule(45, name) for name in NAMES]
    first = [one.due_ms(instant(100)) for one in touches]
    assert all(0 <= due <= 15_000 for due in first)
    assert len(set(first)) == len(NAMES)
    assert [one.due_ms(instant(100)) for one in touches] == first


def test_a_touch_or_write_is_due_one_period_later() -> None:
    touches = TouchSchedule(45, NAMES[0])
    touches.written(instant(10))
    assert touches.due_ms(instant(54.9)) == 100
    assert touches.due_ms(instant(55)) == 0
    touches.written(instant(55))
    assert touches.due_ms(instant(56)) == 44_000


def test_a_touch_that_failed_is_tried_again_before_a_reader_minds() -> None:
    touches = TouchSchedule(45, NAMES[0])
    touches.failed(instant(10))
    assert touches.due_ms(instant(10)) == 5000
    hasty = TouchSchedule(1, NAMES[0])
    hasty.failed(instant(10))
    assert hasty.due_ms(instant(10)) == 1000
