"""Whether a pod may be placed on a node, by labels and taints as Kubernetes reads them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from advisor import snapshot
from contract.scheduling import go_integer
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from advisor.snapshot import (
        ApartTerm,
        Requirement,
        SchedulerNode,
        SchedulerPod,
        SelectorTerm,
        Taint,
        Toleration,
    )
    from advisor.snapshot_index import SnapshotIndex

_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_CORDONED = snapshot.Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a pod has to tolerate to be placed on a cordoned node."""


# Many nodes refuse a pod for one reason, so its sentence is made once.
_NO_AFFINITY = sentence("Selector: no term of the required node affinity matches")
_IS_CORDONED = sentence("Cordoned: it is marked unschedulable")


@lru_cache(maxsize=4096)
def _other_label(key: str, value: str) -> str:
    return sentence("Selector: the label {key} is not {value}", key=key, value=value)


@lru_cache(maxsize=4096)
def _not_tolerated(key: str, value: str, effect: str) -> str:
    return sentence("Taint: {taint} is not tolerated", taint=f"{key}={value}:{effect}")


def selector_refusal(pod: SchedulerPod, node: SchedulerNode) -> str:
    """Return which label or field of ``node`` does not match ``pod``; empty where all match."""
    for key, value in pod.node_selector.items():
        if node.labels.get(key) != value:
            return _other_label(key, value)
    if pod.node_affinity is not None and not any(_matches(t, node) for t in pod.node_affinity):
        return _NO_AFFINITY
    return ""


def _matches(term: SelectorTerm, node: SchedulerNode) -> bool:
    # An empty term matches no node (Kubernetes API).
    if not term.labels and not term.fields:
        return False
    return all(_holds(label, node.labels) for label in term.labels) and all(
        _holds(field, {"metadata.name": node.name}) for field in term.fields
    )


class Apart:
    """The required anti-affinity of the pods of a session, as Kubernetes reads it."""

    def __init__(self, index: SnapshotIndex) -> None:
        self._index = index
        self._carriers = tuple(pod for pod in index.apart.values() if pod.node and pod.is_live)
        self.terms = frozenset(pod.anti_affinity for pod in self._carriers)

    def concerns(self, pod: SchedulerPod) -> bool:
        """Whether ``pod`` has to stay away from others, or others from it."""
        if pod.anti_affinity:
            return True
        return any(_is_meant(term, pod) for terms in self.terms for term in terms)

    def closed(self, pod: SchedulerPod, gone: Collection[str]) -> dict[tuple[str, str], str]:
        """Return the values of node labels where ``pod`` may not go, and because of which pod.

        ``gone`` are the uids of pods that leave.
        """
        refusals: dict[tuple[str, str], str] = {}
        for other in self._carriers:
            if other.uid not in gone and other.uid != pod.uid:
                for term in other.anti_affinity:
                    if _is_meant(term, pod):
                        self._close(refusals, term, other)
        if pod.anti_affinity:
            for others in self._index.pods.values():
                for other in others:
                    if other.is_live and other.uid not in gone and other.uid != pod.uid:
                        for term in pod.anti_affinity:
                            if _is_meant(term, other):
                                self._close(refusals, term, other)
        return refusals

    def _close(
        self, refusals: dict[tuple[str, str], str], term: ApartTerm, other: SchedulerPod
    ) -> None:
        node = self._index.nodes.get(other.node)
        value = None if node is None else node.labels.get(term.topology)
        if value is not None:
            refusals.setdefault((term.topology, value), f"{other.namespace}/{other.name}")


def own_topologies(pod: SchedulerPod) -> tuple[str, ...]:
    """Return the labels of nodes by which pods like ``pod`` stay away from each other."""
    return tuple(term.topology for term in pod.anti_affinity if _is_meant(term, pod))


def _is_meant(term: ApartTerm, pod: SchedulerPod) -> bool:
    # No selector selects no pod, and an empty one all pods (Kubernetes API).
    if term.labels is None:
        return False
    if term.namespaces is not None and pod.namespace not in term.namespaces:
        return False
    return all(_holds(label, pod.labels) for label in term.labels)


def _holds(requirement: Requirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            # True without the label as well (Kubernetes API).
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            label_value = go_integer(value or "")
            right = go_integer(requirement.values[0]) if len(requirement.values) == 1 else None
            if label_value is None or right is None:
                return False
            return label_value > right if requirement.operator == "Gt" else label_value < right
    return False


def taint_refusal(pod: SchedulerPod, node: SchedulerNode) -> str:
    """Return the taint of ``node`` that ``pod`` does not tolerate; empty where there is none."""
    for taint in node.taints:
        if taint.effect in _HARD_EFFECTS and not any(
            _tolerates(toleration, taint) for toleration in pod.tolerations
        ):
            return _not_tolerated(taint.key, taint.value, taint.effect)
    return ""


def cordon_refusal(pod: SchedulerPod, node: SchedulerNode) -> str:
    """Return why a cordoned ``node`` does not take ``pod``; empty where it does."""
    if node.is_cordoned and not any(
        _tolerates(toleration, _CORDONED) for toleration in pod.tolerations
    ):
        return _IS_CORDONED
    return ""


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    # An empty effect stands for all effects, and so does an empty key for all keys.
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return (
        bool(toleration.key)
        and toleration.operator in ("", "Equal")
        and toleration.value == taint.value
    )
