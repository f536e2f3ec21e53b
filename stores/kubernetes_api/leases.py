"""Heartbeats as Leases of ``coordination.k8s.io/v1``: their fields, and back to beats.

The interval and the node stand in annotations, exactly; of a Lease of another program, its
duration and its name must do.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import msgspec

from contract.names import HEARTBEAT_NAMESPACE, HEARTBEAT_PREFIX, heartbeat_name, node_name_problem
from contract.refusal import Reason
from contract.validation_texts import decode_text
from stores.base import Beat
from stores.kubernetes_api import wire

API = "/apis/coordination.k8s.io/v1"
LABEL = ("npu-vigil/heartbeat", "true")
"""Which Leases are heartbeats."""
_NODE = "npu-vigil/node"
_INTERVAL = "npu-vigil/interval-seconds"
_BLIND = "npu-vigil/blind"
_WRITES = "npu-vigil/writes"
_WORDS = {"true": True, "false": False}

_INTERVALS_OF_A_DURATION = 3
_NAME_LENGTH = 253
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class NoBeat(Exception):
    """A Lease that is not a heartbeat; the text is the reason."""

    def __init__(self, place: str, reason: Reason = Reason.UNREADABLE) -> None:
        super().__init__(place)
        self.reason = reason


class _LeaseAnnotations(msgspec.Struct, frozen=True, gc=False):
    node: str = msgspec.field(default="", name=_NODE)
    interval_seconds: str = msgspec.field(default="", name=_INTERVAL)
    blind: str = msgspec.field(default="", name=_BLIND)
    writes: str = msgspec.field(default="", name=_WRITES)


class _LeaseMetadata(msgspec.Struct, gc=False):
    """Less than ``wire.ObjectMetadata``: the Leases of all nodes are listed in each interval."""

    name: str
    annotations: _LeaseAnnotations = _LeaseAnnotations()
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class LeaseSpec(msgspec.Struct, rename="camel", gc=False):
    """What is read of the ``spec`` of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, gc=False):
    """What is read of a Lease."""

    metadata: _LeaseMetadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)

    @property
    def holder(self) -> str:
        """Its holder; empty for none."""
        return self.spec.holder_identity or ""

    @property
    def transitions(self) -> int:
        """How often it went from one holder to another."""
        return self.spec.lease_transitions or 0


class _LeaseList(msgspec.Struct):
    items: list[Lease]


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw]


decoder = msgspec.json.Decoder(Lease)
_list_decoder = msgspec.json.Decoder(_LeaseList)
_raw_list_decoder = msgspec.json.Decoder(_RawList)


def decode_list(body: bytes) -> tuple[list[Lease], list[str]]:
    """Return the Leases of a list, and what is wrong with those that are none.

    Raises ``StoreUnavailable`` for what is not a list.
    """
    try:
        return _list_decoder.decode(body).items, []
    except msgspec.DecodeError:
        good, problems = [], []
        problem = "the list of Leases is malformed"
        # One by one: a malformed Lease must not hide the heartbeats of all other nodes.
        for raw in wire.decoded(_raw_list_decoder.decode, body, problem).items:
            try:
                good.append(decoder.decode(raw))
            except msgspec.ValidationError as error:
                problems.append(decode_text(error))
        return good, problems


def fields(beat: Beat, transitions: int | None, version: str = "") -> dict[str, object]:
    """Return what a beat sets in its Lease. ``transitions`` only when it goes to this holder now.

    ``version`` is the one that it follows; a Lease that has another one by then stays as it is.
    """
    beaten_at = _EPOCH + beat.beaten_at_ms * _MILLISECOND
    renewed = beaten_at.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
    spec: dict[str, object] = {
        "holderIdentity": beat.holder,
        # An integer; rounded up, so that readers who know only this wait for three intervals.
        "leaseDurationSeconds": math.ceil(_INTERVALS_OF_A_DURATION * beat.interval_seconds),
        "renewTime": renewed,
    }
    if transitions is not None:
        spec |= {"acquireTime": renewed, "leaseTransitions": transitions}
    annotations: dict[str, str | None] = {
        _NODE: beat.node,
        # ``repr`` is read back as exactly the same number, which ``_check`` compares.
        _INTERVAL: repr(beat.interval_seconds),
        _WRITES: beat.writes or None,  # a merge patch removes it
    }
    if beat.blind is not None:
        annotations[_BLIND] = str(beat.blind).lower()
    metadata: dict[str, object] = {"labels": dict([LABEL]), "annotations": annotations}
    if version:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "spec": spec}


def whole(beat: Beat) -> dict[str, object]:
    """Return the Lease of a first beat."""
    content = fields(beat, 0)
    metadata = {"name": heartbeat_name(beat.node), "namespace": HEARTBEAT_NAMESPACE}
    given = content["metadata"]
    assert isinstance(given, dict)
    # Null removes a key only in a merge patch (RFC 7386).
    given["annotations"] = {k: v for k, v in given["annotations"].items() if v is not None}
    return content | {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata | given,
    }


def beat_of(lease: Lease, before: Beat | None = None) -> Beat:
    """Return the beat in a Lease. Raises ``NoBeat``.

    ``before`` is the last one of the same Lease: while its node stays, the name is right.
    """
    spec, annotations = lease.spec, lease.metadata.annotations
    is_known = before is not None and before.node == annotations.node
    node = annotations.node if is_known else _node(lease.metadata)
    if not spec.holder_identity:
        raise NoBeat("it has no holder")
    if spec.renew_time is None:
        raise NoBeat("it was never renewed")
    try:
        since_epoch = datetime.fromisoformat(spec.renew_time) - _EPOCH
    except (ValueError, TypeError):
        raise NoBeat(f"its renewTime {spec.renew_time!r} is not a valid time") from None
    # A third of the time that a division of it takes.
    beaten_at_ms = (since_epoch.days * 86_400 + since_epoch.seconds) * 1000
    beaten_at_ms += since_epoch.microseconds // 1000
    return Beat(
        node,
        spec.holder_identity,
        _interval_seconds(lease),
        beaten_at_ms,
        blind=_WORDS.get(annotations.blind),
        writes=annotations.writes,
    )


def _node(metadata: _LeaseMetadata) -> str:
    node = metadata.annotations.node or metadata.name.removeprefix(HEARTBEAT_PREFIX)
    if metadata.name != heartbeat_name(node) or node_name_problem(node) is not None:
        shown = node[:_NAME_LENGTH]
        raise NoBeat(f"its name does not fit a node called {shown!r}", Reason.OTHER_NODE)
    return node


def _interval_seconds(lease: Lease) -> float:
    try:
        exact = float(lease.metadata.annotations.interval_seconds)
    except ValueError:
        exact = 0.0
    if 0 < exact < math.inf:
        return exact
    duration = lease.spec.lease_duration_seconds
    if duration is None or duration <= 0:
        raise NoBeat("it has neither interval nor duration")
    return duration / _INTERVALS_OF_A_DURATION
