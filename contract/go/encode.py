"""JSON exactly as Go's ``encoding/json`` writes it, and the check code made from it.

Sources: ``docs/spec/device-plugin.md#1.3`` and 1.4, ``docs/spec/clusterd.md#1.4``.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

# ``Marshal`` escapes for HTML unless it is switched off,
# which upstream does not (device-plugin#1.3).
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_TO_ESCAPE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")

# No blanks, and UTF-8 as it is, as ``Marshal`` writes it (device-plugin#1.3).
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match.group(), "\ufffd")


def encode(value: Any) -> str:
    """Encode ``value`` compactly with Go's escapes.

    Member order is the insertion order of a ``dict`` (Go's struct order); sort the keys of what
    is a map in Go. A lone surrogate becomes U+FFFD, as Go does with text that is not UTF-8.
    """
    return _TO_ESCAPE.sub(_escape, _encode(value))


def sorted_map(value: dict[str, Any]) -> dict[str, Any]:
    """Return ``value`` in the key order that Go writes a map in: bytewise."""
    # Code points in order are UTF-8 bytes in order.
    return {key: value[key] for key in sorted(value)}


def check_code(value: Any) -> str:
    """Return the SHA-256 of ``encode(value)``, in lower-case hexadecimal."""
    return hashlib.sha256(encode(value).encode()).hexdigest()
