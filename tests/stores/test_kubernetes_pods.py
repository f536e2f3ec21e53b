"""Which chips pods use, as a real API server tells it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aggregator.usage import Usage
from stores.address import open_store
from tests.parts import pods

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path

    from stores.base import Store, UsageEvent
    from tests.parts.controlplane import ControlPlane


def test_a_directory_knows_nothing_of_pods(tmp_path: Path) -> None:
    assert open_store(f"directory:{tmp_path}").usage() is None


class Following:
    """Follows a store's pods."""

    def __init__(self, store: Store) -> None:
        events = store.usage()
        assert events is not None
        self._events = events
        self.seen: list[UsageEvent] = []
        self.usage = Usage()

    async def until(self, **chips: Set[str]) -> None:
        """Read events until these nodes use these chips."""
        async with asyncio.timeout(20):
            while any(self.usage.of(node) != names for node, names in chips.items()):
                event = await anext(self._events)
                self.seen.append(event)
                self.usage.observe(event)


@pytest.mark.apiserver
async def test_pods_use_chips_until_they_end(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    pods.make(control_plane, "a", "n1", "Ascend910-0,Ascend910-1")
    pods.make(control_plane, "none", "n1")
    pods.make(control_plane, "waiting", None, "Ascend910-7")
    pods.make(control_plane, "over", "n1", "Ascend910-6")
    pods.end(control_plane, "over", "Failed")
    following = Following(kubernetes)
    await following.until(n1={"Ascend910-0", "Ascend910-1"}, n2=set())
    assert following.usage.pods == 1
    pods.make(control_plane, "b", "n2", "Ascend910-2")
    await following.until(n2={"Ascend910-2"})
    pods.annotate(control_plane, "none", "Ascend910-4")
    await following.until(n1={"Ascend910-0", "Ascend910-1", "Ascend910-4"})
    pods.end(control_plane, "a", "Succeeded")
    await following.until(n1={"Ascend910-4"})
    pods.delete(control_plane, "none")
    await following.until(n1=set())
    pods.end(control_plane, "b", "Failed")
    await following.until(n2=set())


@pytest.mark.apiserver
async def test_what_changed_during_an_outage_is_known_afterwards(
    control_plane: ControlPlane, kubernetes: Store
) -> None:
    pods.make(control_plane, "a", "n1", "Ascend910-0")
    following = Following(kubernetes)
    await following.until(n1={"Ascend910-0"})
    control_plane.stop_apiserver()
    control_plane.start_apiserver()
    pods.delete(control_plane, "a")
    pods.make(control_plane, "b", "n2", "Ascend910-1")
    await following.until(n1=set(), n2={"Ascend910-1"})
