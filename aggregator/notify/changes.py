"""Detects published changes of a node: faults that begin, end or change their level.

Pure. It observes the same records that readers receive, so the history is that of the readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.documents.dpu_info import is_dpu_subject
from contract.documents.switch_info import leveled
from contract.pages.changes import STATUS, FaultChange
from contract.pages.faults import part_name, port_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aggregator.cluster_documents.published_node import PublishedNode
    from contract.documents.cluster_device import CodeFault

_NOTHING: dict[tuple[str, str], str] = {}
_WELL = ("", "Healthy")


class ChangeDetector:
    """Compares with what was published of each node last; keeps only nodes that are not healthy."""

    def __init__(self) -> None:
        self._known: dict[str, dict[tuple[str, str], str]] = {}
        self._began_ms: dict[str, dict[tuple[str, str], int]] = {}

    def seed(self, node: str, published: PublishedNode, faults: Iterable[CodeFault]) -> None:
        """Take over what an earlier run published; ``faults`` of chips are not in the record."""
        chips = {(fault.chip, fault.code): fault.level for fault in faults}
        self._note(node, chips | _levels(published))

    def take_over(self, levels: Mapping[str, Mapping[tuple[str, str], str]]) -> None:
        """Take over the levels that an earlier run has published, by node: only differences are
        changes.
        """
        self._known = {node: dict(levels) for node, levels in levels.items() if levels}

    @property
    def levels(self) -> dict[str, dict[tuple[str, str], str]]:
        """What was published last, by node."""
        return {node: dict(levels) for node, levels in self._known.items()}

    def levels_of(self, node: str) -> Mapping[tuple[str, str], str]:
        """Return what was published last of a node."""
        return self._known.get(node, _NOTHING)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that are not healthy."""
        return frozenset(self._known)

    def began_ms(self, node: str, subject: str, code: str) -> int | None:
        """Return since when a fault is published; ``None`` for what an earlier run published."""
        return self._began_ms.get(node, {}).get((subject, code))

    def observe_node(
        self,
        node: str,
        published: PublishedNode,
        now_ms: int,
        faults: Iterable[CodeFault] = (),
        dpus: Mapping[tuple[str, str], str] | None = None,
    ) -> tuple[FaultChange, ...]:
        """Return what changed of a node since the last call; ``faults`` as in ``seed``.

        ``dpus`` are the levels of its NICs and DPUs; without them these are as they were.
        """
        before = self._known.get(node, _NOTHING)
        levels = {(fault.chip, fault.code): fault.level for fault in faults} | _levels(published)
        levels |= _of_dpus(before) if dpus is None else dpus
        return self._compared(node, levels, now_ms)

    def observe_dpus(
        self, node: str, dpus: Mapping[tuple[str, str], str], now_ms: int
    ) -> tuple[FaultChange, ...]:
        """Return what changed of a node's NICs and DPUs, which no published document has."""
        before = self._known.get(node, _NOTHING)
        levels = {key: level for key, level in before.items() if not is_dpu_subject(key[0])}
        return self._compared(node, {**levels, **dpus}, now_ms)

    def _compared(
        self, node: str, levels: dict[tuple[str, str], str], now_ms: int
    ) -> tuple[FaultChange, ...]:
        """Note all levels of a node, and return what changed."""
        before = self._known.get(node, _NOTHING)
        if levels == before:
            return ()
        self._note(node, levels)
        began_ms = self._began_ms.pop(node, {}) | dict.fromkeys(
            levels.keys() - before.keys(), now_ms
        )
        if levels:
            self._began_ms[node] = {key: at for key, at in began_ms.items() if key in levels}
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


def _of_dpus(levels: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    return {key: level for key, level in levels.items() if is_dpu_subject(key[0])}


def _levels(published: PublishedNode) -> dict[tuple[str, str], str]:
    return dict(_pairs(published))


def _pairs(published: PublishedNode) -> Iterator[tuple[tuple[str, str], str]]:
    if published.device is not None:
        for fault in published.device.faults:
            yield (fault.chip, fault.code), fault.level
    if published.switch is not None:
        switch = published.switch
        for event, level in leveled(switch):
            port = port_name(event.switch_chip_id, event.switch_port_id)
            yield (port, event.assembled_fault_code), level
        if switch.status not in _WELL:
            yield ("switches", STATUS), switch.status
    if published.node is not None:
        for part in published.node.faults:
            for code in part.fault_code or ():
                yield (part_name(part.device_type, part.device_id), code), part.fault_level
        if published.node.status not in _WELL:
            yield ("node", STATUS), published.node.status
