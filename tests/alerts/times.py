"""How long after its cause each alert fires and resolves, and the table of it in the documents.

The times are those of Alertmanager's messages, so they include everything between a cause and
the program that a person reads.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tests.alerts.files import all_rules
from tests.alerts.watcher import SCRAPE_SECONDS, seconds_of, windows
from tests.parts.deadlines import patience, wait_until
from tests.parts.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.alerts.watcher import Notice, Watcher

FACTOR = 20
"""Divides the durations of the rules in ``make test-alerts``."""
DOCUMENT = ROOT / "docs" / "alerts.md"
_TABLE = re.compile(r"(?<=<!-- times -->\n).*(?=<!-- end of times -->)", re.DOTALL)
_SLACK_SECONDS = 10
_FIRST_SECONDS = 120.0
"""How long a test waits for an alert; how soon it must come is judged afterwards."""
_RULES = {rule.name: rule for rule in all_rules()}
NOT_MEASURED = {
    # It needs a source that is silent about a chip without a driver call that hangs.
    "NpuVigilChipBlind",
    # It needs a full journal.
    "NpuVigilRowsDropped",
    # It needs a clock that is off, so a library that changes the time of a process.
    "NpuVigilClockOff",
    # It needs a policy of the aggregator and frequent faults.
    "NpuVigilChipsIsolatedByAggregator",
    # They need an API server that refuses, an agent that loses it, and documents that are full.
    "NpuVigilNotPublished",
    "NpuVigilPublicationRefused",
    "NpuVigilStoreAway",
    "NpuVigilAgentStoreAway",
    "NpuVigilDpuFault",
    "NpuVigilAggregatorNotPublishing",
    "NpuVigilNodesLeftOut",
    # It needs node_taints.
    "NpuVigilTaintsWait",
    # It needs a broker.
    "NpuVigilHistoryNotAcknowledged",
    # It needs a certificate that ends soon.
    "NpuVigilCertificateEnds",
    # They need `vigil elastic`.
    "NpuVigilElasticStandingStill",
    "NpuVigilElasticCauseNotKnown",
}
"""Alerts that no part of ``make test-alerts`` causes yet; promtool raises them in ``make test``."""
_PLATFORM = {"agent", "aggregator", "elastic"}


class Time(NamedTuple):
    """How long an alert took after the begin and after the end of its cause, in seconds."""

    fires: float
    resolves: float


class Product(NamedTuple):
    """What the product itself needs to notice that a cause begins or ends, in seconds."""

    begin: float = 0
    end: float = 0


_AT_ONCE = Product()


class Times:
    """The times of all alerts, by rule and cause."""

    def __init__(self) -> None:
        self._measured: defaultdict[tuple[str, str], list[Time]] = defaultdict(list)
        self._limits: dict[tuple[str, str], Time] = {}

    def measure(
        self,
        watcher: Watcher,
        cause: str,
        expected: Mapping[str, Mapping[str, str]],
        begin: Callable[[], object],
        end: Callable[[], object],
        *,
        product: Product = _AT_ONCE,
        inhibited: frozenset[str] = frozenset(),
    ) -> None:
        """Make a cause and end it: the alerts of ``expected`` fire, no others, and resolve.

        ``expected`` has labels of each alert. Fails when another alert is pending or fires with
        them, when one goes to another receiver than its severity and component demand, and when
        one is late. Alertmanager sends no end of the ``inhibited``: theirs is that of Prometheus.
        """
        watcher.resolve()
        begun = time.monotonic()
        begin()
        fired = _notices(watcher, begun, "firing", expected)
        at_the_same_time = watcher.alerts("firing", "pending")
        ended = time.monotonic()
        end()
        over: dict[str, float] = {}
        for name in inhibited:
            wait_until(lambda name=name: name not in watcher.alerts("firing"), name, _FIRST_SECONDS)  # type: ignore[misc]
            over[name] = time.monotonic()
        sent = {name: expected[name] for name in expected.keys() - inhibited}
        resolved = _notices(watcher, ended, "resolved", sent)
        over |= {name: notice.at for name, notice in resolved.items()}
        watcher.resolve()
        others = at_the_same_time.keys() ^ expected.keys()
        assert not others, f"not as expected: {sorted(others)}"
        late: list[str] = []
        for name, labels in expected.items():
            assert labels.items() <= fired[name].labels.items(), fired[name]
            assert fired[name].receiver == _receiver(fired[name]), fired[name]
            taken = Time(fired[name].at - begun, over[name] - ended)
            self._measured[name, cause].append(taken)
            limit = self._limits[name, cause] = _limit(name, product)
            if taken.fires > patience(limit.fires) or taken.resolves > patience(limit.resolves):
                late.append(f"{name}: {taken}, {limit}")
        assert not late, "\n".join(late)

    def is_complete(self) -> bool:
        """Return whether each rule was measured but for those that are named as not measured."""
        return {name for name, _ in self._measured} == _RULES.keys() - NOT_MEASURED

    def table(self) -> str:
        """Return the table, in the order of the rules."""
        order = {name: number for number, name in enumerate(_RULES)}
        lines = [
            "| alert | cause | times | fires after | at most | resolves after | at most |",
            "|---|---|---|---|---|---|---|",
        ]
        for (name, cause), times in sorted(self._measured.items(), key=lambda x: order[x[0][0]]):
            limit = self._limits[name, cause]
            fires, resolves = ([*values] for values in zip(*times, strict=True))
            lines.append(
                f"| `{name}` | {cause} | {len(times)} "
                f"| {_shown(fires)} | {limit.fires:.1f} s "
                f"| {_shown(resolves)} | {limit.resolves:.1f} s |"
            )
        without = ", ".join(f"`{name}`" for name in _RULES if name in NOT_MEASURED)
        return "\n".join([*lines, "", f"Not measured yet: {without}.", ""])

    def publish(self) -> None:
        """Replace the table in the document."""
        document = DOCUMENT.read_text(encoding="utf-8")
        new, number = _TABLE.subn(lambda _: self.table(), document)
        assert number == 1
        DOCUMENT.write_text(new, encoding="utf-8")


def _shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s"


def _limit(name: str, product: Product) -> Time:
    """Return what a rule may take: scrape, ``for``, what the product needs, and 10 s.

    A rule that looks back resolves when its window is over. No rule keeps firing by another means.
    """
    rule = _RULES[name]
    both = SCRAPE_SECONDS + _SLACK_SECONDS
    return Time(
        both + seconds_of(rule.lasts) / FACTOR + product.begin,
        both + windows(rule.expression) / FACTOR + product.end,
    )


def _notices(
    watcher: Watcher, since: float, status: str, expected: Mapping[str, object]
) -> dict[str, Notice]:
    def missing() -> str:
        there = watcher.notices(since, status, expected).keys()
        alerts = watcher.alerts("firing", "pending")
        states = {name: alert["state"] for name, alert in alerts.items()}
        return f"{status} is sent for {sorted(expected.keys() - there)}; now there are {states}"

    wait_until(
        lambda: watcher.notices(since, status, expected).keys() == expected.keys(),
        missing,
        _FIRST_SECONDS,
        0.05,
    )
    return watcher.notices(since, status, expected)


def _receiver(notice: Notice) -> str:
    """Return the receiver to which the shipped routes send an alert."""
    if notice.labels["severity"] != "critical":
        return "operators"
    return "platform" if notice.labels["component"] in _PLATFORM else "hardware"
