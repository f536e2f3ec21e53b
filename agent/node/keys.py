"""Names of keys on a Node: labels and annotations."""

from __future__ import annotations

from typing import TypeAlias

Key: TypeAlias = tuple[str, str]
"""``label`` or ``annotation``, and its name."""

LABEL, ANNOTATION = "label", "annotation"
