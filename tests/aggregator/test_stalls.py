"""Working for too long is a stall, waiting is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.stalls import Stalls
from tests.aggregator.nodes import moment

if TYPE_CHECKING:
    from aggregator.moment import Moment


def test_stalls() -> None:
    now = moment(0)

    def clock() -> Moment:
        return now

    stalls = Stalls(clock)
    with stalls.busy("merge"):
        now = moment(30)
        with stalls.busy("write"):
            now = moment(61)
            assert stalls.stalled() == ("merge for 61 s",)
    now = moment(1000)
    assert stalls.stalled() == ()
