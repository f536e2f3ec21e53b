"""Watch of nodes' documents in a store that may come back without what it had.

A broker without persistence restarts empty, a directory is unmounted or replaced. So what such a
store lacks keeps its last state. It ends only when its agent, an operator or an explicit deletion
ends it (``ended_documents.py``, ``docs/decisions/021``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import override

from aggregator.inputs.node_documents import DocumentWatch
from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.inputs.node_documents import DocumentCache
    from stores.base import Document

_SHOWN_AFTER_MS = 8000
"""How much longer a deletion that the store reported is not shown: mostly an agent made it."""


class AbsentDocument(msgspec.Struct, frozen=True):
    """A known document that its store lacks.

    ``since_ms`` is wall time. ``stands_at_ms``: steady time from which the absence is not a passing
    state; the owner of an immutable document deletes and creates it. ``is_reported``: the store
    reported a deletion.
    """

    since_ms: int
    stands_at_ms: int
    is_reported: bool

    @property
    def named_at_ms(self) -> int:
        """Steady time from which status and log show it."""
        return self.stands_at_ms + (_SHOWN_AFTER_MS if self.is_reported else 0)


class LastingDocumentWatch(DocumentWatch):
    """A document watch in which absence ends nothing. ``present`` includes nodes whose state is
    kept.
    """

    def __init__(
        self,
        document: str,
        namespace: str,
        prefix: str,
        caches: tuple[DocumentCache[Any], ...],
        *,
        keep: Callable[[str, str, Document | None], None] = lambda *_: None,
        has_agent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Make a watch; ``keep`` is called with namespace and name of each good document, and with
        ``None`` for that of a node that was ended.

        ``has_agent`` returns whether an agent of NPU Vigil has beaten for a node: it writes again
        what is older.
        """
        super().__init__(document, namespace, prefix, caches)
        self.absent: dict[str, AbsentDocument] = {}
        """Nodes whose document the store lacks."""
        self.absences = 0
        """How many documents became absent since the start."""
        self.older: dict[str, Document] = {}
        """Older documents that a listing shows instead of the newer ones known, by node."""
        self._keep = keep
        self._has_agent = has_agent

    def restore_document(self, document: Document, now_ms: int) -> None:
        """Restore a document of an earlier run, before the store has shown anything."""
        # Not our own ``_take``: what comes from the file need not be written to it again.
        super()._take(document, now_ms)

    def record_absent(self, node: str, now_ms: int, stands_at_ms: int) -> None:
        """Record as absent a document of which only the published entry is known."""
        if node not in self.absent:
            self._lack(node, AbsentDocument(now_ms, stands_at_ms, is_reported=False))

    def _lack(self, node: str, absent: AbsentDocument) -> None:
        self.absent[node] = absent
        self.absences += 1

    @override
    def has(self, node: str) -> bool:
        return node in self.present and node not in self.absent

    @override
    def read(self, node: str, document: Document | None, now_ms: int) -> frozenset[str]:
        """See ``DocumentWatch``. A document that is not there is absent, and not deleted."""
        # As in a watch, which would not show a document without the label.
        if document is None or not self.selection.fits(document.labels):
            return self._miss(node, now_ms, None, is_reported=False)
        return super().read(node, document, now_ms)

    def end(self, node: str) -> frozenset[str]:
        """End the node's document; return the nodes about which that changes something."""
        self.absent.pop(node, None)
        self.older.pop(node, None)
        self._forget(node)
        self.deleted.add(node)
        (name,) = self.names_of((node,)).values()
        self._keep(self.selection.namespace or "", name, None)
        return frozenset({node})

    def unconfirm_deletions(self) -> None:
        """Take all absences for gaps of a listing from now on, and no longer for deletions."""
        for node, absent in self.absent.items():
            self.absent[node] = msgspec.structs.replace(absent, is_reported=False)

    def older_written_at_ms(self, node: str) -> int | None:
        """Return the time of the older document that the store has instead; ``None`` for none."""
        document = self.older.get(node)
        return None if document is None else self._written_at_ms(document)

    def accept_older(self, node: str, now_ms: int) -> frozenset[str]:
        """Accept the older document: the node's agent reports it as its last write after its clock
        was set back. Return the nodes that changed.
        """
        return self._take(self.older[node], now_ms)

    def _written_at_ms(self, document: Document) -> int | None:
        kind = self.caches[0].kind
        try:
            return kind.age(kind.read(document).record) * kind.unit_ms
        except DocumentError:
            return None

    def _take(self, document: Document, now_ms: int) -> frozenset[str]:
        changed = super()._take(document, now_ms)
        node = self._node_of(document.namespace, document.name)
        if node is not None:
            self.absent.pop(node, None)
            self.older.pop(node, None)
            if not self._is_refused(node):
                self._keep(document.namespace, document.name, document)
        return changed

    @override
    def _is_set_back(self, node: str, document: Document) -> bool:
        """See ``DocumentWatch``. After a store was set back to an older state, its agent writes
        again.
        """
        cache = self.caches[0]
        is_other = node in cache.reports and not cache.is_last_good(node, document)
        # Only an agent of ours writes again by itself; a document of another program counts as it
        # is.
        if not is_other or not self._has_agent(node):
            return False
        at_ms = self._written_at_ms(document)
        if at_ms is None or at_ms >= (self.written_at_ms(node) or 0):
            return False
        self.older[node] = document
        return True

    def _miss(
        self, node: str, now_ms: int, deleted_at_ms: int | None, *, is_reported: bool
    ) -> frozenset[str]:
        absent = self.absent.get(node)
        # A reported deletion proves more than a list that lacks the document, so it replaces that.
        if node in self.present and (absent is None or (is_reported and not absent.is_reported)):
            since_ms = now_ms if absent is None else absent.since_ms
            self._lack(node, AbsentDocument(since_ms, deleted_at_ms or 0, is_reported))
        return frozenset()
