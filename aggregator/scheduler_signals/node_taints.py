"""Which taint a node is to have, and which tolerations tolerate it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aggregator.scheduler_signals.node_evidence import PART
from contract.codes.levels import rank_of
from contract.node_signals import NO_EXECUTE, NO_SCHEDULE, TAINT_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from aggregator.config import NodeTaintsSection
    from aggregator.scheduler_signals.node_evidence import NodeEvidence, NodeFault


class WantedTaint(NamedTuple):
    """The taint of a node: ``value`` is its worst level, ``faults`` are the keys of its causes.

    ``began_ms`` is the wall time of the earliest of them, 0 where that is not known.
    """

    value: str
    effect: str
    faults: frozenset[str]
    began_ms: int

    @property
    def rank(self) -> int:
        """How bad the worst level is, 0 for the worst."""
        return rank_of(self.value)


def wanted_taint(evidence: NodeEvidence, options: NodeTaintsSection) -> WantedTaint | None:
    """Return the taint that a node is to have; ``None`` for none."""
    for effect, levels in (
        (NO_EXECUTE, options.no_execute_levels),
        (NO_SCHEDULE, options.no_schedule_levels),
    ):
        causes = _causes(evidence, levels, all_chips=options.chips == "all")
        if causes:
            begins = [fault.began_ms for fault in causes if fault.began_ms > 0]
            worst = min(causes, key=lambda fault: fault.rank)
            keys = frozenset(fault.key for fault in causes)
            return WantedTaint(worst.level, effect, keys, min(begins, default=0))
    return None


def _causes(
    evidence: NodeEvidence, levels: Collection[str], *, all_chips: bool
) -> tuple[NodeFault, ...]:
    """Return the faults at ``levels`` that concern the node as a whole.

    A part of the server and a switch do. Chips do when each of them has a fault, or any of them
    without ``all_chips``.
    """
    faults = [fault for fault in evidence.faults if fault.level in levels]
    whole = [fault for fault in faults if fault.of == PART or fault.subject.startswith("switch ")]
    of_chips = [fault for fault in faults if fault not in whole]
    chips = {fault.subject for fault in of_chips}
    counts = chips >= (evidence.chips or chips) if all_chips else bool(chips)
    return (*whole, *(of_chips if counts else ()))


class TaintToleration(msgspec.Struct, frozen=True):
    """A toleration of a pod, in the form of the API."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = msgspec.field(default=None, name="tolerationSeconds")


def tolerates(tolerations: Iterable[TaintToleration], value: str, effect: str) -> bool:
    """Return whether one of ``tolerations`` tolerates our taint with this value.

    Source: Kubernetes, Taints and Tolerations: an empty key with ``Exists`` tolerates all keys, an
    empty effect all effects. One that ends after seconds does not tolerate for good.
    """
    return any(
        toleration.effect in ("", effect)
        and toleration.seconds is None
        and (
            toleration.key in ("", TAINT_KEY)
            if toleration.operator == "Exists"
            else (toleration.key, toleration.value) == (TAINT_KEY, value)
        )
        for toleration in tolerations
    )
