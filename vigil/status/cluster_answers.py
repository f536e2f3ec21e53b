"""What an aggregator answers about jobs and the past, as far as verbs show it.

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
    """``/api/v1/world`` of an aggregator."""

    world: StoreStateAnswer


class SubjectAnswer(msgspec.Struct, frozen=True):
    """What an event of a node is about."""

    kind: str
    id: int
    part: str = ""


class EventAnswer(msgspec.Struct, frozen=True):
    """A change that a node reports."""

    subject: SubjectAnswer
    code: str
    at_ms: int
    old_level: str | None = None
    new_level: str | None = None
    because: str = ""


class ChangeAnswer(msgspec.Struct, frozen=True):
    """A change of what is published."""

    at_ms: int
    subject: str
    code: str
    was: str | None = None
    level: str | None = None


class HistoryEntryAnswer(msgspec.Struct, frozen=True):
    """One entry of the history: an event, a change, or entries that were lost."""

    number: int
    node: str
    heard_at_ms: int
    event: EventAnswer | None = None
    lost: int = 0
    published: ChangeAnswer | None = None


class HistoryAnswer(msgspec.Struct, frozen=True):
    """``/api/v1/history`` of an aggregator."""

    events: tuple[HistoryEntryAnswer, ...]
    next: int
    more: bool
