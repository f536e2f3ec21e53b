"""Everything that the chains must not forget: a text for each bucket of nodes, times by wall.

At a takeover the restored state of the earlier leader counts. What it lacks of this replica's own
state and is younger than a minute is added: it is of the time in which no replica led, or of the
second before, which that leader had not stored yet.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from aggregator.processors.frequent_fault_separation import (
    FaultWindows,
    ManualSeparation,
    Separated,
    SeparationPolicy,
)
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
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from aggregator.processors.state_types import Times

S = TypeVar("S")

_RECENT_MS = 60_000
_SAME_MS = 10_000
"""By how much two replicas may have seen the same later than each other."""


def joined_device(restored: DeviceState, own: DeviceState, now_ms: int) -> DeviceState:
    """Return the joined state of a device: ``restored``, and times of faults that it lacks."""
    received: Times = {chip: dict(codes) for chip, codes in restored.received.items()}
    for chip, codes in own.received.items():
        before = received.get(chip, {})
        # Only codes that ``restored`` lacks: its times are those at which the faults are counted
        # already.
        new = {c: at for c, at in codes.items() if c not in before and _is_recent(at, now_ms)}
        if new:
            received[chip] = before | new
    # ``restored`` wins for a chip that both have.
    uce = {chip: at for chip, at in own.uce.items() if _is_recent(at, now_ms)} | restored.uce
    if received == restored.received and uce == restored.uce:
        return restored
    return msgspec.structs.replace(restored, received=received, uce=uce)


def joined_switch(restored: SwitchState, own: SwitchState, now_ms: int) -> SwitchState:
    """Return the joined state of a switch, as for a device."""
    new = {
        key: at
        for key, at in own.received.items()
        if key not in restored.received and _is_recent(at, now_ms)
    }
    return SwitchState(restored.received | new) if new else restored


def complete(
    restored: dict[str, S],
    own: Mapping[str, S],
    nothing: S,
    join: Callable[[S, S, int], S],
    now_ms: int,
) -> Iterator[str]:
    """Complete the restored states of nodes; yield the nodes of which something was missing."""
    for node, mine in own.items():
        before = restored.get(node, nothing)
        after = join(before, mine, now_ms)
        if after is not before:
            restored[node] = after
            yield node


def missing(
    own: Iterable[Occurrence],
    restored: Iterable[Occurrence],
    separation: ManualSeparation,
    now_ms: int,
) -> Iterator[Occurrence]:
    """Return those of ``own`` that were neither waiting nor counted."""
    times: dict[tuple[str, str, str], list[int]] = {}
    for occurrence in restored:
        times.setdefault((occurrence.node, occurrence.chip, occurrence.code), []).append(
            occurrence.at_ms
        )
    for occurrence in own:
        separated = separation.chips.get(occurrence.node, {}).get(occurrence.chip)
        if (
            separated is not None
            # Both replicas saw the same fault, up to 10 s apart, and it led to this separation.
            and occurrence.at_ms <= separated.codes.get(occurrence.code, 0) + _SAME_MS
        ):
            continue  # it is one of those for which it was separated
        counted = (
            separation.counts.get(occurrence.node, {})
            .get(occurrence.chip, {})
            .get(occurrence.code, ())
        )
        counted_at = (*times.get((occurrence.node, occurrence.chip, occurrence.code), ()), *counted)
        if _is_recent(occurrence.at_ms, now_ms) and all(
            abs(at - occurrence.at_ms) > _SAME_MS for at in counted_at
        ):
            yield occurrence


def _is_recent(at_ms: int, now_ms: int) -> bool:
    return now_ms - _RECENT_MS <= at_ms


# A change writes one bucket. At 10,000 nodes a bucket has some 300, and few of them have a state.
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


# ``text`` asks for each node with a state, for each bucket that changed; 32,768 is above the 10,000
# nodes of docs/scale.md.
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
    # Two bytes for the braces; VALUE_LIMIT is what one document may have.
    members, left_out, room = [], 0, VALUE_LIMIT - 2
    order = sorted(
        nodes, key=lambda node: (not (nodes[node].separated or nodes[node].counts), node)
    )
    for node in order:
        # Kept whole if it fits, else only what no node reports again.
        whole = nodes[node]
        if whole == NOTHING:
            continue
        for node_state in (whole, PersistedNode(counts=whole.counts, separated=whole.separated)):
            member = msgspec.json.encode({node: node_state})[1:-1].decode()
            size = len(member.encode()) + 1
            # An oversized state is tried once more without the parts that begin anew.
            if node_state != NOTHING and size <= room:
                room -= size
                members.append(member)
                break
        left_out += node_state is not whole
    return (f"{{{','.join(sorted(members))}}}" if members else None), left_out


_policy = msgspec.json.Decoder(SeparationPolicy).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_node = msgspec.json.Decoder(PersistedNode).decode


def decode_buckets(texts: Mapping[str, str]) -> tuple[list[tuple[str, PersistedNode]], list[str]]:
    """Return what is kept of the nodes in these buckets, and what cannot be read and why."""
    buckets, unread = decoded(texts, _members)
    problems = [f"bucket {problem}" for problem in unread]
    nodes: list[tuple[str, PersistedNode]] = []
    for bucket, members in buckets.items():
        states, unread = decoded(members, _node)
        nodes += states.items()
        problems += (f"bucket {bucket}: node {problem}" for problem in unread)
    return nodes, problems


class ProcessorState:
    """States of nodes, new faults that wait, counters and separated chips.

    The books are filled and emptied, never replaced.
    """

    def __init__(self) -> None:
        self.devices: dict[str, DeviceState] = {}
        self.switches: dict[str, SwitchState] = {}
        self.windows = FaultWindows()
        self.separation = ManualSeparation()
        self.changed: set[str] = set()
        """Nodes, and ``policy``, about which something is to be kept anew."""
        self.left_out: dict[str, int] = {}
        """Bucket to how many nodes had no room in it."""

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that have a state."""
        return frozenset(self.devices.keys() | self.switches.keys())

    def set_state(self, states: dict[str, S], node: str, state: S, nothing: S) -> None:
        """Store a node's state, or remove it where it equals ``nothing``."""
        if states.get(node, nothing) == state:
            return
        self.changed.add(node)
        if state == nothing:
            del states[node]
        else:
            states[node] = state

    def pop_changed(self) -> frozenset[str]:
        """Return the buckets whose text changed since the last call."""
        changed = self.changed | self.separation.changed
        self._kept()
        return frozenset(node if node == POLICY else bucket_of_node(node) for node in changed)

    def text(self, bucket: str) -> str | None:
        """Return the text of a bucket; ``None`` where it is empty."""
        if bucket == POLICY:
            policy = self.separation.policy
            # The default needs no document, so clusters without a policy have none.
            return None if policy == SeparationPolicy() else msgspec.json.encode(policy).decode()
        waiting: dict[str, list[Occurrence]] = {}
        for occurrence in self.windows.waiting:
            if bucket_of_node(occurrence.node) == bucket:
                waiting.setdefault(occurrence.node, []).append(occurrence)
        counts, chips = self.separation.counts, self.separation.chips
        names = self.nodes | waiting.keys() | counts.keys() | chips.keys()
        nodes = {
            node: PersistedNode(
                self.devices.get(node, NO_DEVICE_STATE),
                self.switches.get(node, NO_SWITCH_STATE),
                tuple(sorted(waiting.get(node, ()))),
                counts.get(node, {}),
                chips.get(node, {}),
            )
            for node in names
            if bucket_of_node(node) == bucket
        }
        text, self.left_out[bucket] = encode_bucket(nodes)
        return text

    def restore_texts(self, texts: Mapping[str, str], now_ms: int) -> list[str]:
        """Replace everything by what was kept, completed by what is newer; return what could not be
        read.
        """
        devices, switches = dict(self.devices), dict(self.switches)
        waiting = tuple(self.windows.waiting)
        for book in (self.devices, self.switches, self.separation.counts, self.separation.chips):
            book.clear()
        self.windows.clear()
        policies, unread = decoded({key: texts[key] for key in (POLICY,) if key in texts}, _policy)
        nodes, problems = decode_buckets({key: texts[key] for key in texts.keys() - {POLICY}})
        problems += (f"bucket {problem}" for problem in unread)
        self.separation.policy = policies.get(POLICY, self.separation.policy)
        for node, state in nodes:
            self._restore(node, state)
        self._kept()
        self.changed.update(
            complete(self.devices, devices, NO_DEVICE_STATE, joined_device, now_ms),
            complete(self.switches, switches, NO_SWITCH_STATE, joined_switch, now_ms),
        )
        if self.separation.policy.enabled:
            waiting_before = tuple(self.windows.waiting)
            uncounted = tuple(missing(waiting, waiting_before, self.separation, now_ms))
            self.windows.add(uncounted)
            self.changed |= {occurrence.node for occurrence in uncounted}
        return problems

    def _restore(self, node: str, persisted: PersistedNode) -> None:
        if persisted.device != NO_DEVICE_STATE:
            self.devices[node] = persisted.device
        if persisted.switch != NO_SWITCH_STATE:
            self.switches[node] = persisted.switch
        self.windows.add(persisted.waiting)
        if persisted.counts:
            self.separation.counts[node] = {
                chip: dict(codes) for chip, codes in persisted.counts.items()
            }
        if persisted.separated:
            self.separation.chips[node] = dict(persisted.separated)

    def _kept(self) -> None:
        self.changed = set()
        self.separation.changed = set()
