"""Messages on their way to the active faults: judged, held until nodes are known, limited, counted.

All of it is done in pieces: a message may be about 50,000 nodes. The limits are token buckets of a
resource, and of a resource about a node: ``clusterd#4.3`` without its defect B12. The limit that
upstream has for a whole resource is for each node here, and only what is valid counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.accepted_namespaces import namespace_of
from aggregator.public_faults.active_faults import OVERTAKEN_MS
from aggregator.public_faults.kept_messages import (
    MessageDocuments,
    MessageOrigin,
    PendingMessages,
    RecentTexts,
    UnknownNodes,
    digest_of,
    is_there,
)
from aggregator.public_faults.status import OutcomeLog, Rejections
from aggregator.public_faults.validation import (
    INVALID,
    LIMITED,
    OK,
    MessageReader,
    ValidationReply,
    belongs,
    placed_report,
    reply,
)
from aggregator.public_faults.values import PIECE, FaultOutcome, UnplacedFault
from contract.errors import DocumentError, Problem
from pacing.cooperative import WorkBacklog
from pacing.token_bucket import TokenBucket
from service.clock import Instant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.accepted_namespaces import Namespaces
    from aggregator.public_faults.active_faults import ActiveFaults
    from aggregator.public_faults.fault_table import FaultTables
    from aggregator.public_faults.values import NodeLookup, PersistedRows, PublicFaultReport, Rows
    from contract.documents.public_fault import PublicFault
    from pacing.cooperative import Work
    from stores.base import WatchEvent

# Upstream's limit for a whole resource is for each node here (clusterd#4.3, defect B12).
NODE_BURST, NODE_PER_SECOND = 100, 1
RESOURCE_BURST, RESOURCE_PER_SECOND = 4000, 2000
_MAX_BUCKETS = 65_536


class MessageLimits:
    """Counts messages by resource, and by resource and node."""

    def __init__(self) -> None:
        self._resources = _Buckets(RESOURCE_BURST, RESOURCE_PER_SECOND)
        self._nodes = _Buckets(NODE_BURST, NODE_PER_SECOND)

    def take(
        self, resource: str, nodes: frozenset[str], now_ms: int, *, whole: bool = False
    ) -> frozenset[str]:
        """Count a message about these nodes; return those about which it may report nothing now.

        A message that may report nothing counts for nothing. ``whole``: neither does one of which a
        part is limited.
        """
        buckets = {node: self._nodes.of((resource, node), now_ms) for node in nodes}
        refused = frozenset(node for node, bucket in buckets.items() if bucket.wait_ms(now_ms))
        allowed = nodes - refused
        of_resource = self._resources.of((resource,), now_ms)
        # A refused message takes no token, so its repetition is not delayed by it.
        if not allowed or (whole and refused) or of_resource.wait_ms(now_ms):
            return nodes
        of_resource.take()
        for node in allowed:
            buckets[node].take()
        return refused


class _Buckets:
    def __init__(self, burst: int, per_second: int) -> None:
        self._limits = burst, per_second
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}

    def of(self, key: tuple[str, ...], now_ms: int) -> TokenBucket:
        """Return the bucket of ``key``, a full one where it has none."""
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _MAX_BUCKETS:
                self._purge(now_ms)
            bucket = self._buckets[key] = TokenBucket(*self._limits)
        return bucket

    def _purge(self, now_ms: int) -> None:
        """Remove the full buckets; if nearly all are in use, remove all: memory has an end."""
        # A full bucket is the same as none, so it may go.
        used = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_full(now_ms)}
        self._buckets = used if len(used) < _MAX_BUCKETS // 2 else {}


# One round is ``_ABSENT_MS`` (500 ms), so documents of earlier runs are looked at every 50 s.
_ROUNDS_PER_CHECK = 100
_MAX_LOGGED = 250
"""Reports in one piece of work: each may be logged."""


class MessageProcessor:
    """Judges, limits and applies messages. They wait until ``begin_applying``: before, it is not
    known which nodes there are.
    """

    def __init__(
        self,
        rows: Rows,
        active: ActiveFaults,
        tables: FaultTables,
        node_lookup: NodeLookup,
        sources: int,
        namespaces: Namespaces,
    ) -> None:
        self._node_lookup = node_lookup
        self._has_begun = False
        self.documents = MessageDocuments(rows, sources)
        self.waiting = PendingMessages(rows)
        self.unknown_nodes = UnknownNodes(rows)
        self.backlog = WorkBacklog(PIECE)
        """Documents that are to be applied."""
        self.outcomes = OutcomeLog()
        self.rejections = Rejections()
        self.namespaces = namespaces
        self._now = Instant(0, 0)
        """The time at which the next piece is done."""
        self._serves = False
        self._rounds = 0
        self._active = active
        self._tables = tables
        self._reader = MessageReader(tables, active)
        self._limits = MessageLimits()
        self._recent = RecentTexts()

    def advance(self, now: Instant) -> None:
        """Set the time of the next piece of work."""
        self._now = now

    def apply_message(self, message: PublicFault) -> Work[ValidationReply]:
        """Apply a message that came over gRPC; return its answer."""
        resource = self._reader.known(message.resource)
        try:
            reports, problems = yield from self._reader.reports(
                message, "message", self._now.wall_ms
            )
        except DocumentError as error:
            return self._answered(INVALID, resource, [Problem(error.where, error.what)])
        report_count = 0
        # Until nodes are known a report cannot be refused for a node that does not exist.
        if not self._has_begun:
            # Limited before it waits: a sender must not fill the queue while nodes are unknown.
            reports, limited = self._within_limits(message.resource, reports)
            if reports and self.waiting.put(None, reports):
                report_count = len(reports)
            elif reports:
                limited.append(Problem("message", "too many messages wait: send it again later"))
        else:
            reports, missing, _ = yield from self._placing(reports)
            problems += missing
            reports, limited = self._within_limits(message.resource, reports)
            overtaken: list[Problem] = []
            limited += yield from self._apply_reports(reports, overtaken)
            problems += overtaken
        code = LIMITED if limited else OK if reports else INVALID
        return self._answered(code, resource, [*limited, *problems], report_count)

    def _answered(
        self, code: int, resource: str, refused: list[Problem], waiting: int = 0
    ) -> ValidationReply:
        verdict = {INVALID: "refused", LIMITED: "limited"}.get(code, "held" if waiting else "taken")
        self.outcomes.count(resource, verdict)
        self.outcomes.judged(f"messages of {resource} over gRPC", refused, self._now)
        return reply(code, tuple(refused), waiting=waiting)

    def observe_document(self, source: int, event: WatchEvent) -> None:
        """Apply an event of the documents that carry messages."""
        taken = self.namespaces.taken(source, event)
        if taken is None:
            return
        new, gone = self.documents.observe_document(source, taken)
        for origin in new:
            text = self.documents.texts[origin]
            if text is not None:
                self._recent.record(origin, text, self._now)
        for origin in gone:
            self.outcomes.gone(_named(origin))
            self.rejections.gone(origin)
            self.unknown_nodes.forget(origin.place, self.documents.holds)
        self.apply_documents(new)

    def apply_documents(self, new: Iterable[MessageOrigin]) -> None:
        """Apply new documents, of several those first that were sent first."""
        self.backlog.add(self._applying_documents(tuple(new)))
        self.backlog.do_piece()

    def _applying_documents(self, new: tuple[MessageOrigin, ...]) -> Work[None]:
        read: list[
            tuple[int, MessageOrigin, str | None, list[PublicFaultReport], list[Problem]]
        ] = []
        for origin in new:
            yield 1
            if origin not in self.documents.texts:
                continue  # it went meanwhile
            text = self.documents.texts[origin]
            message = yield from self._reader.read(origin.place, text, self._now.wall_ms)
            self.rejections.judged(origin, message.foreign)
            if message.own:
                read.append((message.sent_at_ms, origin, text, message.own, message.problems))
            else:
                self.outcomes.count(message.resource, "refused")
                self.outcomes.judged(_named(origin), message.problems, self._now)
        # By the time of sending: after a list several texts of one sender arrive at once.
        for _, origin, text, reports, problems in sorted(read, key=lambda item: item[:2]):
            yield 1
            may = not self.waiting.has(origin)
            if may and (yield from self._applying(origin, reports, problems)):
                # The document may have changed between two pieces: then only its new text counts.
                if self.documents.texts.get(origin) == text:
                    self._count(origin)
            else:
                self.outcomes.count(self._reader.known(reports[0].resource), "held")
                # Behind earlier texts of the same document, which must not be overtaken.
                self.waiting.put(origin, reports, problems)

    def apply_restored(self) -> None:
        """Apply recent texts of documents after a restore, as far as nothing newer is known.

        An earlier leader may have ended before it stored their effect.
        """
        self.backlog.add(self._apply_restored())

    def _apply_restored(self) -> Work[None]:
        for origin, text in tuple(self._recent.since(self._now)):
            yield 1
            if not self._has_begun or self.documents.texts.get(origin) == text:
                continue
            message = yield from self._reader.read(origin.place, text, self._now.wall_ms)
            # What is refused of it was named when it came.
            good, _, _ = yield from self._placing(message.own)
            newer = [report for report in good if self._active.is_newer(report)]
            yield from self._apply_reports(newer)

    def begin_applying(self) -> None:
        """Apply what has waited: from now on it is known which nodes there are."""
        self._has_begun = True
        self.serve()
        self.backlog.do_piece()

    def serve(self) -> None:
        """Apply what has waited, as far as limits allow."""
        if not self._serves:
            # One pass at a time: a second one would apply the same messages twice.
            self._serves = True
            self.backlog.add(self._serving())

    def _serving(self) -> Work[None]:
        blocked: set[MessageOrigin] = set()
        for pending in self.waiting.line():
            yield 1
            origin = pending.origin
            # Later messages of a document whose first one must wait do not overtake it.
            if origin in blocked or not (
                yield from self._applying(origin, pending.reports, pending.problems)
            ):
                if origin is not None:
                    blocked.add(origin)
                continue
            self.waiting.done(pending)
            if origin is not None and not self.waiting.has(origin):
                self._count(origin)
        self._serves = False

    def _count(self, origin: MessageOrigin) -> None:
        self.documents.count(origin)
        self.unknown_nodes.forget(origin.place, self.documents.holds)

    def apply_to_new_nodes(self) -> None:
        """Apply what documents report of nodes that exist now."""
        if not self._has_begun or not self.unknown_nodes or self.backlog:
            return
        self._rounds += 1
        if self._rounds % _ROUNDS_PER_CHECK == 0:
            for place in self.unknown_nodes.places:  # those of an earlier run that have ended
                self.unknown_nodes.forget(place, self.documents.holds)
        come = self.unknown_nodes.of_existing_nodes(self._node_lookup)
        if come:
            self.backlog.add(self._coming(come))

    def _coming(self, come: list[UnplacedFault]) -> Work[None]:
        for unplaced in sorted(come, key=lambda unplaced: unplaced.report.reported_at_ms):
            yield 1
            report = unplaced.report
            if not self.unknown_nodes.is_newest(unplaced):
                continue
            # A one-off fault is over by now; its node came too late.
            is_over = report.assertion == "once" and (
                self._now.wall_ms - report.received_at_ms > OVERTAKEN_MS
            )
            if is_over or not self.documents.holds(unplaced.place, unplaced.digest):
                self.unknown_nodes.drop(report)
                continue
            good, missing, _ = yield from self._placing((report,))
            nodes = frozenset(placed.node for placed in good)
            if good and self._limits.take(report.resource, nodes, self._now.steady_ms):
                self.unknown_nodes.put(unplaced)  # later
                continue
            full = yield from self._apply_reports(good)
            self.unknown_nodes.drop(report)
            if unplaced.is_all and not self.unknown_nodes.has(unplaced.place):
                where = f"public faults in {unplaced.place}"
                self.outcomes.judged(where, [*missing, *full], self._now)

    def restore_rows(self, state: PersistedRows) -> None:
        """Restore the state of an earlier run. Texts of documents that were not applied are
        applied.
        """
        self.backlog.clear()
        self._serves = False
        self.waiting.clear()
        self.documents.restore_digests(state.documents)
        self.unknown_nodes.restore_reports(
            unplaced
            for unplaced in state.absent
            if belongs(unplaced.place, unplaced.report)
            and self.namespaces.takes(namespace_of(unplaced.place))
        )
        for report in state.held:
            self.waiting.put(None, (report,))

    def _applying(
        self,
        origin: MessageOrigin | None,
        reports: Iterable[PublicFaultReport],
        problems: Iterable[Problem],
    ) -> Work[bool]:
        """Apply a message that was judged; return whether it was its time."""
        if not self._has_begun:
            return False
        text = None if origin is None else self.documents.texts.get(origin)
        good, missing, absent = yield from self._placing(reports)
        resource = next(iter(reports)).resource
        if good and origin is not None:
            nodes = frozenset(placed.node for placed in good)
            # Whole: a part of a document's text cannot be marked as applied.
            if self._limits.take(resource, nodes, self._now.steady_ms, whole=True):
                return False
        full = yield from self._apply_reports(good)
        if origin is None:
            refused = [*missing, *full]
            self.outcomes.judged("messages over gRPC that waited", refused, self._now)
        elif origin in self.documents.texts:
            is_all = len(missing) == len(absent) and not any((*problems, *full))
            for report in absent:
                self.unknown_nodes.put(UnplacedFault(report, origin.place, digest_of(text), is_all))
            self.outcomes.judged(_named(origin), [*problems, *missing, *full], self._now)
        self.outcomes.count(self._reader.known(resource), "taken" if good else "refused")
        return True

    def _placing(
        self, reports: Iterable[PublicFaultReport]
    ) -> Work[tuple[list[PublicFaultReport], list[Problem], list[PublicFaultReport]]]:
        """Return the reports on nodes and chips that exist, problems of the others, and the reports
        on nodes that may come.
        """
        good: list[PublicFaultReport] = []
        problems: list[Problem] = []
        absent: list[PublicFaultReport] = []
        for number, report in enumerate(reports):
            if number % PIECE == PIECE - 1:
                yield PIECE
            # A newer report of the fault replaces the one that waits for its node.
            if self.unknown_nodes:
                # Before it is judged: even a refused newer report shows that the older one is void.
                self.unknown_nodes.drop(report)
            recovers = report.assertion == "recover"
            # A recovery must not be refused for a node that was deleted meanwhile.
            if recovers and self._active.get(report.key) is not None:
                good.append(report)  # also when its node has gone
                continue
            placed, wrong = placed_report(report, self._node_lookup)
            problems += wrong
            if placed is not None:
                good.append(placed)
            elif not recovers and not is_there(report, self._node_lookup):
                absent.append(report)
        return good, problems, absent

    def _within_limits(
        self, resource: str, reports: list[PublicFaultReport]
    ) -> tuple[list[PublicFaultReport], list[Problem]]:
        nodes = frozenset(report.node or report.serial_number for report in reports)
        refused = self._limits.take(resource, nodes, self._now.steady_ms)
        problems = [
            Problem(f"node {node}", f"{resource} has reached the limit of messages about it")
            for node in sorted(refused)
        ]
        return [s for s in reports if (s.node or s.serial_number) not in refused], problems

    def _apply_reports(
        self,
        reports: Iterable[PublicFaultReport],
        overtaken: list[Problem] | None = None,
    ) -> Work[list[Problem]]:
        """Apply reports; return problems of those that cannot be.

        Problems of reports that were overtaken are added to ``overtaken``: the sender's clock may
        be behind.
        """
        problems: list[Problem] = []
        for number, report in enumerate(reports):
            if number % _MAX_LOGGED == _MAX_LOGGED - 1:
                yield PIECE
            level = self._tables.in_force.levels.get(report.code)
            # The table may have changed while the message waited.
            if level is None and report.assertion != "recover":
                text = f"{report.code} is not configured any more"
                problems.append(Problem(f"fault {report.fault_id}", text))
                continue
            is_placed = bool(self._node_lookup.chips(report.node))
            outcome = self._active.apply_report(
                report, str(level or ""), self._now, placed=is_placed
            )
            self.outcomes.count(self._reader.known(report.resource), outcome)
            if outcome is FaultOutcome.OVERTAKEN and overtaken is not None:
                text = f"a newer message about it was applied on node {report.node!r}"
                overtaken.append(Problem(f"fault {report.fault_id}", text))
            if outcome is FaultOutcome.FULL:
                text = f"{self._active.full(report.node)}: there is room for no more"
                problems.append(Problem(f"fault {report.fault_id}", text))
        return problems


def _named(origin: MessageOrigin) -> str:
    return f"public faults in {origin.place}"
