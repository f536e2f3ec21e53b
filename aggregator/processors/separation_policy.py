"""When a fault comes too often: ``clusterd-config-cm`` (``docs/spec/clusterd.md#2.7``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "clusterd-config-cm"
KEY = "manually_separate_policy.conf"
NEVER = -1
_LONGEST_TEXT = 8 * 1024
_MOST_BRACKETS = 16
"""A reader of YAML needs a second for a thousand brackets within each other."""
_HOUR_MS = 3_600_000


class SeparationPolicy(msgspec.Struct, frozen=True):
    """When chips are separated and released: ``threshold`` times within ``window_hours`` separate a
    chip.

    Without another fault for ``free_hours`` it is released (-1: never). Off unless a document sets
    it.
    """

    enabled: bool = False
    window_hours: int = 24
    threshold: int = 3
    free_hours: int = 48

    @property
    def window_ms(self) -> int:
        """``window_hours`` in milliseconds."""
        return self.window_hours * _HOUR_MS

    @property
    def free_ms(self) -> int | None:
        """``free_hours`` in milliseconds; ``None``: never."""
        return None if self.free_hours == NEVER else self.free_hours * _HOUR_MS


def read_policy(data: Mapping[str, str]) -> SeparationPolicy:
    """Return the policy of the document; raises ``DocumentError`` for one that upstream refuses.

    A member that is missing is false or 0, as in Go, and 0 is out of every range.
    """
    text = data.get(KEY)
    if text is None:
        raise DocumentError(NAME, KEY, "the data key is missing")
    if len(text) > _LONGEST_TEXT:
        raise DocumentError(NAME, KEY, f"has {len(text)} characters, at most {_LONGEST_TEXT}")
    if text.count("[") + text.count("{") > _MOST_BRACKETS:
        raise DocumentError(NAME, KEY, f"has more than {_MOST_BRACKETS} brackets")
    tree = _section(_parsed(text), KEY)
    separate = _section(tree.get("separate"), "separate")
    release = _section(tree.get("release"), "release")
    enabled = tree.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise DocumentError(NAME, f"{KEY}.enabled", "is neither true nor false")
    free = _number(release, "release", "fault_free_hours", NEVER, 240)
    if free == 0:
        raise DocumentError(NAME, f"{KEY}.release.fault_free_hours", "is 0: neither -1 nor 1..240")
    return SeparationPolicy(
        enabled=bool(enabled),
        window_hours=_number(separate, "separate", "fault_window_hours", 1, 720),
        threshold=_number(separate, "separate", "fault_threshold", 1, 50),
        free_hours=free,
    )


def _parsed(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
    except Exception as error:  # what the library makes of a tag that does not fit its value
        reason = f"a value does not match its tag: {error!r}"
    raise DocumentError(NAME, KEY, f"is no YAML: {reason}")


def _section(tree: Any, name: str) -> dict[Any, Any]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise DocumentError(NAME, KEY if name == KEY else f"{KEY}.{name}", "is no mapping")
    return tree


def _number(section: dict[Any, Any], name: str, member: str, least: int, most: int) -> int:
    value = section.get(member)
    value = 0 if value is None else value
    where = f"{KEY}.{name}.{member}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise DocumentError(NAME, where, "is no whole number")
    if not least <= value <= most:
        raise DocumentError(NAME, where, f"is not between {least} and {most}")
    return value
