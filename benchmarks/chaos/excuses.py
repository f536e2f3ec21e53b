"""What the troubles of an episode excuse together. Pure.

A trouble excuses late documents until its end. What else its effects permit may happen until its
bound after that, in which the documents are repaired. Where a second trouble stops whoever repairs
them, the repair begins at the end of that one::

    effect  |=============|--bound--|
    stop               |=========|--bound--|
    permitted |============================|

A stop counts when it overlaps the effect, both with their bounds. The effect of the first trouble
is then permitted for the nodes and documents of both, for the longer of the two bounds. The time of
a fault changes once, so a changed time is permitted as long as the document that shows it may be
late behind the stop. A store that is set back shows again what it had when its copy was made. So it
counts when the effect was permitted at that time, or at the time of the set-back, from which the
effect is permitted again. A heartbeat that it forgets keeps a node lost until the next one.

A journal that lost its last second has a fault that ended in it. Documents have it again only where
the driver's lists, which would end it, are hidden at the next start of the agent. Lists that were
hidden stay so for an agent whose task hangs before it has read them again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from benchmarks.chaos.judge import BOUND_SECONDS, HEARTBEAT_SECONDS, Excuse
from benchmarks.chaos.plan import NODES
from benchmarks.chaos.troubles import BOTH, CLUSTER, TROUBLES, Effect, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.chaos.plan import PlannedTrouble


@dataclass(frozen=True)
class PastTrouble:
    """A trouble that is over; ``bound`` are the seconds after ``end`` in which all is repaired."""

    trouble: Trouble
    nodes: frozenset[str]
    begin: float
    end: float
    bound: float

    @property
    def visible_from(self) -> float:
        """From when on it can be seen."""
        return self.end if Effect.ENDS_VISIBLY in self.trouble.effects else self.begin

    def stops(self, effect: Excuse) -> bool:
        """Return whether it stops those who would repair what ``effect`` permits."""
        effects = self.trouble.effects
        if Effect.STOPS not in effects or not (
            self.nodes & effect.nodes and self.trouble.documents & effect.documents
        ):
            return False
        if Effect.FORGETS in effects:
            return any(effect.begin <= at < effect.end for at in (self.begin, self.end))
        return self.visible_from < effect.end and effect.begin < self.end + self.bound


def planned_excuses(platform: str, troubles: Iterable[PlannedTrouble]) -> list[Excuse]:
    """Return what ``troubles`` excuse at most.

    Each aggregator leads. With real parts each trouble ends in time, or late because a machine is
    busy. While one is undone, the others last.
    """
    pasts: list[PastTrouble] = []
    late = 0.0
    for planned in sorted(troubles, key=_order):
        trouble, end = TROUBLES[planned.name], _end(planned)
        late = max(late, end) + trouble.seconds_to_end(platform)
        nodes, bound = nodes_of(planned.subject), trouble.bounds[platform]
        ends = sorted({end, late})
        pasts += (PastTrouble(trouble, nodes, planned.at, end, bound) for end in ends)
    return excuses_of(pasts)


def _end(planned: PlannedTrouble) -> float:
    return planned.at if Effect.AT_ONCE in TROUBLES[planned.name].effects else planned.until


def _order(planned: PlannedTrouble) -> tuple[float, bool, float]:
    """Return the place of its end in the timeline, also of those that end at one time."""
    is_undone = Effect.AT_ONCE not in TROUBLES[planned.name].effects
    return _end(planned), is_undone, planned.at


def excuses_of(troubles: Sequence[PastTrouble]) -> list[Excuse]:
    """Return what is excused in an episode with these troubles."""
    excuses: list[Excuse] = []
    waiting: deque[tuple[Excuse, float]] = deque()
    for past in troubles:
        # The judge waits for a change that was excused as for any other, once the excuse is over.
        end = past.end + max(0.0, past.bound - BOUND_SECONDS)
        documents = past.trouble.documents
        if documents:
            excuses.append(Excuse(past.trouble.name, past.visible_from, end, past.nodes, documents))
            excuses += _unread(past, troubles)
        waiting += ((effect, past.bound) for effect in _effects(past))
        waiting += ((effect, past.bound) for effect in _rolled_back(past, troubles))
    while waiting:
        effect, bound = waiting.popleft()
        excuses.append(effect)
        for past in troubles:
            # The stop only delays the documents that show a changed time.
            repair = max(BOUND_SECONDS if effect.retimes else bound, past.bound)
            end = past.end + repair
            if effect.loses and Effect.FORGETS in past.trouble.effects:
                # Its last heartbeat is gone, and the next one comes an interval later.
                end += HEARTBEAT_SECONDS
            if end > effect.end and past.stops(effect):
                later = replace(
                    effect,
                    begin=max(effect.begin, past.visible_from),
                    end=end,
                    nodes=effect.nodes & past.nodes,
                    documents=effect.documents & past.trouble.documents,
                )
                waiting.append((later, repair))
    return excuses


def _unread(past: PastTrouble, troubles: Iterable[PastTrouble]) -> Iterator[Excuse]:
    """Yield how long documents are late because the lists that ``past`` has hidden are not read."""
    if Effect.HIDES_LISTS not in past.trouble.effects:
        return
    for other in troubles:
        is_before = past.begin < other.end and other.begin < past.end + past.bound
        nodes = past.nodes & other.nodes
        if Effect.SILENCES in other.trouble.effects and is_before and nodes:
            yield Excuse(past.trouble.name, past.begin, other.end + other.bound, nodes, BOTH)


def _rolled_back(past: PastTrouble, troubles: Iterable[PastTrouble]) -> Iterator[Excuse]:
    """Yield what may be shown again behind ``past``, because other troubles hide lists."""
    if Effect.ROLLS_BACK not in past.trouble.effects:
        return
    for other in troubles:
        is_hidden = other.begin < past.end + past.bound and past.end < other.end
        if Effect.HIDES_LISTS in other.trouble.effects and is_hidden and past.nodes & other.nodes:
            end = other.end + other.bound
            name, nodes = past.trouble.name, past.nodes
            yield Excuse(name, past.end, end, nodes, BOTH, is_late=False, returns=True)


def nodes_of(subject: str) -> frozenset[str]:
    """Return the nodes whose documents a trouble of ``subject`` is visible in."""
    return frozenset({subject} if subject in NODES else NODES)


def _effects(past: PastTrouble) -> Iterator[Excuse]:
    """Yield what the effects of a trouble permit by themselves, until its bound."""
    trouble, begin, end = past.trouble, past.visible_from, past.end + past.bound
    if Effect.FORGETS in trouble.effects:
        yield Excuse(trouble.name, begin, end, past.nodes, trouble.documents, forgets=True)
    if Effect.LOSES in trouble.effects:
        yield Excuse(trouble.name, begin, end, past.nodes, CLUSTER, is_late=False, loses=True)
    if Effect.RETIMES in trouble.effects:
        yield Excuse(trouble.name, begin, end, past.nodes, BOTH, is_late=False, retimes=True)
    if Effect.SHORTENS in trouble.effects:
        yield Excuse(trouble.name, begin, end, past.nodes, BOTH, is_late=False, shortens=True)
