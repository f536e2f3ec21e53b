"""Each gap is called by its name, what is no gap is counted, and a complete delivery is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.pages.history import HistorySubject
from contract.pages.journal import HeldEpisode
from tests.vigil.prove.forged import LEVEL, NODE, T0, Site
from vigil.prove.match import GapName, prove

if TYPE_CHECKING:
    from vigil.prove.match import Proof

NOW = 100.0
HELD = HeldEpisode("e0", HistorySubject("chip", 3), "80E18402", LEVEL, T0 - 60_000)


@pytest.fixture
def site() -> Site:
    return Site()


def proof_of(site: Site, now: float = NOW, *, since: float | None = None) -> Proof:
    since_ms = None if since is None else T0 + int(since * 1000)
    return prove([site.journal(now)], site.cluster(now), since_ms)


def gaps(proof: Proof) -> list[tuple[GapName, str, str]]:
    return [(gap.name, gap.part, gap.code) for gap in proof.gaps]


def delivered(site: Site, begin: float, end: float | None, episode: str = "e1") -> None:
    """A fault of chip 3 comes, is written and published, and goes."""
    site.change(begin, "began", LEVEL, episode=episode)
    site.write(begin + 0.02)
    site.publish(begin + 0.03, LEVEL)
    if end is not None:
        site.change(end, "ended", None, episode=episode)
        site.write(end + 0.02)
        site.publish(end + 0.03, None)


def test_what_came_and_went_and_what_holds_is_proved_with_times(site: Site) -> None:
    delivered(site, 10, 20)
    delivered(site, 30, None, "e2")
    proof = proof_of(site)
    assert (proof.episodes, proof.proved, proof.gaps, proof.counts) == (2, 2, [], {})
    steps = {(step.step, step.took_ms) for step in proof.steps}
    assert {("verdict to write", 20), ("write to entry", 10), ("end to write", 20)} <= steps


def test_without_a_cluster_the_write_is_proved(site: Site) -> None:
    delivered(site, 10, 20)
    proof = prove([site.journal(NOW)], None, None)
    assert (proof.proved, proof.gaps) == (1, [])


# Forward: each gap.


def test_a_fault_that_no_write_shows(site: Site) -> None:
    first = site.change(10, "began", LEVEL)
    site.write(10.02, through=first - 1)
    assert gaps(proof_of(site)) == [(GapName.NEVER_PUBLISHED, "chip 3", "80E18402")]
    # The write that has it came late, but it came.
    site.write(50)
    site.publish(50.01, LEVEL)
    assert proof_of(site).gaps == []


def test_an_end_that_no_write_shows(site: Site) -> None:
    delivered(site, 10, None)
    site.change(20, "ended", None)
    assert gaps(proof_of(site)) == [(GapName.ENDED_BUT_SHOWN, "chip 3", "80E18402")]


def test_an_end_that_the_aggregator_does_not_show(site: Site) -> None:
    delivered(site, 10, None)
    site.change(20, "ended", None)
    site.write(20.02)
    assert gaps(proof_of(site)) == [(GapName.ENDED_BUT_SHOWN, "chip 3", "80E18402")]


def test_a_fault_that_holds_and_has_no_entry(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.write(10.02)
    assert gaps(proof_of(site)) == [(GapName.AGGREGATOR_BEHIND, "chip 3", "80E18402")]


def test_a_fault_that_was_over_and_never_had_an_entry(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.write(10.02)
    site.change(20, "ended", None)
    site.write(20.02)
    assert gaps(proof_of(site)) == [(GapName.NEVER_PUBLISHED, "chip 3", "80E18402")]


def test_a_fault_that_holds_and_is_shown_no_longer(site: Site) -> None:
    delivered(site, 10, None)
    site.publish(40, None)
    assert gaps(proof_of(site)) == [(GapName.AGGREGATOR_BEHIND, "chip 3", "80E18402")]


def test_another_level(site: Site) -> None:
    delivered(site, 10, None)
    site.change(20, "changed", "ManuallySeparateNPU")
    site.write(20.02)
    assert gaps(proof_of(site)) == [(GapName.LEVEL_DIFFERS, "chip 3", "80E18402")]
    site.publish(20.03, "ManuallySeparateNPU")
    assert proof_of(site).gaps == []


def test_an_episode_whose_id_the_aggregator_did_not_receive(site: Site) -> None:
    delivered(site, 10, 20)
    site.received = {"journal-1": {}}
    assert gaps(proof_of(site)) == [(GapName.AGGREGATOR_BEHIND, "chip 3", "80E18402")]
    site.received = {"journal-1": {"e1": T0 + 10_050}}
    proof = proof_of(site)
    assert proof.gaps == []
    assert ("verdict to history", 50) in {(step.step, step.took_ms) for step in proof.steps}


def test_a_journal_that_lost_rows_names_their_time(site: Site) -> None:
    delivered(site, 10, None)
    site.lose(15, 25)
    site.publish(20, None)
    (gap,) = proof_of(site).gaps
    assert (gap.name, gap.since_ms, gap.until_ms) == (
        *(GapName.JOURNAL_LOST, T0 + 15_000, T0 + 25_000),
    )
    assert gap.reason == "the disk is full"
    assert proof_of(site, since=60).gaps == []


def test_rows_that_were_deleted_before_the_time_that_is_asked_for(site: Site) -> None:
    site.pruned = True
    assert proof_of(site).gaps == []
    (gap,) = proof_of(site, since=-50).gaps
    assert (gap.name, gap.reason) == (
        *(GapName.NOT_KNOWN, "older rows of the journal were deleted"),
    )


def test_a_document_of_another_program_is_not_known(site: Site) -> None:
    site.change(10, "began", LEVEL)
    proof = proof_of(site)
    assert gaps(proof) == [(GapName.NOT_KNOWN, "chip 3", "80E18402")]
    assert "another program writes it" in proof.gaps[0].reason


def test_writes_of_an_earlier_agent_prove_nothing(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.write(10.02, through=0)
    proof = proof_of(site)
    assert gaps(proof) == [(GapName.NOT_KNOWN, "chip 3", "80E18402")]
    assert "their agent was older" in proof.gaps[0].reason


# Back.


def test_what_no_journal_explains(site: Site) -> None:
    site.write(1)
    site.publish(30, LEVEL, part="Ascend910-5")
    site.publish(40, None, part="Ascend910-5")
    assert gaps(proof_of(site)) == [(GapName.UNEXPLAINED, "chip 5", "80E18402")]


def test_what_is_shown_in_documents_and_that_no_journal_explains(site: Site) -> None:
    site.publish(30, LEVEL, part="Ascend910-5")
    proof = prove([site.journal(NOW)], site.cluster(NOW, with_history=False), None)
    assert gaps(proof) == [(GapName.UNEXPLAINED, "chip 5", "80E18402")]


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("Ascend910-5", "ManuallySeparateNPU"),
        ("Ascend910-5", "220001001"),
        ("node", "status"),
    ],
)
def test_what_no_agent_reports_needs_no_journal(site: Site, part: str, code: str) -> None:
    site.publish(30, LEVEL, part=part, code=code)
    assert proof_of(site).gaps == []


def test_an_entry_from_before_the_journal_needs_no_presence(site: Site) -> None:
    site.publish(-50, LEVEL)
    site.publish(-40, None)
    assert proof_of(site).gaps == []


# Neither proved nor a gap.


def test_what_is_younger_than_the_bound_is_under_way(site: Site) -> None:
    site.write(1)
    site.change(95, "began", LEVEL)
    assert proof_of(site).counts == {"under way": 1}
    site.write(95.02)
    assert proof_of(site).counts == {"under way": 1}
    site.publish(95.03, LEVEL)
    site.change(96, "ended", None)
    assert proof_of(site).counts == {"under way": 1}
    site.write(96.02)
    assert proof_of(site).counts == {"under way": 1}
    site.publish(96.03, None)
    assert (proof_of(site).proved, proof_of(site).gaps) == (1, [])


def test_what_was_over_before_the_write_that_was_due(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.change(10.5, "ended", None)
    site.write(11)
    assert proof_of(site).counts == {"over before the write that was due": 1}


def test_what_was_over_while_the_store_was_away(site: Site) -> None:
    site.write(1)
    site.change(10, "began", LEVEL)
    site.change(20, "ended", None)
    assert proof_of(site).counts == {"over before its store answered": 1}


def test_what_was_shown_for_less_than_the_aggregator_may_take(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.write(10.02)
    site.change(11, "ended", None)
    site.write(11.02)
    counts = {"shown by its node for less than the aggregator may take": 1}
    assert proof_of(site).counts == counts


def test_what_was_over_while_no_aggregator_recorded(site: Site) -> None:
    delivered(site, 10, 20)
    site.rows.clear()
    site.recorded = [(T0 + 30_000, T0 + 200_000)]
    assert proof_of(site).counts == {"over while the history of the aggregator was incomplete": 1}


def test_what_the_aggregator_withholds(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.write(10.02)
    site.withheld = {(NODE, "chip 3", "80E18402")}
    assert proof_of(site).counts == {"withheld by the aggregator": 1}


@pytest.mark.parametrize(
    ("begin", "reason"), [(14.9, {"withheld by the aggregator": 1}), (15.1, {})]
)
def test_a_companion_of_a_uce_fault_that_is_over_was_withheld(
    site: Site, begin: float, reason: dict[str, int]
) -> None:
    site.change(10, "began", LEVEL, code="80E01801")
    site.write(10.02)
    site.publish(10.03, LEVEL, code="80E01801")
    site.change(begin, "began", LEVEL, code="80C98009", episode="e2")
    # The same code on another chip came alone.
    site.change(begin, "began", LEVEL, chip=4, code="80C98009", episode="e3")
    site.write(begin + 0.02)
    site.change(30, "ended", None, code="80C98009", episode="e2")
    site.change(30, "ended", None, chip=4, code="80C98009", episode="e3")
    site.write(30.02)
    proof = proof_of(site)
    alone = [] if reason else [(GapName.NEVER_PUBLISHED, "chip 3", "80C98009")]
    assert gaps(proof) == [*alone, (GapName.NEVER_PUBLISHED, "chip 4", "80C98009")]
    assert proof.counts == reason


def test_a_code_without_a_level_is_in_no_document(site: Site) -> None:
    site.change(10, "began", "")
    assert proof_of(site).counts == {"of a code without a level, which no document shows": 1}


# Matching.


def test_two_episodes_within_one_entry_are_proved_together(site: Site) -> None:
    site.change(10, "began", LEVEL)
    site.write(10.02)
    site.publish(10.03, LEVEL)
    site.change(12, "ended", None)
    site.write(12.02)
    site.change(12.1, "began", LEVEL, episode="e2")
    site.write(12.12)
    site.change(30, "ended", None, episode="e2")
    site.write(30.02)
    site.publish(30.03, None)
    proof = proof_of(site)
    assert (proof.proved, proof.together, proof.gaps) == (2, 1, [])


def test_a_fault_that_held_before_the_journal(site: Site) -> None:
    site.snapshot(0, HELD)
    site.write(1)
    site.publish(-60, LEVEL)
    assert (proof_of(site).proved, proof_of(site).gaps) == (1, [])


def test_a_rule_that_holds_a_code_after_its_episode(site: Site) -> None:
    delivered(site, 10, None)
    site.change(20, "upgraded", "ManuallySeparateNPU")
    site.write(20.02)
    site.publish(20.03, "ManuallySeparateNPU")
    site.change(30, "ended", "ManuallySeparateNPU")
    site.snapshot(35)
    site.change(50, "released", None)
    site.write(50.02)
    site.publish(50.03, None)
    proof = proof_of(site)
    assert (proof.episodes, proof.proved, proof.gaps) == (1, 1, [])


def test_clocks_that_are_an_hour_apart(site: Site) -> None:
    site.ahead_ms = 3_600_000
    site.entries.clear()
    site.snapshot(0)
    delivered(site, 10, 20)
    proof = proof_of(site)
    assert (proof.proved, proof.gaps) == (1, [])


def test_parts_of_the_server_are_in_node_info(site: Site) -> None:
    fan = HistorySubject("host", 3, "Fan")
    site.change(10, "began", "SeparateFault", code="28000001", subject=fan)
    site.write(10.02)
    assert gaps(proof_of(site)) == [(GapName.NOT_KNOWN, "Fan 3", "28000001")]
    site.write(10.03, host=True)
    # The level of a part is that of its worst code.
    site.publish(10.04, "NotHandleFault", part="Fan 3", code="28000001")
    assert (proof_of(site).proved, proof_of(site).gaps) == (1, [])


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(6, 20), st.floats(6, 20)), min_size=1, max_size=8
    ),
    st.data(),
)
def test_what_was_delivered_is_proved_and_one_lost_entry_is_a_gap(
    faults: list[tuple[int, float, float]], data: st.DataObject
) -> None:
    """One after the other, each longer than what an aggregator may leave out."""
    site, at = Site(), 10.0
    for number, (chip, pause, lasts) in enumerate(faults):
        begin = at + pause
        at = begin + lasts
        names = {"chip": chip, "episode": f"e{number}"}
        site.change(begin, "began", LEVEL, **names)  # type: ignore[arg-type]
        site.write(begin + 0.02)
        site.publish(begin + 0.03, LEVEL, part=f"Ascend910-{chip}")
        site.change(at, "ended", None, **names)  # type: ignore[arg-type]
        site.write(at + 0.02)
        site.publish(at + 0.03, None, part=f"Ascend910-{chip}")
    now = at + 60
    proof = proof_of(site, now)
    assert (proof.proved, proof.gaps) == (len(faults), [])
    lost = data.draw(st.integers(0, len(faults) - 1))
    del site.rows[2 * lost : 2 * lost + 2]
    chip, pause, _ = faults[lost]
    alone = [other for index, (other, _, _) in enumerate(faults) if index != lost]
    names_of_gaps = gaps(proof_of(site, now))
    # Another episode of the chip within the bound may be proved by the same entry.
    if chip not in alone:
        assert names_of_gaps == [(GapName.NEVER_PUBLISHED, f"chip {chip}", "80E18402")]


def test_a_separation_by_hand_is_shown_without_its_code(site: Site) -> None:
    site.change(10, "began", "ManuallySeparateNPU", code="AutofillFaultCode")
    site.write(10.02)
    counts = {"of a separation by hand, which is shown without a code": 1}
    assert proof_of(site).counts == counts
    assert proof_of(site).gaps == []
