"""Reads from a store what an aggregator that follows would read, at one instant."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from contract.errors import StoreError, StoreRefused, StoreUnavailable
from contract.names import (
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    REPORT_LABEL,
    STATE_LABEL,
    STATE_NAMESPACE,
    device_info_name,
    node_info_name,
)
from contract.sentences import sentence
from service.clock import Instant
from stores.base import Beat, Document, Selection
from stores.cluster import JobState, KindUnavailable, PodState, Snapshot
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from stores.base import Store

T = TypeVar("T")

DEVICE_INFOS = Selection(DEVICE_INFO_NAMESPACE, label=REPORT_LABEL)
NODE_INFOS = Selection(NODE_INFO_NAMESPACE, label=REPORT_LABEL)
CLUSTER_INFOS = Selection(CLUSTER_NAMESPACE, label=CLUSTER_LABEL)
STATES = ("processing", "public-faults")
"""The plugins whose state explains what is published of a node."""


class StoreContents(msgspec.Struct):
    """What a store has ``at``; ``unread`` names what could not be read, and why.

    ``states`` are the documents of the state of each plugin of ``STATES``. ``pods`` and ``groups``
    are ``None`` where they were not read.
    """

    at: Instant
    device_infos: tuple[Document, ...] = ()
    node_infos: tuple[Document, ...] = ()
    cluster_infos: tuple[Document, ...] = ()
    beats: tuple[Beat, ...] = ()
    states: dict[str, tuple[Document, ...]] = {}
    pods: Snapshot[PodState] | None = None
    groups: Snapshot[JobState] | None = None
    unread: tuple[str, ...] = ()


async def read_contents(store: Store, node: str | None) -> StoreContents:
    """Return what ``store`` reports and publishes, about ``node`` only with one.

    Raises ``StoreError`` where a store does not answer, or refuses every request.
    """
    if node is None:
        device_infos, node_infos = store.list(DEVICE_INFOS), store.list(NODE_INFOS)
    else:
        device_infos = _named(store, DEVICE_INFO_NAMESPACE, device_info_name(node))
        node_infos = _named(store, NODE_INFO_NAMESPACE, node_info_name(node))
    requests: dict[str, Awaitable[Any]] = {
        "device-info": device_infos,
        "node-info": node_infos,
        "cluster-info": store.list(CLUSTER_INFOS),
        "heartbeats": store.beats(node),
    }
    answers, unread = await _answers(requests, StoreRefused)
    # With nothing readable the refusal is the answer.
    if len(unread) == len(requests):
        raise next(iter(unread.values()))
    return StoreContents(
        at=Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000),
        device_infos=answers.get("device-info", ()),
        node_infos=answers.get("node-info", ()),
        cluster_infos=answers.get("cluster-info", ()),
        beats=answers.get("heartbeats", ()),
        unread=_texts(unread),
    )


async def read_causes(store: Store, contents: StoreContents, node: str) -> StoreContents:
    """Return ``contents`` with what explains them: the state of aggregators, and pods of ``node``.

    What cannot be read is in ``unread``: without it less is explained.
    """
    requests: dict[str, Awaitable[Any]] = {
        name: store.list(Selection(STATE_NAMESPACE, label=(STATE_LABEL, name))) for name in STATES
    }
    if store.cluster is not None:
        requests["pods"] = _snapshot("pods", store.cluster.pods(node=node))
        requests["PodGroups"] = _snapshot("PodGroups", store.cluster.jobs())
    answers, unread = await _answers(requests, StoreError)
    return msgspec.structs.replace(
        contents,
        states={name: answers.get(name, ()) for name in STATES},
        pods=answers.get("pods"),
        groups=answers.get("PodGroups"),
        unread=(*contents.unread, *_texts(unread)),
    )


async def read_jobs(store: Store, address: str) -> StoreContents:
    """Return what the store at ``address`` has, with the pods of all nodes.

    Raises ``StoreError`` where the store has no pods, or does not show them.
    """
    if store.cluster is None:
        text = sentence(
            "only an API server has pods, which {address} is not; an aggregator has jobs",
            address=address,
        )
        raise StoreUnavailable(text)
    pods = await _snapshot("pods", store.cluster.pods())
    return msgspec.structs.replace(await read_contents(store, None), pods=pods)


async def _answers(
    requests: dict[str, Awaitable[Any]], tolerated: type[StoreError]
) -> tuple[dict[str, Any], dict[str, StoreError]]:
    """Return the answers by name, and the ``tolerated`` errors; raises the first other one."""
    # Exceptions as results: one kind that is refused must not hide the others.
    results = await asyncio.gather(*requests.values(), return_exceptions=True)
    answers: dict[str, Any] = {}
    unread: dict[str, StoreError] = {}
    for name, result in zip(requests, results, strict=True):
        if isinstance(result, tolerated):
            unread[name] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            answers[name] = result
    return answers, unread


def _texts(unread: dict[str, StoreError]) -> tuple[str, ...]:
    return tuple(f"{name}: {error}" for name, error in unread.items())


async def _named(store: Store, namespace: str, name: str) -> tuple[Document, ...]:
    result = await store.get(namespace, name)
    return () if result is None else (result,)


async def _snapshot(kind: str, feed: AsyncIterator[Any]) -> Snapshot[Any]:
    """Return the first list of a feed; an empty one where the API has no such kind."""
    async with aclosing(feed) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, Interrupted):
                raise StoreUnavailable(f"{kind} cannot be read: {event.reason}")
            if isinstance(event, KindUnavailable):
                return Snapshot({})
            if isinstance(event, Snapshot):
                return event
    raise StoreUnavailable(f"{kind} cannot be read")
