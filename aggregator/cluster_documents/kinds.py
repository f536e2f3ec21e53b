"""The three kinds of documents: how each is read, merged, healed and verified.

Sources: ``docs/spec/clusterd.md#1.5`` and 2.2, ``docs/spec/consumers.md#1.4`` and 7.1. The rule for
the ``UpdateTime`` of an entry: ``clusterd#2.3`` and 2.4, defect B3, M7, ``docs/decisions/003``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from contract.documents import (
    cluster_info,
    device_info,
    node_info,
    switch_info,
)
from contract.documents.cluster_device import (
    DeviceRecord,
    device_record,
    healed,
    render_device_entry,
)
from contract.documents.device_info import LEAD_SECONDS
from contract.documents.node_info import NodeRecord
from contract.documents.switch_info import SwitchRecord
from contract.documents.vigil_key import VIGIL_KEY, VigilRecord, decode_vigil_key
from contract.errors import DocumentError
from contract.names import CLUSTER_NODE_NAME, device_info_name, node_info_name, switch_info_name
from contract.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.clock import Instant
    from stores.base import Document

# Readers compare stamps in whole seconds, so one change in a second is what they can distinguish.
_PACE_MS = 1000
R = TypeVar("R")
_LATEST_STAMP = 253_402_300_799
"""The end of the year 9999. A stamp that cannot grow would block its whole document."""


class ClusterEntry(msgspec.Struct, Generic[R], frozen=True):
    """A node's member of a cluster document.

    ``made_at_ms`` is steady time, ``None`` for an entry of an earlier run. ``whole``: ``text`` has
    all of ``record``.
    """

    text: str
    stamp: int
    record: R
    made_at_ms: int | None = None
    whole: bool = True


class Wait(msgspec.Struct, frozen=True):
    """The change must wait until this steady time: its stamp would be ahead of the clock."""

    until_ms: int


def merge(
    node: str, record: DeviceRecord, previous: ClusterEntry[DeviceRecord] | None, now: Instant
) -> ClusterEntry[DeviceRecord] | Wait:
    """Return the node's next entry, or until when the change must wait.

    It is ``previous`` itself where only the time changed, and has text and stamp of ``previous``
    where the text is the same. A stamp always grows, so that no reader drops the change. Where it
    cannot grow without leading the clock by more than 5 s, changes of this node are joined until it
    can, but for a second at most: a clock that was set back by an hour must not hide a fault for an
    hour.
    """
    if previous is None:
        stamp = _reported(record, now)
        return ClusterEntry(render_device_entry(node, record, stamp), stamp, record, now.steady_ms)
    # A restored entry does not have all of its record, so only its text can be compared.
    if previous.whole and _same(record, previous.record):
        return previous
    if render_device_entry(node, record, previous.stamp) == previous.text:
        return msgspec.structs.replace(previous, record=record, whole=True)
    stamp = max(previous.stamp + 1, _reported(record, now))
    # At most 5 s ahead of the clock (decision 3).
    early_ms = (stamp - LEAD_SECONDS) * 1000 - now.wall_ms
    if early_ms > 0 and previous.made_at_ms is not None:
        # Whichever comes first: the clock reaches the stamp, or a second has passed since the last
        # change.
        until_ms = min(now.steady_ms + early_ms, previous.made_at_ms + _PACE_MS)
        if now.steady_ms < until_ms:
            return Wait(until_ms)
    return ClusterEntry(render_device_entry(node, record, stamp), stamp, record, now.steady_ms)


def _same(record: DeviceRecord, other: DeviceRecord) -> bool:
    """Return whether two records differ by their times at most; cheaper than rendering both."""
    return msgspec.structs.replace(record, update_time=other.update_time) == other


def _reported(record: DeviceRecord, now: Instant) -> int:
    """Return the node's own time in seconds, at most 5 s ahead of our clock."""
    return min(record.update_time, now.wall_ms // 1000 + LEAD_SECONDS)


class DecodedReport(msgspec.Struct, Generic[R], frozen=True):
    """The record of a document, and the part of it that could not be read, where the
    rest is good.
    """

    record: R
    problem: str | None = None


class Content(Record, Generic[R], frozen=True):
    """What is read of a node's document. ``name`` is the one in logs and pages."""

    name: str
    texts: Callable[[Document], tuple[str | None, ...]]
    """The texts of its data keys."""
    optional: bool
    """Whether a document without any of it is good and has no record."""
    read: Callable[[Document], DecodedReport[R]]
    """Raises ``DocumentError``."""
    age: Callable[[R], int]
    """The node's own stamp: between stores the greater one counts."""
    unit_ms: int
    """Milliseconds in a unit of the stamp."""


class DocumentKind(Content[R], frozen=True):
    """One kind of document that is read, merged and published."""

    is_only_silence: Callable[[R], bool]
    """Return whether this was published only because the node fell silent."""
    merge: Callable[[str, R, ClusterEntry[R] | None, Instant], ClusterEntry[R] | Wait]
    heal: Callable[[R], R | None]
    """Return the last record of a deleted node; ``None`` where it may just be left out."""
    key: Callable[[str], str]
    document: Callable[[int], str]
    index: Callable[[str], int | None]
    take_over: Callable[[str, str, str], tuple[str, ClusterEntry[R]]]
    """Return node and entry of a member's key and text in a document; raises ``DocumentError``."""
    shown: Callable[[str, str, str], tuple[str, ClusterEntry[R]]]
    """Return node and entry of a member's key and text in a document, with all that readers see in
    it; raises ``DocumentError``. Unlike ``take_over`` it keeps the text as it is.
    """
    verify: Callable[[str, str, int], None]
    """Raises ``DocumentError`` where a reader would refuse a value."""


def _read_device(document: Document) -> DecodedReport[DeviceRecord]:
    info = device_info.decode(document.data, document.name)
    return DecodedReport(device_record(info), info.faults_problem)


def _take_over_device(key: str, text: str, document: str) -> tuple[str, ClusterEntry[DeviceRecord]]:
    node, entry = cluster_info.read_device_entry(key, text, document)
    # Our next stamp must be greater; a stamp at the end of int64 leaves no room.
    if entry.UpdateTime > _LATEST_STAMP:
        raise DocumentError(
            document, f"$.{key}.UpdateTime", f"is not a valid time: {entry.UpdateTime}"
        )
    record, stamp = cluster_info.record_of(entry), entry.UpdateTime
    # An entry of upstream or of another release is rendered anew, in the form that we verify.
    if not _is_ours(key, text, document, cluster_info.verify_device_value):
        text = render_device_entry(node, record, stamp)
    return node, ClusterEntry(text, stamp, record, whole=False)


def _shown_device(key: str, text: str, document: str) -> tuple[str, ClusterEntry[DeviceRecord]]:
    node, entry = cluster_info.read_device_entry(key, text, document)
    record = cluster_info.record_as_shown(entry, document)
    return node, ClusterEntry(text, record.update_time, record)


def _is_ours(key: str, text: str, document: str, verify: Callable[[str, str, int], None]) -> bool:
    """Return whether we would write an entry as it is.

    An entry that another release has written otherwise would block all others of its document until
    something about its node changes.
    """
    try:
        verify(cluster_info.value_of([cluster_info.member(key, text)]), document, 1)
    except DocumentError:
        return False
    return True


DEVICE = DocumentKind[DeviceRecord](
    name="device",
    texts=lambda document: (document.data.get(device_info.DEVICE_INFO_KEY),),
    optional=False,
    read=_read_device,
    age=lambda record: record.update_time,
    unit_ms=1000,
    # A device entry needs a report; silence alone only makes node entries.
    is_only_silence=lambda _: False,
    merge=merge,
    heal=healed,
    key=device_info_name,
    document=cluster_info.cluster_device_name,
    index=cluster_info.cluster_device_index,
    take_over=_take_over_device,
    shown=_shown_device,
    verify=cluster_info.verify_device_value,
)


def _read_switch(document: Document) -> DecodedReport[SwitchRecord]:
    record = switch_info.decode_switch_info(document.name, document.data)
    assert record is not None, "asked for only where the key is there"
    return DecodedReport(record)


def _merge_switch(
    node: str, record: SwitchRecord, previous: ClusterEntry[SwitchRecord] | None, now: Instant
) -> ClusterEntry[SwitchRecord] | Wait:
    """Return the node's next entry. Readers take every switch entry, whatever its stamp."""
    if previous and previous.whole and switch_info.is_same_switch(record, previous.record):
        return previous
    text = switch_info.render_switch_entry(node, record)
    return ClusterEntry(text, record.update_time, record, now.steady_ms)


def _shown_switch(key: str, text: str, document: str) -> tuple[str, ClusterEntry[SwitchRecord]]:
    node, record = cluster_info.read_switch_entry(key, text, document)
    return node, ClusterEntry(text, record.update_time, record)


def _take_over_switch(key: str, text: str, document: str) -> tuple[str, ClusterEntry[SwitchRecord]]:
    node, entry = _shown_switch(key, text, document)
    if not _is_ours(key, text, document, cluster_info.verify_switch_value):
        text = switch_info.render_switch_entry(node, entry.record)
    return node, msgspec.structs.replace(entry, text=text)


SWITCH = DocumentKind[SwitchRecord](
    name="switch",
    texts=lambda document: (document.data.get(device_info.SWITCH_INFO_KEY),),
    optional=True,
    read=_read_switch,
    age=lambda record: record.update_time,
    unit_ms=1000,
    is_only_silence=lambda _: False,
    merge=_merge_switch,
    heal=cluster_info.healed_switch,
    key=switch_info_name,
    document=cluster_info.cluster_switch_name,
    index=cluster_info.cluster_switch_index,
    take_over=_take_over_switch,
    shown=_shown_switch,
    verify=cluster_info.verify_switch_value,
)


def _merge_node(
    node: str, record: NodeRecord, previous: ClusterEntry[NodeRecord] | None, now: Instant
) -> ClusterEntry[NodeRecord] | Wait:
    """Return the node's next entry. Readers replace all entries at once, whatever their stamps."""
    if previous and previous.whole and node_info.is_same_node(record, previous.record):
        return previous
    text = node_info.render_node_entry(node, record)
    return ClusterEntry(text, record.update_time_ms, record, now.steady_ms)


def _shown_node(key: str, text: str, document: str) -> tuple[str, ClusterEntry[NodeRecord]]:
    node, record = cluster_info.read_node_entry(key, text, document)
    return node, ClusterEntry(text, record.update_time_ms, record)


def _take_over_node(key: str, text: str, document: str) -> tuple[str, ClusterEntry[NodeRecord]]:
    node, entry = _shown_node(key, text, document)
    if not _is_ours(key, text, document, cluster_info.verify_node_value):
        text = node_info.render_node_entry(node, entry.record)
    return node, msgspec.structs.replace(entry, text=text)


NODE = DocumentKind[NodeRecord](
    name="node",
    texts=lambda document: (
        document.data.get(node_info.DATA_KEY),
        document.data.get(node_info.TIME_KEY),
    ),
    optional=False,
    read=lambda document: DecodedReport(node_info.decode_node_info(document.name, document.data)),
    age=lambda record: record.update_time_ms,
    unit_ms=1,
    is_only_silence=cluster_info.is_only_silence,
    merge=_merge_node,
    # A node that is missing in the document counts as healthy (M10), so it may just go.
    heal=lambda _: None,
    key=node_info_name,
    document=lambda _: CLUSTER_NODE_NAME,
    index=lambda name: 0 if name == CLUSTER_NODE_NAME else None,
    take_over=_take_over_node,
    shown=_shown_node,
    verify=cluster_info.verify_node_value,
)

KINDS: tuple[DocumentKind[Any], ...] = (DEVICE, SWITCH, NODE)


OWN_KEY = Content[VigilRecord](
    name=VIGIL_KEY,
    texts=lambda document: (document.data.get(VIGIL_KEY),),
    optional=True,
    read=lambda document: DecodedReport(decode_vigil_key(document.data[VIGIL_KEY], document.name)),
    age=lambda _: 0,
    unit_ms=1,
)
"""What our agents report beside upstream's data keys; nothing of it is published for readers."""


def kind_of(name: str) -> DocumentKind[Any] | None:
    """Return the kind of the document of this name; ``None`` where it is none of ours."""
    return next((kind for kind in KINDS if kind.index(name) is not None), None)
