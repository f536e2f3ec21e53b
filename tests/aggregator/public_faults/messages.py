"""Messages about public faults, nodes on which they are, and one who takes them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.inputs.node_context import NodeState
from aggregator.public_faults.plugin import MESSAGES, STATISTIC, PublicFaultsPlugin
from contract.documents.public_fault import (
    Influence,
    PublicFault,
    PublicFaultEntry,
    encode_public_fault,
)
from contract.names import PUBLIC_FAULT_LABEL
from service.clock import Instant
from stores.base import Changed, Document, DocumentsListed
from tests.aggregator.nodes import healthy, record
from tests.aggregator.public_faults.known import KnownPlaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.documents.cluster_device import DeviceRecord

REPORTED_MS = 1_760_000_000_000
OCCURRED_MS = 1_760_000_123_456


def at(seconds: float, reported_ms: int = REPORTED_MS) -> Instant:
    """Return the Instant so many ``seconds`` after the beginning."""
    return Instant(reported_ms + round(seconds * 1000), round(seconds * 1000))


def one(
    name: str = "fault-0001",
    assertion: str = "occur",
    *,
    node: str = "n1",
    devices: Iterable[int] = (0,),
    code: str = "220001001",
    serial_number: str = "",
    kind: str = "NPU",
    time_ms: int = OCCURRED_MS,
) -> PublicFaultEntry:
    """Return one fault on one node."""
    influence = [Influence(node, serial_number, list(devices))]
    return PublicFaultEntry(name, kind, code, time_ms, assertion, influence=influence)


def fault_message(
    *faults: PublicFaultEntry,
    resource: str = "CCAE",
    at_ms: int = REPORTED_MS,
    name: str = "message-1",
) -> PublicFault:
    """Return a message."""
    return PublicFault(name, at_ms, "1.0", resource, list(faults))


def document(name: str, message: PublicFault, namespace: str = "default") -> Document:
    """Return the ConfigMap that carries a message."""
    return Document(namespace, name, encode_public_fault(message), dict([PUBLIC_FAULT_LABEL]))


def changed(name: str, message: PublicFault) -> Changed:
    """Apply the event that a document was written."""
    return Changed(document(name, message))


def places(*nodes: str, synced: bool = True) -> KnownPlaces:
    """Return nodes of eight chips; the serial number of ``n1`` is ``serial of n1``."""
    known = KnownPlaces()
    for node in nodes:
        known.see_node(node, NodeState(node, serial_number=f"serial of {node}"))
        known.see_report(node, eight())
    known.synced = synced
    return known


def eight() -> DeviceRecord:
    """Return a record of eight healthy chips."""
    return record(healthy())


def begun(
    known: KnownPlaces | None = None,
    kept: Mapping[str, str] | None = None,
    seconds: float = 0,
    namespaces: tuple[str, ...] = ("*",),
) -> PublicFaultsPlugin:
    """Return a plugin that has begun, by default with the nodes ``n1`` and ``n2``."""
    known = places("n1", "n2") if known is None else known
    faults = PublicFaultsPlugin(known, namespaces=namespaces)
    assert list(faults.restore(kept or {}, at(seconds))) == []
    faults.observe(0, STATISTIC, DocumentsListed(()), at(seconds))
    faults.step(at(seconds))
    return faults


def standing(faults: PublicFaultsPlugin, node: str = "n1") -> dict[str, tuple[str, str]]:
    """Return by chip the code and level of each fault in a node's record."""
    found = faults.add_public_faults(node, eight(), at(1000)).faults
    return {one.chip.removeprefix("Ascend910-"): (one.code, one.level) for one in found}


def read(faults: PublicFaultsPlugin, *documents: Document, seconds: float = 0) -> None:
    """Apply a listing of the store with these documents."""
    faults.observe(0, MESSAGES, DocumentsListed(documents), at(seconds))
