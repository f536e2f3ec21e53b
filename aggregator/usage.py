"""Which chips pods use, as one store tells it (``spec/clusterd.md`` 1.8 and 3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stores.base import Interrupted, PodUsage, UsageEnded, UsageListed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stores.base import UsageEvent

_NONE: frozenset[str] = frozenset()


class Usage:
    """Keeps only who uses what; before the first list nobody knows.

    What a scheduler chose and no pod has yet does not count (``GetUsedDevicesByNodeName``).
    """

    def __init__(self) -> None:
        self.interrupted: str | None = None
        """Why nothing is heard of pods now; what was known stays."""
        self._known = False
        self._pods: dict[str, PodUsage] = {}
        self._nodes: dict[str, set[str]] = {}

    @property
    def pods(self) -> int:
        """How many pods use chips."""
        return len(self._pods)

    @property
    def known(self) -> bool:
        """Whether the store has ever said who uses what."""
        return self._known

    @property
    def answered(self) -> bool:
        """Whether the store has said who uses what, or that it will not now."""
        return self._known or self.interrupted is not None

    def of(self, node: str) -> frozenset[str] | None:
        """Names of the chips in use on ``node``; ``None`` where nobody knows."""
        if not self._known:
            return None
        uids = self._nodes.get(node)
        if uids is None:
            return _NONE
        return frozenset(chip for uid in uids for chip in self._pods[uid].chips)

    def observe(self, event: UsageEvent) -> frozenset[str] | None:
        """Take in one event; returns the nodes that it is about, ``None`` for all of them."""
        match event:
            case UsageListed(pods):
                self.interrupted = None
                return self._replace(pods)
            case PodUsage():
                return self._put(event)
            case UsageEnded(uid):
                return self._drop(uid)
            case Interrupted(reason):
                self.interrupted = reason
                return _NONE

    def _replace(self, pods: Iterable[PodUsage]) -> frozenset[str] | None:
        before, was_known = self._pods, self._known
        self._pods, self._nodes, self._known = {}, {}, True
        for pod in pods:
            self._put(pod)
        if not was_known:
            return None
        uids = before.keys() | self._pods.keys()
        differ = [uid for uid in uids if before.get(uid) != self._pods.get(uid)]
        both = (book[uid].node for book in (before, self._pods) for uid in differ if uid in book)
        return frozenset(both)

    def _put(self, pod: PodUsage) -> frozenset[str]:
        if not pod.chips:
            return self._drop(pod.uid)
        if self._pods.get(pod.uid) == pod:
            return _NONE
        left = self._drop(pod.uid)
        self._pods[pod.uid] = pod
        self._nodes.setdefault(pod.node, set()).add(pod.uid)
        return left | {pod.node}

    def _drop(self, uid: str) -> frozenset[str]:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return _NONE
        uids = self._nodes[pod.node]
        uids.discard(uid)
        if not uids:
            del self._nodes[pod.node]
        return frozenset({pod.node})
