"""Forgets nodes in the stores that an aggregator reads, and the mark of a directory."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contract.documents.cluster_info import entry_texts, read_device_entry
from contract.documents.device_info import decode
from contract.documents.forget_record import (
    FORGET_LABEL,
    FORGET_NAMESPACE,
    ForgetRecord,
    encode_forget_record,
    forget_record_name,
)
from contract.documents.node_info import decode_node_info
from contract.documents.write_numbers import NoWrites, decode_writes
from contract.errors import DocumentError
from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    PUBLIC_FAULT_NAMESPACE,
    PUBLIC_FAULT_PREFIXES,
    SWITCH_INFO_PREFIX,
    device_info_name,
    node_info_name,
    node_name_problem,
    public_fault_name,
)
from contract.sentences import counted, joined, message, names_in_short, sentence
from stores.base import Document, Selection
from vigil.aggregator_stores import beating
from vigil.exit_status import ExitStatus, print_done, print_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stores.base import Beat, FoundMark, Store
    from vigil.aggregator_stores import Stores

_MAX_NAMES = 10
"""Nodes that are named in one line."""


@dataclass
class FoundNode:
    """What stores have of a node."""

    documents: list[tuple[Store, Document]] = field(default_factory=list)
    beats: list[tuple[Store, Beat]] = field(default_factory=list)
    is_published: bool = False
    is_recorded: bool = False
    latest_ms: int = 0
    """The latest time in all of it, by the node's clock."""

    @property
    def is_known(self) -> bool:
        """Return whether a store has anything of the node."""
        return bool(self.documents or self.beats or self.is_published or self.is_recorded)

    def shown(self) -> str:
        """Return in words what stores have of the node."""
        parts = [document.name for _, document in self.documents]
        parts += [sentence("its heartbeat")] if self.beats else []
        parts += [sentence("its entry in cluster-info")] if self.is_published else []
        if not parts:
            return sentence("what an aggregator knows of it")
        return joined("{before}, {part}", dict.fromkeys(parts))


async def forget_nodes(stores: Stores, nodes: tuple[str, ...], *, is_meant: bool) -> ExitStatus:
    """Forget all of ``nodes``, or none; return the exit status. Raises ``StoreError``."""
    for node in nodes:
        if problem := node_name_problem(node):
            # An error of a configuration has this problem, too, so it is English.
            return print_refusal(f"the node name {problem}")
    published = await _published(stores)
    nodes_found = {node: await _find(stores, node, published) for node in nodes}
    # All or nothing: a misspelled name among many must not go unnoticed.
    unknown = [node for node in nodes if not nodes_found[node].is_known]
    if unknown:
        where = joined("{before}, {part}", (store.url for store in stores.all))
        # All nodes that have an agent have a heartbeat.
        seen = {beat.node for store in stores.read for beat in await store.beats()}
        seen |= published.keys()
        text = sentence(
            "nothing is known of {nodes}: {stores} has no document, no heartbeat and no entry of "
            "cluster-info about it; there are: {others}",
            nodes=names_in_short(unknown, _MAX_NAMES),
            stores=where,
            others=names_in_short(sorted(seen), _MAX_NAMES) if seen else sentence("no nodes"),
        )
        return print_refusal(text)
    # An agent that beats would write everything again.
    alive = await beating(beat for found_node in nodes_found.values() for beat in found_node.beats)
    if alive:
        text = counted(
            len(alive),
            "{nodes} beats: nothing is forgotten until its agent is gone",
            "{nodes} beats: nothing is forgotten until their agents are gone",
            nodes=names_in_short(alive, _MAX_NAMES),
        )
        return print_refusal(text)
    for node, found_node in nodes_found.items():
        if is_meant:
            await _forget(stores, node, found_node)
            text = message("{node} is forgotten: {parts}")
        else:
            text = message("{node} would be forgotten: {parts}")
        print_done(sentence(text, node=node, parts=found_node.shown()))
    if not is_meant:
        return print_done(sentence("nothing was changed: add --yes"))
    text = sentence(
        "an aggregator publishes what is forgotten as healthy and drops it a touch period "
        "later. One that does not run now does so when it is started"
    )
    return print_done(text)


async def forget_mark(stores: Stores, identity: str, *, is_meant: bool) -> ExitStatus:
    """Put a directory in the place of the one with this mark; return the exit status."""
    marked = [(store.url, store.mark) for store in stores.read if store.mark is not None]
    if len(marked) != 1:
        return print_refusal(sentence("--mark needs --store directory:PATH, one directory"))
    ((url, mark),) = marked
    there = await mark.read()
    if there.id == identity:
        text = sentence("{url} is the directory with this mark: nothing is to be done", url=url)
        return print_refusal(text)
    if not is_meant:
        return print_done(_would_replace(url, there, identity))
    now = await mark.replace(identity)
    text = sentence(
        "{url} with the mark {mark} takes the place of the directory with the mark {other}, for "
        "each aggregator that knows that one. Nodes that are not in it stay as they were until "
        "they are forgotten",
        url=url,
        mark=now.id,
        other=identity,
    )
    return print_done(text)


def _would_replace(url: str, there: FoundMark, identity: str) -> str:
    """Return what would become of a directory and its mark; English with a problem of the store."""
    if there.problem:
        return (
            f"{url} {there.problem}; it would take the place of the directory with the mark "
            f"{identity}; nothing was changed: add --yes"
        )
    if not there.id:
        return sentence(
            "{url} has no mark; it would take the place of the directory with the mark {mark}; "
            "nothing was changed: add --yes",
            url=url,
            mark=identity,
        )
    return sentence(
        "{url} has the mark {own}; it would take the place of the directory with the mark {mark}; "
        "nothing was changed: add --yes",
        url=url,
        own=there.id,
        mark=identity,
    )


async def _find(stores: Stores, node: str, published: dict[str, int]) -> FoundNode:
    found_node = FoundNode(is_published=node in published, latest_ms=published.get(node, 0))
    for store in stores.read:
        for namespace, name in _places(node):
            # By name: a list of all documents of 10,000 nodes has 80 MB (decision 17).
            document = await store.get(namespace, name)
            if document is not None:
                found_node.documents.append((store, document))
                found_node.latest_ms = max(found_node.latest_ms, _time_ms(document))
        for beat in await store.beats(node):
            found_node.beats.append((store, beat))
            found_node.latest_ms = max(found_node.latest_ms, beat.beaten_at_ms, *_written_ms(beat))
        if await store.get(FORGET_NAMESPACE, forget_record_name(node)) is not None:
            found_node.is_recorded = True
    return found_node


def _places(node: str) -> Iterator[tuple[str, str]]:
    yield DEVICE_INFO_NAMESPACE, device_info_name(node)
    yield NODE_INFO_NAMESPACE, node_info_name(node)
    for resource in PUBLIC_FAULT_PREFIXES:
        yield PUBLIC_FAULT_NAMESPACE, public_fault_name(node, resource)


def _time_ms(document: Document) -> int:
    """Return the time in a document, as late as it may be; 0 in one that cannot be read."""
    with contextlib.suppress(DocumentError):
        if document.name.startswith(DEVICE_INFO_PREFIX):
            return _end_of(decode(document.data, document.name).update_time)
        if document.name.startswith(NODE_INFO_PREFIX):
            return _end_of(decode_node_info(document.name, document.data).update_time_ms // 1000)
    return 0


def _written_ms(beat: Beat) -> tuple[int, ...]:
    try:
        return tuple(_end_of(abs(number)) for number in decode_writes(beat.writes).values())
    # The heartbeat counts all the same (decision 17).
    except NoWrites:
        return ()


def _end_of(seconds: int) -> int:
    # Stamps are in whole seconds; the record must not be earlier than what it ends.
    return seconds * 1000 + 999


async def _published(stores: Stores) -> dict[str, int]:
    """Return the nodes in cluster-info, each with the latest time in its entry."""
    latest_ms: dict[str, int] = {}
    selection = Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
    for store in stores.all:
        for document in await store.list(selection):
            for value in document.data.values():
                with contextlib.suppress(DocumentError):
                    for key, text in entry_texts(value, document.name).items():
                        node, time_ms = _entry(key, text, document.name)
                        latest_ms[node] = max(time_ms, latest_ms.get(node, 0))
    return latest_ms


def _entry(key: str, text: str, document: str) -> tuple[str, int]:
    for prefix in (NODE_INFO_PREFIX, SWITCH_INFO_PREFIX):
        if key.startswith(prefix):
            return key.removeprefix(prefix), 0
    with contextlib.suppress(DocumentError):
        node, entry = read_device_entry(key, text, document)
        return node, _end_of(entry.UpdateTime)
    return key.removeprefix(DEVICE_INFO_PREFIX), 0


async def _forget(stores: Stores, node: str, found_node: FoundNode) -> None:
    """Write the record first, so that an aggregator knows why the documents are deleted."""
    # A node's clock may be ahead; the record ends only what is not later than itself.
    at_ms = max(time.time_ns() // 1_000_000, found_node.latest_ms)
    record = ForgetRecord(node, at_ms, f"user {os.geteuid()} on {socket.gethostname()}")
    data = encode_forget_record(record)
    labels = dict([FORGET_LABEL])
    for store in stores.read:
        # An API server's deletion is enough; other stores need the record (decision 21).
        if not store.absence_is_deletion:
            name = forget_record_name(node)
            await store.put(Document(FORGET_NAMESPACE, name, data, labels))
    for store, document in found_node.documents:
        await store.delete(document.namespace, document.name)
    for store, _ in found_node.beats:
        await store.forget_beat(node)
