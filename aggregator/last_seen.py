"""The heartbeats of old releases as they were seen last, for the next run.

The shape is that of their first reader's memory, ``node-heartbeat`` (``spec/noded.md`` 7.5 and
example H7): an array of ``NodeName``, ``HeartbeatTime`` and ``UpdateTime``, in Unix seconds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from contract.names import node_name_problem
from service.files import replace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_log = logging.getLogger(__name__)

NAME = "node-heartbeat.json"
_MOST_BYTES = 16 * 1024 * 1024


class LastSeen(msgspec.Struct, frozen=True):
    """The heartbeat that a node had, and when by the observer's clock that had changed last."""

    node: str = msgspec.field(name="NodeName")
    heartbeat_seconds: int = msgspec.field(name="HeartbeatTime")
    changed_at_seconds: int = msgspec.field(name="UpdateTime")


_decoder = msgspec.json.Decoder(list[LastSeen])


def decode(content: bytes) -> tuple[LastSeen, ...]:
    """What a file says. Raises ``ValueError`` for one that is none."""
    try:
        found = _decoder.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return tuple(one for one in found if node_name_problem(one.node) is None)


def encode(seen: Iterable[LastSeen]) -> bytes:
    """The content of the file, sorted by node."""
    return msgspec.json.encode(sorted(seen, key=lambda one: one.node))


def load(state_dir: Path) -> tuple[LastSeen, ...]:
    """What the run before saw; nothing where there was none, or where it cannot be read."""
    path = state_dir / NAME
    try:
        with path.open("rb") as file:
            return decode(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be used, old heartbeats are unknown at first: %s", path, error)
        return ()


def save(state_dir: Path, content: bytes) -> None:
    """Replace the file. Raises ``OSError``."""
    replace(state_dir / NAME, content)
