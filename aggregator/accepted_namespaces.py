"""Which namespaces documents of one kind are accepted from, and what is ignored for that reason.

A ConfigMap in another namespace has no effect in a cluster whose configuration names namespaces.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract.plural import plural
from contract.refusal import Reason
from stores.base import Changed, Deleted, DocumentsListed
from stores.interruption import Interrupted
from stores.refusals import Refused

if TYPE_CHECKING:
    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

ALL = "*"
"""In place of names: every namespace."""

_MAX_DOCUMENTS = 10_000
_MAX_NAMESPACES = 100
"""Anybody may make up both: beyond these they are counted and not remembered by name."""


def namespace_of(place: str) -> str:
    """Return the namespace in ``namespace/name``."""
    return place.partition("/")[0]


class Namespaces:
    """The namespaces from which ``subject`` are accepted, by the option ``setting``."""

    def __init__(self, subject: str, setting: str, names: tuple[str, ...] = (ALL,)) -> None:
        self.what = subject
        self.setting = setting
        self.names = names
        self.counts: Counter[int] = Counter()
        """By number of the store: how many documents were left out since the process began."""
        self._left_out: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        """By number of the store: namespace and name of the documents there are now."""
        self._named: set[str] = set()

    @property
    def takes_all(self) -> bool:
        """Whether no namespace is left out."""
        return ALL in self.names

    def takes(self, namespace: str) -> bool:
        """Return whether documents of ``namespace`` count."""
        return self.takes_all or namespace in self.names

    def taken(self, source: int, event: WatchEvent) -> WatchEvent | None:
        """Return the accepted part of an event of the store with this number; ``None``: nothing."""
        if self.takes_all:
            return event
        match event:
            case DocumentsListed(documents):
                here = tuple(document for document in documents if self.takes(document.namespace))
                others = [
                    (document.namespace, document.name)
                    for document in documents
                    if not self.takes(document.namespace)
                ]
                self._left_out[source].intersection_update(others)
                for namespace, name in others:
                    self._leave_out(source, namespace, name)
                return replace(event, documents=here)
            case Changed(document) if not self.takes(document.namespace):
                self._leave_out(source, document.namespace, document.name)
                return None
            case Deleted(namespace, name) if not self.takes(namespace):
                self._left_out[source].discard((namespace, name))
                return None
            case Changed() | Deleted() | Interrupted():
                return event

    def refused(self, source: int) -> tuple[Refused, ...]:
        """Return the namespaces whose documents are left out in the store with this number."""
        numbers = Counter(namespace for namespace, _ in self._left_out[source])
        return tuple(
            Refused(
                namespace,
                Reason.NAMESPACE,
                f"{plural(number, 'document')} with {self.what} left out: {self._why()}",
            )
            for namespace, number in sorted(numbers.items())
        )

    def _why(self) -> str:
        return f"{self.setting} names only {', '.join(self.names)}"

    def _leave_out(self, source: int, namespace: str, name: str) -> None:
        left_out = self._left_out[source]
        if (namespace, name) in left_out:
            return
        self.counts[source] += 1
        self._name(namespace)
        if sum(map(len, self._left_out.values())) < _MAX_DOCUMENTS:
            left_out.add((namespace, name))

    def _name(self, namespace: str) -> None:
        """Name a namespace in the log, once as long as the process lives."""
        if namespace in self._named or len(self._named) > _MAX_NAMESPACES:
            return
        self._named.add(namespace)
        if len(self._named) > _MAX_NAMESPACES:
            _log.warning("further namespaces with %s are left out and not named", self.what)
        else:
            reason = self._why()
            _log.warning("%s in namespace %s are left out: %s", self.what, namespace, reason)
