"""The heartbeats of a directory store: ``PATH/beats/<node>.json``, replaced by rename.

Everything here blocks and is called from threads.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreRefused
from contract.names import node_name_problem
from stores import directory_files as files
from stores.base import Beat

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

_decoder = msgspec.json.Decoder(Beat)


class Heartbeats:
    """The heartbeats under ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._complained: dict[str, str] = {}

    def beat(self, beat: Beat) -> None:
        """See ``Store``."""
        _check(beat.node)
        content = msgspec.json.encode(beat) + b"\n"
        with files.locked(self._root, files.BEATS):
            files.replace(self._root, files.BEATS, beat.node, content)

    def forget(self, node: str) -> None:
        """See ``Store.forget_beat``."""
        _check(node)
        if (self._root / files.BEATS).is_dir():
            with files.locked(self._root, files.BEATS):
                files.remove(self._root, files.BEATS, node)

    def beats(self, node: str | None) -> tuple[Beat, ...]:
        """See ``Store``."""
        if node is not None:
            _check(node)
        nodes = files.names(self._root, files.BEATS) if node is None else [node]
        return tuple(beat for name in nodes if (beat := self._read(name)) is not None)

    def _read(self, node: str) -> Beat | None:
        """The beat in a file; of one that is none, the log says once why."""
        path = files.document_path(self._root, files.BEATS, node)
        try:
            content = files.content(path)
            beat = None if content is None else _decoder.decode(content)
            problem = None if beat is None else _problem(beat, node)
        except (files.Malformed, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            beat, problem = None, str(error)
        if problem is None:
            self._complained.pop(node, None)
            return beat
        if self._complained.get(node) != problem:
            self._complained[node] = problem
            _log.warning("%s is left out, it is no heartbeat: %s", path, problem)
        return None


def _check(node: str) -> None:
    problem = node_name_problem(node)
    if problem is not None:
        raise StoreRefused(f"the node name {problem}")


def _problem(beat: Beat, node: str) -> str | None:
    if beat.node != node:
        return f"it is one of {beat.node!r}"
    if not beat.holder:
        return "it has no holder"
    if not 0 < beat.interval_seconds < math.inf:
        return f"its interval is {beat.interval_seconds}"
    return None
