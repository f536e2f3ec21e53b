"""Runs the advisor over the sessions of dumps, with the state of each profile in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from advisor.advise import Advisor
from advisor.checks.absent_objects import absent_objects
from advisor.inputs.scheduler_options import scheduler_options
from advisor.layered_dict import as_dict
from advisor.options import AdvisorOptions, Profile
from advisor.report import AdviceReport, Finding, FindingSeverity, NotKnown
from advisor.report_filter import has_node, of_job, of_node, scope_of
from advisor.scheduler_view.state import SchedulerState
from advisor.what_if.assume import assume
from advisor.what_if.assumptions import PodExits
from advisor.workloads.failed_processes import lone_failures
from contract.errors import ConfigurationError, Problem
from contract.validation_texts import decode_text
from service.files.atomic import replace
from vigil.advise.dump import sessions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from advisor.snapshot import ClusterSnapshot
    from advisor.what_if.assumptions import Assumption

_STATE_VERSION = 1


class AdvicePair(NamedTuple):
    """The report of a session in one profile, and that without assumptions where there are some."""

    report: AdviceReport
    base: AdviceReport | None


class SchedulerStates(msgspec.Struct, frozen=True):
    """What ``--state`` keeps: the memory of the scheduler in each profile."""

    version: int = _STATE_VERSION
    now_ms: int = 0
    profiles: dict[Profile, SchedulerState] = {}


def run(
    sources: Sequence[str],
    profiles: Sequence[Profile],
    assumptions: Sequence[Assumption],
    state_file: Path | None,
    parts: Mapping[str, bool] | None = None,
) -> Iterator[tuple[ClusterSnapshot, AdvicePair]]:
    """Yield each session in each of ``profiles``; at the end the state is written.

    ``parts`` are options about ``vigil elastic``, which the scheduler's ConfigMap does not have.

    Assumptions hold in every session, and are not in the state that is written.
    """
    states = SchedulerStates() if state_file is None else read_states(state_file)
    now_ms = states.now_ms
    base = {profile: states.profiles.get(profile, SchedulerState()) for profile in profiles}
    assumed = dict(base)
    advisor, of_assumed = Advisor(), Advisor()
    read: tuple[AdvisorOptions, str] | None = None
    # These pods are reported even without chips, because the user asks about them.
    exits = {
        (assumption.namespace, assumption.name)
        for assumption in assumptions
        if isinstance(assumption, PodExits)
    }
    for snapshot in sessions(sources):
        # A session before the state would use a memory of its own future.
        if state_file is not None and snapshot.now_ms < now_ms:
            text = f"is of {now_ms} ms, after the session of {snapshot.now_ms} ms"
            raise ConfigurationError(str(state_file), [Problem("now_ms", text)])
        now_ms = snapshot.now_ms
        if read is None or snapshot.first_session:
            # The scheduler reads its switches when it starts (consumers#1.1).
            read = scheduler_options(snapshot.configmaps) or read
        options, problem = read or (AdvisorOptions(), "")
        other = assume(snapshot, assumptions, options) if assumptions else None
        # What is assumed to be gone is not missing.
        gaps = absent_objects(snapshot, options) if snapshot.may_lack else ()
        for profile in profiles:
            chosen = msgspec.structs.replace(options, profile=profile, **(parts or {}))
            # The base goes on without assumptions, so that the state that is written is that of the
            # real cluster.
            report, base[profile] = advisor.advise(snapshot, base[profile], chosen)
            shown, without = _completed(report, snapshot, gaps, exits), None
            if other is not None:
                without = shown
                # A second advisor: its sessions follow one another under the assumptions.
                shown, assumed[profile] = of_assumed.advise(other, assumed[profile], chosen)
                shown = _completed(shown, other, gaps, exits)
            yield other or snapshot, AdvicePair(_noted(shown, problem), without)
    if state_file is not None:
        _write_states(state_file, SchedulerStates(_STATE_VERSION, now_ms, base))


def from_dumps(
    sources: Sequence[str],
    profiles: Sequence[Profile],
    job: str | None,
    node: str | None,
    assumptions: Sequence[Assumption],
    state: Path | None,
    parts: Mapping[str, bool],
) -> Iterator[list[AdvicePair]]:
    """Yield the reports of each session in ``sources``; ``parts`` as in ``run``."""

    def narrowed(report: AdviceReport, snapshot: ClusterSnapshot) -> AdviceReport:
        if job is not None:
            scope = scope_of(snapshot, job)
            if scope is None:
                text = "nothing of this name is in the dump, and no PodGroup that it owns"
                raise ConfigurationError("--job", [Problem(repr(job), text)])
            report = of_job(report, scope)
        if node is not None:
            if not has_node(snapshot, node):
                text = "no such Node is in the dump"
                raise ConfigurationError("--node", [Problem(repr(node), text)])
            report = of_node(report, snapshot, node)
        return report

    pairs: list[AdvicePair] = []
    for snapshot, (report, base) in run(sources, profiles, assumptions, state, parts):
        narrowed_base = None if base is None else narrowed(base, snapshot)
        pairs.append(AdvicePair(narrowed(report, snapshot), narrowed_base))
        if len(pairs) == len(profiles):
            yield pairs
            pairs = []


def _completed(
    report: AdviceReport,
    snapshot: ClusterSnapshot,
    gaps: tuple[NotKnown, ...],
    pods: Collection[tuple[str, str]],
) -> AdviceReport:
    """Return ``report`` with what is missing and with the failures of pods without a PodGroup."""
    lone = lone_failures(snapshot, pods)
    more = (NotKnown(f"Pod {item.job}", item.gap) for item in lone if item.gap)
    return msgspec.structs.replace(
        report,
        decisions=tuple(sorted((*report.decisions, *lone), key=lambda item: item.job)),
        gaps=(*gaps, *report.gaps, *more),
    )


def _noted(report: AdviceReport, problem: str) -> AdviceReport:
    if not problem:
        return report
    finding = Finding(FindingSeverity.ERROR, "OPTIONS_UNREADABLE", "ConfigMap", problem)
    return msgspec.structs.replace(report, findings=(*report.findings, finding))


def read_states(file: Path) -> SchedulerStates:
    """Return what ``file`` keeps, the states of a scheduler that starts where there is none.

    Raises ``ConfigurationError``.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return SchedulerStates()
    except OSError as error:
        raise ConfigurationError(
            str(file), [Problem("file", error.strerror or str(error))]
        ) from None
    try:
        states = msgspec.json.decode(content, type=SchedulerStates)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = f"is not a valid state of an earlier run: {decode_text(error)}"
        raise ConfigurationError(str(file), [Problem("$", text)]) from None
    if states.version != _STATE_VERSION:
        text = f"is {states.version}, this release reads {_STATE_VERSION}: begin a new file"
        raise ConfigurationError(str(file), [Problem("version", text)])
    return states


def _write_states(file: Path, states: SchedulerStates) -> None:
    try:
        # Replaced as a whole: an interrupted run must leave the earlier state.
        replace(file, msgspec.json.encode(states, enc_hook=as_dict, order="deterministic"))
    except OSError as error:
        raise ConfigurationError(
            str(file), [Problem("file", error.strerror or str(error))]
        ) from None
