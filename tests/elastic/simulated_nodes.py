"""Nodes of a cluster in memory: their chips, links, heartbeats and kubelets fail, by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.checks.ended_vcjobs import NETWORK

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

COUNT = 6
_BEATS_AGAIN_MS = 31_000
"""A node is silent only after 3 × interval without a heartbeat."""
_MOST_SILENT = 2
"""More of them are a silence alarm."""


class SimulatedNodes:
    """Each dictionary has nodes with a fault, and since when (epoch milliseconds)."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.bad: dict[str, int] = {}
        """Nodes with a broken chip."""
        self.links_down: dict[str, int] = {}
        self.silent: dict[str, int] = {}
        self.not_ready: dict[str, int] = {}
        """Nodes without a kubelet: no pod starts or ends there."""
        self._past: list[tuple[str, str, int, int]] = []
        """Faults that are over: kind, node, and from when until when."""
        self._beats_until: dict[str, int] = {}

    @property
    def is_alarm(self) -> bool:
        """Return whether too many nodes are silent to rely on it."""
        return len(self.silent) > _MOST_SILENT

    def free(self, used: set[str]) -> list[str]:
        """Return the nodes that take a pod."""
        faulty = {*self.bad, *self.links_down, *self.silent, *self.not_ready, *used}
        return [name for name in (f"n{index}" for index in range(COUNT)) if name not in faulty]

    def trouble(self, used: list[str], now_ms: int, often: float) -> Iterator[str]:
        """Let things fail and recover; returns the nodes for which the scheduler evicts.

        ``often`` is how often that is for others than links, which have to stay down for long.
        """
        chance = self._chance
        if used and chance.random() < 0.05 * often:
            yield self._begins(self.bad, chance.choice(used), now_ms)
        if used and chance.random() < 0.10:
            self._begins(self.links_down, chance.choice(used), now_ms)
        if used and chance.random() < 0.03 * often:
            node = chance.choice(used)
            signs = chance.choice(("both", "both", "agent", "kubelet"))
            if signs != "kubelet" and self._beats_until.get(node, 0) <= now_ms:
                yield self._begins(self.silent, node, now_ms)
            if signs != "agent":
                yield self._begins(self.not_ready, node, now_ms)
        for faults, share in (
            (self.bad, 0.05),
            (self.links_down, 0.01),
            (self.silent, 0.02),
            (self.not_ready, 0.02),
        ):
            if faults and chance.random() < share:
                self.ends(faults, chance.choice(sorted(faults)), now_ms)

    def settle(self, now_ms: int) -> None:
        """End all faults, but let up to two nodes that are silent and NotReady be dead."""
        dead = sorted(set(self.silent) & set(self.not_ready))[:_MOST_SILENT]
        for faults in (self.bad, self.links_down, self.silent, self.not_ready):
            kept = dead if faults is self.silent or faults is self.not_ready else []
            for node in sorted(faults.keys() - kept):
                self.ends(faults, node, now_ms)

    def between(self, since_ms: int, until_ms: int) -> Iterator[tuple[str, str, int]]:
        """Return the published faults of that time: kind, node and since when."""
        for kind, node, began_ms, ended_ms in self._past:
            if began_ms <= until_ms and ended_ms >= since_ms:
                yield kind, node, began_ms
        for kind, faults in self._kinds():
            yield from ((kind, node, at) for node, at in faults.items() if at <= until_ms)

    def _kinds(self) -> Iterator[tuple[str, dict[str, int]]]:
        yield from (("DEVICE", self.bad), ("HEARTBEAT", self.silent), (NETWORK, self.links_down))

    def _begins(self, faults: dict[str, int], node: str, now_ms: int) -> str:
        faults.setdefault(node, now_ms)
        return node

    def ends(self, faults: dict[str, int], node: str, now_ms: int) -> None:
        """End the fault of a node; it stays in the history."""
        kinds = {id(one): kind for kind, one in self._kinds()}
        if id(faults) in kinds:
            self._past.append((kinds[id(faults)], node, faults[node], now_ms))
        del faults[node]
        if faults is self.silent:
            self._beats_until[node] = now_ms + _BEATS_AGAIN_MS
