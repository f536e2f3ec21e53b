"""Heartbeats of old releases: annotations of the Node, or in node-info. Pure.

Judged as their readers did (``noded#7.5``, V4 to V6): only with the label, by change alone,
the interval replaced by 5 s where it makes no sense, and one that went away is a 0, which is a
change and then ages. Two things are different. What was never seen to change proves nothing: a
node whose agent wrote it years ago, or never, is unknown and not lost. And of a node with another
reporter, one that beats in the store itself or that has no heartbeats at all, an old beat counts
only while it keeps changing: it keeps a node alive that went back to an old release, and its end
makes no node silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.documents.node_info import Generation, NodeBeat
from contract.names import HEARTBEAT_ANNOTATION, HEARTBEAT_LABEL, INTERVAL_ANNOTATION
from contract.scheduling import go_integer
from stores.base import Beat
from stores.cluster import Snapshot, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from contract.documents.node_info import NodeRecord
    from stores.base import NodeObject, NodesEvent

HOLDER = "noded"
"""In place of the process that beats, which these heartbeats do not name."""
_NOTHING = NodeBeat(0, 0)


def beat_in_annotations(node: NodeObject) -> NodeBeat | None:
    """Return the heartbeat in the annotations of ``node``; ``None`` where there is none."""
    text = node.annotations.get(HEARTBEAT_ANNOTATION)
    if text is None:
        return None
    interval = go_integer(node.annotations.get(INTERVAL_ANNOTATION, "")) or 0
    return NodeBeat(go_integer(text) or 0, interval)


class LegacyNodes:
    """Cache of the Nodes of one store that have the label, with the heartbeats in annotations."""

    def __init__(self) -> None:
        self.beats: dict[str, NodeBeat | None] = {}
        self.listed = False

    def observe_nodes(self, event: NodesEvent) -> None:
        """Apply one event of the watch; an interruption changes nothing."""
        match event:
            case Snapshot(nodes):
                self.listed = True
                # The list is the truth: on an API server a Node that is missing was deleted.
                self.beats.clear()
                for name, node in nodes.items():
                    self._set(name, node)
            case Update(name, node):
                self._set(name, node)

    def _set(self, name: str, node: NodeObject | None) -> None:
        label, value = HEARTBEAT_LABEL
        # Without the label readers of that time ignored the annotations (noded#7.5).
        if node is not None and node.labels.get(label) == value:
            self.beats[name] = beat_in_annotations(node)
        else:
            self.beats.pop(name, None)


class Seen(msgspec.Struct, frozen=True):
    """What was seen so far of the nodes of one store.

    ``first`` are heartbeats that did not change yet; ``proven`` are nodes of which one did.
    """

    first: dict[str, int] = {}
    proven: frozenset[str] = frozenset()


def observed(
    seen: Seen,
    annotated: Mapping[str, NodeBeat | None],
    record_of: Callable[[str], NodeRecord | None],
    has_own: Callable[[str], bool],
    is_silent: Callable[[str], bool],
    lost: Container[str],
) -> tuple[Seen, tuple[Beat, ...]]:
    """Return what was seen with this observation, and the heartbeats of nodes that are proven.

    ``annotated`` are the heartbeats in annotations, ``None`` for a Node that has only the label.
    ``record_of`` returns the last good node-info of a node, ``has_own`` whether the store itself
    has a beat of it, ``is_silent`` whether its last heartbeat is too old. A node that an earlier
    run has published ``lost`` is proven.
    """
    first: dict[str, int] = {}
    proven: set[str] = set()
    beats: list[Beat] = []
    for node, beat in annotated.items():
        record = record_of(node)
        in_document = None if record is None else record.beat
        heartbeat = in_document or beat
        has_another = has_own(node) or (record is not None and record.generation is Generation.D)
        has_changed = heartbeat is not None and seen.first.get(node, heartbeat.at_seconds) != (
            heartbeat.at_seconds
        )
        # A new agent beats as well, so the old beat may only add life, never a silence.
        if has_another:
            counts = node in seen.proven and not is_silent(node)
        else:
            counts = node in seen.proven or (heartbeat is not None and node in lost)
        if counts or has_changed:
            proven.add(node)
            counted = heartbeat or _NOTHING
            at_ms = counted.at_seconds * 1000
            beats.append(Beat(node, HOLDER, counted.interval_seconds, at_ms))
        elif heartbeat is not None:
            first[node] = heartbeat.at_seconds
        # Not readable in this moment: what was seen first must not become "first" again later.
        elif node in seen.first:
            first[node] = seen.first[node]
    return Seen(first, frozenset(proven)), tuple(beats)
