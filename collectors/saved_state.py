"""What the process before this one left for a collector."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import msgspec

from contract.validation_texts import decode_text

if TYPE_CHECKING:
    from collectors.base import SavedState

T = TypeVar("T")

_log = logging.getLogger(__name__)


def remembered(memory: SavedState, source: str, kind: type[T]) -> T | None:
    """Return what ``memory`` of ``source`` holds; ``None`` when nothing, or nothing that makes
    sense.
    """
    content = memory.read()
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.warning("%s: what was remembered makes no sense: %s", source, decode_text(error))
        return None
