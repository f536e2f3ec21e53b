"""Batches of the history of a node, as its agent sends them."""

from __future__ import annotations

from contract.documents.episodes import EpisodeEvent
from contract.observation import chip_subject
from stores.base import HistoryBatch

NOW_MS = 1_800_000_000_000


def event(sequence: int, place: int = 0) -> EpisodeEvent:
    return EpisodeEvent(
        sequence, place, f"e-{sequence}-{place}", "began", chip_subject(3), "80E01801", NOW_MS
    )


def batch(
    after: int, upto: int, node: str = "node-1", journal: str = "j", **more: int
) -> HistoryBatch:
    events = tuple(event(sequence) for sequence in range(after + 1, upto + 1))
    if more.get("lost"):
        events = events[more["lost"] :]
    return HistoryBatch(node, journal, after, upto, events, **more)
