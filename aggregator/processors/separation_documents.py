"""The documents by which operators control manual separation, read and shown.

Source: ``clusterd#2.7``. Unlike there, a change counts at once, a value that cannot be read
releases no chip, and ``clusterd-manual-info-cm`` as it is read at the start is completed by the
persistent state.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aggregator.plugin import View
from aggregator.processors import manual_info
from aggregator.processors import separation_policy as policies
from aggregator.processors.manual_info import NAMESPACE, read_chips, render_chips
from aggregator.processors.separation_policy import SeparationPolicy, read_policy
from contract.documents.cluster_info import VALUE_LIMIT
from contract.errors import DocumentError
from stores.base import Changed, Deleted, Document, DocumentsListed, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aggregator.processors.manual_info import Codes
    from aggregator.processors.manual_separation import ManualSeparation, Separated
    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

_MOST_LEFT = 10_000
"""Chips that left a document and are remembered."""

PATIENCE_MS = 30_000
"""How long the list of separated chips waits for a store that does not answer."""

_POLICY = Selection(namespace=NAMESPACE, name=policies.NAME)
_CHIPS = Selection(namespace=NAMESPACE, name=manual_info.NAME)


class SeparationDocuments:
    """``clusterd-config-cm`` and ``clusterd-manual-info-cm`` of all stores that are read."""

    inputs = (_POLICY, _CHIPS)

    def __init__(self, separation: ManualSeparation, stores: int) -> None:
        self.problems: dict[tuple[int, str], str] = {}
        """Store and place of what cannot be read, and why. What was in force stays."""
        self._waits_for_stores = True
        """Whether ``views`` waits until every store was listed."""
        self._began_ms: int | None = None
        self._stores = stores
        self._separation = separation
        self._policies: dict[int, SeparationPolicy] = {}
        self._unlisted = {(store, one) for store in range(stores) for one in self.inputs}
        self._reported: dict[int, dict[str, dict[str, Codes]]] = {}
        self._left: dict[tuple[str, str], int] = {}
        """Node and chip to the wall time at which the chip left a document or was missing there."""

    @property
    def listed(self) -> bool:
        """Whether every store has listed both documents."""
        return not self._unlisted

    @property
    def policy(self) -> SeparationPolicy | None:
        """The policy in the document of the first store that has one; ``None`` where none has."""
        return self._policies[min(self._policies)] if self._policies else None

    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now_ms: int
    ) -> frozenset[str]:
        """Apply an event of the store with this number; return nodes to be judged again."""
        match event:
            case DocumentsListed(documents):
                document = next((one for one in documents if one.name == selection.name), None)
            case Changed(document) if document.name == selection.name:
                pass
            case Deleted(_, name) if name == selection.name:
                document = None
            case Changed() | Deleted() | Interrupted():
                return frozenset()
        is_first = isinstance(event, DocumentsListed) and (source, selection) in self._unlisted
        if is_first:
            self._unlisted.discard((source, selection))
        if selection == _POLICY:
            return self._read_policy(source, document)
        return self._read_chips(source, document, is_first, now_ms)

    def _read_policy(self, source: int, document: Document | None) -> frozenset[str]:
        """Apply a policy document; one that goes or is refused leaves the policy in force. Return
        nodes to be judged again.
        """
        if document is None:
            self._policies.pop(source, None)
        else:
            try:
                self._policies[source] = read_policy(document.data)
            except DocumentError as error:
                self._problem(source, policies.NAME, error)
                return frozenset()
        self._problem(source, policies.NAME, None)
        policy = self.policy
        return frozenset() if policy is None else self._separation.set_policy(policy)

    def _read_chips(
        self, source: int, document: Document | None, is_first: bool, now_ms: int
    ) -> frozenset[str]:
        before = self._reported.get(source, {})
        reported, unread = {}, set()
        for node, text in ({} if document is None else document.data).items():
            try:
                reported[node] = read_chips(node, text)
            except DocumentError as error:
                unread.add(node)
                self._problem(source, node, error)
                if node in before:
                    reported[node] = before[node]
        self._reported[source] = reported
        for node, chips in before.items():
            for chip in chips.keys() - reported.get(node, {}).keys():
                self._left[node, chip] = now_ms
        nodes = self._adopt(reported) if is_first else frozenset[str]()
        released = self._separation.compare(source, reported, unread)
        # What was kept is read again when we begin to lead, and has them still.
        self._left.update(dict.fromkeys(released, now_ms))
        while len(self._left) > _MOST_LEFT:
            del self._left[next(iter(self._left))]
        for known, node in tuple(self.problems):
            if known == source and node != policies.NAME and node not in unread:
                self._problem(source, node, None)
        return nodes | {node for node, _ in released}

    def _adopt(self, reported: dict[str, dict[str, Codes]]) -> frozenset[str]:
        if self.policy is not None and not self.policy.enabled:
            return frozenset()
        return self._separation.adopt(reported)

    def follow_up(self, *, is_news: bool) -> None:
        """Compare the restored state of an earlier leader with the document as it is since.

        A chip that left the document after it was separated last was released meanwhile. Without
        ``is_news`` no replica led since the document was read: what it has besides still counts.
        """
        if not is_news:
            for reported in self._reported.values():
                self._adopt(reported)
        for node, chips in tuple(self._separation.chips.items()):
            for chip, one in tuple(chips.items()):
                left_ms = self._left.get((node, chip))
                if left_ms is not None and max(one.codes.values(), default=0) <= left_ms:
                    self._separation.drop(node, chip)
        self._left.clear()
        for source, reported in self._reported.items():
            self._separation.mark_shown(source, reported)

    def _problem(self, source: int, place: str, error: DocumentError | None) -> None:
        """Log once that something cannot be read, and once that it can."""
        key = source, place
        if error is None:
            if self.problems.pop(key, None) is not None:
                _log.info("%s of store %d can be read again", place, source)
        elif self.problems.get(key) != str(error):
            self.problems[key] = str(error)
            _log.warning("refused, what was known stays: %s", error)

    def advance(self, now_ms: int) -> None:
        """Set the steady time. ``views`` waits for stores for ``PATIENCE_MS`` from the first on."""
        if self._began_ms is None:
            self._began_ms = now_ms
        self._waits_for_stores = now_ms < self._began_ms + PATIENCE_MS

    def views(self) -> tuple[View, ...]:
        """Return the list of separated chips, once it is known what every store has of it.

        The list of a store that is away for long is taken over when it is back.
        """
        silent = sum(selection == _CHIPS for _, selection in self._unlisted)
        if silent and (self._waits_for_stores or silent == self._stores):
            return ()
        return (View(NAMESPACE, manual_info.NAME, rendered(self._separation.chips) or None),)


def rendered(nodes: Mapping[str, Mapping[str, Separated]]) -> dict[str, str]:
    """Return the data of the document.

    What has no room is left out, but never what was shown before: that would be taken for an
    operator's release. If need be, it is shown without its codes.
    """
    whole = {
        node: render_chips({chip: one.codes for chip, one in chips.items()})
        for node, chips in sorted(nodes.items())
    }
    room = VALUE_LIMIT - sum(_size(node, text) for node, text in whole.items())
    if room >= 0:
        return whole
    shown = [node for node in whole if _is_shown(nodes[node])]
    data = {node: render_chips({chip: {} for chip in nodes[node]}) for node in shown}
    room = VALUE_LIMIT - sum(_size(node, text) for node, text in data.items())
    for node in (*shown, *(one for one in whole if one not in data)):
        more = _size(node, whole[node]) - (_size(node, data[node]) if node in data else 0)
        if more <= room:
            room -= more
            data[node] = whole[node]
    return dict(sorted(data.items()))


def _size(node: str, text: str) -> int:
    return len(node) + len(text.encode())


def _is_shown(chips: Mapping[str, Separated]) -> bool:
    return any(one.shown for one in chips.values())
