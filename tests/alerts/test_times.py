"""Rules with shorter durations, and the table of times in the documents."""

from __future__ import annotations

import re

from tests.alerts.files import RULES, all_rules
from tests.alerts.times import DOCUMENT
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
