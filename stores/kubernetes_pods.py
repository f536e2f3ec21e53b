"""Which chips pods use: their annotation ``huawei.com/AscendReal`` (``spec/clusterd.md`` 1.8, 3.8).

The server leaves out pods that are done, failed or on no node: one that ends looks deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stores.base import PodUsage, UsageEnded, UsageListed
from stores.kubernetes_watch import Page, watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stores.base import UsageEvent
    from stores.kubernetes_connection import Connection

_PATH = "/api/v1/pods"
_ALIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="}


class _Annotations(msgspec.Struct):
    real: str = msgspec.field(default="", name="huawei.com/AscendReal")


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_pages: msgspec.json.Decoder[Page[_Pod]] = msgspec.json.Decoder(Page[_Pod])
_pod = msgspec.json.Decoder(_Pod)


def follow_pods(connection: Connection) -> AsyncIterator[UsageEvent]:
    """See ``Store.usage``."""
    return watched(connection, _PATH, _ALIVE, _pages, "pods", _everything, _one)


def _everything(pods: list[_Pod]) -> UsageEvent:
    return UsageListed(tuple(one for pod in pods if (one := _usage(pod)) is not None))


def _one(kind: str, content: msgspec.Raw) -> tuple[UsageEvent | None, str]:
    pod = _pod.decode(content)
    usage = None if kind == "DELETED" else _usage(pod)
    return usage or UsageEnded(pod.metadata.uid), pod.metadata.resource_version


def _usage(pod: _Pod) -> PodUsage | None:
    names = (name.strip() for name in pod.metadata.annotations.real.split(","))
    chips = tuple(name for name in names if name)
    if not chips or not pod.spec.node_name:
        return None
    return PodUsage(pod.metadata.uid, pod.spec.node_name, chips)
