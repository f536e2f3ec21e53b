"""What a List of ``kubectl`` does not have, so that an answer about it would be a guess.

A List has the kinds that its ``kubectl get`` names. What is not in it may be in the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from advisor.report import NotKnown
from advisor.scheduler_view.cluster_cache import has
from contract import names, scheduling
from contract.sentences import counted, message, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.options import AdvisorOptions
    from advisor.snapshot import ClusterSnapshot, SchedulerPod

_MEMBERSHIP = {
    "StormService": scheduling.STORM_SERVICE,
    "InferenceService": scheduling.OME_SERVICE,
    "LeaderWorkerSet": scheduling.LWS_NAME,
}
"""Kinds of services whose pods name them in a label, by which they are looked for."""


def absent_objects(snapshot: ClusterSnapshot, options: AdvisorOptions) -> tuple[NotKnown, ...]:
    """Return what is not in ``snapshot`` and was named there, or is always there."""
    return (
        *_nodes(snapshot),
        *_pods(snapshot),
        *_podgroups(snapshot),
        *_documents(snapshot, options),
        *_rules(snapshot),
    )


def _nodes(snapshot: ClusterSnapshot) -> Iterator[NotKnown]:
    there = {scheduler_node.name for scheduler_node in snapshot.nodes}
    # One line instead of one for each node that pods name.
    if not there:
        yield NotKnown("", sentence("no Node is in the dump: faults and room are not known"))
        return
    on: dict[str, list[SchedulerPod]] = defaultdict(list)
    for pod in snapshot.pods:
        # Pods that have ended show nothing about the node that they were on.
        if pod.node and pod.node not in there and pod.is_live:
            on[pod.node].append(pod)
    for node, pods in sorted(on.items()):
        text = sentence(
            "Node {node}, which {pods}, is not in the dump: it counts as gone",
            node=node,
            pods=_pods_name(pods),
        )
        yield NotKnown(f"Node {node}", text)


def _pods(snapshot: ClusterSnapshot) -> Iterator[NotKnown]:
    if not snapshot.pods:
        text = sentence("no Pod is in the dump: what faults do to pods is not known")
        yield NotKnown("", text)
    served = {
        (kind, pod.namespace, pod.labels[label])
        for pod in snapshot.pods
        for kind, label in _MEMBERSHIP.items()
        if label in pod.labels
    }
    for workload in snapshot.workloads:
        # A service with 0 replicas has no pods by intention.
        is_wanted = workload.kind in _MEMBERSHIP and workload.replicas != 0
        if is_wanted and (workload.kind, workload.namespace, workload.name) not in served:
            text = sentence(
                "{object}: no pod of it is in the dump, so what faults do to it is not known",
                object=workload.called,
            )
            yield NotKnown(workload.called, text)


def _podgroups(snapshot: ClusterSnapshot) -> Iterator[NotKnown]:
    there = {pod_group.key for pod_group in snapshot.podgroups}
    of: dict[str, list[SchedulerPod]] = defaultdict(list)
    for pod in snapshot.pods:
        # The PodGroup of a job that ends goes before its pods do (consumers#2.9).
        if pod.group and pod.is_live and not pod.is_terminating:
            of[f"{pod.namespace}/{pod.group}"].append(pod)
    for key, pods in sorted(of.items()):
        if key not in there:
            text = sentence(
                "PodGroup {podgroup}, which {pods}, is not in the dump: what the scheduler does "
                "with them is not known",
                podgroup=key,
                pods=_pods_name(pods),
            )
            yield NotKnown(f"PodGroup {key}", text)


def _pods_name(pods: list[SchedulerPod]) -> str:
    return counted(
        len(pods),
        "{count} pod names ({first})",
        "{count} pods name ({first})",
        first=pods[0].name,
    )


def _documents(snapshot: ClusterSnapshot, options: AdvisorOptions) -> Iterator[NotKnown]:
    """Return which documents are missing, of those that there always are (consumers#1.1, 1.2)."""
    # A cluster without chips has no such documents either.
    if not any(
        name.startswith(scheduling.RESOURCE_DOMAIN)
        for node in snapshot.nodes
        for name in node.capacity
    ):
        return
    device = names.CLUSTER_DEVICE_PREFIX if options.use_cluster_info else names.DEVICE_INFO_PREFIX
    host = names.CLUSTER_NODE_NAME if options.use_cluster_info else names.NODE_INFO_PREFIX
    for kind, name, text in (
        (
            "device",
            device,
            message("no ConfigMap {name} is in the dump: faults of chips are not known"),
        ),
        (
            "host",
            host,
            message("no ConfigMap {name} is in the dump: faults of hosts are not known"),
        ),
    ):
        keys = (f"{config_map.namespace}/{config_map.name}" for config_map in snapshot.configmaps)
        if not any(key.partition("/")[2].startswith(name) and has(key, kind) for key in keys):
            yield NotKnown("", sentence(text, name=f"{name}{'…' if name.endswith('-') else ''}"))


def _rules(snapshot: ClusterSnapshot) -> Iterator[NotKnown]:
    there = {(config_map.namespace, config_map.name) for config_map in snapshot.configmaps}
    for job in snapshot.ascend_jobs:
        rule = job.labels.get(scheduling.SCALING_RULE)
        if rule and not job.is_over and (job.namespace, rule) not in there:
            called = f"AscendJob {job.namespace}/{job.name}"
            text = sentence(
                "ConfigMap {rule}, the scaling rule of {object}, is not in the dump: whether pods "
                "are made is not known",
                rule=f"{job.namespace}/{rule}",
                object=called,
            )
            yield NotKnown(called, text)
