"""PodGroups of Volcano: what a job asks for (``docs/spec/clusterd.md#1.8``, 3.3, 3.5 and 6)."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads it)

import msgspec

from stores.cluster import JobState, Texts
from stores.kubernetes_api.cluster_pods import OwnerReference, controller
from stores.kubernetes_api.feed import WatchedKind, kept
from stores.kubernetes_api.watch import ListPage
from stores.kubernetes_api.wire import Item, ObjectMetadata

_NONE: Texts = {}


class _Annotations(msgspec.Struct, omit_defaults=True):
    codes: str = msgspec.field(default="", name="huawei.com/schedule.filter.faultCode")
    levels: str = msgspec.field(default="", name="huawei.com/schedule.filter.faultLevel")
    strategy: str = msgspec.field(default="", name="recover-strategy")


class _Labels(msgspec.Struct, omit_defaults=True):
    app: str = ""
    framework: str = ""
    job_id: str = msgspec.field(default="", name="jobID")
    sub_healthy: str = msgspec.field(default="", name="subHealthyStrategy")
    recovers: str = msgspec.field(default="", name="process-recover-enable")


class _GroupMetadata(ObjectMetadata, rename="camel"):
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)
    labels: _Labels = msgspec.field(default_factory=_Labels)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)
    creation_timestamp: datetime | None = None


class _PodGroup(Item):
    metadata: _GroupMetadata
    spec: object = None


def _read(item: _PodGroup) -> JobState | None:
    metadata = item.metadata
    owner = controller(metadata.owner_references)
    if owner is None:
        return None
    created = metadata.creation_timestamp
    return JobState(
        key=owner.uid,
        namespace=metadata.namespace,
        name=owner.name,
        annotations=kept(metadata.annotations) or _NONE,
        labels=kept(metadata.labels) or _NONE,
        created_at_ms=0 if created is None else int(created.timestamp() * 1000),
        size=_size(item.spec),
    )


def _size(spec: object) -> int:
    """Return how many pods make the job complete; 0 where the PodGroup does not state it."""
    number = spec.get("minMember") if isinstance(spec, dict) else None
    return max(0, number) if isinstance(number, int) else 0


POD_GROUPS = WatchedKind[_PodGroup, JobState](
    name="PodGroups",
    path="/apis/scheduling.volcano.sh/v1beta1/podgroups",
    query={},
    read_page=msgspec.json.Decoder(ListPage[_PodGroup]).decode,
    read_item=msgspec.json.Decoder(_PodGroup).decode,
    key=lambda metadata: metadata.uid,
    read=_read,
)
