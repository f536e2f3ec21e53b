"""The advisor: what happens in one session of the scheduler (``spec/consumers.md`` 7.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from advisor.report import Report

if TYPE_CHECKING:
    from advisor.options import Options
    from advisor.snapshot import Snapshot
    from advisor.state import State


def advise(snapshot: Snapshot, state: State, options: Options) -> tuple[Report, State]:
    """Return what happens in the session of ``snapshot``, and the state after it."""
    report = Report(options.profile, snapshot.now_ms)
    return report, msgspec.structs.replace(state, is_known=True)
