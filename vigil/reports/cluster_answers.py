"""What an aggregator answers about jobs, as far as verbs show it.

Only these fields are read, and those that another release may lack have a default. Times are epoch
milliseconds.
"""

from __future__ import annotations

import msgspec


class DeviceAnswer(msgspec.Struct, frozen=True):
    """A fault that hits a job; ``time_ms`` is 0 where its source gives no time."""

    device_id: str
    device_type: str
    code: str
    level: str
    time_ms: int = 0


class HitNodeAnswer(msgspec.Struct, frozen=True):
    """What hits a job on one node."""

    node: str
    health: str
    since_ms: int
    faults: tuple[DeviceAnswer, ...] = ()


class HitJobAnswer(msgspec.Struct, frozen=True):
    """A job that is hit."""

    job: str
    namespace: str
    name: str
    health: str
    since_ms: int | None
    nodes: tuple[HitNodeAnswer, ...]


class JobsAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/jobs`` of an aggregator."""

    at_ms: int
    jobs: tuple[HitJobAnswer, ...]


class ObjectsAnswer(msgspec.Struct, frozen=True):
    """What one store reports of one kind of objects."""

    store: str
    kind: str
    followed: bool
    known: bool
    interrupted: str | None = None


class StoreStateAnswer(msgspec.Struct, frozen=True):
    """What stores report besides documents."""

    objects: tuple[ObjectsAnswer, ...]


class ClusterStateAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/cluster-state`` of an aggregator."""

    cluster_state: StoreStateAnswer
