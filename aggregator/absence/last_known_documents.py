"""The documents of nodes in a store that may come back without what it had.

A broker without persistence restarts empty, a directory is unmounted or replaced. So what such a
store lacks keeps its last state, and ends only by somebody's word (``rules.py``,
``docs/decisions/021``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.inputs.node_documents import DocumentWatch
from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.inputs.node_documents import DocumentCache
    from stores.base import Document

_SHOWN_AFTER_MS = 8000
"""How much longer a deletion that was shown is not named: mostly an agent made it."""


class AbsentDocument(msgspec.Struct, frozen=True):
    """A document that is known and that its store lacks.

    ``since_ms`` is wall time. ``stands_at_ms``: steady time from which it is no passing state; the
    owner of an immutable document deletes and creates it. ``is_reported``: its deletion was shown.
    """

    since_ms: int
    stands_at_ms: int
    is_reported: bool

    @property
    def named_at_ms(self) -> int:
        """Steady time from which it is named for people."""
        return self.stands_at_ms + (_SHOWN_AFTER_MS if self.is_reported else 0)


class LastingFeed(DocumentWatch):
    """A watch of which absence ends nothing. ``present`` has nodes whose state is kept, too."""

    absent: dict[str, AbsentDocument]
    """Nodes whose document the store lacks."""
    absences: int
    """How often a document came to be absent."""

    def __init__(
        self,
        namespace: str,
        prefix: str,
        inboxes: tuple[DocumentCache[Any], ...],
        *,
        keep: Callable[[str, str, Document | None], None] = lambda *_: None,
        has_agent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``keep`` is called with namespace and name of each good document, with ``None`` for that
        of a node that was ended. ``has_agent`` returns whether an agent of ours has beaten for a
        node: it writes again what is older.
        """
        super().__init__(namespace, prefix, inboxes)
        self.absent = {}
        self.absences = 0
        self.older: dict[str, Document] = {}
        """What a list shows instead of a newer document of a node."""
        self._keep = keep
        self._has_agent = has_agent

    def remember(self, document: Document, now_ms: int) -> None:
        """Take in what an earlier run knew, before the store has shown anything."""
        super()._take(document, now_ms)

    def lack(self, node: str, now_ms: int, stands_at_ms: int) -> None:
        """The store lacks a document of which only what was published is known."""
        if node not in self.absent:
            self._lack(node, AbsentDocument(now_ms, stands_at_ms, is_reported=False))

    def _lack(self, node: str, absent: AbsentDocument) -> None:
        self.absent[node] = absent
        self.absences += 1

    def has(self, node: str) -> bool:
        """See ``DocumentWatch``."""
        return node in self.present and node not in self.absent

    def read(self, node: str, document: Document | None, now_ms: int) -> frozenset[str]:
        """See ``DocumentWatch``. One that is not there is absent, and not deleted."""
        if document is None or not self.selection.fits(document.labels):
            return self._miss(node, now_ms, None, is_reported=False)
        return super().read(node, document, now_ms)

    def end(self, node: str) -> frozenset[str]:
        """Somebody's word ended the node's document; returns the nodes about which that changes
        something.
        """
        self.absent.pop(node, None)
        self.older.pop(node, None)
        self._forget(node)
        self.deleted.add(node)
        (name,) = self.names_of((node,)).values()
        self._keep(self.selection.namespace or "", name, None)
        return frozenset({node})

    def unconfirm_deletions(self) -> None:
        """What is absent counts as lacking in a list from now on."""
        for node, absent in self.absent.items():
            self.absent[node] = msgspec.structs.replace(absent, is_reported=False)

    def number(self, node: str) -> int:
        """Return the age of what is known of the node, in the unit of its kind; 0 for nothing."""
        inbox = self.inboxes[0]
        report = inbox.reports.get(node)
        return 0 if report is None else inbox.kind.age(report.record)

    def older_number(self, node: str) -> int | None:
        """Return the age of the older document that the store has instead; ``None`` for none."""
        document = self.older.get(node)
        return None if document is None else self._age(document)

    def take_older(self, node: str, now_ms: int) -> frozenset[str]:
        """The node's agent says that the older document is its last one: its clock was set back."""
        return self._take(self.older[node], now_ms)

    def _age(self, document: Document) -> int | None:
        kind = self.inboxes[0].kind
        try:
            return kind.age(kind.read(document).record)
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

    def _is_of_the_past(self, node: str, document: Document) -> bool:
        """See ``DocumentWatch``. A store that was set back shows what its agent writes again."""
        inbox = self.inboxes[0]
        is_other = node in inbox.reports and not inbox.is_last_good(node, document)
        if not is_other or not self._has_agent(node):
            return False
        age = self._age(document)
        if age is None or age >= self.number(node):
            return False
        self.older[node] = document
        return True

    def _miss(
        self, node: str, now_ms: int, deleted_at_ms: int | None, *, is_reported: bool
    ) -> frozenset[str]:
        known = self.absent.get(node)
        if node in self.present and (known is None or (is_reported and not known.is_reported)):
            since_ms = now_ms if known is None else known.since_ms
            self._lack(node, AbsentDocument(since_ms, deleted_at_ms or 0, is_reported))
        return frozenset()
