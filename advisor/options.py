"""How the advisor decides: the switches of the scheduler, and the profile.

Sources: ``docs/spec/consumers.md#1.1``, 7.2 and 7.3.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from contract import scheduling
from contract.scheduling import go_integer

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_GRACE_OVER_TIME = 900
GRACE_OVER_TIME_RANGE = (2, 3600)


class Profile(StrEnum):
    """Whose decisions are reported: those of the real programs, or those without their defects."""

    UPSTREAM = "upstream"
    CORRECTED = "corrected"


class AdvisorOptions(msgspec.Struct, frozen=True):
    """Switches of the scheduler, and of the advisor itself.

    ``max_delete_per_tick`` limits how many pods one report deletes, ``halving_only`` restricts the
    sizes of elastic training (R60). ``ends_on_network_faults`` and ``deletes_on_dead_nodes`` are
    whether these parts of ``vigil elastic`` are on.
    """

    profile: Profile = Profile.UPSTREAM
    use_cluster_info: bool = True
    self_maintain: bool = True
    grace_over_time: int = DEFAULT_GRACE_OVER_TIME
    heartbeat_check: bool = False
    stale_after: int = 60
    max_delete_per_tick: int | None = None
    halving_only: bool = False
    ends_on_network_faults: bool = False
    deletes_on_dead_nodes: bool = False


def with_init_params(options: AdvisorOptions, arguments: Mapping[str, str]) -> AdvisorOptions:
    """Return ``options`` with the switches that the scheduler's ``init-params`` set.

    Source: docs/spec/consumers.md#1.1.
    """
    grace = go_integer(arguments.get(scheduling.GRACE_OVER_TIME, ""))
    low, high = GRACE_OVER_TIME_RANGE
    return msgspec.structs.replace(
        options,
        use_cluster_info=arguments.get(scheduling.USE_CLUSTER_INFO, "true") == "true",
        self_maintain=arguments.get(scheduling.SELF_MAINTAIN, "true") == "true",
        grace_over_time=grace
        if grace is not None and low <= grace <= high
        else DEFAULT_GRACE_OVER_TIME,
    )
