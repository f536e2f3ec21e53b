"""The documents that report the storage faults of a node, one for each resource.

Their schedule is one that a real ClusterD does not misread (``docs/spec/clusterd.md#4.3``, 4.4): an
occurrence waits until the recovery before it has had its effect. An unchanged document is written
again, soon at first and then ever more rarely, because ClusterD drops messages without a sign when
there are too many or when it has just started.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from typing import TYPE_CHECKING

from agent.publishing.publisher import DesiredDocument
from agent.publishing.unacknowledged_faults import HOLD_SECONDS, SentFault, message_of
from contract.codes.catalogue import shipped
from contract.codes.storage_faults import CODES, RESOURCES, fault_id
from contract.documents.public_fault import (
    accepted,
    decode_public_fault,
    encode_public_fault,
)
from contract.errors import DocumentError
from contract.names import PUBLIC_FAULT_LABEL, PUBLIC_FAULT_NAMESPACE, public_fault_name
from contract.observation import Assertion, Observation, storage_subject
from pacing.waiting import TICK_SECONDS, now_seconds
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.policy.state import PolicyState
    from agent.publishing.unacknowledged_faults import NodePublicFaults
    from contract.documents.public_fault import PublicFault
    from contract.observation import Report

log = logging.getLogger("agent.public_fault")

_SOURCE = "storage"
_REFRESH_FIRST_SECONDS = 15.0
_REFRESH_LAST_SECONDS = 1800.0
_REFRESHES = 12
"""How often recoveries alone are written again: over the first 4 hours."""


class PublicFaultDocument:
    """Renders the document about the storage client ``client`` from ``faults``.

    ``wake`` has the publisher compare again. For ``HOLD_SECONDS`` after a start the stored document
    stays: it may have been written just before.
    """

    def __init__(
        self,
        client: str,
        faults: NodePublicFaults,
        state: Callable[[], PolicyState],
        wake: Callable[[], None],
    ) -> None:
        self.namespace = PUBLIC_FAULT_NAMESPACE
        self.resource = RESOURCES[client]
        self.name = public_fault_name(faults.node, self.resource)
        self._client = client
        self._faults = faults
        self._state = state
        self._wake = wake
        self._began = now_seconds()
        self._was_known = bool(self._newest())
        self._recovered_at: dict[str, float] = {}
        self._written: tuple[SentFault, ...] = ()
        self._times_written = 0
        self._pause_seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def _newest(self) -> dict[str, SentFault]:
        newest = self._faults.ledger.newest
        return {code: newest[code] for code in CODES[self._client] if code in newest}

    @property
    def is_needed(self) -> bool:
        """Whether any fault of this client was ever reported."""
        return bool(self._newest())

    def desired(self) -> DesiredDocument | None:
        """Return the document to publish now; ``None`` while the stored one must stay."""
        newest = self._newest()
        # ClusterD refuses a message without devices; they come once the driver has listed chips.
        if not newest or any(not sent_fault.devices for sent_fault in newest.values()):
            return None
        if (
            self._was_known
            and (remaining_seconds := self._began + HOLD_SECONDS - now_seconds()) > 0
        ):
            self._wake_after(remaining_seconds)
            return None
        shown = tuple(sent_fault for sent_fault in newest.values() if not self._is_held(sent_fault))
        if not shown:
            return None

        def stamped(stamp: int) -> Document:
            # Here and not in ``desired``, which is called without a write, too.
            self._note(shown)
            message = message_of(self._faults.node, self.resource, shown, stamp * 1000)
            label = dict([PUBLIC_FAULT_LABEL])
            return Document(self.namespace, self.name, encode_public_fault(message), label)

        return DesiredDocument(self._state().revision, shown, stamped, self._refresh_seconds(shown))

    def _is_held(self, sent_fault: SentFault) -> bool:
        """Return whether a reader would misread ``sent_fault`` now; it is left out then."""
        recovered_at = self._recovered_at.get(sent_fault.code)
        if not sent_fault.occurs or recovered_at is None:
            return False
        remaining_seconds = recovered_at + HOLD_SECONDS - now_seconds()
        if remaining_seconds > 0:
            self._wake_after(remaining_seconds)
        return remaining_seconds > 0

    def _wake_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(TICK_SECONDS, seconds), self._wake)

    def _note(self, shown: tuple[SentFault, ...]) -> None:
        """Record that ``shown`` is written now."""
        self._times_written = self._times_written + 1 if shown == self._written else 1
        self._written = shown
        now = now_seconds()
        for sent_fault in shown:
            if sent_fault.occurs:
                self._recovered_at.pop(sent_fault.code, None)
            else:
                self._recovered_at[sent_fault.code] = now
        doubled = _REFRESH_FIRST_SECONDS * 2 ** (self._times_written - 1)
        # Spread, because ClusterD drops messages when too many come at once.
        self._pause_seconds = random.uniform(0.75, 1.25) * min(doubled, _REFRESH_LAST_SECONDS)

    def _refresh_seconds(self, shown: tuple[SentFault, ...]) -> float:
        if self._times_written > _REFRESHES and not any(sent_fault.occurs for sent_fault in shown):
            return math.inf
        return self._pause_seconds

    def adopt(self, existing: Document | None) -> None:
        """Treat the faults in the stored document as sent by this agent."""
        self._faults.adopt(self._sent_in(existing))

    def restore_from(self, existing: Document | None) -> tuple[Report, ...]:
        """Return the faults in the stored document, for an agent without a journal."""
        subject = storage_subject(self._client)
        return tuple(
            Observation(_SOURCE, subject, sent_fault.code, Assertion.PRESENT, sent_fault.at_ms)
            for sent_fault in self._sent_in(existing)
            if sent_fault.occurs
        )

    def _sent_in(self, existing: Document | None) -> list[SentFault]:
        if existing is None:
            return []
        try:
            message = self._decoded(existing)
        except DocumentError as error:
            log.warning("the stored document cannot be decoded: %s", error)
            return []
        node = self._faults.node
        by_id = {fault_id(node, code): code for code in CODES[self._client]}
        return [
            SentFault(
                by_id[fault.fault_id],
                fault.assertion == "occur",
                fault.fault_time,
                tuple(fault.influence[0].device_ids or ()) if fault.influence else (),
            )
            for fault in message.faults or ()
            if fault.fault_id in by_id
        ]

    def stamp_of(self, document: Document) -> int | None:
        """Return ``timestamp`` of a stored document in seconds.

        ``None`` if it cannot be decoded.
        """
        try:
            return self._decoded(document).timestamp // 1000
        except DocumentError:
            return None

    def verify(self, document: Document) -> None:
        """Raise ``DocumentError`` if readers would refuse any of ``document``."""
        self._decoded(document)

    def _decoded(self, document: Document) -> PublicFault:
        message = decode_public_fault(self.name, document.data)
        codes = shipped().public_levels
        _, problems = accepted(message, self.name, codes=codes, resources=(self.resource,))
        for problem in problems:
            raise DocumentError(self.name, problem.where, problem.what)
        return message
