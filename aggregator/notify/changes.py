"""What changed in what is published of a node: faults that come, go or change their level.

Pure. It is told of the same records that readers are given, so its history is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.pages.changes import FaultChange
from contract.pages.subjects import part_name, port_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.merge.pipeline import PublishedNode
    from contract.documents.cluster_device import CodeFault

_NOTHING: dict[tuple[str, str], str] = {}
_WELL = ("", "Healthy")
STATUS = "status"
"""The code of what is about a part of a node as a whole: the word that is published of it."""


class ChangeDetector:
    """Knows what was published of each node last: only of those that are not well."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], str]] = {}

    def seed(self, node: str, published: PublishedNode, faults: Iterable[CodeFault]) -> None:
        """Take over what an earlier run published; ``faults`` of chips are not in the record."""
        chips = {(fault.chip, fault.code): fault.level for fault in faults}
        self._note(node, chips | _levels(published))

    def take_over(self, standing: Mapping[str, Mapping[tuple[str, str], str]]) -> None:
        """What an earlier run has told of, by node: what is published else now is news."""
        self._known = {node: dict(levels) for node, levels in standing.items() if levels}

    @property
    def standing(self) -> dict[str, dict[tuple[str, str], str]]:
        """What was published last, by node."""
        return {node: dict(levels) for node, levels in self._known.items()}

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that are not well."""
        return frozenset(self._known)

    def observe(
        self, node: str, published: PublishedNode, now_ms: int, faults: Iterable[CodeFault] = ()
    ) -> tuple[FaultChange, ...]:
        """What changed of a node since it was told last; ``faults`` as in ``seed``."""
        before = self._known.get(node, _NOTHING)
        levels = {(fault.chip, fault.code): fault.level for fault in faults} | _levels(published)
        if levels == before:
            return ()
        self._note(node, levels)
        return tuple(
            FaultChange(node, now_ms, *key, before.get(key), levels.get(key))
            for key in sorted(before.keys() | levels.keys())
            if before.get(key) != levels.get(key)
        )

    def _note(self, node: str, levels: dict[tuple[str, str], str]) -> None:
        if levels:
            self._known[node] = levels
        else:
            self._known.pop(node, None)


def _levels(published: PublishedNode) -> dict[tuple[str, str], str]:
    return dict(_pairs(published))


def _pairs(published: PublishedNode) -> Iterator[tuple[tuple[str, str], str]]:
    if published.device is not None:
        for fault in published.device.faults:
            yield (fault.chip, fault.code), fault.level
    if published.switch is not None:
        switch = published.switch
        levels = {key: level for key, _, level in switch.times or ()}
        for event in switch.events:
            code, chip, port = (
                event.assembled_fault_code,
                event.switch_chip_id,
                event.switch_port_id,
            )
            level = levels.get(f"{code}_{chip}_{port}", switch.level)
            yield (port_name(chip, port), code), level
        if switch.status not in _WELL:
            yield ("switches", STATUS), switch.status
    if published.node is not None:
        for part in published.node.faults:
            for code in part.fault_code or ():
                yield (part_name(part.device_type, part.device_id), code), part.fault_level
        if published.node.status not in _WELL:
            yield ("node", STATUS), published.node.status
