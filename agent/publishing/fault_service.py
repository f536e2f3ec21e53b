"""Sends storage faults to ClusterD over gRPC, each change until it is acknowledged.

Source: ``noded#4.5``, without the defect D-10: one worker, in order, each call with a deadline. A
connection is open only while there is something to send: a ClusterD accepts at most 1024 for all
its nodes. gRPC and protobuf are imported here only, when there is something to send.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from agent.publishing.unacknowledged_faults import HOLD_SECONDS, message_of
from contract.codes.storage_faults import resource_of
from contract.pages.agent_status import FaultServiceStatus
from pacing.backoff import Backoff
from pacing.waiting import TICK_SECONDS, now_seconds, wait_for_event
from service.log.ongoing_failure import OngoingFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.name_claim import NameClaim
    from agent.publishing.fault_service_address import FaultServiceAddress
    from agent.publishing.unacknowledged_faults import NodePublicFaults, SentFault
    from contract.documents.public_fault import PublicFault
    from service.watchdog import Watchdog

log = logging.getLogger("agent.fault_service")

_CALL_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 1.0
_LAST_PAUSE_SECONDS = 30.0
_MARK_SECONDS = 10.0
_STALL_SECONDS = 30.0
_PERMISSION_SECONDS = 0.5
_TAKEN, _INVALID = 0, 409


class FaultServiceClient:
    """Sends the faults that wait in ``faults`` while ``run`` runs and ``claim`` permits it."""

    def __init__(
        self,
        address: FaultServiceAddress,
        faults: NodePublicFaults,
        claim: NameClaim,
        stalls: Watchdog,
        wall_clock: Callable[[], int],
    ) -> None:
        self._address = address
        self._faults = faults
        self._claim = claim
        self._progress = stalls.register("ClusterD's fault service", _STALL_SECONDS)
        self._wall_clock = wall_clock
        self._backoffs: dict[str, Backoff] = {}
        self._not_before: dict[str, float] = {}
        self._recovered_at: dict[str, float] = {}
        self._acknowledged = 0
        self._refused = 0
        self._trouble = OngoingFailure(
            log,
            "storage faults cannot be sent to ClusterD, retried until they are: %s",
            "storage faults are sent to ClusterD again",
            level=logging.ERROR,
        )

    def status(self) -> FaultServiceStatus:
        """Return the state of the client now."""
        waiting = len(self._faults.ledger.waiting)
        return FaultServiceStatus(
            self._address.target, waiting, self._acknowledged, self._refused, self._trouble.reason
        )

    async def run(self) -> NoReturn:
        """Send until cancelled."""
        now = now_seconds()
        sent = self._faults.ledger.sent
        # The times of sending are not kept; from now on is never too short.
        self._recovered_at = {code: now for code, occurs in sent.items() if not occurs}
        while True:
            self._progress()
            self._faults.changed.clear()
            batch, seconds = self._next()
            if batch:
                if self._claim.may_publish:
                    await self._send(batch)
                    continue
                # No event wakes this task when the node name becomes ours.
                seconds = _PERMISSION_SECONDS
            most_seconds = max(TICK_SECONDS, min(seconds, _MARK_SECONDS))
            await wait_for_event(self._faults.changed, most_seconds)

    def _next(self) -> tuple[tuple[SentFault, ...], float]:
        """Return the faults for the next message, and the seconds until the next attempt without
        one.

        Faults are sent in order, and those of one resource together; a fault is in a message once.
        """
        now, seconds = now_seconds(), _MARK_SECONDS
        batch: dict[str, SentFault] = {}
        behind: set[str] = set()
        for fault in self._faults.ledger.waiting:
            resource = resource_of(fault.code)
            due = self._not_before.get(resource, now)
            if fault.occurs and fault.code in self._recovered_at:
                due = max(due, self._recovered_at[fault.code] + HOLD_SECONDS)
            if due > now:
                seconds = min(seconds, due - now)
            elif (
                fault.devices
                and fault.code not in behind
                and all(resource == resource_of(code) for code in batch)
            ):
                batch[fault.code] = fault
            # Later changes of a fault stay behind its first one that waits: their order must hold.
            behind.add(fault.code)
        return tuple(batch.values()), seconds

    async def _send(self, batch: tuple[SentFault, ...]) -> None:
        resource = resource_of(batch[0].code)
        message = message_of(self._faults.node, resource, batch, self._wall_clock())
        code, reason = await self._answer(message)
        if code not in (_TAKEN, _INVALID):
            backoff = self._backoffs.setdefault(
                resource, Backoff(_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS)
            )
            self._not_before[resource] = now_seconds() + backoff.next_seconds()
            self._trouble.record_failure(reason)
            return
        self._backoffs.pop(resource, None)
        self._not_before.pop(resource, None)
        self._trouble.end()
        # The same message would be refused for ever, so it does not wait any more.
        if code == _INVALID:
            self._refused += len(batch)
            log.error("ClusterD refused a message of storage faults as invalid: %s", reason)
        else:
            self._acknowledged += len(batch)
        now = now_seconds()
        self._recovered_at |= {fault.code: now for fault in batch if not fault.occurs}
        self._faults.acknowledged(batch)

    async def _answer(self, message: PublicFault) -> tuple[int | None, str]:
        """Return the code of the answer, ``None`` where there was none, and its text."""
        from agent.publishing import fault_service_call

        return await fault_service_call.answer(self._address, message, _CALL_SECONDS)
