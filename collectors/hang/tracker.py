"""Whether a chip hangs: it has processes, and for minutes nothing moves. Pure.

The rules are those of ``device-plugin#4``, with two exceptions (defect K49). A round with a figure
that could not be read neither counts nor starts again from zero, unless another figure shows that
something moves. A figure that can be read again is compared with its last value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from collectors.answer_tracker import AnswerTracker
from contract.codes.chip_codes import HANG
from contract.codes.levels import Severity
from contract.observation import Assertion, Observation
from contract.record import Record
from contract.settings import Section

if TYPE_CHECKING:
    from contract.observation import Report, Subject


class HangSection(Section, frozen=True):
    """When a chip counts as hanging (``docs/spec/device-plugin.md#4``).

    From where on something moves, and for how many rounds nothing may.
    """

    enabled: bool = True
    period_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 60.0
    deadline_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 10.0
    aicore_utilization: Annotated[int, Meta(ge=0, le=101)] = 5
    hbm_memory_delta: Annotated[int, Meta(ge=0, le=100)] = 0
    traffic_delta: Annotated[int, Meta(ge=0)] = 100
    cpu_time_delta: Annotated[int, Meta(ge=0)] = 5
    detect_duration: Annotated[int, Meta(ge=1, le=1440)] = 5


class Figures(Record, frozen=True):
    """What a chip with processes does; ``None`` is what could not be read.

    Percent, percent, packets since the counters were reset, seconds.
    """

    aicore: int | None
    hbm: int | None
    traffic: int | None
    cpu_seconds: int | None

    def filled_from(self, before: Figures) -> Figures:
        """Return these figures, with those of ``before`` for missing ones."""
        return Figures(
            **{
                name: getattr(before if getattr(self, name) is None else self, name)
                for name in self.__struct_fields__
            }
        )


def looks_hung(now: Figures, before: Figures, limits: HangSection) -> bool | None:
    """Return whether nothing moved since ``before``; ``None`` when that is not known."""
    hbm = _grown(now.hbm, before.hbm)
    traffic = _grown(now.traffic, before.traffic)
    cpu = _grown(now.cpu_seconds, before.cpu_seconds)
    # A counter that went backwards was reset: something happened.
    moves = (
        None if now.aicore is None else now.aicore >= limits.aicore_utilization,
        None if hbm is None else hbm > limits.hbm_memory_delta,
        None if traffic is None else not 0 <= traffic < limits.traffic_delta,
        None if cpu is None else not 0 <= cpu < limits.cpu_time_delta,
    )
    if any(moves):
        return False
    return None if None in moves else True


def _grown(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


class HangTracker:
    """The tracked state of one chip.

    ``hung``: whether it was found hanging before; ``blind``: whether that was reported.
    """

    def __init__(
        self, source: str, chip: Subject, limits: HangSection, *, hung: bool, blind: bool = False
    ) -> None:
        self._source = source
        self._chip = chip
        self._limits = limits
        self.hung = hung
        """Whether the chip is tracked as hanging."""
        self._rounds = 0
        self._processes: frozenset[int] = frozenset()
        self._before: Figures | None = None
        self._answers = AnswerTracker(source, chip, is_answering=not blind)

    def observe_idle(self, now_ms: int) -> list[Report]:
        """Apply that no process uses the chip; return what to report."""
        self._forget()
        self._processes = frozenset()
        return [*self._answers.observe_answer(now_ms), *self._moves(now_ms)]

    def observe_figures(
        self, processes: frozenset[int], figures: Figures, troubles: str, now_ms: int
    ) -> list[Report]:
        """Apply that ``processes`` use the chip; ``troubles`` is why figures are missing."""
        # Figures of other processes are not a baseline (device-plugin#4).
        if processes != self._processes:
            self._forget()
            self._processes = processes
        before, self._before = self._before, figures
        hung = None
        if before is not None:
            self._before = figures.filled_from(before)
            hung = looks_hung(figures, before, self._limits)
        if hung is None and troubles:
            return self.observe_failure(troubles, now_ms)
        reports = self._answers.observe_answer(now_ms)
        if hung:
            self._rounds += 1
            if self._rounds >= self._limits.detect_duration and not self.hung:
                self.hung = True
                reports.append(self._observation(Assertion.OCCUR, now_ms))
        elif hung is False:
            self._rounds = 0
            reports += self._moves(now_ms)
        return reports

    def observe_failure(self, reason: str, now_ms: int) -> list[Report]:
        """Apply that the activity of the chip is not known: the tracked state stays."""
        return self._answers.observe_failure(reason, now_ms)

    def _forget(self) -> None:
        self._rounds = 0
        self._before = None

    def _moves(self, now_ms: int) -> list[Report]:
        if not self.hung:
            return []
        self.hung = False
        return [self._observation(Assertion.RECOVER, now_ms)]

    def _observation(self, assertion: Assertion, now_ms: int) -> Observation:
        # A guess must not take a chip away where an operator's table does not have the code.
        severity = Severity.SUGGESTION
        return Observation(self._source, self._chip, HANG, assertion, now_ms, severity)
