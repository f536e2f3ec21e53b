"""Faults of RDMA NICs and DPUs: follows their documents, and publishes them as public faults.

A ``Timed`` plugin. Publication is off by default (``docs/decisions/050``). What is published is
compared with what is wanted, so a restart, another leader or another setting leaves nothing behind.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec
from typing_extensions import override

from aggregator.dpu_faults.documents import DOCUMENTS, SOURCE, DpuDocuments
from aggregator.plugin import Timed
from aggregator.public_faults.values import ActivePublicFault
from contract.codes.dpu_codes import SEPARATE, public_code
from contract.codes.levels import ChipLevel
from contract.documents.dpu_info import dpu_subject
from contract.documents.public_fault import CODE_BYTES, LAST_DEVICE
from contract.errors import quoted
from contract.sentences import joined, sentence
from service.log.ongoing_failure import OngoingFailure
from stores.interruption import Interrupted, followed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aggregator.dpu_faults.documents import DpuStatus
    from aggregator.public_faults.plugin import PublicFaultsPlugin
    from aggregator.public_faults.values import NodeLookup
    from contract.documents.dpu_info import DpuFault
    from service.clock import Clock, Instant
    from service.watchdog import Watchdog
    from stores.cluster import Cluster

_log = logging.getLogger(__name__)

_POLL_MS = 1000
"""Period of checks whether chips of nodes with published faults have changed."""
_FAULT_TYPE = "Network"
LEVELS = {
    "NotHandleFault": ChipLevel.NOT_HANDLE_FAULT,
    "SubHealthFault": ChipLevel.SUB_HEALTH_FAULT,
    "PreSeparateNPU": ChipLevel.PRE_SEPARATE_NPU,
    "SeparateNPU": ChipLevel.SEPARATE_NPU,
    SEPARATE: ChipLevel.SEPARATE_NPU,
}
"""By level in the document: the level of the public fault."""


class DpuFaults(Timed):
    """The faults of the documents of all stores (by number) that have ``clusters``.

    ``chips`` maps the name of a device to the chips that depend on it (physical ids); it counts
    with ``publishes`` only.
    """

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        public: PublicFaultsPlugin,
        node_lookup: NodeLookup,
        *,
        publishes: bool,
        chips: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.documents = DpuDocuments(tuple(clusters), node_lookup)
        self._clusters = clusters
        self._public = public
        self._lookup = node_lookup
        self._publishes = publishes
        self._chips = chips
        self._restorations = 0
        self._was_listed = False
        self._pending: set[str] = set()
        """Nodes whose published faults may have to change."""
        self._published: dict[str, frozenset[str] | None] = {}
        """Nodes with faults to be published, with the chips that they had then."""
        self._not_published: dict[str, tuple[str, ...]] = {}
        """Why faults of a node are not published, or not for the chips that the setting names."""
        self._looked_ms = 0
        self._changed: set[str] = set()

    @property
    def stores(self) -> int:
        """How many stores are to be followed."""
        return len(self._clusters)

    async def follow(
        self, number: int, clock: Clock, stalls: Watchdog, wake: Callable[[], None]
    ) -> NoReturn:
        """Follow the documents of the store with this number; ``wake`` starts a step."""
        url, cluster = tuple(self._clusters.items())[number]
        about = f"{DOCUMENTS.name} of {url}"
        trouble = OngoingFailure(_log, "%s cannot be read: %s", "%s can be read again", about)
        async for event in followed(partial(cluster.objects, DOCUMENTS)):
            with stalls.busy(f"read {about}"):
                if self.documents.observe_event(number, event, clock()):
                    wake()
            if isinstance(event, Interrupted):
                trouble.record_failure(event.reason)
            else:
                trouble.end()
        raise AssertionError("it never ends")

    @override
    def step(self, now: Instant) -> frozenset[str]:
        """See ``Timed``. The nodes that change are those of public faults."""
        self.documents.step(now)
        changed, self.documents.changed = self.documents.changed, set()
        self._changed |= changed
        self._pending |= changed
        if not self._public.restorations:
            return frozenset()
        is_anew = self._restorations != self._public.restorations
        if is_anew or self._was_listed != self.documents.is_listed:
            self._restorations = self._public.restorations
            self._was_listed = self.documents.is_listed
            self._pending |= self.documents.with_faults | self._public.nodes_of(SOURCE)
        if self._looked_ms + _POLL_MS <= now.steady_ms:
            self._looked_ms = now.steady_ms
            self._pending.update(
                node for node, chips in self._published.items() if self._chips_of(node) != chips
            )
        pending, self._pending = self._pending, set()
        for node in pending:
            # What an earlier leader published stays until it is known that its document is gone.
            if not self._publishes or self.documents.is_listed or self.documents.knows(node):
                self._publish(node, now)
        return frozenset()

    @override
    def next_due_ms(self) -> int | None:
        due_ms = self.documents.next_due_ms()
        if not self._published:
            return due_ms
        look_ms = self._looked_ms + _POLL_MS
        return look_ms if due_ms is None else min(due_ms, look_ms)

    def pop_changed(self) -> frozenset[str]:
        """Return the nodes of which faults may have changed since the last call."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def levels(self, node: str) -> dict[tuple[str, str], str] | None:
        """Return the levels of a node's faults by subject and code; ``None`` if not known yet."""
        if not self.documents.is_listed and not self.documents.knows(node):
            return None
        return {(fault.subject, fault.code): fault.level for fault in self.documents.faults(node)}

    def explained(self, node: str) -> tuple[tuple[DpuFault, str], ...]:
        """Return the faults of a node with what follows from each, for people."""
        return tuple((fault, self._because(node, fault)) for fault in self.documents.faults(node))

    def _because(self, node: str, fault: DpuFault) -> str:
        if not self._publishes:
            return sentence("it is only shown: dpu_faults.publish is off")
        if self._chips.get(fault.hca) == ():
            return sentence(
                "it is only shown: dpu_faults.chips has no chip for {device}", device=fault.hca
            )
        for public_fault in self._public.standing(node):
            if public_fault.resource == SOURCE and public_fault.fault_id == _fault_id(fault):
                return sentence(
                    "published as public fault {code} at {level} of chips {chips}",
                    code=public_fault.code,
                    level=public_fault.level,
                    chips=joined("{before}, {part}", map(str, public_fault.devices)),
                )
        problems = self._not_published.get(node, ())
        return joined("{before}; {part}", problems or [sentence("it is not published yet")])

    def status(self) -> DpuStatus:
        """Return the state of all documents, with why faults are not published."""
        status = self.documents.status()
        problems = dict(status.problems)
        for node, texts in sorted(self._not_published.items()):
            problems[node] = "; ".join(filter(None, (problems.get(node, ""), *texts)))
        return msgspec.structs.replace(status, problems=problems)

    def _chips_of(self, node: str) -> frozenset[str] | None:
        return self._lookup.chips(node) if self.documents.has_node(node) else None

    def _publish(self, node: str, now: Instant) -> None:
        faults = self.documents.faults(node) if self._publishes else ()
        problems: list[str] = []
        wanted = list(self._wanted(node, faults, now, problems))
        if self._publishes and self.documents.knows(node) and self.documents.has_faults(node):
            self._published[node] = self._chips_of(node)
        else:
            self._published.pop(node, None)
        if problems:
            self._not_published[node] = tuple(problems)
        else:
            self._not_published.pop(node, None)
        if not faults or self._chips_of(node):
            self._public.hold(node, SOURCE, wanted, now)
        # Else an earlier leader may have known the chips: what it published stays.

    def _wanted(
        self, node: str, faults: tuple[DpuFault, ...], now: Instant, problems: list[str]
    ) -> Iterator[ActivePublicFault]:
        """Yield the public faults that follow; ``problems`` gets why some do not."""
        existing = _numbers(self._chips_of(node) or frozenset())
        for fault in faults:
            code = public_code(fault.code)
            about = sentence("{code} of {device}", code=fault.code, device=dpu_subject(fault.hca))
            level = LEVELS.get(fault.level)
            if level is None or len(code.encode()) != CODE_BYTES:
                shown = quoted(repr(fault.level if level is None else fault.code))
                problems.append(
                    sentence(
                        "{fault} is not published: {value} is not known", fault=about, value=shown
                    )
                )
                continue
            mapped = self._chips.get(fault.hca)
            devices = tuple(device for device in mapped or () if device in existing)
            if mapped == ():
                continue
            if not existing:
                problems.append(
                    sentence(
                        "{fault} is not published: no chip of the node is known yet", fault=about
                    )
                )
                continue
            if mapped is not None and not devices:
                problems.append(
                    sentence(
                        "dpu_faults.chips names no chip of the node for {device}", device=fault.hca
                    )
                )
            if not devices:
                devices = existing
                if level is ChipLevel.SEPARATE_NPU:
                    level = ChipLevel.PRE_SEPARATE_NPU
            yield ActivePublicFault(
                node=node,
                resource=SOURCE,
                fault_id=_fault_id(fault),
                fault_type=_FAULT_TYPE,
                code=code,
                level=level.value,
                devices=devices,
                time_seconds=fault.since_ms // 1000,
                added_at_ms=now.wall_ms,
                reported_at_ms=now.wall_ms,
                received_at_ms=now.wall_ms,
                ends_at_ms=None,
                placed=True,
            )


def _fault_id(fault: DpuFault) -> str:
    return f"{fault.code}@{fault.hca or 'node'}"


def _numbers(chips: frozenset[str]) -> tuple[int, ...]:
    """Return the physical ids of chips, as far as public faults can have them."""
    texts = {name.rpartition("-")[2] for name in chips}
    return tuple(
        sorted(int(text) for text in texts if text.isdecimal() and int(text) <= LAST_DEVICE)
    )
