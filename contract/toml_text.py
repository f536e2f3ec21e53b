"""Parses TOML files that people write, with a limit of how deep they are nested."""

from __future__ import annotations

import tomllib

# Neither a configuration nor a scenario needs more than four.
_MAX_LEVELS = 32


def toml_content(text: str) -> dict[str, object]:
    """Return the content of a TOML text. Raises ``ValueError`` with what is wrong."""
    try:
        content = tomllib.loads(text)
        # The parser nests dotted keys without recursion; whatever reads the result recurses.
        is_too_deep = _is_deeper(content, _MAX_LEVELS)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from None
    except RecursionError:
        is_too_deep = True
    if is_too_deep:
        raise ValueError(f"has tables or lists nested more than {_MAX_LEVELS} levels deep")
    return content


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(member, levels - 1) for member in members)
