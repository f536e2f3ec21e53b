"""Reads the state that the process before this one saved for a collector."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import msgspec

from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collectors.base import SavedState

T = TypeVar("T")

_log = logging.getLogger(__name__)


def read_saved(memory: SavedState, source: str, kind: type[T]) -> T | None:
    """Return the saved state of ``source``.

    ``None`` where there is none, or none that can be decoded.
    """
    content = memory.read()
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.warning("%s: the saved state cannot be decoded: %s", source, decode_text(error))
        return None
