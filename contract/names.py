"""Names, namespaces and labels of the documents (``docs/spec/consumers.md#7.1``, M1 to M3)."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

DEVICE_INFO_NAMESPACE = "kube-system"
DEVICE_INFO_PREFIX = "mindx-dl-deviceinfo-"
NODE_INFO_NAMESPACE = "mindx-dl"
NODE_INFO_PREFIX = "mindx-dl-nodeinfo-"
SWITCH_INFO_PREFIX = "mindx-dl-switchinfo-"
PUBLIC_FAULT_NAMESPACE = "mindx-dl"
PUBLIC_FAULT_PREFIXES = {
    "dpcStorage": "npu-vigil-dpc-fault-",
    "dtfsStorage": "npu-vigil-dtfs-fault-",
}
"""By resource: a message has one, and a document one message (``clusterd#4.1``, 4.2)."""
PUBLIC_FAULT_LABEL = ("mc-consumer-publicfault", "true")
HEARTBEAT_NAMESPACE = "mindx-dl"
HEARTBEAT_PREFIX = "npu-vigil-"
HEARTBEAT_ANNOTATION = "noded/heartbeat"
"""On the Node: the heartbeat of old releases, Unix seconds (``docs/spec/noded.md#7.2``)."""
INTERVAL_ANNOTATION = "noded/heartbeat-interval"
HEARTBEAT_LABEL = ("nodeDEnable", "on")
"""On a Node whose heartbeat readers of old releases are to judge."""
REPORT_LABEL = ("mx-consumer-cim", "true")

CLUSTER_NAMESPACE = "mindx-dl"
CLUSTER_DEVICE_PREFIX = "cluster-info-device-"
CLUSTER_SWITCH_PREFIX = "cluster-info-switch-"
CLUSTER_NODE_NAME = "cluster-info-node-cm"
CLUSTER_LABEL = ("mx-consumer-volcano", "true")

LEADER_NAMESPACE = "mindx-dl"
LEADER_LEASE = "npu-vigil-aggregator"
"""The Lease of the aggregator that leads; so no node can be called ``aggregator``."""
AGGREGATOR_NAMESPACE = "mindx-dl"
AGGREGATOR_SERVICE = "npu-vigil-aggregator"
AGGREGATOR_PORT = 9821
"""The Service of its pages (``daemonset/base/service.yaml``)."""
STATE_NAMESPACE = "mindx-dl"
STATE_PREFIX = "npu-vigil-state-"
STATE_LABEL = "npu-vigil/state"
STATE_KEY = "state"
"""On documents with what the next leader must know: the name of whose state it is."""
DEFAULT_MAX_NODES = 16_000
"""Nodes of a store; ClusterD's limit (``clusterd#1.4``, defect B16)."""
MAX_NODES = 131_072
"""The largest ``max_nodes``: whoever may write to a store can make up names of nodes."""
MAX_SOCKET_PATH_BYTES = 107
"""Of a Unix socket, without the final NUL (``unix(7)``)."""


def socket_path_problem(path: str | os.PathLike[str]) -> str | None:
    """Return why no socket can have this path, and the remedy; ``None`` if it can."""
    size = len(os.fsencode(path))
    if size <= MAX_SOCKET_PATH_BYTES:
        return None
    return (
        f"the path has {size} bytes, a socket's path has {MAX_SOCKET_PATH_BYTES} at most; "
        "choose a shorter --state-dir"
    )


class DocumentOwner(NamedTuple):
    """The node that a document's name names.

    ``resource`` is the one resource whose public faults belong into the document; ``None`` where
    none do.
    """

    node: str
    resource: str | None


_OWNED_PREFIXES = (
    *((prefix, resource) for resource, prefix in PUBLIC_FAULT_PREFIXES.items()),
    (DEVICE_INFO_PREFIX, None),
    (NODE_INFO_PREFIX, None),
    (HEARTBEAT_PREFIX, None),
)
"""The longer of two prefixes with one beginning comes first."""

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NODE_NAME_MAX = 230


def owner_of(name: str) -> DocumentOwner | None:
    """Return the node that the document ``name`` belongs to, in whatever namespace it lies.

    ``None`` for a name that belongs to no node. The name of a heartbeat counts as well: an agent
    may write a document of that name where only names are checked. A document is a ConfigMap, and
    where two nodes have one name the public faults win: ``npu-vigil-dpc-fault-x`` is of node ``x``.
    The Lease of that name is the heartbeat of a node ``dpc-fault-x``, and no document; Kubernetes
    keeps the two apart by kind (``daemonset/base/own-node-only.yaml``).
    """
    for prefix, resource in _OWNED_PREFIXES:
        if name.startswith(prefix):
            return DocumentOwner(name[len(prefix) :], resource)
    return None


def node_name_problem(node: str) -> str | None:
    """Return why Kubernetes would refuse ``node`` as a node name of ours, or ``None``.

    At most 230 characters, so that ``mindx-dl-deviceinfo-<node>`` stays a legal name
    (``docs/spec/device-plugin.md#1.1``).
    """
    if not node:
        return "is empty"
    if len(node) > _NODE_NAME_MAX:
        return f"has {len(node)} characters, at most {_NODE_NAME_MAX} are allowed"
    if _NODE_NAME.fullmatch(node) is None:
        return (
            f"{node!r} is not a Kubernetes node name: lower-case letters, digits, '-' and '.', "
            "each part beginning and ending with a letter or digit"
        )
    return None


def device_info_name(node: str) -> str:
    """Return the name of the device-info ConfigMap of ``node``."""
    return DEVICE_INFO_PREFIX + node


def node_info_name(node: str) -> str:
    """Return the name of the node-info ConfigMap of ``node``."""
    return NODE_INFO_PREFIX + node


def public_fault_name(node: str, resource: str) -> str:
    """Return the name of the document with which ``node`` reports public faults of ``resource``."""
    return PUBLIC_FAULT_PREFIXES[resource] + node


def switch_info_name(node: str) -> str:
    """Return the name of the switch part of ``node``; there is no such ConfigMap."""
    return SWITCH_INFO_PREFIX + node


def heartbeat_name(node: str) -> str:
    """Return the name of the Lease with which the agent of ``node`` beats."""
    return HEARTBEAT_PREFIX + node
