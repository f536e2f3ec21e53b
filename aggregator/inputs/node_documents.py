"""The nodes' documents as they arrive: verified, newest wins, a good one is never lost.

A document that cannot be read or verified leaves the node's last good one in force
(``clusterd#1.4``). Its reason is kept until a good one comes; each kind by itself. A list
of an API server after an interruption replaces all documents of it: a node that is missing was
deleted (defect B2). Of other stores see ``aggregator/absence/last_known_documents.py``. Within one
store the order of its events decides; between stores the greater stamp.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from aggregator.cluster_documents.kinds import DEVICE, NODE, OWN_KEY, SWITCH
from contract.documents.isolation_request import read_requests
from contract.errors import DocumentError
from contract.names import (
    DEFAULT_MAX_NODES,
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    REPORT_LABEL,
    node_name_problem,
)
from service.failing_requests import FailingRequests
from stores.base import Changed, Deleted, Document, DocumentsListed, ListedPage, Selection
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aggregator.cluster_documents.kinds import Content, DocumentKind
    from contract.documents.isolation_request import IsolationRequest
    from stores.base import PagedWatchEvent

R = TypeVar("R")

_REPAIR_CHECK_MS = 2000
"""How often it is asked meanwhile whether the agent still runs."""
_MAX_REPAIR_MS = 60_000
"""The longest pause of an agent that repairs its document is 45 s (decision 13)."""


class MissingDocument(NamedTuple):
    """A document that is gone. It counts as deleted from ``at_ms`` on, or from ``latest_ms`` on
    where an agent writes it again (steady time).
    """

    at_ms: int
    latest_ms: int


class NodeReport(msgspec.Struct, Generic[R], frozen=True):
    """The last good document of a node. ``received_at_ms`` is wall time.

    ``digest`` stands for its texts, which are a kilobyte or more of each node.
    """

    digest: bytes
    record: R
    received_at_ms: int
    problem: str | None


class Rejected(msgspec.Struct, frozen=True):
    """A node's newest document was refused. ``since_ms`` is when that began (wall time)."""

    since_ms: int
    reason: str
    digest: bytes


class DocumentCache(Generic[R]):
    """The newest good documents of one kind in one store, of at most ``max_nodes`` nodes."""

    def __init__(self, kind: Content[R], max_nodes: int = DEFAULT_MAX_NODES) -> None:
        self.kind = kind
        self.max_nodes = max_nodes
        self.reports: dict[str, NodeReport[R]] = {}
        self.rejected: dict[str, Rejected] = {}
        self.rejected_total = 0

    def apply_document(self, node: str, document: Document, now_ms: int) -> bool:
        """Apply a node's document; return whether that changed anything.

        A document without this kind changes nothing here, see ``DocumentWatch``.
        """
        if self._has_none(document):
            return False
        digest = self._digest(document)
        before = self.reports.get(node)
        # A list after an interruption repeats all documents: only a digest is computed for the same
        # text.
        if before is not None and before.digest == digest:
            return self.rejected.pop(node, None) is not None
        rejected = self.rejected.get(node)
        if rejected is not None and rejected.digest == digest:
            return False
        try:
            if document.problem:
                raise DocumentError(
                    document.name, "$", f"is not a valid document: {document.problem}"
                )
            if problem := node_name_problem(node):
                raise DocumentError(document.name, "metadata.name", f"the node's name {problem}")
            # Known nodes go on: a flood of made-up names must not push them out (defect B16).
            if before is None and len(self.reports) >= self.max_nodes:
                raise DocumentError(
                    document.name, "$", f"there are already {self.max_nodes} nodes (max_nodes)"
                )
            reading = self.kind.read(document)
        except DocumentError as error:
            self.rejected_total += 1
            # One refusal after the other is one state of the node.
            since_ms = now_ms if rejected is None else rejected.since_ms
            self.rejected[node] = Rejected(since_ms, str(error), digest)
            return True
        self.rejected.pop(node, None)
        self.reports[node] = NodeReport(digest, reading.record, now_ms, reading.problem)
        return True

    def is_last_good(self, node: str, document: Document) -> bool:
        """Return whether this is the node's last good document."""
        before = self.reports.get(node)
        return before is not None and before.digest == self._digest(document)

    def _digest(self, document: Document) -> bytes:
        # A document that cannot be decoded has no texts; its problem stands for it.
        texts = (document.problem,) if document.problem else self.kind.texts(document)
        digest = hashlib.blake2b(digest_size=16)
        for text in texts:
            # The length comes first, so that a boundary between two texts cannot move.
            digest.update(b"none," if text is None else b"%d," % len(text))
            # Text that is not valid Unicode is refused when it is read, and needs a digest before.
            digest.update((text or "").encode(errors="surrogatepass"))
        return digest.digest()

    def _has_none(self, document: Document) -> bool:
        return self.kind.optional and all(text is None for text in self.kind.texts(document))

    def refuses(self, node: str, document: Document) -> bool:
        """Return whether this kind of a document that was just applied is refused, and not only an
        earlier one.
        """
        return node in self.rejected and not self._has_none(document)

    def ended(self, node: str, document: Document) -> bool:
        """Remove the report of a node whose new document has nothing of this kind; return whether
        there was one.
        """
        return self._has_none(document) and self.forget(node)

    def knows(self, node: str) -> bool:
        """Return whether the node's newest document of this kind is here, good or refused."""
        return node in self.reports or node in self.rejected

    def forget(self, node: str) -> bool:
        """Remove what is known of a node; return whether there was anything."""
        report = self.reports.pop(node, None)
        rejected = self.rejected.pop(node, None)
        return report is not None or rejected is not None


class DocumentWatch:
    """One watch of one store: the documents of all nodes in one namespace.

    ``document`` is their kind (``contract.documents.write_numbers.KINDS``).
    """

    def __init__(
        self, document: str, namespace: str, prefix: str, caches: tuple[DocumentCache[Any], ...]
    ) -> None:
        self.document = document
        # Malformed documents are asked for as well: a refusal is shown, and ends no good report.
        self.selection = Selection(namespace=namespace, label=REPORT_LABEL, shows_malformed=True)
        """What to watch."""
        self.caches = caches
        self.own_key = DocumentCache(OWN_KEY, caches[0].max_nodes)
        """Our agents' own data key in the same documents, without effect on what is merged."""
        self.own_key_changed: set[str] = set()
        """Nodes whose own data key changed since this was cleared."""
        self.isolations: dict[str, dict[int, IsolationRequest]] = {}
        """The isolation requests in a node's newest good document, without effect on what is
        merged.
        """
        self.present: dict[str, str] = {}
        """Nodes that have a document, good or bad, and its version."""
        self.deleted: set[str] = set()
        """Nodes whose document went since this was cleared, even if there is a new one."""
        self.listed = False
        self.interrupted: str | None = None
        """Why no event arrives from the store now."""
        self.interruptions_total = 0
        self.reading = FailingRequests()
        """Whether the watch fails, by its events."""
        self._missing: dict[str, MissingDocument] = {}
        """Nodes whose document is gone, but does not count as deleted yet."""
        self._paged: set[str] | None = None
        """Nodes in the pages of the list that is being read."""
        self._listeners: list[set[str]] = []
        """One set for each ``listening``."""
        self._namespace = namespace
        self._prefix = prefix
        self._ahead: dict[str, str | None] = {}
        """Versions read by name that the watch has yet to show, ``None`` for no document.

        Only of a store whose versions are numbers: its watch shows each of them.
        """

    def observe_event(
        self, event: PagedWatchEvent, now_ms: int, deleted_at_ms: int | None = None
    ) -> frozenset[str]:
        """Apply one event; return the nodes about which something changed.

        What is gone counts as deleted from ``deleted_at_ms`` on (steady time; ``None``: at once),
        or when there is another document: its owner deletes and creates a document that an operator
        made immutable. See ``settle``.
        """
        match event:
            case ListedPage(documents, is_first):
                if is_first:
                    self._ahead.clear()
                there = set[str]() if is_first or self._paged is None else self._paged
                self._paged = there
                return self._take_listed(documents, there, now_ms)
            case DocumentsListed(documents):
                self.listed = True
                self.interrupted = None
                return self._replace(documents, now_ms, deleted_at_ms)
            case Changed(document):
                node = self._node_of(document.namespace, document.name)
                # An event from before the read by name would undo what was read.
                if node is None or self._is_behind(node, document.version):
                    return frozenset()
                self._note((node,))
                return self._take(document, now_ms)
            case Deleted(namespace, name, by_list):
                node = self._node_of(namespace, name)
                # The event may be of an earlier incarnation: what was read exists.
                if node is None or self._ahead.get(node) is not None:
                    return frozenset()  # what was read is from after that
                self._ahead.pop(node, None)
                self._note((node,))
                return self._miss(node, now_ms, deleted_at_ms, is_reported=not by_list)
            case Interrupted(reason):
                if self.interrupted is None:
                    self.interruptions_total += 1
                self.interrupted = reason
                return frozenset()

    @contextmanager
    def listening(self) -> Iterator[set[str]]:
        """Yield a set to which the watch adds the nodes of its events until the block ends."""
        changed: set[str] = set()
        self._listeners.append(changed)
        try:
            yield changed
        finally:
            # By identity, since two listeners may have equal sets.
            self._listeners = [listener for listener in self._listeners if listener is not changed]

    def _note(self, nodes: Iterable[str]) -> None:
        for changed in self._listeners:
            changed.update(nodes)

    def names_of(self, nodes: Iterable[str]) -> dict[str, str]:
        """Return the name of the document of each node, in their order."""
        return {node: self._prefix + node for node in sorted(nodes)}

    def has(self, node: str) -> bool:
        """Return whether the node has a document, good or bad, as far as is known."""
        return node in self.present and node not in self._missing

    def written_at_ms(self, node: str) -> int | None:
        """Return the time of the node's last good document by its own clock; ``None`` for none."""
        cache = self.caches[0]
        report = cache.reports.get(node)
        return None if report is None else cache.kind.age(report.record) * cache.kind.unit_ms

    def read(self, node: str, document: Document | None, now_ms: int) -> frozenset[str]:
        """Apply a node's document that was read by name: the watch may be behind it for a while.

        A document that is not there is deleted at once: what is known of it instead is old. Return
        the nodes that changed.
        """
        if document is None or not self.selection.fits(document.labels):
            # Only an API server's versions are numbers: there later events can be compared with the
            # read.
            # A deletion that was shown already is shown by no further event.
            if self.present.get(node, "").isdecimal() and node not in self._missing:
                self._ahead[node] = None
            return self._forget(node)
        # Only numbers can be compared: other stores give no order of versions.
        if document.version.isdecimal() and self.present.get(node) != document.version:
            self._ahead[node] = document.version
        return self._take(document, now_ms)

    def _replace(
        self, documents: Iterable[Document], now_ms: int, deleted_at_ms: int | None
    ) -> frozenset[str]:
        there, self._paged = self._paged, None
        if there is None:
            self._ahead.clear()
            there = set()
        changed = set(self._take_listed(documents, there, now_ms))
        # What was read by name between two pages is newer than the list. Of what was gone then, a
        # watch shows a deletion only where the list has it.
        self._ahead = {
            node: version
            for node, version in self._ahead.items()
            if version is not None or node in there
        }
        gone = self.present.keys() - there - self._ahead.keys()
        self._note(gone)
        for node in gone:
            changed |= self._miss(node, now_ms, deleted_at_ms, is_reported=False)
        return frozenset(changed)

    def _take_listed(
        self, documents: Iterable[Document], there: set[str], now_ms: int
    ) -> frozenset[str]:
        """Apply documents of a list and add their nodes to ``there``; return those that changed.

        A list is newer than all that was read by name before it, and older than what was read
        between two of its pages.
        """
        changed: set[str] = set()
        listed: set[str] = set()
        for document in documents:
            node = self._node_of(document.namespace, document.name)
            if node is None or self._is_set_back(node, document):
                continue
            listed.add(node)
            if not self._is_behind(node, document.version):
                changed |= self._take(document, now_ms)
        self._note(listed)
        there |= listed
        return frozenset(changed)

    def _is_set_back(self, node: str, document: Document) -> bool:  # noqa: ARG002
        """Return whether a document in a list is older than what is known of its node."""
        return False

    def _take(self, document: Document, now_ms: int) -> frozenset[str]:
        node = self._node_of(document.namespace, document.name)
        if node is None:
            return frozenset()
        if node in self._missing:
            # The report of the deleted document ends, also where the new one is refused or has
            # none.
            self._forget(node)
        self.present[node] = document.version
        changed = [cache.apply_document(node, document, now_ms) for cache in self.caches]
        is_refused = any(cache.refuses(node, document) for cache in self.caches)
        if not is_refused:
            changed += [cache.ended(node, document) for cache in self.caches]
            self.isolations.pop(node, None)
            if requests := read_requests(document.annotations):
                self.isolations[node] = requests
        if self.own_key.apply_document(node, document, now_ms) or (
            not is_refused and self.own_key.ended(node, document)
        ):
            self.own_key_changed.add(node)
        return frozenset({node}) if any(changed) else frozenset()

    def _is_behind(self, node: str, version: str) -> bool:
        """Return whether this version is older than what was read by name."""
        if node not in self._ahead:
            return False
        ahead = self._ahead[node]
        # ``None``: the document was read as gone, so each event up to its new creation is older.
        if ahead is None or (version.isdecimal() and int(version) < int(ahead)):
            return True
        del self._ahead[node]
        return False

    def _is_refused(self, node: str) -> bool:
        return any(node in cache.rejected for cache in self.caches)

    def has_report(self, kind: DocumentKind[Any], node: str) -> bool:
        """Return whether the node has a document with this kind, even a refused one.

        A good document without the key of an optional kind ends what an earlier one reported of it
        (upstream keeps that for ever, ``clusterd#1.5``); a bad one ends nothing.
        """
        if node not in self.present:
            return False
        mine = (cache for cache in self.caches if cache.kind is kind)
        return (
            not kind.optional or any(cache.knows(node) for cache in mine) or self._is_refused(node)
        )

    def settle(
        self, now_ms: int, is_repaired: Callable[[str], bool] = lambda _: False
    ) -> frozenset[str]:
        """Forget the documents that were gone for long enough (steady time); return their nodes.

        ``is_repaired``: whether an agent runs on the node, which writes its document again. For one
        that does, a document counts as deleted only when it was gone for a minute.
        """
        changed = frozenset[str]()
        for node, missing in tuple(self._missing.items()):
            if now_ms < missing.at_ms:
                continue
            if now_ms < missing.latest_ms and is_repaired(node):
                at_ms = min(now_ms + _REPAIR_CHECK_MS, missing.latest_ms)
                self._missing[node] = missing._replace(at_ms=at_ms)
            else:
                changed |= self._forget(node)
        return changed

    def next_due_ms(self) -> int | None:
        """Return the steady time at which ``settle`` has something to do."""
        return min((missing.at_ms for missing in self._missing.values()), default=None)

    def _miss(
        self,
        node: str,
        now_ms: int,  # noqa: ARG002
        deleted_at_ms: int | None,
        *,
        is_reported: bool,  # noqa: ARG002
    ) -> frozenset[str]:
        """Observe that a node's document is gone, for now; return the nodes that changed.

        ``is_reported``: the store reported its deletion; otherwise a list lacks it.
        """
        if deleted_at_ms is None:
            return self._forget(node)
        # ``setdefault``: the time runs from the first sign of the deletion.
        if node in self.present:
            missing = MissingDocument(deleted_at_ms, deleted_at_ms + _MAX_REPAIR_MS)
            self._missing.setdefault(node, missing)
        return frozenset()

    def _forget(self, node: str) -> frozenset[str]:
        self._missing.pop(node, None)
        if node not in self.present:
            return frozenset()
        del self.present[node]
        self.deleted.add(node)
        self.isolations.pop(node, None)
        for cache in self.caches:
            cache.forget(node)
        if self.own_key.forget(node):
            self.own_key_changed.add(node)
        return frozenset({node})

    def _node_of(self, namespace: str, name: str) -> str | None:
        if namespace != self._namespace or not name.startswith(self._prefix):
            return None
        return name.removeprefix(self._prefix)


class DocumentSource:
    """All documents of one store, of at most ``max_nodes`` nodes; ``watch`` makes each watch."""

    def __init__(
        self,
        url: str,
        watch: Callable[..., DocumentWatch] = DocumentWatch,
        max_nodes: int = DEFAULT_MAX_NODES,
    ) -> None:
        self.url = url
        self.device = DocumentCache(DEVICE, max_nodes)
        self.switch = DocumentCache(SWITCH, max_nodes)
        self.node = DocumentCache(NODE, max_nodes)
        devices = (self.device, self.switch)
        self.devices = watch("device-info", DEVICE_INFO_NAMESPACE, DEVICE_INFO_PREFIX, devices)
        self.nodes = watch("node-info", NODE_INFO_NAMESPACE, NODE_INFO_PREFIX, (self.node,))
        self.watches = (self.devices, self.nodes)
        self.caches: tuple[DocumentCache[Any], ...] = (
            self.device,
            self.switch,
            self.node,
            *(watch.own_key for watch in self.watches),
        )

    @property
    def listed(self) -> bool:
        """Whether all documents of the store were listed once."""
        return all(watch.listed for watch in self.watches)

    @property
    def interrupted(self) -> str | None:
        """Why a watch of the store is interrupted now."""
        return next((watch.interrupted for watch in self.watches if watch.interrupted), None)


def newest(caches: Iterable[DocumentCache[R]], node: str) -> NodeReport[R] | None:
    """Return the report that counts for a node: the one with the greatest stamp."""
    newest_report: NodeReport[R] | None = None
    for cache in caches:
        report = cache.reports.get(node)
        if report is None:
            continue
        # Strictly greater, so that of equal stamps the first store counts.
        if newest_report is None or cache.kind.age(report.record) > cache.kind.age(
            newest_report.record
        ):
            newest_report = report
    return newest_report
