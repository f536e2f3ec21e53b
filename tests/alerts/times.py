"""How long after its cause each alert fires and resolves, and the table of it in the documents.

The times are those of Alertmanager's messages, so they include everything between a cause and
the program that a person reads.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from contract.plural import plural
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
_ROW = re.compile(r"^\| `(?P<rule>\w+)` \| (?P<cause>[^|]+) \|.*$", re.MULTILINE)
_REASON = re.compile(r"^- `(?P<rule>\w+)`, (?P<cause>[^:]+): .*$", re.MULTILINE)
_SLACK_SECONDS = 10
_FIRST_SECONDS = 120.0
"""How long a test waits for an alert; how soon it must come is judged afterwards."""
_RULES = {rule.name: rule for rule in all_rules()}
_PLATFORM = {"agent", "aggregator", "elastic"}


class Time(NamedTuple):
    """How long an alert took after the begin and after the end of its cause, in seconds."""

    fires: float
    resolves: float


class Product(NamedTuple):
    """What the product needs beyond 10 s to notice that a cause begins or ends, and why.

    In seconds; ``why`` is a sentence of the document.
    """

    begin: float = 0
    end: float = 0
    why: str = ""


_AT_ONCE = Product()


class Cause(NamedTuple):
    """What raises ``alert`` with ``labels`` and no other alert; ``text`` is in the document."""

    alert: str
    labels: Mapping[str, str]
    text: str
    begin: Callable[[], object]
    end: Callable[[], object]
    product: Product = _AT_ONCE


class Times:
    """The times of all alerts, by rule and cause, and the load of the machine meanwhile."""

    def __init__(self) -> None:
        self._measured: defaultdict[tuple[str, str], list[Time]] = defaultdict(list)
        self._limits: dict[tuple[str, str], Time] = {}
        self._reasons: dict[tuple[str, str], str] = {}
        self._loads: list[float] = []
        self._began = time.monotonic()

    def measure(self, watcher: Watcher, *causes: Cause) -> None:
        """Make all causes and end them: their alerts fire, no others, and resolve.

        Fails when another alert is pending or fires with them, when one goes to another receiver
        than its severity and component demand, and when one is late.
        """
        expected = {cause.alert: cause for cause in causes}
        watcher.resolve()
        begun: dict[str, float] = {}
        with contextlib.ExitStack() as left:
            for cause in causes:
                begun[cause.alert] = time.monotonic()
                cause.begin()
                left.callback(cause.end)
            fired = _notices(watcher, begun, "firing")
            # One that a late scrape has ended meanwhile would never be resolved by its end.
            watcher.fire(*expected, seconds=_FIRST_SECONDS)
            at_the_same_time = watcher.alerts("firing", "pending")
            left.pop_all()
        ends: dict[str, float] = {}
        ended: dict[str, float] = {}
        for cause in causes:
            ends[cause.alert] = time.monotonic()
            cause.end()
            # A server that starts again takes a while, and the cause lasts until it answers.
            ended[cause.alert] = time.monotonic()
        resolved = _notices(watcher, ends, "resolved")
        watcher.resolve()
        load = os.getloadavg()[0]
        others = at_the_same_time.keys() ^ expected.keys()
        assert not others, f"not as expected: {sorted(others)}"
        late: list[str] = []
        for name, cause in expected.items():
            assert cause.labels.items() <= fired[name].labels.items(), fired[name]
            assert fired[name].receiver == _receiver(fired[name]), fired[name]
            taken = Time(fired[name].at - begun[name], max(0, resolved[name].at - ended[name]))
            limit = self.record(cause, taken, load)
            if taken.fires > patience(limit.fires) or taken.resolves > patience(limit.resolves):
                late.append(f"{name}: {taken}, {limit}")
        assert not late, "\n".join(late)

    def record(self, cause: Cause, taken: Time, load: float) -> Time:
        """Take what a cause took at a load average of the machine; return its limits."""
        key = cause.alert, cause.text
        self._measured[key].append(taken)
        self._loads.append(load)
        limit = self._limits[key] = _limit(cause.alert, cause.product)
        if cause.product.why:
            self._reasons[key] = cause.product.why
        return limit

    def table(self, before: str = "") -> str | None:
        """Return the table, in the order of the rules.

        A run of a part of the tests keeps the other rows of the table ``before``. Returns ``None``
        where a rule would have no row.
        """
        is_whole = {name for name, _ in self._measured} == _RULES.keys()
        rows = {} if is_whole else _lines_of(before, _ROW)
        reasons = {} if is_whole else _lines_of(before, _REASON)
        for key, times in self._measured.items():
            name, cause = key
            limit = self._limits[key]
            fires, resolves = ([*values] for values in zip(*times, strict=True))
            rows[key] = (
                f"| `{name}` | {cause} | {len(times)} "
                f"| {_shown(fires)} | {limit.fires:.1f} s "
                f"| {_shown(resolves)} | {limit.resolves:.1f} s |"
            )
            reasons.pop(key, None)
            if key in self._reasons:
                reasons[key] = f"- `{name}`, {cause}: {self._reasons[key]}"
        if {name for name, _ in rows} != _RULES.keys():
            return None
        minutes = round((time.monotonic() - self._began) / 60)
        loads = f"{statistics.median(self._loads):.1f}, at most {max(self._loads):.1f}"
        return "\n".join(
            [
                "| alert | cause | times | fires after | at most | resolves after | at most |",
                "|---|---|---|---|---|---|---|",
                *_in_order(rows),
                "",
                f"The last run measured {plural(len(self._measured), 'row')} of the table in "
                f"{plural(minutes, 'minute')} on {plural(os.cpu_count() or 1, 'processor')}. "
                f"The median of the load average was {loads}.",
                "",
                *_in_order(reasons),
                "",
            ]
        )

    def publish(self) -> None:
        """Replace the table in the document, where each rule has a row then."""
        document = DOCUMENT.read_text(encoding="utf-8")
        before = _TABLE.search(document)
        assert before is not None
        table = self.table(before[0]) if self._measured else None
        if table is not None:
            DOCUMENT.write_text(_TABLE.sub(lambda _: table, document), encoding="utf-8")


def _lines_of(table: str, pattern: re.Pattern[str]) -> dict[tuple[str, str], str]:
    """Return the lines of a table that match, by rule and cause; none of rules that are gone."""
    lines = pattern.finditer(table)
    return {(line["rule"], line["cause"]): line[0] for line in lines if line["rule"] in _RULES}


def _in_order(lines: Mapping[tuple[str, str], str]) -> list[str]:
    order = {name: number for number, name in enumerate(_RULES)}
    return [lines[key] for key in sorted(lines, key=lambda key: order[key[0]])]


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


def _notices(watcher: Watcher, since: Mapping[str, float], status: str) -> dict[str, Notice]:
    """Return the first message with ``status`` about each alert since its time in ``since``."""

    def missing() -> str:
        there = watcher.notices(since, status).keys()
        alerts = watcher.alerts("firing", "pending")
        states = {name: alert["state"] for name, alert in alerts.items()}
        return f"{status} is sent for {sorted(since.keys() - there)}; now there are {states}"

    wait_until(
        lambda: watcher.notices(since, status).keys() == since.keys(),
        missing,
        _FIRST_SECONDS,
        0.05,
    )
    return watcher.notices(since, status)


def _receiver(notice: Notice) -> str:
    """Return the receiver to which the shipped routes send an alert."""
    if notice.labels["severity"] != "critical":
        return "operators"
    return "platform" if notice.labels["component"] in _PLATFORM else "hardware"
