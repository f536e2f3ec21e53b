"""Kubernetes objects made of Python's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contract.kubernetes import decode_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.kubernetes import KubernetesObject


def made_of(content: Mapping[str, Any]) -> KubernetesObject:
    """Return the object that has this JSON."""
    return decode_object(msgspec.json.encode(content))
