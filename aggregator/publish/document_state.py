"""Decides whether a document in a store is as we wrote it, and whether it must be written.

Pure, but for the log. ``service/owned_documents/owned_document.py`` has the contract. The store's
watch shows own writes too, before or after the write returns, so a document is judged only while no
write is in flight. Each write replaces the version that was seen last, so that one computed from an
older document is refused. Source: ``consumers#7.1``, M21.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from typing_extensions import override

from contract.documents.reader_keys import is_key_acted_on
from contract.names import CLUSTER_LABEL, CLUSTER_NAMESPACE
from service.log.ongoing_failure import OngoingFailure
from service.owned_documents.owned_document import OwnedDocument, StoreContent
from stores.base import Document
from stores.touch import TOUCHED

if TYPE_CHECKING:
    from aggregator.cluster_documents.shards import Value
    from service.clock import Instant

_log = logging.getLogger(__name__)

# Watch events arrive within milliseconds; 2 s is the delay after which decision 17 distrusts a
# watch, too.
LATE_MS = 2000
"""An earlier own document that is shown for longer is not a late event: another program put
it back.
"""

# Below every revision, which begins at 0.
_NEVER = -1


class DesiredContent(Protocol):
    """The desired content of a document; ``revision`` grows with every change of it."""

    @property
    def revision(self) -> int: ...


W = TypeVar("W", bound=DesiredContent)


class WatchedDocument(OwnedDocument, Generic[W]):
    """One document of ours as its watch shows it; it must have ``labels`` and may have others.

    ``is_input``: others may change it, because that is read. No number of changes stops us. What
    the store makes of our own writes is not such a change.
    """

    def __init__(
        self, namespace: str, name: str, labels: dict[str, str], *, is_input: bool = False
    ) -> None:
        super().__init__(namespace, name)
        self.labels = labels
        self.acknowledged = _NEVER
        """Revision of the value that the store is known to have."""
        self.writes_total = 0
        self.touches_total = 0
        self.refused_total = 0
        """Writes that the store refused because they were computed from an older document."""
        self._is_input = is_input
        self.fenced = True
        """Whether no earlier leader can write the document any more."""
        self.trouble = OngoingFailure(
            _log, "%s is not published, trying again: %s", "%s is published again", name
        )
        """Why the last write failed."""
        self.touch_trouble = OngoingFailure(_log, "%s is not touched, trying again: %s", "", name)
        """Why the last touch failed."""
        self.must_find_writer = False
        """Whether it is time to find out which other program writes it."""
        # By the wall clock, since pages show it as a time.
        self.pending_since_ms: int | None = None
        """The wall time since when a change waits for its acknowledgement."""
        self.settled = True
        """Whether what the store shows is judged; if not, ``must_write`` is to be called again
        after ``LATE_MS``.
        """
        self._late_since_ms: int | None = None
        self._repair = False
        # Bounded: only versions whose events may still be late matter.
        self._own_versions: deque[str] = deque(maxlen=16)
        self._replaced: deque[str] = deque(maxlen=16)
        """What our writes replaced; its events are late ones."""
        self._began_ms: int | None = None
        self._may_have_forgotten = False
        """Whether the watch was interrupted, and nothing newer than its first list is shown."""
        self._is_first_list = False
        self._was_immutable = False
        """Whether our last write deleted and created it: its watch shows the deletion, too."""
        self._uncertain: dict[str, str] | None = None
        """Content of the last write, while it has no acknowledgement."""
        self._uncertain_revision: int | None = None
        self._touched: dict[str, str] | None = None
        """Content of the document when it was touched; its events may be as late as ours."""
        self._foreign: dict[str, str] | None = None
        """Content that another program wrote last."""

    @property
    def conflict(self) -> bool:
        """Whether it is written only now and then, because another program writes it."""
        return self.foreign.is_conflict

    def data(self, value: W) -> dict[str, str] | None:
        """Return the data of the document for ``value``; ``None``: there must be none."""
        raise NotImplementedError

    def document(self, value: W) -> Document | None:
        """Return the document for ``value`` without what others added; ``None``: there is none."""
        data = self.data(value)
        if data is None:
            return None
        return Document(self.namespace, self.name, data, self.labels)

    @property
    def remains(self) -> Document:
        """What readers shall have of the document while finalizers hold it after its deletion."""
        return Document(self.namespace, self.name, {}, self.labels)

    def begin_term(self, now: Instant, *, fence: bool) -> None:
        """Begin to lead: forget the own writes known so far, because other leaders wrote since.

        ``fence``: an earlier leader may have a write under way, and the watch may be behind.
        """
        self.acknowledged = _NEVER
        # Their writes are not a conflict, because they led.
        self.foreign.forget("another aggregator led since")
        self.must_find_writer = False
        # Until the first own write or touch, a write of the earlier leader may still be accepted
        # (decision 10).
        self.fenced = not fence
        self.pending_since_ms = None
        self._began_ms = now.steady_ms if fence else None
        self._repair = False
        # What is shown now is judged against the new term; nothing is judged during an
        # interruption.
        self.settled = self.shown is StoreContent.UNKNOWN
        self._late_since_ms = None
        self._own_versions.clear()
        self.own_version = None
        self._replaced.clear()
        self._uncertain = self._touched = self._foreign = None
        self._uncertain_revision = None

    def interrupted(self) -> None:
        """Observe that the store's watch is interrupted until its next list.

        A store that was away may have forgotten our last writes: what is missing or other in that
        list is not a foreign write.
        """
        self._may_have_forgotten, self._is_first_list = True, False
        self.observe_watch(StoreContent.UNKNOWN)

    def listed(self, shown: Document | StoreContent) -> None:
        """Observe what the first list of the store's watch shows."""
        # Cleared first, or ``observe_watch`` would take this list for what comes after it.
        self._is_first_list = False
        self.observe_watch(shown)
        self._is_first_list = True

    def observe_watch(self, shown: Document | StoreContent) -> None:
        """Observe what the store's watch shows; ``UNKNOWN`` while it is interrupted."""
        if self._is_first_list:
            self._may_have_forgotten = self._is_first_list = False
        self.settled = shown is StoreContent.UNKNOWN
        self._late_since_ms = None
        # An older event must not set back the version that the next write demands.
        if shown is StoreContent.UNKNOWN or self._is_older(shown):
            self.shown = shown
        else:
            self.record_stored(None if shown is StoreContent.NOTHING else shown)

    def _is_older(self, shown: Document | StoreContent) -> bool:
        """Return whether this is known to be older than our last write."""
        if isinstance(shown, StoreContent):
            return False
        # All but our newest own version are older; versions have no order, so they are remembered.
        return shown.version in self._replaced or shown.version in tuple(self._own_versions)[:-1]

    def observe_read(self, document: Document | None) -> None:
        """Observe the document as it was read, after the store refused a write."""
        # Asked before the observation, which resets both.
        is_repaired = self._repair and self.settled and self._is_what_was_shown(document)
        self.observe_watch(StoreContent.NOTHING if document is None else document)
        self.version = "" if document is None else document.version
        if is_repaired:
            self.settled = True

    def _is_what_was_shown(self, document: Document | None) -> bool:
        """Return whether the document is the one that the watch showed, and not a second foreign
        write.
        """
        if document is None or not self.labels.items() <= document.labels.items():
            return self.shown is StoreContent.NOTHING  # as a watch shows one without the label
        return isinstance(self.shown, Document) and self.shown.version == document.version

    @property
    def was_seen(self) -> bool:
        """Whether the store has, or had, any document of this name, as far as is known."""
        return self.acknowledged != _NEVER or not isinstance(self.shown, StoreContent)

    def must_write(self, value: W, now: Instant) -> bool:
        """Return whether ``value`` has to be written now. Call it only while no write is
        in flight.
        """
        # Content that is there already needs no write: an earlier run's, or ours whose answer was
        # lost.
        if self._shows_exactly(value) and (
            self.acknowledged == _NEVER or self._uncertain_revision == value.revision
        ):
            self._has(value)
        self._judge(value, now)
        self.foreign.end_if_over(_seconds(now))
        behind = value.revision > self.acknowledged
        if behind and self.pending_since_ms is None:
            self.pending_since_ms = now.wall_ms
        if not behind:
            self.pending_since_ms = None
            if not self._repair:
                # Whatever failed before, the store has what is desired.
                self.trouble.end()
        # In a conflict writes are spaced, so that two programs do not write against each other all
        # the time (decision 13).
        return (behind or self._repair) and self.foreign.pause_seconds(_seconds(now)) <= 0

    def conflict_seconds(self, value: W, now: Instant) -> float:
        """Return in how many seconds a conflict is over, or allows the next write."""
        over_seconds = self.foreign.seconds_until_over(_seconds(now))
        if value.revision <= self.acknowledged and not self._repair:
            return over_seconds
        return min(over_seconds, self.foreign.pause_seconds(_seconds(now)))

    def record_attempt(self, now: Instant) -> None:
        """Observe that a write ended, acknowledged or not: in a conflict the next one has
        to wait.
        """
        self.foreign.record_write(_seconds(now))

    def _judge(self, value: W, now: Instant) -> None:
        # An event that may be late is judged when ``LATE_MS`` is over, not when it arrives.
        if self.settled or (not self._shows_exactly(value) and self._is_late(now)):
            return
        self.settled = True
        # Before our first write nothing that is there can be a change of ours.
        if self.acknowledged == _NEVER or self._shows_exactly(value):
            return
        self.differing = ()
        if self._is_newest_own():
            # A newer value is due anyway; only the answer to the newest write shows what a webhook
            # made of it.
            if value.revision != self.acknowledged or not self.is_own_answer:
                return
            self.differing = self.differences(self.document(value))
        self._repair = True
        # Repaired, but not counted as foreign: the store came back without our last write.
        if self._may_have_forgotten and not self.differing:
            return
        self._foreign = None if isinstance(self.shown, StoreContent) else self._ours(self.shown)
        # Operators may change it any number of times, a webhook may not.
        if self._is_input and not self.differing:
            self.foreign.total += 1
        elif self.foreign.record_foreign_write(_seconds(now)):
            self.must_find_writer = True

    def _is_late(self, now: Instant) -> bool:
        """Return whether this may be a late event: of an own write before the last one, or of
        another leader's write before this replica led.
        """
        if self._is_newest_own():
            return False
        if isinstance(self.shown, StoreContent):
            # An absent document is late only where our own write deleted it to replace an immutable
            # one.
            may_be = self._was_immutable
        else:
            may_be = (
                self.shown.version in self._own_versions
                or self.shown.version in self._replaced
                or self._is_own_touch(self.shown)
                or (self._began_ms is not None and now.steady_ms - self._began_ms < LATE_MS)
            )
        if not may_be:
            return False
        if self._late_since_ms is None:
            self._late_since_ms = now.steady_ms
        return now.steady_ms - self._late_since_ms < LATE_MS

    def _is_own_touch(self, shown: Document) -> bool:
        """Return whether this may be our touch of what was there then, of ours or of a foreign
        write.
        """
        data = self._ours(shown)
        return data == self._touched or (data == self._foreign and TOUCHED in shown.annotations)

    def _ours(self, shown: Document) -> dict[str, str]:
        """Return the data without keys that other programs added."""
        if self.all_keys:
            return shown.data
        return {key: text for key, text in shown.data.items() if is_key_acted_on(key, self.name)}

    def _is_newest_own(self) -> bool:
        # An immutable document is never ours as it is: an operator made it so after our write.
        if isinstance(self.shown, StoreContent) or self.shown.immutable:
            return False
        return self.is_own_answer or self._ours(self.shown) == self._uncertain

    def _shows_exactly(self, value: W) -> bool:
        """Return whether all our content is there; content that others added does not matter."""
        if self.shown is StoreContent.UNKNOWN:
            return False
        return not self.differences(self.document(value))

    def written(self, version: str, value: W, replaced: str | None) -> None:
        """Observe that a write was acknowledged with ``version``; empty where the document is gone.

        ``replaced`` is the version that was known when it was sent: what the watch showed since may
        be from after it.
        """
        self._was_immutable = isinstance(self.shown, Document) and self.shown.immutable
        # Empty for a creation: there was no version before.
        if replaced:
            self._replaced.append(replaced)
        self._own_versions.append(version)
        self.own_version = self.version = version
        self._has(value)
        self.trouble.end()
        self.writes_total += 1
        self.fenced = True
        self._uncertain = self._uncertain_revision = None
        self._repair = False
        if version and version == replaced and isinstance(self.shown, Document):
            # The write changed nothing: what was there may not be what was written.
            self.settled = False
        # An event that is not judged yet stays, because it may be from after the write.
        elif self.settled:
            # What was shown is from before this write; the watch has yet to show it.
            self.shown = StoreContent.UNKNOWN

    def _has(self, value: W) -> None:
        """Record that the store has ``value``: it was written, also where the answer was lost, or
        an earlier run wrote it.
        """
        self.acknowledged = value.revision
        self._uncertain_revision = None

    def failed(self, reason: str, value: W) -> None:
        """Observe that a write got no acknowledgement; it may have reached the store
        nevertheless.
        """
        self.trouble.record_failure(reason)
        # A write without an answer may be accepted later; its content in the watch is then ours.
        self._uncertain, self._uncertain_revision = self.data(value), value.revision

    def touched(self, value: W) -> None:
        """Observe that the document, with ``value``, is being touched."""
        self._touched = self.data(value)


def _seconds(now: Instant) -> float:
    return now.steady_ms / 1000


class ClusterDocument(WatchedDocument["Value"]):
    """The observed state of one cluster document."""

    def __init__(self, name: str) -> None:
        super().__init__(CLUSTER_NAMESPACE, name, dict([CLUSTER_LABEL]))
        self.left_out = 0
        """Nodes that are not in the document for lack of room."""
        self.bytes = 0
        self.nodes = 0

    @override
    def data(self, value: Value) -> dict[str, str]:
        return {self.name: value.text}

    @override
    def document(self, value: Value) -> Document:
        data, annotations = self.data(value), value.annotations
        return Document(self.namespace, self.name, data, self.labels, annotations)

    def _has(self, value: Value) -> None:
        super()._has(value)
        self.bytes = len(value.text.encode())
        self.nodes = value.nodes
        self.left_out = value.left_out
