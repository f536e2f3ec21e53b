"""Forgets nodes in the stores that an aggregator reads, and the mark of a directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
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
from service.log.setup import last_words
from service.log.shortened import shortened
from stores.address import open_store
from stores.base import Document, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.config import AggregatorConfiguration
    from stores.base import Beat, Store

_DONE, _REFUSED = 0, 1
_LOOK_SECONDS = 0.5
_PERIODS = 2
_LONGEST_SECONDS = 30.0
"""Of watching for a heartbeat. Whoever beats less often writes its documents anew at once."""


@dataclass(frozen=True)
class Stores:
    """Those that the aggregator reads, and those that it publishes to without reading them."""

    read: tuple[Store, ...]
    published: tuple[Store, ...]

    async def close(self) -> None:
        """Give connections back."""
        for store in (*self.read, *self.published):
            await store.close()


def opened(configuration: AggregatorConfiguration, *, by_operator: bool = False) -> Stores:
    """Open the stores of an aggregator. Raises ``ConfigurationError``.

    ``by_operator`` is that of ``open_store``.
    """

    def open_all(urls: Iterable[str]) -> tuple[Store, ...]:
        return tuple(
            open_store(
                url,
                configuration.kubeconfig,
                mqtt=configuration.mqtt,
                others_may_write=configuration.directory.others_may_write,
                by_operator=by_operator,
            )
            for url in urls
        )

    read = configuration.read_urls
    return Stores(
        open_all(read), open_all(url for url in configuration.publish_urls if url not in read)
    )


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
        """Whether anything is there."""
        return bool(self.documents or self.beats or self.is_published or self.is_recorded)

    def shown(self) -> str:
        """Return what is there, for people."""
        parts = [document.name for _, document in self.documents]
        parts += ["its heartbeat"] if self.beats else []
        parts += ["its entry in cluster-info"] if self.is_published else []
        return ", ".join(dict.fromkeys(parts)) or "what an aggregator knows of it"


async def forget_nodes(stores: Stores, nodes: tuple[str, ...], *, is_meant: bool) -> int:
    """Forget all of ``nodes``, or none; the exit status. Raises ``StoreError``."""
    try:
        for node in nodes:
            if problem := node_name_problem(node):
                return _print_result(_REFUSED, f"the node name {problem}")
        published = await _published(stores)
        found = {node: await _find(stores, node, published) for node in nodes}
        unknown = [node for node in nodes if not found[node].is_known]
        if unknown:
            where = ", ".join(store.url for store in (*stores.read, *stores.published))
            known = sorted(await _known(stores) | published.keys())
            return _print_result(
                _REFUSED,
                f"nothing is known of {shortened(unknown)}: {where} has no document, no heartbeat "
                "and no entry of cluster-info about it; there are: "
                f"{shortened(known) or 'no nodes'}",
            )
        alive = await beating(found)
        if alive:
            what = "its agent is" if len(alive) == 1 else "their agents are"
            return _print_result(
                _REFUSED, f"{shortened(alive)} beats: nothing is forgotten until {what} gone"
            )
        for node, one in found.items():
            if is_meant:
                await _forget(stores, node, one)
                _print_result(_DONE, f"{node} is forgotten: {one.shown()}")
            else:
                _print_result(_DONE, f"{node} would be forgotten: {one.shown()}")
        if not is_meant:
            return _print_result(_DONE, "nothing was changed: add --yes")
        return _print_result(
            _DONE,
            "an aggregator publishes what is forgotten as healthy and drops it a touch period "
            "later. One that does not run now does so when it is started",
        )
    finally:
        await stores.close()


async def forget_mark(stores: Stores, identity: str, *, is_meant: bool) -> int:
    """Put a directory in the place of the one with this mark; the exit status."""
    try:
        marked = [(store.url, store.mark) for store in stores.read if store.mark is not None]
        if len(marked) != 1:
            return _print_result(_REFUSED, "--mark needs --store directory:PATH, one directory")
        ((url, mark),) = marked
        there = await mark.read()
        if there.id == identity:
            return _print_result(
                _REFUSED, f"{url} is the directory with this mark: nothing is to be done"
            )
        has = f"has the mark {there.id}" if there.id else there.problem or "has no mark"
        if not is_meant:
            return _print_result(
                _DONE,
                f"{url} {has}; it would take the place of the directory with the mark {identity}; "
                "nothing was changed: add --yes",
            )
        now = await mark.replace(identity)
        return _print_result(
            _DONE,
            f"{url} with the mark {now.id} takes the place of the directory with the mark "
            f"{identity}, for each aggregator that knows that one. Nodes that are not in it stay "
            "as they were until they are forgotten",
        )
    finally:
        await stores.close()


async def _find(stores: Stores, node: str, published: dict[str, int]) -> FoundNode:
    found = FoundNode(is_published=node in published, latest_ms=published.get(node, 0))
    for store in stores.read:
        for namespace, name in _places(node):
            document = await store.get(namespace, name)
            if document is not None:
                found.documents.append((store, document))
                found.latest_ms = max(found.latest_ms, _time_ms(document))
        for beat in await store.beats(node):
            found.beats.append((store, beat))
            found.latest_ms = max(found.latest_ms, beat.beaten_at_ms, *_written_ms(beat))
        if await store.get(FORGET_NAMESPACE, forget_record_name(node)) is not None:
            found.is_recorded = True
    return found


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
    except NoWrites:
        return ()


def _end_of(seconds: int) -> int:
    return seconds * 1000 + 999


async def _published(stores: Stores) -> dict[str, int]:
    """Node in cluster-info to the latest time in its entry."""
    found: dict[str, int] = {}
    selection = Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
    for store in (*stores.read, *stores.published):
        for document in await store.list(selection):
            for value in document.data.values():
                with contextlib.suppress(DocumentError):
                    for key, text in entry_texts(value, document.name).items():
                        node, time_ms = _entry(key, text, document.name)
                        found[node] = max(time_ms, found.get(node, 0))
    return found


def _entry(key: str, text: str, document: str) -> tuple[str, int]:
    for prefix in (NODE_INFO_PREFIX, SWITCH_INFO_PREFIX):
        if key.startswith(prefix):
            return key.removeprefix(prefix), 0
    with contextlib.suppress(DocumentError):
        node, entry = read_device_entry(key, text, document)
        return node, _end_of(entry.UpdateTime)
    return key.removeprefix(DEVICE_INFO_PREFIX), 0


async def _known(stores: Stores) -> set[str]:
    """Return nodes with a heartbeat, which all that have an agent have."""
    return {beat.node for store in stores.read for beat in await store.beats()}


async def beating(found: dict[str, FoundNode]) -> list[str]:
    """Return the nodes whose heartbeat changes within two of its intervals.

    Clocks of hosts are never compared. A heartbeat that a last will has replaced is no more.
    """
    watched = [
        (node, store, beat)
        for node, one in found.items()
        for store, beat in one.beats
        if not beat.is_broken
    ]
    seconds = max((_PERIODS * beat.interval_seconds + 1 for _, _, beat in watched), default=0.0)
    seconds = min(seconds, _LONGEST_SECONDS)
    if watched:
        print(f"watching for heartbeats for {seconds:.0f} s", file=sys.stderr, flush=True)
    give_up = time.monotonic() + seconds
    alive: set[str] = set()
    while time.monotonic() < give_up and len(alive) < len({node for node, _, _ in watched}):
        await asyncio.sleep(_LOOK_SECONDS)
        for node, store, before in watched:
            for beat in () if node in alive else await store.beats(node):
                is_same = (beat.holder, beat.beaten_at_ms) == (before.holder, before.beaten_at_ms)
                if not is_same and not beat.is_broken:
                    alive.add(node)
    return sorted(alive)


async def _forget(stores: Stores, node: str, found: FoundNode) -> None:
    """Leave the record first: an aggregator is to know why the documents go."""
    at_ms = max(time.time_ns() // 1_000_000, found.latest_ms)
    record = ForgetRecord(node, at_ms, f"user {os.geteuid()} on {socket.gethostname()}")
    data = encode_forget_record(record)
    labels = dict([FORGET_LABEL])
    for store in stores.read:
        if not store.absence_is_deletion:
            name = forget_record_name(node)
            await store.put(Document(FORGET_NAMESPACE, name, data, labels))
    for store, document in found.documents:
        await store.delete(document.namespace, document.name)
    for store, _ in found.beats:
        await store.forget_beat(node)


def _print_result(status: int, text: str) -> int:
    print(last_words(text), file=sys.stdout if status == _DONE else sys.stderr)
    return status
