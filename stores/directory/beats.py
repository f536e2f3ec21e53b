"""The heartbeats of a directory store: ``PATH/beats/<node>.json``, replaced by rename.

Everything here blocks and is called from threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from contract.documents.write_numbers import text_found
from contract.refusal import Reason
from contract.validation_texts import decode_text
from stores.base import Beat
from stores.directory import files
from stores.document_names import check_node_name
from stores.refusals import Refusals

if TYPE_CHECKING:
    from pathlib import Path

    from stores.directory.owner import OwnerCheck

_NAME_LENGTH = 253


class _BeatFile(Beat, frozen=True, omit_defaults=True):
    """What a file has. Nothing that is wrong with ``writes`` makes it no heartbeat."""

    writes: Any = ""


_decoder = msgspec.json.Decoder(_BeatFile)


class DirectoryHeartbeats:
    """The heartbeats under ``root``."""

    def __init__(self, root: Path, owner: OwnerCheck) -> None:
        self._root = root
        self._owner = owner
        self.refusals = Refusals()
        self._good: dict[str, Beat] = {}
        """The last good heartbeat of each node whose file is there."""

    def beat(self, beat: Beat) -> None:
        """Write the file of ``beat``, whoever wrote it before."""
        check_node_name(beat.node)
        content = msgspec.json.encode(beat) + b"\n"
        self._owner.check()
        with files.locked(self._root, files.BEATS) as directory:
            files.replace(directory, self._path(beat.node), content)

    def forget(self, node: str) -> None:
        """Remove the file of ``node``; a missing one is not an error."""
        check_node_name(node)
        if (self._root / files.BEATS).is_dir():
            self._owner.check()
            with files.locked(self._root, files.BEATS) as directory:
                files.remove(directory, self._path(node))

    def beats(self, node: str | None) -> tuple[Beat, ...]:
        """Return the heartbeats of all nodes, or of one; of a bad file the last good one."""
        if node is not None:
            check_node_name(node)
            beat = self._read(node)
            return () if beat is None else (beat,)
        nodes = files.names(self._root, files.BEATS)
        for gone in self._good.keys() - frozenset(nodes):
            self._drop(gone)
        return tuple(beat for name in nodes if (beat := self._read(name)) is not None)

    def _read(self, node: str) -> Beat | None:
        """Return the beat in a file, or the last good one where the file is refused."""
        path = self._path(node)
        reason = Reason.UNREADABLE
        try:
            content = files.content(path)
            if content is None:
                self._drop(node)
                return None
            stored = _decoder.decode(content)
            beat = Beat(**asdict(stored) | {"writes": text_found(stored.writes)})
            problem = _problem(beat, node)
            if beat.node != node:
                reason = Reason.OTHER_NODE
        except (
            files.MalformedFile,
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ) as error:
            problem = decode_text(error)
        else:
            if problem is None:
                self.refusals.accept(str(path))
                self._good[node] = beat
                return beat
        self.refusals.find(str(path), reason, f"it is not a valid heartbeat: {problem}")
        return self._good.get(node)

    def _drop(self, node: str) -> None:
        self._good.pop(node, None)
        self.refusals.accept(str(self._path(node)))

    def _path(self, node: str) -> Path:
        return files.document_path(self._root, files.BEATS, node)


def _problem(beat: Beat, node: str) -> str | None:
    if beat.node != node:
        return f"it is one of {beat.node[:_NAME_LENGTH]!r}"
    if not beat.holder:
        return "it has no holder"
    if not 0 < beat.interval_seconds < math.inf:
        return f"its interval is {beat.interval_seconds}"
    return None
