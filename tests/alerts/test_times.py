"""Rules with shorter durations, and the table of times in the documents."""

from __future__ import annotations

import re

from tests.alerts.files import RULES, all_rules
from tests.alerts.times import DOCUMENT, Cause, Product, Time, Times
from tests.alerts.watcher import divided, windows

_RULES = RULES.read_text(encoding="utf-8")


def test_each_duration_of_the_rules_is_divided() -> None:
    shorter = divided(_RULES, 60)
    assert re.findall(r"\[[^\]]*[mh]\]|for: \d+[smh]$", shorter, re.MULTILINE) == []
    assert "for: 1000ms" in shorter
    assert "[10000ms]" in shorter
    assert "time() - 5\n" in shorter
    assert 'npu_vigil_publication_lag_seconds{job="npu-vigil-agent"}) > 1\n' in shorter
    assert divided(_RULES, 1).count("\n") == _RULES.count("\n")


def test_the_time_by_which_a_rule_looks_back() -> None:
    seconds = {rule.name: windows(rule.expression) for rule in all_rules()}
    assert seconds["NpuVigilRowsDropped"] == 900
    assert seconds["NpuVigilShortFault"] == 360
    assert seconds["NpuVigilNodeLost"] == 0


def test_the_table_has_each_rule() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    table = document.partition("<!-- times -->\n")[2].partition("<!-- end of times -->")[0]
    rows = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    names = {rule.name for rule in all_rules()}
    assert rows == names or table == "No run has written the table yet.\n"


def times_of(*causes: tuple[str, str]) -> Times:
    """Return times in which each of these rules with a cause was measured."""
    times = Times()
    for alert, text in causes:
        cause = Cause(alert, {}, text, lambda: None, lambda: None, Product(end=60, why="because."))
        times.record(cause, Time(1, 2), load=0.5)
    return times


def test_a_run_of_one_test_replaces_its_own_rows_only() -> None:
    names = [rule.name for rule in all_rules()]
    first = times_of(*((name, "first") for name in names)).table()
    assert first is not None
    second = times_of((names[1], "second"), (names[2], "first")).table(first)
    assert second is not None
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", second, re.MULTILINE)
    others = [(name, "first") for name in names[2:]]
    assert rows == [(names[0], "first"), (names[1], "first"), (names[1], "second"), *others]
    assert f"- `{names[1]}`, second: because.\n" in second
    assert second.count(": because.\n") == len(names) + 1
    assert "The last run measured 2 rows of the table" in second
    whole = times_of(*((name, "third") for name in names)).table(second)
    assert whole is not None
    assert "first" not in whole, "a run of all tests drops causes that are gone"


def test_a_table_without_one_of_the_rules_is_not_written() -> None:
    names = [rule.name for rule in all_rules()]
    assert times_of((names[0], "cause")).table("No run has written the table yet.\n") is None
    rest = times_of(*((name, "cause") for name in names[1:]))
    assert rest.table() is None
