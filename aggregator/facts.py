"""What the aggregator knows of a node and of jobs besides the nodes' documents.

Sources: ``spec/clusterd.md`` 1.8, 3.3 and 3.8.
"""

from __future__ import annotations

import msgspec

Texts = dict[str, str]


class Job(msgspec.Struct, frozen=True):
    """A job: the PodGroup of it, where there is one, else only what its pods say.

    ``key`` is the uid of the controlling owner of its pods and of its PodGroup (1.8).
    ``annotations`` and ``labels`` are the PodGroup's, of which only those that mean something here
    are kept.
    """

    key: str
    namespace: str = ""
    name: str = ""
    annotations: Texts = {}
    labels: Texts = {}


class Pod(msgspec.Struct, frozen=True):
    """A pod that is on a node, neither done nor failed, and has chips or belongs to a job.

    ``chips`` are the names that it uses (annotation ``huawei.com/AscendReal``). ``annotations``
    and ``labels`` are those that mean something here. ``job`` is the uid of the controlling owner,
    empty where it has none. ``ip`` and ``host_ip`` are its own address and its node's, empty as
    long as it has none.
    """

    uid: str
    node: str
    namespace: str = ""
    name: str = ""
    job: str = ""
    chips: tuple[str, ...] = ()
    annotations: Texts = {}
    labels: Texts = {}
    ip: str = ""
    host_ip: str = ""


class NodeState(msgspec.Struct, frozen=True):
    """A Node object: ``ip`` is its first InternalIP, ``serial_number`` its annotation."""

    name: str
    ip: str = ""
    serial_number: str = ""
    is_ready: bool = True


class Facts(msgspec.Struct, frozen=True):
    """What is known of one node, for the processors.

    ``used``: names of the chips that pods use, ``None`` where nobody knows. ``lost``: it fell
    silent. ``pods`` are those of this node, ``jobs`` the jobs of these pods by key.
    """

    used: frozenset[str] | None = None
    lost: bool = False
    pods: tuple[Pod, ...] = ()
    jobs: dict[str, Job] = {}
