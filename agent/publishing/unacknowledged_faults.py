"""The storage faults to report: each that ever held, with its newest assertion.

Level-triggered from the state, so no recovery is reported of a fault that never was
(``docs/spec/noded.md#10``, D-11). What must outlive the process is in the journal.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

import msgspec

from agent.journal.rows import RowKind, body_of, decoded
from contract.codes.storage_faults import CODES, fault_id
from contract.documents.public_fault import (
    LAST_DEVICE,
    OLDEST_MS,
    VERSION,
    Influence,
    PublicFault,
    PublicFaultEntry,
)
from contract.errors import JournalError
from contract.observation import storage_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.journal.journal import Journal
    from agent.journal.rows import JournalRow
    from agent.policy.state import PolicyState

log = logging.getLogger("agent.public_faults")

HOLD_SECONDS = 10.0
"""Seconds for which an occurrence is not sent after a recovery of the same fault was.

A ClusterD that did not know the fault deletes it 5 s after its recovery, or as late as 6.5 s,
whatever occurred meanwhile (``docs/spec/clusterd.md#4.4``).
"""

_INVENTORY_SECONDS = 30.0
_NO_DEVICES = (0,)
"""What upstream sends where no driver answers; a message without any is refused."""

_SUBJECTS = {storage_subject(client): codes for client, codes in CODES.items()}


class SentFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A storage fault began (``occurs``) or ended at ``at_ms``; ``devices`` are physical ids."""

    code: str
    occurs: bool
    at_ms: int
    devices: tuple[int, ...] = ()


class UnacknowledgedFaults(msgspec.Struct, frozen=True, omit_defaults=True):
    """The storage faults that the journal keeps.

    ``newest`` is the state of each fault that ever held. Only where ClusterD is called over gRPC:
    ``waiting`` is still to be sent, in order, and ``sent`` has whether ClusterD's last accepted
    message about a fault was an occurrence. ``devices`` are the chips of the node as last known.
    """

    newest: dict[str, SentFault] = {}
    waiting: tuple[SentFault, ...] = ()
    sent: dict[str, bool] = {}
    devices: tuple[int, ...] = ()


def queued(waiting: tuple[SentFault, ...], sent_fault: SentFault) -> tuple[SentFault, ...]:
    """Return ``waiting`` with ``sent_fault`` behind it.

    A recovery before a new occurrence of the same fault is withdrawn with that occurrence, while
    neither was sent. The first that waits of a fault may have been sent already, without an answer,
    so it stays: there are never more than three.
    """
    mine = [fault for fault in waiting if fault.code == sent_fault.code]
    if sent_fault.occurs and len(mine) > 1 and not mine[-1].occurs:
        return tuple(fault for fault in waiting if fault is not mine[-1])
    return (*waiting, sent_fault)


class NodePublicFaults:
    """Holds the storage faults of ``node``; ``update`` compares them with the state.

    ``chips`` returns the physical ids of the chips, ``None`` until the driver has listed them. With
    ``queues``, changes are also added to ``waiting``.
    """

    def __init__(
        self,
        node: str,
        chips: Callable[[], tuple[int, ...] | None],
        journal: Journal,
        wall_clock: Callable[[], int],
        *,
        queues: bool,
    ) -> None:
        self.node = node
        self.ledger = UnacknowledgedFaults()
        self.changed = asyncio.Event()
        self._chips = chips
        self._journal = journal
        self._wall_clock = wall_clock
        self._queues = queues
        self._seen: list[object] = [None] * len(_SUBJECTS)
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_chips = True

    def restore_ledger(self, row: JournalRow | None) -> None:
        """Continue where the process before this one ended."""
        if row is None:
            return
        try:
            self.ledger = decoded(row, UnacknowledgedFaults)
        except JournalError as error:
            log.error("which storage faults were sent is not known: %s", error)

    def adopt(self, faults: Iterable[SentFault]) -> None:
        """Take over the faults in a document that is older than the journal."""
        new = {fault.code: fault for fault in faults if fault.code not in self.ledger.newest}
        if new:
            self._keep(msgspec.structs.replace(self.ledger, newest=self.ledger.newest | new))

    def update(self, state: PolicyState) -> None:
        """Take over the changed storage faults of ``state``."""
        states = [state.of(subject) for subject in _SUBJECTS]
        # States are immutable: the same objects have not changed. Most calls are about other
        # subjects.
        if all(state_now is other for state_now, other in zip(states, self._seen, strict=True)):
            if self.ledger.newest:
                # The driver may have listed the chips since.
                self._fill()
            return
        self._seen[:] = states
        ledger = self.ledger
        for subject_state, codes in zip(states, _SUBJECTS.values(), strict=True):
            for code in codes:
                before, fault = ledger.newest.get(code), subject_state.faults.get(code)
                if (fault is not None) == (before is not None and before.occurs):
                    continue
                if fault is None and not subject_state.answered:
                    continue  # no collector has answered yet
                if fault is not None:
                    sent_fault = SentFault(code, True, fault.first_seen_ms)
                else:
                    assert before is not None
                    sent_fault = SentFault(code, False, self._wall_clock(), before.devices)
                waiting = ledger.waiting
                if self._queues:
                    waiting = queued(waiting, sent_fault)
                newest = ledger.newest | {code: sent_fault}
                ledger = msgspec.structs.replace(ledger, newest=newest, waiting=waiting)
        if ledger is not self.ledger:
            self._keep(ledger)
        self._fill()

    def acknowledged(self, batch: tuple[SentFault, ...]) -> None:
        """Record that the receiver accepted ``batch``, or will never accept it."""
        ledger = self.ledger
        waiting = tuple(fault for fault in ledger.waiting if fault not in batch)
        sent = ledger.sent | {fault.code: fault.occurs for fault in batch}
        self._keep(msgspec.structs.replace(ledger, waiting=waiting, sent=sent))

    def _fill(self) -> None:
        """Add the chips concerned once they are known, or without the driver's answer after a
        deadline.
        """
        chips = self._chips()
        devices = () if chips is None else tuple(sorted(set(chips)))
        devices = tuple(chip for chip in devices if 0 <= chip <= LAST_DEVICE)
        ledger = self.ledger
        if devices and devices != ledger.devices:
            ledger = msgspec.structs.replace(ledger, devices=devices)
        incomplete = [
            fault for fault in (*ledger.newest.values(), *ledger.waiting) if not fault.devices
        ]
        if incomplete and not devices and self._waits_for_chips:
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(_INVENTORY_SECONDS, self._stop_waiting)
            return
        if incomplete:
            meant = devices or ledger.devices or _NO_DEVICES

            def filled(fault: SentFault) -> SentFault:
                return fault if fault.devices else msgspec.structs.replace(fault, devices=meant)

            newest = {code: filled(fault) for code, fault in ledger.newest.items()}
            waiting = tuple(map(filled, ledger.waiting))
            ledger = msgspec.structs.replace(ledger, newest=newest, waiting=waiting)
        if ledger is not self.ledger and (incomplete or ledger.newest):
            self._keep(ledger)

    def _stop_waiting(self) -> None:
        self._waits_for_chips = False
        self._fill()

    def _keep(self, ledger: UnacknowledgedFaults) -> None:
        self.ledger = ledger
        self._journal.append([(RowKind.PUBLIC_FAULTS, body_of(ledger))], self._wall_clock())
        self.changed.set()


def message_of(node: str, resource: str, batch: Iterable[SentFault], at_ms: int) -> PublicFault:
    """Return a new message with ``batch``, in the order of its codes (``noded#4.5``)."""
    faults = [
        PublicFaultEntry(
            fault_id=fault_id(node, sent_fault.code),
            fault_type="Node",
            fault_code=sent_fault.code,
            fault_time=max(sent_fault.at_ms, OLDEST_MS),
            assertion="occur" if sent_fault.occurs else "recover",
            fault_location={},
            influence=[Influence(node_name=node, device_ids=list(sent_fault.devices))],
        )
        for sent_fault in sorted(batch, key=lambda sent_fault: sent_fault.code)
    ]
    return PublicFault(str(uuid.uuid4()), at_ms, VERSION, resource, faults)
