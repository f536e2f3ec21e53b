"""Heartbeats of old releases: annotations of the Node, or in node-info. Pure.

Judged as their readers did (``noded#7.5``, V4 to V6): only with the label, by change alone,
the interval replaced by 5 s where it makes no sense, and one that went away is a 0, which is a
change and then ages. Two things are different. What was never seen to change proves nothing: a
node whose agent wrote it years ago, or never, is unknown and not lost. And of a node with another
reporter, one that beats in the store itself or that has no heartbeats at all, an old beat counts
only while it goes on: it keeps a node alive that went back to an old release, and its end is none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from contract.documents.node_info import Generation, NodeBeat
from contract.names import HEARTBEAT_ANNOTATION, HEARTBEAT_LABEL, INTERVAL_ANNOTATION
from stores.base import Beat
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from contract.documents.node_info import NodeRecord
    from stores.base import NodeObject, NodesEvent

_FALLBACK_SECONDS = 5
_LONGEST_SECONDS = 300
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_LARGEST = 2**63 - 1
_HOLDER = "noded"
_NOTHING = NodeBeat(0, _FALLBACK_SECONDS)


def integer(text: str) -> int:
    """Parse like Go's ``ParseInt``; return 0 where that is an error."""
    if _INTEGER.fullmatch(text) is None:
        return 0
    value = int(text)
    return value if -_LARGEST - 1 <= value <= _LARGEST else 0


def sensible_interval(seconds: int) -> int:
    """Return the interval that counts, in seconds: 5 where the given one is out of range."""
    return seconds if 1 <= seconds <= _LONGEST_SECONDS else _FALLBACK_SECONDS


class LegacyAnnotations(msgspec.Struct, frozen=True):
    """What a Node with the label has in its annotations; ``None`` for no heartbeat."""

    beat: NodeBeat | None


def annotations_of(node: NodeObject) -> LegacyAnnotations | None:
    """Return the annotations of ``node``; ``None`` where its heartbeats are not to be judged."""
    name, value = HEARTBEAT_LABEL
    if node.labels.get(name) != value:
        return None
    text = node.annotations.get(HEARTBEAT_ANNOTATION)
    if text is None:
        return LegacyAnnotations(None)
    interval = integer(node.annotations.get(INTERVAL_ANNOTATION, ""))
    return LegacyAnnotations(NodeBeat(integer(text), sensible_interval(interval)))


class LegacyNodes:
    """Cache of the Nodes of one store that have the label."""

    def __init__(self) -> None:
        self.annotations: dict[str, LegacyAnnotations] = {}
        self.listed = False
        self.interrupted: str | None = None

    def observe(self, event: NodesEvent) -> None:
        """Apply one event of the watch."""
        match event:
            case Interrupted(reason):
                self.interrupted = reason
            case Snapshot(nodes):
                self.listed, self.interrupted = True, None
                found = ((name, annotations_of(node)) for name, node in nodes.items())
                self.annotations = {
                    name: annotations for name, annotations in found if annotations is not None
                }
            case Update(name, node):
                annotations = None if node is None else annotations_of(node)
                if annotations is None:
                    self.annotations.pop(name, None)
                else:
                    self.annotations[name] = annotations


class Seen(msgspec.Struct, frozen=True):
    """What was seen so far of the nodes of one store.

    ``first`` are heartbeats that did not change yet; ``proven`` are nodes of which one did.
    """

    first: dict[str, int] = {}
    proven: frozenset[str] = frozenset()


def observed(
    seen: Seen,
    annotations: Mapping[str, LegacyAnnotations],
    record_of: Callable[[str], NodeRecord | None],
    has_own: Callable[[str], bool],
    is_silent: Callable[[str], bool],
    lost: Container[str],
) -> tuple[Seen, tuple[Beat, ...]]:
    """Return what was seen with this observation, and the heartbeats of nodes that are proven.

    ``record_of`` returns the last good node-info of a node, ``has_own`` whether the store itself
    has a beat of it, ``is_silent`` whether its last heartbeat is too old. A node that an earlier
    run has published ``lost`` is proven.
    """
    first: dict[str, int] = {}
    proven: set[str] = set()
    beats: list[Beat] = []
    for node, one in annotations.items():
        record = record_of(node)
        in_document = None if record is None else record.beat
        found = in_document or one.beat
        has_another = has_own(node) or (record is not None and record.generation is Generation.D)
        has_changed = found is not None and seen.first.get(node, found.at_seconds) != (
            found.at_seconds
        )
        if has_another:
            counts = node in seen.proven and not is_silent(node)
        else:
            counts = node in seen.proven or (found is not None and node in lost)
        if counts or has_changed:
            proven.add(node)
            beats.append(beat_of(node, found or _NOTHING))
        elif found is not None:
            first[node] = found.at_seconds
        elif node in seen.first:
            first[node] = seen.first[node]
    return Seen(first, frozenset(proven)), tuple(beats)


def beat_of(node: str, beat: NodeBeat) -> Beat:
    """Return a heartbeat of an old release in the form of a store's."""
    interval = sensible_interval(beat.interval_seconds)
    return Beat(node, _HOLDER, interval, beat.at_seconds * 1000)
