"""``vigil aggregator`` that looks more often at what changes without a sign, and waits less.

For tests that are not about those times: ``python -m tests.aggregator.quick aggregator …``.
"""

from __future__ import annotations

from aggregator import marks, unread_beats
from stores import directory_listing
from vigil.main import main

QUICK_SECONDS = 0.5

if __name__ == "__main__":
    marks.PERIOD_SECONDS = QUICK_SECONDS
    directory_listing.IDENTITY_SECONDS = QUICK_SECONDS
    unread_beats.SHORTEST_MS = 3000
    main()
