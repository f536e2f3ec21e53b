"""``vigil aggregator`` that looks more often at what changes without a sign, and waits less.

For tests that are not about those times: ``python -m tests.aggregator.quick aggregator …``.
"""

from __future__ import annotations

from aggregator.absence import directory_mark
from aggregator.liveness import unread_heartbeats
from stores.directory import listing
from vigil.main import main

QUICK_SECONDS = 0.5

if __name__ == "__main__":
    directory_mark.PERIOD_SECONDS = QUICK_SECONDS
    listing.IDENTITY_SECONDS = QUICK_SECONDS
    unread_heartbeats.MIN_UNREAD_MS = 3000
    main()
