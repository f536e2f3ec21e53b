"""Reads what the documents of a store have about nodes."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from contract.documents.cluster_device import DeviceRecord, device_record
from contract.documents.cluster_info import entry_texts, read_device_entry, record_as_shown
from contract.documents.cluster_node import read_node_entry
from contract.documents.cluster_switch import read_switch_entry
from contract.documents.device_info import decode as decode_device_info
from contract.documents.isolation_request import IsolationRequest, read_requests
from contract.documents.node_info import NodeRecord, decode_node_info
from contract.documents.switch_info import SwitchRecord, decode_switch_info
from contract.documents.vigil_key import VIGIL_KEY, VigilRecord, decode_vigil_key
from contract.errors import DocumentError, StoreError, StoreRefused
from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    REPORT_LABEL,
    SWITCH_INFO_PREFIX,
    device_info_name,
    node_info_name,
)
from stores.base import Beat, Document, Selection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator

    from stores.base import Store

DEVICE_INFOS = Selection(DEVICE_INFO_NAMESPACE, label=REPORT_LABEL)
NODE_INFOS = Selection(NODE_INFO_NAMESPACE, label=REPORT_LABEL)
CLUSTER_INFOS = Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL)


class DocumentView(msgspec.Struct):
    """The documents about a node of one side: its own ones, or cluster-info.

    ``None``: there is no such document or entry, or it cannot be read.
    """

    device: DeviceRecord | None = None
    switch: SwitchRecord | None = None
    server: NodeRecord | None = None


class NodeContents(msgspec.Struct):
    """What documents have about one node.

    ``problems`` name which document of it cannot be read, and why. ``own`` is what our agent
    reports beside the data of upstream; ``places`` names the documents of cluster-info that have
    the node. ``isolations`` are the requests of operators, by physical id of the chip.
    """

    reported: DocumentView = msgspec.field(default_factory=DocumentView)
    published: DocumentView = msgspec.field(default_factory=DocumentView)
    problems: list[str] = []
    own: VigilRecord | None = None
    places: list[str] = []
    beat: Beat | None = None
    isolations: dict[int, IsolationRequest] = {}


class StoreContents(msgspec.Struct):
    """What a store has, at ``at_ms`` (epoch milliseconds, by the clock of this host).

    ``unread`` names what could not be read, and why. ``problems`` are those of cluster-info as a
    whole. ``has_cluster_info``: a document of it is there.
    """

    at_ms: int
    nodes: dict[str, NodeContents]
    has_cluster_info: bool
    unread: tuple[str, ...]
    problems: tuple[str, ...]


async def read_contents(store: Store, node: str | None) -> StoreContents:
    """Return what ``store`` has, about ``node`` only with one.

    Raises ``StoreError`` where a store does not answer, or refuses every request.
    """
    if node is None:
        infos = {"device-info": store.list(DEVICE_INFOS), "node-info": store.list(NODE_INFOS)}
    else:
        infos = {
            "device-info": _one(store, DEVICE_INFO_NAMESPACE, device_info_name(node)),
            "node-info": _one(store, NODE_INFO_NAMESPACE, node_info_name(node)),
        }
    asked: dict[str, Awaitable[tuple[Document | Beat, ...]]] = {
        **infos,
        "cluster-info": store.list(CLUSTER_INFOS),
        "heartbeats": store.beats(node),
    }
    # Exceptions as results: one kind that is refused must not hide the others.
    answers = await asyncio.gather(*asked.values(), return_exceptions=True)
    unread: list[str] = []
    result: list[Document | Beat] = []
    refusals: list[StoreError] = []
    for text, answer in zip(asked, answers, strict=True):
        if isinstance(answer, StoreRefused):
            unread.append(f"{text}: {answer}")
            refusals.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            result += answer
    # With nothing readable the refusal is the answer.
    if len(refusals) == len(asked):
        raise refusals[0]
    reading = _Reading(node)
    for item in result:
        reading.take(item)
    return StoreContents(
        at_ms=int(time.time() * 1000),
        nodes=dict(sorted(reading.nodes.items())),
        has_cluster_info=reading.has_cluster_info,
        unread=tuple(unread),
        problems=tuple(reading.problems),
    )


async def _one(store: Store, namespace: str, name: str) -> tuple[Document, ...]:
    result = await store.get(namespace, name)
    return () if result is None else (result,)


class _Reading:
    """Reads documents one after the other; of ``node`` only with one."""

    def __init__(self, node: str | None) -> None:
        self._only = node
        self.nodes: dict[str, NodeContents] = {}
        self.has_cluster_info = False
        self.problems: list[str] = []

    def take(self, document: Document | Beat) -> None:
        """Read one document or heartbeat."""
        if isinstance(document, Beat):
            self._node(document.node).beat = document
        elif (document.namespace, document.name.startswith(DEVICE_INFO_PREFIX)) == (
            DEVICE_INFO_NAMESPACE,
            True,
        ):
            self._device_info(document, document.name.removeprefix(DEVICE_INFO_PREFIX))
        elif document.namespace == NODE_INFO_NAMESPACE and document.name.startswith(
            NODE_INFO_PREFIX
        ):
            self._node_info(document, document.name.removeprefix(NODE_INFO_PREFIX))
        elif dict([CLUSTER_LABEL]).items() <= document.labels.items():
            self._cluster_info(document)

    def _node(self, name: str) -> NodeContents:
        return self.nodes.setdefault(name, NodeContents())

    def _device_info(self, document: Document, name: str) -> None:
        node = self._node(name)
        node.isolations = read_requests(document.annotations)
        with _problems_into(node.problems):
            info = decode_device_info(document.data, document.name)
            node.reported.device = device_record(info)
            if info.faults_problem is not None:
                node.problems.append(info.faults_problem)
        with _problems_into(node.problems):
            node.reported.switch = decode_switch_info(document.name, document.data)
        self._own_key(node, document)

    def _node_info(self, document: Document, name: str) -> None:
        node = self._node(name)
        with _problems_into(node.problems):
            record = decode_node_info(document.name, document.data)
            node.reported.server = record if record.has_parts else None
        self._own_key(node, document)

    def _own_key(self, node: NodeContents, document: Document) -> None:
        text = document.data.get(VIGIL_KEY)
        if text is None:
            return
        with _problems_into(node.problems):
            record = decode_vigil_key(text, document.name)
            if (before := node.own) is not None:
                # The answers about faults are those of device-info, which alone has some.
                newer = max(before, record, key=lambda item: item.changed_at_ms)
                record = msgspec.structs.replace(newer, faults=before.faults or record.faults)
            node.own = record

    def _cluster_info(self, document: Document) -> None:
        self.has_cluster_info = True
        for value in document.data.values():
            entries: dict[str, str] = {}
            with _problems_into(self.problems):
                entries = entry_texts(value, document.name)
            for key, text in self._chosen(entries.items()):
                with _problems_into(self.problems):
                    self._entry(document.name, key, text)

    def _chosen(self, entries: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
        if self._only is None:
            return entries
        prefixes = (DEVICE_INFO_PREFIX, SWITCH_INFO_PREFIX, NODE_INFO_PREFIX)
        # Keys are compared, not decoded: cluster-info has entries of 10,000 nodes.
        wanted = {prefix + self._only for prefix in prefixes}
        return [(key, text) for key, text in entries if key in wanted]

    def _entry(self, document: str, key: str, text: str) -> None:
        if key.startswith(DEVICE_INFO_PREFIX):
            name, entry = read_device_entry(key, text, document)
            self._node(name).published.device = record_as_shown(entry, document)
        elif key.startswith(SWITCH_INFO_PREFIX):
            name, switch = read_switch_entry(key, text, document)
            self._node(name).published.switch = switch
        else:
            name, server = read_node_entry(key, text, document)
            self._node(name).published.server = server
        self._node(name).places.append(document)


@contextmanager
def _problems_into(problems: list[str]) -> Iterator[None]:
    """Add to ``problems`` why a document cannot be read; the program continues behind the block."""
    try:
        yield
    except DocumentError as error:
        problems.append(str(error))
