"""Waits until cluster-info shows that a chip is isolated or released, for at most 30 s."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from vigil.heartbeats import Silence
from vigil.isolation.change import is_named
from vigil.isolation.found_chip import beats_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from vigil.aggregator_stores import Stores
    from vigil.isolation.change import Isolation
    from vigil.isolation.found_chip import FoundChip
    from vigil.isolation.shown_isolation import Published, ShownChip

_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.25
_REQUESTS = 2
"""A broker compares no versions: the agent's own write may overwrite the first request."""


async def wait_until_shown(
    stores: Stores,
    change: Isolation,
    found: FoundChip,
    published: Published,
    write: Callable[[], Awaitable[None]],
    *,
    is_written: bool,
) -> tuple[list[ShownChip], str | None]:
    """Return what cluster-info shows of the chip, and why that is not ``change``, else ``None``.

    ``write`` makes the change again where the agent took it out.
    Ends early where the agent of the node falls silent. Raises ``StoreError``.
    """
    node, chip = change.node, found.chip
    give_up = time.monotonic() + _WAIT_SECONDS
    requests = 1
    silence = Silence(found.beats)
    while True:
        shown = await published.shown(chip)
        if shown and all(one.is_isolated is change.isolates for one in shown):
            return shown, None
        if change.isolates and not await _is_requested(found):
            if requests == _REQUESTS:
                why = (
                    f"the agent of {node} took the request out again: it knows no chip {chip}, or "
                    "it is of an earlier release"
                )
                return shown, why
            requests += 1
            await write()
        silent_seconds = silence.seconds(await beats_of(stores, node))
        if silent_seconds or time.monotonic() >= give_up:
            done = "written" if is_written else "no document isolates it"
            why = _why_not(f"{node}/{chip}", node, silent_seconds, is_shown=bool(shown))
            return shown, f"{done}, but cluster-info does not show that{why}"
        await asyncio.sleep(_LOOK_SECONDS)


async def _is_requested(found: FoundChip) -> bool:
    for store, document in found.reports:
        there = await store.get(document.namespace, document.name)
        if there is not None and not is_named(there, found.chip):
            return False
    return True


def _why_not(place: str, node: str, silent_seconds: float, *, is_shown: bool) -> str:
    if silent_seconds:
        return (
            f": no heartbeat of {node} came for {silent_seconds:.0f} s; its agent takes the change "
            "when it runs again"
        )
    after = f" after {_WAIT_SECONDS:.0f} s"
    if not is_shown:
        return f"{after}: it has no entry of {node}; an aggregator must run"
    return f"{after}: see vigil explain {place}"
