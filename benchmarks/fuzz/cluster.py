"""A pod, Node or PodGroup that is nearly right, in a list and in a watch between good ones."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from aggregator.inputs.cluster_state import ClusterState
from benchmarks.fuzz.api_server import Answers, events_of
from contract.errors import VigilError
from stores.kubernetes_api.cluster import KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

logging.getLogger("stores.kubernetes_api.feed").setLevel(logging.CRITICAL)

_OWNERS = [{"kind": "AscendJob", "name": "train", "uid": "job-1", "controller": True}]
_CONFIGURATION = '{"pod_name":"train-0","server_id":"10.0.0.1","devices":[{"device_id":"0"}]}'


def _metadata(name: str, **more: object) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "8",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **more,
    }


def _pod(name: str) -> dict[str, Any]:
    annotations = {
        "huawei.com/AscendReal": "Ascend910-0,Ascend910-1",
        "hccl/rankIndex": "0",
        "scheduling.k8s.io/group-name": "pg-train",
        "ascend.kubectl.kubernetes.io/ascend-910-configuration": _CONFIGURATION,
    }
    labels = {"app": "pytorch", "jobID": "id-1", "fault-type": "Separate"}
    return {
        "metadata": _metadata(
            name, annotations=annotations, labels=labels, ownerReferences=_OWNERS
        ),
        "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "podIP": "10.1.0.1", "hostIP": "10.0.0.1"},
    }


def _node(name: str) -> dict[str, Any]:
    return {
        "metadata": _metadata(name, annotations={"product-serial-number": f"SN-{name}"}),
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _group(name: str) -> dict[str, Any]:
    annotations = {
        "huawei.com/schedule.filter.faultCode": "80E21007:30",
        "recover-strategy": "retry",
    }
    labels = {"framework": "pytorch", "subHealthyStrategy": "ignore"}
    return {
        "metadata": _metadata(
            name, annotations=annotations, labels=labels, ownerReferences=_OWNERS
        ),
        "spec": {"minMember": 1},
    }


class ClusterObjects:
    """One object has the input, and those beside it are still listed and can be looked up.

    One that is refused leaves what was known of it. ``prefix`` makes a key of a name.
    """

    def __init__(
        self,
        name: str,
        prefix: str,
        make: Callable[[str], dict[str, Any]],
        follow: Callable[[KubernetesCluster], AsyncIterator[Any]],
        observe: Callable[[ClusterState], Callable[[int, Any], frozenset[str] | None]],
        items_of: Callable[[ClusterState], Mapping[str, object]],
    ) -> None:
        self.name = name
        self.seeds: Sequence[str] = (json.dumps(make("c")), json.dumps(make("d")))
        self._good = [json.dumps(make(one)) for one in "ab"]
        self._keys = [f"{prefix}{one}" for one in "ab"]
        self._follow = follow
        self._observe = observe
        self._shown = items_of

    def feed(self, text: str) -> None:
        """Parse ``text``; what is refused changes nothing."""
        a, b = self._good
        text = text.replace("\r", " ").replace("\n", " ")
        events = self._events((a, text, b))
        state = self._state_after(events)
        if events:
            assert self._shown(state).keys() >= set(self._keys), "good ones are listed"
        _check(state)
        changes = self._events((a,), text, b)
        _check(self._state_after(changes))
        refused = not events or events[0].unreadable or len(changes) < 3
        if refused:
            raise VigilError("refused")

    def _events(self, items: Sequence[str], *frames: str) -> list[Any]:
        listed = f'{{"metadata":{{"resourceVersion":"7"}},"items":[{",".join(items)}]}}'
        lines = (f'{{"type":"MODIFIED","object":{one}}}' for one in frames)
        body, items_of = (text.encode("utf-8", "replace") for text in (listed, "\n".join(lines)))
        cluster = KubernetesCluster(Answers(body, items_of).connection)
        return _loop().run_until_complete(events_of(self._follow(cluster)))

    def _state_after(self, events: Sequence[Any]) -> ClusterState:
        state = ClusterState([True])
        for event in events:
            self._observe(state)(0, event)
        return state


def _check(state: ClusterState) -> None:
    """Check that all that is listed can be looked up."""
    for pod in state.pods_of(0).items.values():
        node_context = state.node_context(pod.node)
        assert pod in node_context.pods
        assert set(pod.chips) <= (node_context.used or frozenset())
        assert not pod.job or state.jobs()[pod.job].key == pod.job
    for node in state.nodes_of_store(0).items.values():
        is_named = state.node_by_serial_number(node.serial_number) == node
        is_shared = node.serial_number in state.shared_serial_numbers
        assert is_named != (is_shared or not node.serial_number)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


def cluster_pods() -> ClusterObjects:
    """Pods of all nodes."""
    return ClusterObjects(
        "cluster-pods",
        "uid-",
        _pod,
        lambda cluster: cluster.pods(),
        lambda state: state.observe_pods,
        lambda state: state.pods_of(0).items,
    )


def cluster_nodes() -> ClusterObjects:
    """Nodes."""
    return ClusterObjects(
        "cluster-nodes",
        "",
        _node,
        lambda cluster: cluster.nodes(),
        lambda state: state.observe_nodes,
        lambda state: state.nodes_of_store(0).items,
    )


def cluster_jobs() -> ClusterObjects:
    """PodGroups."""
    return ClusterObjects(
        "cluster-jobs",
        "uid-",
        _group,
        lambda cluster: cluster.jobs(),
        lambda state: state.observe_jobs,
        lambda state: state.groups_of(0).items,
    )
