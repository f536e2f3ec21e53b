"""Why something that was read is refused, in one word: a label of metrics and a key of the API."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """``OTHER_*``: it lies at a place that belongs to a node, and does not belong there."""

    UNREADABLE = "unreadable"
    OTHER_NODE = "other-node"
    """It names another node than its place."""
    OTHER_RESOURCE = "other-resource"
    """It is a message of another resource than its place is for."""
    OTHER_KIND = "other-kind"
    """It has the label of messages about public faults, and its place is not for those."""
    NAMESPACE = "namespace"
    """It lies in a namespace that the configuration leaves out."""
