"""Computes advice under assumptions (``--what-if``), on a copy of the current state.

Requests are computed one at a time, in a thread, with a pause after each: nothing that is published
waits for them for long.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from advisor.advise import advise
from advisor.options import Profile
from advisor.report_filter import has_node, scope_of
from advisor.what_if.assume import assume
from advisor.what_if.assumptions import FORMS, parse_all
from aggregator.advising.answers import narrowed
from aggregator.advising.sessions import PERIOD_MS, first_state, options_of
from aggregator.advising.status import AssumedAdvice
from contract.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from advisor.report import AdviceReport
    from advisor.report_filter import JobScope
    from advisor.scheduler_view.state import SchedulerState
    from advisor.snapshot import ClusterSnapshot
    from advisor.what_if.assumptions import Assumption
    from aggregator.advising.cluster_objects import AdvisedObjects

MAX_ASSUMPTIONS = 20
MAX_ASSUMPTION_CHARACTERS = 400
"""Characters: two names of nodes or pods fit."""

_IDLE_SHARE = 3
"""Pause after a request, in times of what it took: at most a quarter of one core."""


class Busy(Exception):
    """Another request is computed, or was just now."""


class UnknownObject(Exception):
    """No object of this kind has the requested name."""


class WrongAssumption(Exception):
    """A text is not a valid assumption, too long, or about an object that does not exist."""


class WhatIf:
    """Computes with ``objects`` and the assumed memory of the scheduler."""

    def __init__(
        self,
        objects: AdvisedObjects,
        states: Callable[[], Mapping[Profile, SchedulerState]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._objects = objects
        self._states = states
        self._wall_ms = wall_ms
        self._task: asyncio.Task[tuple[AssumedAdvice, float]] | None = None
        self._free_at = 0.0

    async def answer(
        self, texts: Sequence[str], job: str | None, node: str | None
    ) -> AssumedAdvice:
        """Return the advice under the assumptions ``texts``, about a job or a node where given.

        Raises ``Busy``, ``UnknownObject`` and ``WrongAssumption``.
        """
        assumptions = _assumptions(texts)
        loop = asyncio.get_running_loop()
        if self._task is not None or loop.time() < self._free_at:
            raise Busy("another one is computed: ask again in some seconds")
        if not self._objects.is_answered:
            raise Busy("Nodes, pods and cluster documents were not all listed yet")
        at_ms = self._wall_ms()
        snapshot = self._objects.snapshot(at_ms + PERIOD_MS)
        scope = None if job is None else scope_of(snapshot, job)
        if job is not None and scope is None:
            raise UnknownObject("podgroup")
        if node is not None and not has_node(snapshot, node):
            raise UnknownObject("node")
        work = asyncio.to_thread(
            _computed, snapshot, dict(self._states()), tuple(texts), assumptions, scope, node
        )
        self._task = asyncio.create_task(work, name="what if")
        self._task.add_done_callback(self._rest)
        # A client that leaves does not end the thread.
        try:
            answer, _ = await asyncio.shield(self._task)
        except ConfigurationError as error:
            raise WrongAssumption("; ".join(problem.what for problem in error.problems)) from None
        unknown = self._objects.unknown
        return msgspec.structs.replace(answer, at_ms=at_ms, not_known=unknown)

    def _rest(self, task: asyncio.Task[tuple[AssumedAdvice, float]]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is None:
            seconds = task.result()[1]
            self._free_at = asyncio.get_running_loop().time() + seconds * _IDLE_SHARE


def _assumptions(texts: Sequence[str]) -> tuple[Assumption, ...]:
    """Decode assumptions. No error repeats their text: a page is shown in browsers, too."""
    if len(texts) > MAX_ASSUMPTIONS:
        raise WrongAssumption(f"what_if is given more than {MAX_ASSUMPTIONS} times")
    if any(len(text) > MAX_ASSUMPTION_CHARACTERS for text in texts):
        raise WrongAssumption(f"a what_if has more than {MAX_ASSUMPTION_CHARACTERS} characters")
    try:
        return parse_all(texts)
    except ConfigurationError:
        raise WrongAssumption(f"a what_if is none of: {'; '.join(FORMS)}") from None


def _computed(
    snapshot: ClusterSnapshot,
    states: Mapping[Profile, SchedulerState],
    texts: tuple[str, ...],
    assumptions: Sequence[Assumption],
    job: JobScope | None,
    node: str | None,
) -> tuple[AssumedAdvice, float]:
    """Return the answer without its time, and the CPU seconds that it took."""
    began = time.thread_time()
    options = options_of(snapshot)
    assumed = assume(snapshot, assumptions, options)
    reports, bases = [], []
    for profile in Profile:
        state = states.get(profile) or first_state(snapshot)
        chosen = msgspec.structs.replace(options, profile=profile)
        base = narrowed(advise(snapshot, state, chosen)[0], snapshot, job, node)
        report = narrowed(advise(assumed, state, chosen)[0], snapshot, job, node)
        if job is None and node is None:
            base, report = (msgspec.structs.replace(each, placement=()) for each in (base, report))
        reports.append(_without_calm(report, base))
        bases.append(_without_calm(base, report))
    answer = AssumedAdvice(0, texts, {}, tuple(reports), tuple(bases))
    return answer, time.thread_time() - began


def _without_calm(report: AdviceReport, other: AdviceReport) -> AdviceReport:
    """Return ``report`` without verdicts about nodes that are healthy in both reports."""
    ill = {
        verdict.node
        for each in (report, other)
        for verdict in each.node_verdicts
        if not verdict.is_calm
    }
    verdicts = tuple(verdict for verdict in report.node_verdicts if verdict.node in ill)
    return msgspec.structs.replace(report, node_verdicts=verdicts)
