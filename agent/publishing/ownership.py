"""Whether somebody else writes a document that this agent is to write (design invariant 5).

A writer that is at work has written within its period, else it has gone. The Device Plugin
rewrites ``device-info`` every 5 minutes, NodeD ``node-info`` every 30 while something is wrong
(``spec/device-plugin.md`` 1.7, ``spec/noded.md`` 2.5).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from contract.errors import ConfigurationError, Problem, StoreError, StoreRefused
from contract.names import (
    DEVICE_INFO_NAMESPACE,
    NODE_INFO_NAMESPACE,
    device_info_name,
    node_info_name,
)
from stores.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from stores.base import Store, Writer

log = logging.getLogger("agent.ownership")

OURS = "npu-vigil"
"""The name under which we write."""
_GRACE_SECONDS = 60
_REQUEST_SECONDS = 5.0


@dataclass(frozen=True)
class Owned:
    """A document that this agent is to write.

    ``kind`` is what it is called in ``documents``; ``rewritten_seconds`` the longest time that
    another program lets pass before it writes it again.
    """

    kind: str
    namespace: str
    name: str
    rewritten_seconds: int


def owned_by(node: str, kinds: Collection[str]) -> tuple[Owned, ...]:
    """The documents of ``node`` that an agent owns whose ``documents`` are ``kinds``."""
    both = (
        Owned("device-info", DEVICE_INFO_NAMESPACE, device_info_name(node), 300),
        Owned("node-info", NODE_INFO_NAMESPACE, node_info_name(node), 1800),
    )
    return tuple(owned for owned in both if owned.kind in kinds)


async def refuse_beside_others(
    store: Store,
    documents: Iterable[Owned],
    wall_clock: Callable[[], int],
    progress: Callable[[], None],
) -> None:
    """Raise ``ConfigurationError`` if somebody else writes any of ``documents`` now.

    Waits for a store that does not answer; one that may not be asked is taken for well.
    ``progress`` is called for each request.
    """
    problems = []
    for owned in documents:
        writer = await _writer(store, owned, progress)
        if writer is not None and (problem := _problem(owned, writer, wall_clock())) is not None:
            problems.append(problem)
    if problems:
        raise ConfigurationError("two writers for one document", problems)


async def _writer(store: Store, owned: Owned, progress: Callable[[], None]) -> Writer | None:
    backoff = Backoff()
    while True:
        progress()
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                return await store.writer(owned.namespace, owned.name)
        except StoreRefused as error:
            log.warning("who else writes %s is not known: %s", owned.name, error)
            return None
        except (StoreError, TimeoutError):
            await asyncio.sleep(backoff.next_seconds())


def _problem(owned: Owned, writer: Writer, now_ms: int) -> Problem | None:
    age_seconds = (now_ms - writer.at_ms) / 1000
    left_seconds = owned.rewritten_seconds + _GRACE_SECONDS - age_seconds
    if writer.name == OURS or left_seconds <= 0:
        return None
    at = datetime.fromtimestamp(writer.at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Problem(
        owned.kind,
        f"{owned.namespace}/{owned.name} was written by {writer.name!r} at {at}, "
        f"{max(0.0, age_seconds):.0f} s ago, and a document can have only one writer. "
        f"Stop {writer.name!r} on this node and start again in {left_seconds:.0f} s, or at once "
        f"after kubectl delete configmap -n {owned.namespace} {owned.name}; "
        f"or leave {owned.kind} to it: take {owned.kind} out of `documents`",
    )
