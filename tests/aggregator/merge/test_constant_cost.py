"""A change costs the same in a cluster of any size: lines of Python are counted, not timed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stores.base import Changed
from tests.aggregator.nodes import T0, faulty, healthy, instant, report
from tests.aggregator.pipelines import WrittenPipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

SIZES = (400, 1600)
"""In both, the shard of ``NODE`` is full."""
NODE = "n0000"


def lines_run_by(call: Callable[[], object]) -> int:
    """Return how many lines of Python run in ``call``, each iteration of a loop for itself."""
    lines = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def lines_of_a_change(nodes: int) -> dict[str, int]:
    """Return the lines that a fault and a recovery on the first of ``nodes`` run."""
    site = WrittenPipeline(*(report(f"n{number:04}", healthy()) for number in range(nodes)))
    pipeline, shown = site.pipeline, []

    def change(data: dict[str, str], at: float) -> None:
        event = Changed(report(NODE, data))
        pipeline.observe_event(site.devices, event, instant(at))
        names = pipeline.step(instant(at))
        for name in names:
            value = pipeline.value(name)
            shown.append(value.text)
            pipeline.acknowledged(name, value.revision)
        pipeline.step(instant(at))

    # The first change fills caches, such as those of codes.
    change(faulty(update_time=T0 + 1), 1)
    change(healthy(T0 + 2), 2)
    shown.clear()
    lines = {
        "fault": lines_run_by(lambda: change(faulty(update_time=T0 + 3), 3)),
        "recovery": lines_run_by(lambda: change(healthy(T0 + 4), 4)),
    }
    assert len(shown) == len(lines), "each change is in one document"
    assert shown[0] != shown[1]
    return lines


def test_a_change_runs_as_many_lines_in_a_cluster_four_times_as_large() -> None:
    small, large = map(lines_of_a_change, SIZES)
    for change, lines in small.items():
        assert lines > 100, "the change was counted"
        assert large[change] == lines, change
