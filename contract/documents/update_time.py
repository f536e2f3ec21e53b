"""The lead of ``UpdateTime`` over the clock (``docs/decisions/003``, M7 of the consumers)."""

from __future__ import annotations

LEAD_SECONDS = 5
"""How far a stamp may be ahead of the clock. One that would be further ahead waits."""
