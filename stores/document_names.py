"""Which namespaces, names and names of nodes a store takes: those of Kubernetes, in every store.

Source: RFC 1123 labels and subdomains, as Kubernetes demands them of namespaces and ConfigMaps.
"""

from __future__ import annotations

import re

from contract.errors import StoreRefused
from contract.names import node_name_problem

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_MAX = 63
_SUBDOMAIN_MAX = 253


def is_namespace(namespace: str) -> bool:
    """Return whether Kubernetes would take ``namespace`` as the name of a namespace."""
    return len(namespace) <= _LABEL_MAX and _LABEL.fullmatch(namespace) is not None


def is_name(name: str) -> bool:
    """Return whether Kubernetes would take ``name`` as the name of a ConfigMap."""
    return len(name) <= _SUBDOMAIN_MAX and _SUBDOMAIN.fullmatch(name) is not None


def check_names(namespace: str, name: str) -> None:
    """Raise ``StoreRefused`` for a place that Kubernetes would refuse, before anything is asked."""
    if not is_namespace(namespace):
        raise StoreRefused(
            f"{namespace!r} is not a valid namespace: 1 to {_LABEL_MAX} lower-case letters, digits "
            "and '-', beginning and ending with a letter or digit"
        )
    if not is_name(name):
        raise StoreRefused(
            f"{name!r} is not a valid name for a document in {namespace}: use 1 to "
            f"{_SUBDOMAIN_MAX} lower-case letters, digits, '-' and '.'. Each part begins and ends "
            "with a letter or digit"
        )


def check_node_name(node: str) -> None:
    """Raise ``StoreRefused`` for a name that no Node can have, before anything is asked."""
    problem = node_name_problem(node)
    if problem is not None:
        raise StoreRefused(f"the node name {problem}")
