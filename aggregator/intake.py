"""Device-info documents as they arrive: verified, newest wins, a good one is never lost.

A document that cannot be read or verified leaves the node's last good one in force (``spec/
clusterd.md`` 1.4) and is remembered with its reason until a good one comes. What a store lists
after an interruption replaces what was known of it: whoever is missing was deleted (defect B2).
Within one store the order of its events decides; between stores the greater ``UpdateTime``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract import device_info
from contract.cluster_device import DeviceRecord, device_record
from contract.errors import DocumentError
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    REPORT_LABEL,
    node_name_problem,
)
from stores.base import Changed, Deleted, Document, Interrupted, Listed, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stores.base import WatchEvent

SELECTION = Selection(namespace=DEVICE_INFO_NAMESPACE, label=REPORT_LABEL)
"""What to watch in every store that is read."""

MAX_NODES = 16_000
"""Nodes beyond this are refused; those that are known go on (defect B16)."""


class Report(msgspec.Struct, frozen=True):
    """The last good document of a node.

    ``received_at_ms`` is wall time; ``first_seen_ms`` holds chip and code to the wall time at
    which this process saw the fault first.
    """

    text: str
    record: DeviceRecord
    received_at_ms: int
    first_seen_ms: dict[tuple[str, str], int]
    faults_problem: str | None


class Rejected(msgspec.Struct, frozen=True):
    """A node's newest document was refused. ``since_ms`` is when that began (wall time)."""

    since_ms: int
    reason: str
    data: dict[str, str]


class Source:
    """What one store said."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.reports: dict[str, Report] = {}
        self.rejected: dict[str, Rejected] = {}
        self.rejected_total = 0
        self.interruptions_total = 0
        self.listed = False
        self.interrupted: str | None = None
        """Why nothing is heard from the store now."""

    def observe(self, event: WatchEvent, now_ms: int) -> frozenset[str]:
        """Take in one event; returns the nodes about which something changed."""
        match event:
            case Listed(documents):
                self.listed = True
                self.interrupted = None
                return self._replace(documents, now_ms)
            case Changed(document):
                return self._take(document, now_ms)
            case Deleted(namespace, name):
                node = _node_of(namespace, name)
                return frozenset() if node is None else self._forget(node)
            case Interrupted(reason):
                if self.interrupted is None:
                    self.interruptions_total += 1
                self.interrupted = reason
                return frozenset()

    def _replace(self, documents: Iterable[Document], now_ms: int) -> frozenset[str]:
        changed: set[str] = set()
        present = set()
        for document in documents:
            present.add(_node_of(document.namespace, document.name))
            changed |= self._take(document, now_ms)
        for node in (self.reports.keys() | self.rejected.keys()) - present:
            changed |= self._forget(node)
        return frozenset(changed)

    def _take(self, document: Document, now_ms: int) -> frozenset[str]:
        node = _node_of(document.namespace, document.name)
        if node is None:
            return frozenset()
        known = self.reports.get(node)
        text = document.data.get(device_info.DEVICE_INFO_KEY, "")
        if known is not None and known.text == text:
            return self._accepted_again(node)
        rejected = self.rejected.get(node)
        if rejected is not None and rejected.data == document.data:
            return frozenset()
        try:
            if problem := node_name_problem(node):
                raise DocumentError(document.name, "metadata.name", f"the node's name {problem}")
            if known is None and len(self.reports) >= MAX_NODES:
                raise DocumentError(document.name, "$", f"there are already {MAX_NODES} nodes")
            info = device_info.decode(document.data, document.name)
        except DocumentError as error:
            self.rejected_total += 1
            since_ms = now_ms if rejected is None else rejected.since_ms
            self.rejected[node] = Rejected(since_ms, str(error), document.data)
            return frozenset({node})
        self.rejected.pop(node, None)
        record = device_record(info)
        before = {} if known is None else known.first_seen_ms
        self.reports[node] = Report(
            text=text,
            record=record,
            received_at_ms=now_ms,
            first_seen_ms={
                (fault.chip, fault.code): before.get((fault.chip, fault.code), now_ms)
                for fault in record.faults
            },
            faults_problem=info.faults_problem,
        )
        return frozenset({node})

    def _accepted_again(self, node: str) -> frozenset[str]:
        return frozenset() if self.rejected.pop(node, None) is None else frozenset({node})

    def _forget(self, node: str) -> frozenset[str]:
        report = self.reports.pop(node, None)
        rejected = self.rejected.pop(node, None)
        return frozenset() if report is None and rejected is None else frozenset({node})


def newest(sources: Iterable[Source], node: str) -> Report | None:
    """The report that counts for a node: the one with the greatest ``UpdateTime``."""
    reports = (source.reports[node] for source in sources if node in source.reports)
    return max(reports, key=lambda report: report.record.update_time, default=None)


def _node_of(namespace: str, name: str) -> str | None:
    if namespace != DEVICE_INFO_NAMESPACE or not name.startswith(DEVICE_INFO_PREFIX):
        return None
    return name.removeprefix(DEVICE_INFO_PREFIX)
