"""Inputs for the history: batches that a node may send, and acknowledgements that it may
receive.
"""

from __future__ import annotations

import atexit
import shutil
from pathlib import Path
from tempfile import mkdtemp

import msgspec
from typing_extensions import override

from aggregator.notify.history_file import HistoryFile
from benchmarks.fuzz.running import Target
from contract.codes.levels import Severity
from contract.documents.episodes import EpisodeEvent
from contract.observation import chip_subject, host_subject
from stores.base import HistoryAck, HistoryBatch
from stores.mqtt.channel import decode_ack, decode_batch

_NODE = "node-1"
_NOW_MS = 1_800_000_000_000
_KNOWN = 3


def _event(sequence: int, place: int = 0) -> EpisodeEvent:
    subject = chip_subject(3) if place == 0 else host_subject("Fan", 1)
    level = "RestartNPU" if place == 0 else None
    return EpisodeEvent(
        sequence, place, "0af1", "began", subject, "80E01801", _NOW_MS, level, severity=Severity(1)
    )


def _batch(after: int, upto: int, journal: str = "j", lost: int = 0) -> HistoryBatch:
    events = [_event(n, place) for n in range(after + 1 + lost, upto + 1) for place in (0, 1)]
    return HistoryBatch(_NODE, journal, after, upto, tuple(events), lost)


class HistoryBatches(Target):
    """The history stores what the rule of batches demands, and each acknowledgement is what is
    stored.
    """

    name = "history-batch"
    seeds = tuple(
        msgspec.json.encode(one).decode()
        for one in (
            _batch(0, 2),
            _batch(3, 5),
            _batch(2, 6, lost=1),
            _batch(7, 8),
            _batch(0, 4, journal="other"),
            _batch(0, 0),
        )
    )

    def __init__(self) -> None:
        directory = mkdtemp(prefix="vigil-fuzz-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        self._file = HistoryFile(Path(directory, "history.sqlite"))
        self._count = 0

    @override
    def feed(self, text: str) -> None:
        """See ``Target``. The node is a new one each time, of which some is known already."""
        batch = decode_batch(_NODE, text.encode("utf-8", "replace"))
        self._count += 1
        node = f"node-{self._count}"
        known = msgspec.structs.replace(_batch(0, _KNOWN), node=node)
        reported = msgspec.structs.replace(batch, node=node)
        before = self._file.store_batches([known], _NOW_MS)
        assert before.acks == (HistoryAck(node, "j", _KNOWN),)
        taken = self._file.store_batches([reported, reported], _NOW_MS)
        had = _KNOWN if reported.journal == "j" else 0
        has = max(had, reported.upto) if reported.after <= had else had
        new = [one for one in reported.events if had < one.sequence <= has]
        assert taken.acks == (HistoryAck(node, reported.journal, has),)
        assert taken.events == len(new)


class HistoryAcks(Target):
    """An acknowledgement is a position in a journal, or refused."""

    name = "history-ack"
    seeds = tuple(
        msgspec.json.encode(HistoryAck(_NODE, journal, sequence)).decode()
        for journal, sequence in (("j", 0), ("4f1c", 17), ("4f1c", 1 << 40))
    )

    @override
    def feed(self, text: str) -> None:
        ack = decode_ack(_NODE, text.encode("utf-8", "replace"))
        assert ack.sequence >= 0
        assert ack.journal
