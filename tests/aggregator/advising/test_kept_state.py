"""What is kept of the scheduler's memory: an aggregator that starts advises as the one before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from advisor.advise import Advisor, advise
from advisor.options import Profile
from advisor.scheduler_view.state import CachedJob, SchedulerState
from aggregator.advising import kept_state
from aggregator.advising.kept_state import KeptState
from service.clock import Instant
from tests.advisor.player import PLAYED_AGAIN, options_of, play, recorded, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.report import AdviceReport

NOW = Instant(1_795_000_000_000, 0)
_CALM: dict[Profile, frozenset[str]] = dict.fromkeys(Profile, frozenset())


class Kept:
    """The documents of one aggregator after the other."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.states: dict[Profile, SchedulerState] = {}
        self.keeper = KeptState(self._restored)
        assert list(self.keeper.restore({}, NOW)) == []

    def _restored(self, states: Mapping[Profile, SchedulerState]) -> None:
        self.states = dict(states)

    def keep(
        self,
        states: Mapping[Profile, SchedulerState],
        apart: Mapping[Profile, frozenset[str]] = _CALM,
    ) -> frozenset[str]:
        """Keep the states and write the changed parts to the store; return their names."""
        self.keeper.keep(self.keeper.rendered(states, apart))
        changed = self.keeper.pop_changed()
        for bucket in changed:
            text = self.keeper.text(bucket)
            assert text is not None
            self.texts[bucket] = text
        return changed

    def next(self, now: Instant = NOW) -> list[str]:
        """Start another aggregator; return what it cannot read."""
        self.keeper = KeptState(self._restored)
        problems = list(self.keeper.restore(self.texts, now))
        for bucket in self.keeper.pop_changed():
            assert self.keeper.text(bucket) is None
            del self.texts[bucket]
        return problems


def jobs(states: Mapping[str, CachedJob]) -> dict[Profile, SchedulerState]:
    """Return known states of both profiles with these cached jobs."""
    return {profile: SchedulerState(is_known=True, jobs=dict(states)) for profile in Profile}


def counted(report: AdviceReport) -> AdviceReport:
    """Return a report without the counts of pending sessions, which are estimates."""
    decisions = tuple(
        msgspec.structs.replace(one, why=one.why.partition("; ")[0]) for one in report.decisions
    )
    return msgspec.structs.replace(report, decisions=decisions)


@pytest.mark.parametrize("name", PLAYED_AGAIN)
def test_an_aggregator_that_starts_advises_as_one_that_goes_on(name: str) -> None:
    """Nothing else changes between the sessions of both; the first of a scheduler knows nothing."""
    recording, advisor, kept = recorded(name), Advisor(), Kept()
    states = dict.fromkeys(Profile, SchedulerState(is_known=True))
    for session in play(recording):
        snapshot = snapshot_of(session, recording)
        options = {
            profile: msgspec.structs.replace(options_of(recording), profile=profile)
            for profile in Profile
        }
        states = {
            profile: advisor.advise(snapshot, states[profile], options[profile])[1]
            for profile in Profile
        }
        kept.keep(states, {profile: advisor.remembered_nodes(profile) for profile in Profile})
        assert kept.next(Instant(snapshot.now_ms, 0)) == []
        later = msgspec.structs.replace(
            snapshot, now_ms=snapshot.now_ms + 1000, first_session=False
        )
        for profile in Profile:
            goes_on, _ = advisor.advise(later, states[profile], options[profile])
            starts, _ = advise(later, kept.states[profile], options[profile])
            assert counted(starts) == counted(goes_on)


def test_only_what_is_another_is_written() -> None:
    kept, job = Kept(), CachedJob("u", 1)
    assert kept.keep(jobs({})) == {"last-head"}
    (bucket,) = kept.keep(jobs({"ns/j": job})) - {"last-head"}
    assert kept.keep(jobs({"ns/j": msgspec.structs.replace(job)})) == frozenset()
    executed = msgspec.structs.replace(job, is_executed=True)
    assert kept.keep(jobs({"ns/j": executed})) == {bucket}
    assert kept.keep(jobs({})) == {bucket}
    assert kept.next() == []
    assert [one.jobs for one in kept.states.values()] == [{}, {}]


def test_pending_sessions_are_counted_up_to_the_last_stage() -> None:
    kept, job = Kept(), CachedJob("u", 1)
    written = [
        bool(kept.keep(jobs({"ns/j": msgspec.structs.replace(job, pending=number)})))
        for number in range(1, 20)
    ]
    assert written == [True] * 13 + [False] * 6
    kept.next()
    assert kept.states[Profile.UPSTREAM].jobs["ns/j"].pending == 13


def test_job_that_left_the_cache_is_removed_from_the_kept_state() -> None:
    kept = Kept()
    kept.keep(jobs({"ns/j": CachedJob("u", 1)}))
    kept.next()
    kept.keep(jobs({}))
    kept.next()
    assert kept.states[Profile.CORRECTED].jobs == {}


def test_whether_earlier_sessions_are_known_goes_on() -> None:
    kept = Kept()
    kept.keep(dict.fromkeys(Profile, SchedulerState()))
    kept.next()
    assert [one.is_known for one in kept.states.values()] == [False, False]
    kept.keep(jobs({}))
    kept.next()
    assert [one.is_known for one in kept.states.values()] == [True, True]


def test_one_that_has_computed_sessions_takes_nothing_over() -> None:
    kept = Kept()
    kept.keep(jobs({"ns/j": CachedJob("u", 1)}))
    other = {"last-head": "no JSON"}
    assert list(kept.keeper.restore(other, NOW)) == []
    assert kept.states == {}
    assert kept.keeper.text("last-head") == kept.texts["last-head"]


@pytest.mark.parametrize(
    ("bucket", "text", "why"),
    [
        ("", "", "missing: the first one is"),
        ("", "{", "cut off"),
        ("", '{"upstream": {"jobs": {"ns/j": 7}}}', "must be an object, is an integer"),
        ("", '{"upstream": {"more": 1}}', "more: is not known here"),
        (
            "",
            '{"upstream": {"jobs": {"ns/j": {"uid": "u", "first_seen": 1, "pods":'
            ' [{"name": "p", "uid": "v", "type": "x"}]}}}}',
            "there is no fault type 'x'",
        ),
        ("last-head", "[]", "must be an object"),
        ("last-head", '{"version": 2}', "version 2 is not 1"),
        ("last-head", "", "cut off"),
    ],
)
def test_broken_bucket_discards_the_kept_state_and_is_replaced(
    bucket: str, text: str, why: str
) -> None:
    """An empty text here: the document is not there."""
    kept = Kept()
    kept.keep(jobs({"ns/j": CachedJob("u", 1)}))
    bucket = bucket or next(name for name in kept.texts if name != "last-head")
    if text:
        kept.texts[bucket] = text
    else:
        del kept.texts[bucket]
    (problem,) = kept.next()
    assert why in problem
    assert (kept.states, kept.texts) == ({}, {})
    kept.keep(jobs({"ns/j": CachedJob("u", 1)}))
    assert kept.next() == []
    assert kept.states[Profile.UPSTREAM].jobs == {"ns/j": CachedJob("u", 1)}


def test_bucket_that_is_too_large_is_logged_and_the_state_is_unknown_to_the_next_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    monkeypatch.setattr(kept_state, "_MAX_BYTES", 1000)
    large = CachedJob("u", 1, deleted=tuple(f"uid-{number}" for number in range(200)))
    for _ in range(2):
        kept.keep(jobs({"ns/j": large}))
    kept.keep(jobs({"ns/j": msgspec.structs.replace(large, pending=1)}))
    (line,) = caplog.messages
    assert "not kept for the next leader" in line
    assert "at most 1000 are written" in line
    assert all(len(text) <= 1000 for text in kept.texts.values())
    assert kept.next() == ["it was too large to be kept"]
    assert kept.states == {}
    kept.keep(jobs({"ns/j": CachedJob("u", 1)}))
    assert kept.next() == []
    assert json.loads(kept.texts["last-head"])["too_large"] is False
