"""How what the chains remember is kept: a text for each bucket of nodes, times by wall."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from aggregator.processors.manual_separation import Separated
from aggregator.processors.state_types import (
    NO_DEVICE_STATE,
    NO_SWITCH_STATE,
    DeviceState,
    Occurrence,
    SwitchState,
)
from aggregator.state_buckets import bucket_of, decoded
from contract.documents.cluster_info import VALUE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKETS = 32
POLICY = "policy"
"""The bucket of the policy in force."""


class PersistedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is remembered of one node."""

    device: DeviceState = NO_DEVICE_STATE
    switch: SwitchState = NO_SWITCH_STATE
    waiting: tuple[Occurrence, ...] = ()
    counts: dict[str, dict[str, tuple[int, ...]]] = {}
    separated: dict[str, Separated] = {}


NOTHING = PersistedNode()


@lru_cache(maxsize=32_768)
def bucket_of_node(node: str) -> str:
    """Return the bucket in which a node is kept."""
    return bucket_of(node, BUCKETS)


def encode_bucket(nodes: Mapping[str, PersistedNode]) -> tuple[str | None, int]:
    """Return the text of a bucket, ``None`` without anything, and how many nodes had no room for
    all their state.

    Separated chips and counters go first, alone if need be: other state that is lost begins anew
    with the next report.
    """
    members, left_out, room = [], 0, VALUE_LIMIT - 2
    order = sorted(
        nodes, key=lambda node: (not (nodes[node].separated or nodes[node].counts), node)
    )
    for node in order:
        whole = nodes[node]
        if whole == NOTHING:
            continue
        for kept in (whole, PersistedNode(counts=whole.counts, separated=whole.separated)):
            member = msgspec.json.encode({node: kept})[1:-1].decode()
            size = len(member.encode()) + 1
            if kept != NOTHING and size <= room:
                room -= size
                members.append(member)
                break
        left_out += kept is not whole
    return (f"{{{','.join(sorted(members))}}}" if members else None), left_out


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_kept = msgspec.json.Decoder(PersistedNode)


def decode_buckets(texts: Mapping[str, str]) -> tuple[list[tuple[str, PersistedNode]], list[str]]:
    """Return what is kept of the nodes in these buckets, and what cannot be read and why."""
    buckets, unread = decoded(texts, _members.decode)
    problems = [f"bucket {problem}" for problem in unread]
    nodes: list[tuple[str, PersistedNode]] = []
    for bucket, members in buckets.items():
        found, unread = decoded(members, _kept.decode)
        nodes += found.items()
        problems += (f"bucket {bucket}: node {problem}" for problem in unread)
    return nodes, problems
