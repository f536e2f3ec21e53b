"""A journal that is played again: the same verdicts, and what others would have been."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from agent.journal.file import FILE_NAME
from agent.journal.reader import read_rows
from agent.journal.rows import RowKind
from agent.policy.state import Released
from agent.policy.step import ONCE_VISIBLE_MS
from agent.replay.level_history import Span
from agent.replay.replay import replay
from contract.errors import JournalError
from contract.observation import (
    NODE,
    Assertion,
    Observation,
    SourceAnswered,
    chip_subject,
    host_subject,
)
from contract.operator_rules.fault_configuration import FaultTexts, catalogue_of
from tests.agent.node_history import AIC, BEGIN_MS, MILD, NodeHistory, a_history, changed

if TYPE_CHECKING:
    from pathlib import Path

    from agent.replay.comparison import Day, Findings
    from contract.codes.catalogue import Catalogue

ONE_OFF = ONCE_VISIBLE_MS / 1000


WHOLE = Span()


def played(directory: Path, other: Catalogue | None = None, span: Span = WHOLE) -> Findings:
    return replay(read_rows(directory / FILE_NAME), other, span)


def day_of(findings: Findings, day: str, subject: str = "chip 3") -> Day:
    (found,) = [one for one in findings.days if (one.day, one.subject) == (day, subject)]
    return found


async def test_a_journal_leads_to_the_verdicts_that_it_recorded(tmp_path: Path) -> None:
    await a_history(tmp_path)
    found = played(tmp_path)
    assert found.deviation_count == 0
    assert found.checked >= 8
    assert found.node == "node-1"
    assert not found.pruned
    assert [one.what for one in found.breaks] == ["the agent was killed and did not run"]


async def test_time_is_counted_per_chip_level_and_day(tmp_path: Path) -> None:
    await a_history(tmp_path)
    first, second = (day_of(played(tmp_path), day) for day in ("2027-01-15", "2027-01-16"))
    assert first.recorded is not None
    assert first.recorded.seconds == {"NormalNPU": 23 * 3600, "SeparateNPU": 3600}
    assert first.recorded.unhealthy_seconds == 3600
    assert first.recorded.episodes == 1
    assert second.recorded is not None
    assert second.recorded.seconds == {"NormalNPU": 3600, "SeparateNPU": 2 * 3600}
    assert second.recorded.episodes == 0
    other = day_of(played(tmp_path), "2027-01-16", "chip 5").recorded
    assert other is not None
    assert other.seconds == {"NormalNPU": 3 * 3600 - ONE_OFF, "NotHandleFault": ONE_OFF}
    assert other.unhealthy_seconds == 0


async def test_a_verdict_that_is_not_reproduced_is_reported_with_its_row(tmp_path: Path) -> None:
    await a_history(tmp_path)
    changed(tmp_path, "UPDATE rows SET body = replace(body, 'Separate', 'Restart')")
    found = played(tmp_path)
    rows = {row.sequence: row for row in read_rows(tmp_path / FILE_NAME)}
    assert found.deviation_count >= 2
    first = found.deviations[0]
    assert rows[first.sequence].kind == RowKind.REPORTS
    assert AIC in rows[first.sequence].body
    (recorded,), (replayed,) = first.recorded, first.replayed
    assert (recorded.new_level, replayed.new_level) == ("RestartNPU", "SeparateNPU")


async def test_rows_that_are_missing_are_reported_and_what_follows_is_not_trusted(
    tmp_path: Path,
) -> None:
    await a_history(tmp_path)
    changed(tmp_path, f"DELETE FROM rows WHERE kind = 'reports' AND body LIKE '%{AIC}%recover%'")
    found = played(tmp_path)
    assert "missing: 1 row" in [one.what for one in found.breaks]
    assert found.deviation_count == 0


async def test_a_row_that_cannot_be_understood_is_reported(tmp_path: Path) -> None:
    await a_history(tmp_path)
    changed(tmp_path, f"UPDATE rows SET body = '[1]' WHERE body LIKE '%{AIC}%recover%'")
    found = played(tmp_path)
    assert [one.what for one in found.breaks if "cannot be decoded" in one.what]
    assert found.deviation_count == 0


async def test_a_pruned_journal_begins_at_its_oldest_snapshot(tmp_path: Path) -> None:
    await a_history(tmp_path)
    rows = list(read_rows(tmp_path / FILE_NAME))
    second = [row for row in rows if row.kind == RowKind.SNAPSHOT][1]
    changed(tmp_path, f"DELETE FROM rows WHERE sequence < {second.sequence - 2}")
    found = played(tmp_path)
    assert found.pruned
    assert found.from_ms == second.at_ms
    assert found.deviation_count == 0
    assert {one.day for one in found.days} == {"2027-01-16"}


async def test_a_span_covers_its_time_only(tmp_path: Path) -> None:
    await a_history(tmp_path)
    begin = BEGIN_MS + 86_400_000
    found = played(tmp_path, span=Span(begin, begin + 3_600_000))
    sums = day_of(found, "2027-01-16").recorded
    assert sums is not None
    assert sums.seconds == {"SeparateNPU": 3600}
    assert {one.day for one in found.days} == {"2027-01-16"}


def other_levels(levels: dict[str, list[str]]) -> Catalogue:
    codes = {"NotHandleFaultCodes": [], **levels}
    return catalogue_of(FaultTexts(fault_code=msgspec.json.encode(codes).decode()))


async def test_another_level_is_reported_with_its_reasons_and_how_long(tmp_path: Path) -> None:
    await a_history(tmp_path)
    found = played(
        tmp_path, other_levels({"SubHealthFaultCodes": [AIC], "SeparateNPUCodes": [MILD]})
    )
    assert found.deviation_count == 0
    day = day_of(found, "2027-01-15")
    assert day.replayed is not None
    assert day.replayed.seconds == {"NormalNPU": 23 * 3600, "SubHealthFault": 3600}
    assert day.replayed.unhealthy_seconds == 0
    (difference,) = day.differences
    assert (difference.recorded_level, difference.replayed_level) == (
        "SeparateNPU",
        "SubHealthFault",
    )
    assert difference.recorded_because == f"{AIC} is SeparateNPU in the level table"
    assert difference.replayed_because == f"{AIC} is SubHealthFault in the level table"
    assert (difference.times, difference.seconds) == (1, 3600)
    (once,) = day_of(found, "2027-01-16", "chip 5").differences
    assert once.replayed_level == "SeparateNPU"
    assert once.seconds == ONE_OFF, "it was acknowledged then, so it is acknowledged here"


async def test_another_level_of_the_servers_parts(tmp_path: Path) -> None:
    node, fan, code = NodeHistory(tmp_path), host_subject("Fan", 1), "06000025"
    await node.begin()
    node.take(
        SourceAnswered("bmc", NODE, node.now_ms),
        Observation("bmc", fan, code, Assertion.PRESENT, node.now_ms),
    )
    await node.wait(hours=1)
    await node.end()
    text = json.dumps({"FaultTypeCode": {"SeparateFaultCodes": [code]}})
    found = played(tmp_path, catalogue_of(FaultTexts(node=text)))
    (difference,) = day_of(found, "2027-01-15", str(fan)).differences
    assert (difference.recorded_level, difference.replayed_level, difference.seconds) == (
        "PreSeparateFault",
        "SeparateFault",
        3600,
    )


async def test_a_journal_is_read_while_it_is_written_and_left_as_it_is(tmp_path: Path) -> None:
    node = NodeHistory(tmp_path)
    await node.begin()
    node.answer()
    node.see(Assertion.OCCUR, AIC)
    await node.committed()
    before = sorted(path.name for path in tmp_path.iterdir())
    rows = read_rows(tmp_path / FILE_NAME)
    first = next(rows)
    recorded = node.journal.last_sequence
    node.see(Assertion.RECOVER, AIC)
    await node.committed()
    assert first.kind == RowKind.START
    assert [row.sequence for row in rows][-1] == recorded, "what came later is not waited for"
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    await node.end()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / FILE_NAME).write_bytes((tmp_path / FILE_NAME).read_bytes())
    assert played(copy).deviation_count == 0
    assert [path.name for path in copy.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("content", [None, b"", b"no journal at all" * 100])
def test_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(JournalError, match=FILE_NAME):
        played(tmp_path)


async def test_a_rule_that_counts_otherwise_isolates_at_another_time(tmp_path: Path) -> None:
    code = "80E01801"  # twice a day isolates it, as shipped; here three times, and not for ever
    rule = {
        "EventId": [code],
        "TimeWindow": 86400,
        "Times": 3,
        "FaultHandling": "ManuallySeparateNPU",
        "ReleaseTimeWindow": 3600,
    }
    node = NodeHistory(tmp_path)
    await node.begin()
    node.answer()
    for _ in range(4):
        node.see(Assertion.OCCUR, code)
        await node.wait(seconds=60)
        node.see(Assertion.RECOVER, code)
        await node.wait(seconds=60)
    await node.wait(hours=4)
    await node.end()
    texts = FaultTexts(customization=msgspec.json.encode({"FaultFrequency": [rule]}).decode())
    day = day_of(played(tmp_path, catalogue_of(texts)), "2027-01-15")
    assert day.recorded is not None
    assert day.replayed is not None
    assert (day.recorded.upgrades, day.recorded.releases) == (1, 0)
    assert (day.replayed.upgrades, day.replayed.releases) == (1, 1)
    assert day.recorded.isolated_seconds == 6 * 60 + 4 * 3600
    assert day.replayed.isolated_seconds == 4 * 60 - 60 + 3600 + 0.001
    reasons = [one.replayed_because for one in day.differences]
    assert f"{code} is RestartBusiness in the level table" in reasons


async def test_a_chip_in_use_keeps_its_health_when_pre_separated(tmp_path: Path) -> None:
    node = NodeHistory(tmp_path)
    await node.begin()
    node.answer()
    node.see(Assertion.OCCUR, "8118043C")
    await node.wait(hours=1)
    node.write(RowKind.USAGE, {"node": "node-1", "used": ["Ascend910-3"], "assigned": []})
    await node.wait(hours=2)
    node.write(RowKind.USAGE, {"node": "node-1", "used": [], "assigned": []})
    await node.wait(hours=4)
    await node.end()
    sums = day_of(played(tmp_path), "2027-01-15").recorded
    assert sums is not None
    assert sums.seconds == {"PreSeparateNPU": 7 * 3600}
    assert sums.unhealthy_seconds == 5 * 3600


async def test_replay_uses_the_configuration_that_the_journal_has_in_force(tmp_path: Path) -> None:
    mild = FaultTexts(fault_code='{"SubHealthFaultCodes":["80E3A201"]}')
    node = NodeHistory(tmp_path)
    await node.begin()
    node.answer()
    node.see(Assertion.OCCUR, AIC)
    await node.wait(hours=1)
    node.fault_state.configure(mild, catalogue_of(mild))
    await node.wait(hours=1)
    await node.killed()
    await node.begin(mild)
    await node.wait(hours=1)
    node.see(Assertion.RECOVER, AIC)
    await node.end()
    found = played(tmp_path, catalogue_of(FaultTexts()))
    assert found.deviation_count == 0
    day = day_of(found, "2027-01-15")
    assert day.recorded is not None
    assert day.replayed is not None
    assert day.recorded.seconds == {"SeparateNPU": 3600, "SubHealthFault": 7200}
    assert day.replayed.seconds == {"SeparateNPU": 3 * 3600}
    (difference,) = day.differences
    assert difference.recorded_level == "SubHealthFault"
    assert difference.seconds == 7200


async def test_an_operator_releases_in_both_runs(tmp_path: Path) -> None:
    node = NodeHistory(tmp_path)
    await node.begin()
    node.answer()
    for _ in range(2):
        node.see(Assertion.OCCUR, "80E01801")
        node.see(Assertion.RECOVER, "80E01801")
    await node.wait(hours=1)
    node.take(Released(chip_subject(3), node.now_ms))
    await node.wait(hours=1)
    await node.end()
    day = day_of(played(tmp_path, catalogue_of(FaultTexts())), "2027-01-15")
    assert day.recorded == day.replayed
    assert day.recorded is not None
    assert day.recorded.isolated_seconds == 3600
    assert day.recorded.releases == 1
