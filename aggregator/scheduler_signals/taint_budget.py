"""Which nodes and chips may be tainted: one budget of the hardware for both options. Pure.

A wrong table of levels must not take a fleet away, whichever option it reaches. A node is a part of
all nodes, a chip a part of all chips. A chip of a tainted node is out already, so it needs no room.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from aggregator.scheduler_signals.device_pools import NodeChip

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Target = TypeVar("Target")


class TaintTurn(NamedTuple):
    """How urgent a taint is, the worst first, then the oldest. ``since_ms`` is wall time."""

    rank: int
    since_ms: int


class TaintDemand(NamedTuple, Generic[Target]):
    """What an option has tainted of ``total`` and what it wants to taint.

    ``percent`` is its own limit; it allows one at least.
    """

    wanted: Mapping[Target, TaintTurn]
    standing: Collection[Target]
    total: int
    percent: int

    @property
    def limit(self) -> int:
        """How many its own limit allows."""
        return max(1, self.total * self.percent // 100)


class Admitted(NamedTuple):
    """What may be tainted, with what is."""

    nodes: frozenset[str]
    chips: frozenset[NodeChip]


_NO_NODES: TaintDemand[str] = TaintDemand({}, (), 0, 0)
_NO_CHIPS: TaintDemand[NodeChip] = TaintDemand({}, (), 0, 0)


def admitted(
    nodes: TaintDemand[str] = _NO_NODES, chips: TaintDemand[NodeChip] = _NO_CHIPS
) -> Admitted:
    """Return what may be tainted: together at most the larger of both limits, one at least.

    What stands is never displaced. Of the others the worst is first, then the oldest. If that
    finds no room together, nothing behind it passes it.
    """
    # In parts of the hardware that make both a whole number.
    of_node, of_chip = max(1, chips.total), max(1, nodes.total)
    smallest = max(of_node if nodes.wanted else 0, of_chip if chips.wanted else 0)
    percent = max(nodes.percent, chips.percent)
    room = max(of_node * of_chip * percent // 100, smallest)
    tainted, out = set(nodes.standing), set(chips.standing)
    room -= of_node * len(tainted)
    room -= of_chip * sum(chip.node not in tainted for chip in out)
    room_of_nodes = nodes.limit - len(tainted)
    room_of_chips = chips.limit - len(out)
    order = sorted(
        itertools.chain(
            ((turn, node, -1) for node, turn in nodes.wanted.items() if node not in tainted),
            ((turn, *chip) for chip, turn in chips.wanted.items() if chip not in out),
        )
    )
    for _, node, physical_id in order:
        is_chip = physical_id >= 0
        if (room_of_chips if is_chip else room_of_nodes) <= 0:
            continue
        needed = (0 if node in tainted else of_chip) if is_chip else of_node
        if needed > room:
            break
        room -= needed
        if is_chip:
            room_of_chips -= 1
            out.add(NodeChip(node, physical_id))
        else:
            room_of_nodes -= 1
            tainted.add(node)
    return Admitted(frozenset(tainted), frozenset(out))


class TaintBudget:
    """The demands of the options that are on, and what follows.

    Each option sets what returns its demand, and what plans again the objects that wait for room.
    """

    def __init__(self) -> None:
        self.nodes: Callable[[], TaintDemand[str]] = lambda: _NO_NODES
        self.chips: Callable[[], TaintDemand[NodeChip]] = lambda: _NO_CHIPS
        self.plan_nodes: Callable[[], object] = lambda: None
        self.plan_chips: Callable[[], object] = lambda: None
        self._admitted: Admitted | None = None

    @property
    def admitted(self) -> Admitted:
        """What may be tainted now."""
        if self._admitted is None:
            self._admitted = admitted(self.nodes(), self.chips())
        return self._admitted

    def change_nodes(self) -> None:
        """Observe that the demand of nodes has changed: chips may have room now."""
        self._admitted = None
        self.plan_chips()

    def change_chips(self) -> None:
        """Observe that the demand of chips has changed: nodes may have room now."""
        self._admitted = None
        self.plan_nodes()
