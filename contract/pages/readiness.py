"""The answer of ``/readyz``, the same at all daemons."""

from __future__ import annotations

import msgspec


class ReadinessPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a daemon is ready, and why not. ``warnings`` make nothing unready."""

    ready: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
