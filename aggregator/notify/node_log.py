"""Logs new and deleted nodes, and faults that take chips or nodes out of use.

At most ten lines a minute together: a fleet of thousands changes all the time, and too many lines
hide those that matter. All that is not logged one by one is counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from contract.codes.chip_codes import is_network
from contract.codes.levels import takes_out
from contract.counted import counted
from service.log.paced_lines import NAMED, PacedLines
from service.log.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from contract.pages.changes import FaultChange

_log = logging.getLogger(__name__)


class NodeLog:
    """Logs changes while this replica leads; a follower leaves that to its leader."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._came = PacedLines(_log, logging.INFO, 1, "node %s came", "%d nodes came: %s")
        self._went = PacedLines(_log, logging.INFO, 1, "node %s is gone", "%d nodes are gone: %s")
        self._out = PacedLines(
            _log, logging.WARNING, 3, many="%d faults take chips, switches or nodes out: %s"
        )
        self._over = PacedLines(_log, logging.INFO, 2, many="%d faults or levels are over: %s")
        self._refused = PacedLines(_log, logging.WARNING, 2, many="%d documents are refused: %s")
        self._good = PacedLines(
            _log, logging.INFO, 1, many="%d documents are good again or gone: %s"
        )

    def begin(
        self, nodes: Iterable[str], standing: Mapping[str, Mapping[tuple[str, str], str]]
    ) -> None:
        """Log the faults that hold on the ``nodes`` when this replica begins to lead."""
        self._known = set(nodes)
        faults = sorted(_standing(standing))
        if faults:
            texts = [text for _, text in faults]
            _log.warning(
                "%s on %s: %s",
                counted(len(texts), "fault"),
                counted(len(standing), "node"),
                shortened(texts, NAMED, separator="; "),
            )

    def observe_node(self, node: str, *, is_known: bool) -> None:
        """Log a new or deleted node."""
        if is_known and node not in self._known:
            self._known.add(node)
            self._came.add((node,))
        elif not is_known and node in self._known:
            self._known.discard(node)
            self._went.add((node,))

    def observe_changes(self, changes: Iterable[FaultChange]) -> None:
        """Log faults that take something out of use now, and those that do so no more."""
        for one in changes:
            network = is_network(one.code)
            where = f"node {one.node}: {one.subject} {one.code}"
            if takes_out(one.level, is_network=network):
                self._out.add((f"{where}: {one.was or 'nothing'} -> {one.level}",))
            elif takes_out(one.was, is_network=network):
                self._over.add((f"{where}: {one.was} -> {one.level or 'nothing'}",))

    def refuse(self, node: str, name: str, reason: str) -> None:
        """Log that a document of a node is refused."""
        self._refused.add((f"node {node}: its {name} document is refused: {reason}",))

    def accept(self, node: str, name: str) -> None:
        """Log that a document of a node is not refused any more."""
        self._good.add((f"node {node}: its {name} document is good again or gone",))


def _standing(
    standing: Mapping[str, Mapping[tuple[str, str], str]],
) -> Iterator[tuple[bool, str]]:
    """Yield what is published, each with whether it takes nothing out of use: such lines
    sort last.
    """
    for node, levels in standing.items():
        for (subject, code), level in levels.items():
            is_mild = not takes_out(level, is_network=is_network(code))
            yield is_mild, f"node {node}: {subject} {code} {level}"
