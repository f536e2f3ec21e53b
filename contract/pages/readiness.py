"""The answer of ``/readyz``, the same at all daemons."""

from __future__ import annotations

import msgspec

from contract.pages.messages import PageMessage


class ReadinessPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a daemon is ready, and why not. ``warnings`` make nothing unready.

    ``messages`` are the sentences that a verb can translate, by their English text.
    """

    ready: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    messages: dict[str, PageMessage] = {}
