"""The aggregator plugin of public faults: a ``DocumentPlugin``, ``Timed``, ``Persistent`` and
``Viewed``.

``restore`` is called once before anything is shown, also when there is no state.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from aggregator.accepted_namespaces import ALL, Namespaces
from aggregator.plugin import LAST, DocumentPlugin, Persistent, Timed, Viewed
from aggregator.public_faults.active_faults import ActiveFaults, DeletedNodes
from aggregator.public_faults.fault_table import CONFIG_MAP, FILE, FaultTables
from aggregator.public_faults.kept_messages import MessageOrigin
from aggregator.public_faults.message_processor import MessageProcessor
from aggregator.public_faults.published_faults import (
    STATISTIC_NAME,
    STATISTIC_NAMESPACE,
    read_statistic,
    statistic_view,
    with_public_faults,
)
from aggregator.public_faults.status import PublicFaultStatus
from aggregator.public_faults.validation import existing_devices
from aggregator.public_faults.values import PIECE, Rows, read_rows
from contract.documents.public_fault import DATA_KEY, decode_public_fault
from contract.errors import DocumentError, Problem
from contract.names import PUBLIC_FAULT_LABEL
from contract.plural import plural
from contract.validation_texts import decode_text
from pacing.cooperative import run_in_slices, run_to_completion
from pacing.waiting import wait_for_event
from stores.base import Changed, Deleted, DocumentsListed, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aggregator.plugin import View
    from aggregator.public_faults.status import Rejections
    from aggregator.public_faults.validation import ValidationReply
    from aggregator.public_faults.values import ActivePublicFault, Key, NodeLookup
    from contract.documents.cluster_device import DeviceRecord
    from contract.documents.public_fault import PublicFault
    from contract.operator_rules.public_fault_table import PublicFaultTable
    from pacing.cooperative import Work
    from service.clock import Clock, Instant
    from stores.base import WatchEvent

_log = logging.getLogger(__name__)

MESSAGES = Selection(label=PUBLIC_FAULT_LABEL)
STATISTIC = Selection(namespace=STATISTIC_NAMESPACE, name=STATISTIC_NAME)

_ABOUT = f"{LAST}about"
"""The bucket that marks the others as complete, even if there is none."""

READY_TIMEOUT_SECONDS = 4.0
"""How long a message over gRPC waits until the nodes are known: shorter than the 5 s of senders."""

_UNSYNCED_MS = 500
_WAITING_MS = 1000
_ABSENT_MS = 500

# As long as the first publication waits for stores that are away (``daemon._FIRST_LIST_SECONDS``).
_STORE_TIMEOUT_MS = 30_000
"""How long a store that is away delays the use of upstream's state in other stores, and
our views.
"""

_MAX_SHOWN_PER_STEP, _OF_A_NODE = 400, 5
"""Most faults that are shown anew in one step: many changed nodes must not delay the others."""


class _About(msgspec.Struct, frozen=True):
    """``used``: a public fault has ever stood."""

    used: bool = False


class PublicFaultsPlugin(DocumentPlugin, Timed, Viewed, Persistent):
    """Public faults as an aggregator plugin.

    ``node_lookup`` has which nodes and chips there are, ``sources`` is how many stores are read.
    Documents count from these ``namespaces``.
    """

    inputs = (MESSAGES, STATISTIC, CONFIG_MAP)
    name = "public-faults"

    def __init__(
        self, node_lookup: NodeLookup, sources: int = 1, namespaces: tuple[str, ...] = (ALL,)
    ) -> None:
        self.ready = asyncio.Event()
        """Set once it is known which nodes there are."""
        self._rows = Rows()
        self._active = ActiveFaults(self._rows)
        self._tables = FaultTables()
        self.namespaces = Namespaces("public faults", "public_faults.namespaces", namespaces)
        self._processor = MessageProcessor(
            self._rows, self._active, self._tables, node_lookup, sources, self.namespaces
        )
        self._away = DeletedNodes(self._rows)
        self._node_lookup = node_lookup
        self._sources = sources
        self._statistic: dict[int, Mapping[str, str]] = {}
        """What each store has of upstream's document now."""
        self.restorations = 0
        """How often the state of an earlier leader was restored; before, nothing may be held."""
        self._is_whole = False
        """Whether the state of an earlier run or of upstream was restored."""
        self._kept_about: str | None = None
        self._last_step_ms = 0
        self._began_ms: int | None = None
        # In the past by one period, so that the first step tries at once.
        self._tried_ms = self._looked_ms = -_WAITING_MS
        self._turn = asyncio.Lock()
        """Held while a message is applied piece by piece: the next one must not overtake it."""
        self._view: tuple[int, View] | None = None

    def configure(self, text: str | None) -> frozenset[str]:
        """Set the text of the file with codes and resources; ``None``: there is no file. Return
        nodes to be judged again.
        """
        before = self._tables.in_force
        self._tables.put(FILE, text)
        self._judge_again(before)
        return self.pop_changed_nodes()

    @override
    def observe(
        self, source: int, selection: Selection, event: WatchEvent, now: Instant
    ) -> frozenset[str]:
        self._settle(now)
        if selection == MESSAGES:
            self._processor.observe_document(source, event)
        elif selection == STATISTIC:
            self._observe_statistic(source, event, now)
        else:
            before = self._tables.in_force
            self._tables.observe_config_map(source, event)
            self._judge_again(before)
        return self.pop_changed_nodes()

    def send(self, message: PublicFault, now: Instant) -> ValidationReply:
        """Apply a message that came over gRPC, at once."""
        return run_to_completion(self.apply_message(message, now))

    def apply_message(self, message: PublicFault, now: Instant) -> Work[ValidationReply]:
        """Apply a message in pieces, of several messages one after the other.

        Until it is known which nodes there are (``ready``) it waits, and is answered with 0.
        """
        self._settle(now)
        return self._processor.apply_message(message)

    async def apply_when_ready(
        self, message: PublicFault, clock: Clock, patience_seconds: float = READY_TIMEOUT_SECONDS
    ) -> ValidationReply:
        """Apply a message that came over gRPC, as soon as it is known which nodes there are.

        Where that takes too long the message is accepted all the same and waits. The caller passes
        ``pop_changed_nodes`` to the pipeline.
        """
        if not self.ready.is_set():
            await wait_for_event(self.ready, patience_seconds)  # the answer shows it
        async with self._turn:
            return await run_in_slices(self.apply_message(message, clock()), PIECE)

    def _settle(self, now: Instant) -> None:
        self._processor.advance(now)
        if self._node_lookup.synced and not self.ready.is_set():
            self.ready.set()
            self._processor.begin_applying()

    def _judge_again(self, before: PublicFaultTable) -> None:
        table = self._tables.in_force
        if table != before:
            place = self._tables.place
            _log.info("public faults: %s, from %s", plural(len(table.levels), "code"), place)
            self._active.judge_again(table.levels)

    @override
    def step(self, now: Instant) -> frozenset[str]:
        self._last_step_ms = now.steady_ms
        # Upstream's document is read once, and only without state of ours (defect B11).
        if not self._is_whole:
            self._take_over(now)
        self._active.step(now)
        self._settle(now)
        processor = self._processor
        if self.ready.is_set():
            if self._tried_ms + _WAITING_MS <= now.steady_ms:
                self._tried_ms = now.steady_ms
                if processor.waiting:
                    processor.serve()
                for key in tuple(self._active.unplaced):
                    self._look_for_chips(key, now)
            if self._looked_ms + _ABSENT_MS <= now.steady_ms:
                self._looked_ms = now.steady_ms
                processor.apply_to_new_nodes()
            for node in self._away.pop_lost(self._active.nodes.keys(), self._node_lookup, now):
                faults = plural(self._active.forget(node), "fault")
                _log.warning("node %s has been away for a day: %s dropped", node, faults)
        processor.backlog.do_piece()
        return self.pop_changed_nodes()

    def _look_for_chips(self, key: Key, now: Instant) -> None:
        standing = self._active.get(key)
        assert standing is not None
        existing = existing_devices(standing.devices, self._node_lookup.chips(standing.node))
        if existing is None:
            return
        missing = [device for device in standing.devices if device not in existing]
        if missing:
            text = f"node {key[0]!r} has no chip {', '.join(map(str, missing))}"
            problem = Problem(f"fault {standing.fault_id}", text)
            self._processor.outcomes.refuse(
                f"public faults of {standing.resource}", problem, now.wall_ms
            )
        self._active.place(key, existing)

    @override
    def next_due_ms(self) -> int | None:
        due = [self._active.next_due_ms()]
        if not self._is_whole and self._began_ms is not None:
            due.append(max(self._began_ms, self._last_step_ms) + _STORE_TIMEOUT_MS)
        if not self.ready.is_set():
            due.append(self._last_step_ms + _UNSYNCED_MS)
        else:
            due.append(self._away.next_due_ms(self._active.nodes.keys()))
            if self._processor.waiting or self._active.unplaced:
                due.append(self._tried_ms + _WAITING_MS)
            if self._processor.unknown_nodes:
                due.append(self._looked_ms + _ABSENT_MS)
        if self._processor.backlog or self._active.dirty:
            due.append(self._last_step_ms)
        return min((at for at in due if at is not None), default=None)

    def add_public_faults(self, node: str, record: DeviceRecord, now: Instant) -> DeviceRecord:
        """Return ``record`` with the public faults of ``node``: the first step of the
        device chain.
        """
        faults = self._active.nodes.get(node)
        if faults is None:
            return record
        return with_public_faults(record, faults.values(), now.wall_ms // 1000)

    def pop_changed_nodes(self) -> frozenset[str]:
        """Return nodes to be judged again, as many as can be at once; ``next_due_ms`` is when the
        next ones can.
        """
        active, room, some = self._active, _MAX_SHOWN_PER_STEP, set()
        while active.dirty and room > 0:
            node = active.dirty.pop()
            some.add(node)
            # A node costs five faults of work even without any: its document is rendered.
            room -= _OF_A_NODE + len(active.nodes.get(node, ()))
        return frozenset(some)

    @override
    def views(self) -> tuple[View, ...]:
        """See ``Viewed``. Nothing before it is known what was there (defect B11)."""
        active = self._active
        if not self._is_whole or not active.was_used:
            return ()
        # Rendering 50,000 faults takes long, so it follows the revision.
        if self._view is None or self._view[0] != active.revision:
            self._view = active.revision, statistic_view(active.nodes, active.count)
        return (self._view[1],)

    def hold(
        self, node: str, resource: str, wanted: Iterable[ActivePublicFault], now: Instant
    ) -> None:
        """Let exactly ``wanted`` hold of ``resource`` on ``node``; the next step judges it."""
        self._active.hold(node, resource, wanted, now)

    def nodes_of(self, resource: str) -> frozenset[str]:
        """Return the nodes on which a fault of ``resource`` holds."""
        return frozenset(
            node
            for node, faults in self._active.nodes.items()
            if any(key[0] == resource for key in faults)
        )

    def standing(self, node: str) -> tuple[ActivePublicFault, ...]:
        """Return the faults that hold on a node, by resource and id."""
        faults = self._active.nodes.get(node, {})
        return tuple(faults[key] for key in sorted(faults))

    def sent_at_ms(self, source: int, place: str) -> int | None:
        """Return the time of the message that the store with this number has at ``place``."""
        text = self._processor.documents.texts.get(MessageOrigin(source, place))
        try:
            return None if text is None else decode_public_fault(place, {DATA_KEY: text}).timestamp
        except DocumentError:
            return None

    @property
    def rejections(self) -> Rejections:
        """Documents of which something does not belong to their place."""
        return self._processor.rejections

    def status(self) -> PublicFaultStatus:
        """Return the status now."""
        processor, tables = self._processor, self._tables
        return PublicFaultStatus(
            synced=self.ready.is_set(),
            standing=self._active.count,
            nodes=len(self._active.nodes),
            unplaced=len(self._active.unplaced),
            held=processor.waiting.held,
            waiting=len(processor.waiting),
            absent=len(processor.unknown_nodes),
            documents=len(processor.documents.texts),
            documents_beyond=processor.documents.beyond,
            dropped=processor.waiting.dropped,
            away=self._away.since(),
            counts=processor.outcomes.counts,
            troubles=dict(processor.outcomes.troubles),
            refused=tuple(processor.outcomes.refused),
            table=tables.place,
            table_problems=(
                *tables.unreadable.reasons.values(),
                *(
                    f"{where}: {problem}"
                    for where, problems in tables.problems.items()
                    for problem in problems
                ),
            ),
        )

    @override
    def pop_changed(self) -> frozenset[str]:
        changed = self._rows.pop_changed()
        if self.text(_ABOUT) != self._kept_about:
            self._kept_about = self.text(_ABOUT)
            changed |= {_ABOUT}
        return changed

    @override
    def text(self, bucket: str) -> str | None:
        if bucket != _ABOUT:
            return self._rows.text(bucket)
        # Without this bucket the next leader takes the state for incomplete and reads upstream's
        # document.
        if not self._is_whole:
            return None
        return msgspec.json.encode(_About(self._active.was_used)).decode()

    @override
    def restore(self, texts: Mapping[str, str], now: Instant) -> Iterable[str]:
        """See ``Persistent``. Documents that were not applied yet are applied on top of it."""
        remaining = dict(texts)
        self._kept_about = remaining.pop(_ABOUT, None)
        self._is_whole = self._kept_about is not None
        state, unreadable = read_rows(remaining)
        processor = self._processor
        processor.advance(now)
        self._rows.clear()
        self._active.restore_faults(state.faults, state.over, now)
        if self._kept_about is not None:
            try:
                self._active.was_used |= msgspec.json.decode(self._kept_about, type=_About).used
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                unreadable.append(f"{_ABOUT}: {decode_text(error)}")
        self._active.judge_again(self._tables.in_force.levels)
        processor.restore_rows(state)
        self._away.restore_nodes(state.away, now)
        # Only what differs is written: a restart must not rewrite all buckets.
        self._rows.compare(remaining)
        self.restorations += 1
        processor.apply_restored()
        processor.apply_documents(processor.documents.uncounted())
        self._take_over(now)
        return unreadable

    def _observe_statistic(self, source: int, event: WatchEvent, now: Instant) -> None:
        match event:
            case DocumentsListed(documents):
                self._statistic[source] = next((document.data for document in documents), {})
            case Changed(document):
                self._statistic[source] = document.data
            case Deleted():
                self._statistic[source] = {}
        self._take_over(now)

    def _take_over(self, now: Instant) -> None:
        """Restore the faults that upstream has left where there is no state of ours
        (clusterd#2.7).
        """
        if self._began_ms is None:
            self._began_ms = now.steady_ms
        is_all = len(self._statistic) == self._sources
        # At least one store must have answered: an empty view over faults that exist would end
        # them.
        waited = self._statistic and now.steady_ms >= self._began_ms + _STORE_TIMEOUT_MS
        if not self._is_whole and self.restorations and (is_all or waited):
            self._is_whole = True
            for data in self._statistic.values():
                faults, strange = read_statistic(data, now.wall_ms)
                taken = sum(self._active.adopt(fault) for fault in faults)
                if data:
                    self._active.was_used = True
                    _log.info(
                        "%s taken over from %s",
                        plural(taken, "public fault"),
                        STATISTIC_NAME,
                    )
                for problem in strange[:10]:
                    _log.warning("left out: %s", problem)
            self._active.judge_again(self._tables.in_force.levels)
