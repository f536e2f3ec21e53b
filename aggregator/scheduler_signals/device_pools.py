"""Which devices of dynamic resource allocation are a chip.

A pool has slices of several generations while its driver replaces them. Only those of the highest
one count, and only when all of them are there (Kubernetes, ``ResourcePool``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from contract.documents.device_taints import Device, DeviceSlice
from contract.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Pool: TypeAlias = tuple[str, str]
"""The driver and the name of a pool."""


class NodeChip(NamedTuple):
    """A chip of a node by its physical id."""

    node: str
    physical_id: int

    def __str__(self) -> str:
        return f"chip {self.physical_id} of {self.node}"


class _NodePools(msgspec.Struct, frozen=True, gc=False):
    """The pools with devices of a node, and how many chips these are."""

    pools: tuple[Pool, ...]
    chips: int


class DevicePools:
    """The devices of all pools, by the chip that they are."""

    def __init__(self) -> None:
        self.chips = 0
        """How many chips have a device."""
        self._slices: dict[str, DeviceSlice] = {}
        self._keys: dict[Pool, tuple[str, ...]] = {}
        """By pool the keys of its slices of all generations."""
        self._nodes: dict[str, _NodePools] = {}
        self._incomplete: set[Pool] = set()

    def replace(
        self, slices: Mapping[str, DeviceSlice], unreadable: frozenset[str] = frozenset()
    ) -> set[str]:
        """Take all slices by key, as they were listed; return the nodes with other devices.

        A slice that cannot be read stays as it was.
        """
        nodes: set[str] = set()
        for key in self._slices.keys() - slices.keys() - unreadable:
            nodes |= self.update(key, None)
        for key, value in slices.items():
            nodes |= self.update(key, value)
        return nodes

    def update(self, key: str, value: DeviceSlice | None) -> set[str]:
        """Take a slice that was made or changed, ``None`` for one that is gone.

        Return the nodes that have other devices now.
        """
        before = self._slices.get(key)
        if before == value:
            return set()
        changed = [item for item in (before, value) if item is not None]
        pools = {(item.driver, item.pool) for item in changed}
        nodes = {node for pool in pools for node in self._nodes_of(pool)}
        if value is None:
            del self._slices[key]
        else:
            self._slices[key] = value
        for pool in pools:
            keys = {*self._keys.get(pool, ()), key}
            keys = {k for k in keys if k in self._slices and self._pool_of(k) == pool}
            if keys:
                self._keys[pool] = tuple(sorted(keys))
            else:
                self._keys.pop(pool, None)
            if keys and not self._current(pool):
                self._incomplete.add(pool)
            else:
                self._incomplete.discard(pool)
        nodes |= {node for pool in pools for node in self._nodes_of(pool)}
        for node in nodes:
            self._count(node, pools)
        return nodes

    def devices(self, chip: NodeChip) -> tuple[Device, ...]:
        """Return the devices that are ``chip`` or parts of it, of pools that are complete."""
        pools = self._nodes.get(chip.node)
        return tuple(
            Device(*pool, name)
            for pool in (() if pools is None else pools.pools)
            for name, physical_id in self._devices(pool, chip.node)
            if physical_id == chip.physical_id
        )

    def chip_of(self, device: Device) -> NodeChip | None:
        """Return which chip a device is; ``None`` where no complete pool has it."""
        driver, pool, name = device
        for item in self._current((driver, pool)):
            for member in item.devices:
                if member.name == name:
                    return NodeChip(member.node or item.node, member.chip)
        return None

    def claimants(self, chip: NodeChip) -> tuple[Pool, ...]:
        """Return the pools with a device that is ``chip``; several of them contradict each other.

        The devices of one pool may share a chip. Those of two may be given out twice.
        """
        return tuple(dict.fromkeys((device.driver, device.pool) for device in self.devices(chip)))

    def problems(self) -> tuple[str, ...]:
        """Return for people which pools are incomplete."""
        problems = []
        for driver, pool in sorted(self._incomplete):
            newest = self._newest(self._keys[driver, pool])
            problems.append(
                f"pool {pool} of {driver} has {len(newest)} of "
                f"{plural(newest[0].slices, 'slice')} of generation {newest[0].generation}"
            )
        return tuple(problems)

    def _pool_of(self, key: str) -> Pool:
        item = self._slices[key]
        return item.driver, item.pool

    def _newest(self, keys: Iterable[str]) -> list[DeviceSlice]:
        slices = [self._slices[key] for key in keys]
        generation = max(item.generation for item in slices)
        return [item for item in slices if item.generation == generation]

    def _current(self, pool: Pool) -> list[DeviceSlice]:
        """Return the slices of the highest generation, none where some of them are missing."""
        keys = self._keys.get(pool)
        if not keys:
            return []
        newest = self._newest(keys)
        return newest if len(newest) == newest[0].slices else []

    def _nodes_of(self, pool: Pool) -> set[str]:
        return {member.node or item.node for item in self._current(pool) for member in item.devices}

    def _devices(self, pool: Pool, node: str) -> Iterator[tuple[str, int]]:
        for item in self._current(pool):
            for member in item.devices:
                if (member.node or item.node) == node:
                    yield member.name, member.chip

    def _count(self, node: str, pools: Iterable[Pool]) -> None:
        """Find the pools of a node again, among those that it had and ``pools``."""
        before = self._nodes.pop(node, None)
        pools_before = () if before is None else before.pools
        self.chips -= 0 if before is None else before.chips
        chips: set[int] = set()
        node_pools = []
        for pool in sorted({*pools_before, *pools}):
            ids = {physical_id for _, physical_id in self._devices(pool, node)}
            chips |= ids
            if ids:
                node_pools.append(pool)
        if node_pools:
            self._nodes[node] = _NodePools(tuple(node_pools), len(chips))
            self.chips += len(chips)
