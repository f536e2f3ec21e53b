"""Topics of an MQTT broker (docs/packages/stores.md, MQTT) and the documents that live under them.

Every topic is one of ``vigil/v1/nodes/<node>/<kind>``, ``vigil/v1/cluster/<document>`` and
``vigil/v1/config/<namespace>/<name>``. Names of nodes, namespaces and documents are those of
Kubernetes, so none of them has a character that means something in a topic.
"""

from __future__ import annotations

from contract.names import (
    CLUSTER_DEVICE_PREFIX,
    CLUSTER_LABEL,
    CLUSTER_NAMESPACE,
    CLUSTER_NODE_NAME,
    CLUSTER_SWITCH_PREFIX,
    DEVICE_INFO_NAMESPACE,
    DEVICE_INFO_PREFIX,
    NODE_INFO_NAMESPACE,
    NODE_INFO_PREFIX,
    PUBLIC_FAULT_LABEL,
    PUBLIC_FAULT_NAMESPACE,
    PUBLIC_FAULT_PREFIXES,
    REPORT_LABEL,
    node_name_problem,
)

_ROOT = "vigil/v1"
_NODES = f"{_ROOT}/nodes"
_CLUSTER = f"{_ROOT}/cluster"
_CONFIG = f"{_ROOT}/config"

# Documents of a node: the last level of the topic, namespace, prefix of the name, label.
_NODE_DOCUMENTS = (
    ("device-info", DEVICE_INFO_NAMESPACE, DEVICE_INFO_PREFIX, REPORT_LABEL),
    ("node-info", NODE_INFO_NAMESPACE, NODE_INFO_PREFIX, REPORT_LABEL),
    *(
        (kind, PUBLIC_FAULT_NAMESPACE, PUBLIC_FAULT_PREFIXES[resource], PUBLIC_FAULT_LABEL)
        for kind, resource in (("dpc-fault", "dpcStorage"), ("dtfs-fault", "dtfsStorage"))
    ),
)
_OUR_LABELS = (REPORT_LABEL, PUBLIC_FAULT_LABEL, CLUSTER_LABEL)

ALL_BEATS = f"{_NODES}/+/beat"
ALL_EVENTS = f"{_NODES}/+/events"
CLUSTER_ECHO = f"{_CLUSTER}/echo"
"""Beside the cluster's documents, and none of them."""
ECHO_BY_WILDCARD = f"{_ROOT}/+/echo"
"""A filter with a wildcard that matches ``CLUSTER_ECHO`` and no other topic of ours."""


def beat_topic(node: str) -> str:
    """Return where the agent of ``node`` beats, and where its last will is published."""
    return f"{_NODES}/{node}/beat"


def is_beat_topic(topic: str) -> bool:
    """Return whether ``topic`` is the beat topic of a node."""
    node = node_of(topic)
    return node is not None and topic == beat_topic(node)


def events_topic(node: str) -> str:
    """Return where a node sends what happened to its faults."""
    return f"{_NODES}/{node}/events"


def ack_topic(node: str) -> str:
    """Return where the aggregator acknowledges to a node what it keeps of it."""
    return f"{_NODES}/{node}/heard"


def echo_topic(node: str | None) -> str:
    """Return where a client publishes to itself, below what it may write: a node's, or the
    cluster's.
    """
    return CLUSTER_ECHO if node is None else f"{_NODES}/{node}/echo"


def node_of(topic: str) -> str | None:
    """Return whose topic this is; ``None`` if it is none below ``vigil/v1/nodes``."""
    parts = topic.split("/")
    if len(parts) == 5 and topic.startswith(f"{_NODES}/") and node_name_problem(parts[3]) is None:
        return parts[3]
    return None


def document_topic(namespace: str, name: str) -> str:
    """Return where the document of this place is retained."""
    for kind, where, prefix, _ in _NODE_DOCUMENTS:
        node = name.removeprefix(prefix)
        # A name that no node can have must not make a level of a node's topic.
        if namespace == where and node != name and node_name_problem(node) is None:
            return f"{_NODES}/{node}/{kind}"
    if namespace == CLUSTER_NAMESPACE and _is_cluster_document(name):
        return f"{_CLUSTER}/{name}"
    return f"{_CONFIG}/{namespace}/{name}"


def document_place(topic: str) -> tuple[str, str] | None:
    """Return namespace and name of the document at ``topic``; ``None`` where none can be.

    Whether Kubernetes would accept the names is not checked.
    """
    parts = topic.split("/")
    place = None
    if len(parts) == 5 and topic.startswith(f"{_NODES}/"):
        for kind, namespace, prefix, _ in _NODE_DOCUMENTS:
            if parts[4] == kind:
                place = (namespace, prefix + parts[3])
    elif len(parts) == 4 and topic.startswith(f"{_CLUSTER}/"):
        place = (CLUSTER_NAMESPACE, parts[3])
    elif len(parts) == 5 and topic.startswith(f"{_CONFIG}/"):
        place = (parts[3], parts[4])
    # A document has one topic: what lies at another one that looks like it is none.
    return place if place is not None and document_topic(*place) == topic else None


def document_filters(
    namespace: str | None,
    name: str | None,
    label: tuple[str, str] | None,
    *,
    listed: bool = True,
) -> tuple[str, ...]:
    """Return topic filters that together match every selected document, and maybe more; none twice.

    Not ``listed``: only those of ``config``, which alone have labels that are not listed here.

    A label of ours is looked for among the documents that have it and those of ``config``, so that
    a reader of what nodes report is not sent what is published for the cluster.
    """
    if name is not None and namespace is not None:
        return (document_topic(namespace, name),)
    if name is not None:
        special = (
            document_topic(where, name) for where in (DEVICE_INFO_NAMESPACE, NODE_INFO_NAMESPACE)
        )
        # A topic below ``config`` is matched by the filter for all its namespaces already.
        refused = [topic for topic in special if not topic.startswith(f"{_CONFIG}/")]
        return (*refused, f"{_CONFIG}/+/{name}")
    anything = f"{_CONFIG}/{namespace or '+'}/+"
    if not listed:
        return (anything,)
    filters = []
    for kind, where, _, its_label in _NODE_DOCUMENTS:
        if namespace in (None, where) and (label not in _OUR_LABELS or label == its_label):
            filters.append(f"{_NODES}/+/{kind}")
    if namespace in (None, CLUSTER_NAMESPACE) and (
        label not in _OUR_LABELS or label == CLUSTER_LABEL
    ):
        filters.append(f"{_CLUSTER}/+")
    return (*filters, anything)


def filters_of(topic: str) -> tuple[str, ...]:
    """Return every filter of this module that matches ``topic``, itself included."""
    parts = topic.split("/")
    if len(parts) == 5 and topic.startswith(f"{_NODES}/"):
        return (topic, f"{_NODES}/+/{parts[4]}")
    if len(parts) == 4 and topic.startswith(f"{_CLUSTER}/"):
        return (topic, f"{_CLUSTER}/+")
    if len(parts) == 5 and topic.startswith(f"{_CONFIG}/"):
        # All filters that ``document_filters`` can make of it.
        return (topic, f"{_CONFIG}/{parts[3]}/+", f"{_CONFIG}/+/{parts[4]}", f"{_CONFIG}/+/+")
    return (topic,)


def _is_cluster_document(name: str) -> bool:
    return name == CLUSTER_NODE_NAME or name.startswith(
        (CLUSTER_DEVICE_PREFIX, CLUSTER_SWITCH_PREFIX)
    )
