"""How the advisor decides: the switches of the scheduler, and the profile.

Sources: ``docs/spec/consumers.md#1.1``, 7.2 and 7.3.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from contract import scheduling
from contract.scheduling import go_integer
from contract.sentences import message

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_GRACE_OVER_TIME = 900
_MIN_GRACE_SECONDS, _MAX_GRACE_SECONDS = 2, 3600


class ComputedFor(msgspec.Struct, frozen=True):
    """Whose decisions are computed, and in what releases are known to differ from that."""

    commit: str
    volcano: str
    differences: tuple[str, ...]


COMPUTED_FOR = ComputedFor(
    "22bb3d98",
    "v1.15",
    (
        message(
            "MindCluster v26.1.0 is tag 9e132e21. It parted from master at 61bcf4e9, and has "
            "Volcano 1.7, 1.9 and 1.12; only master builds 1.15"
        ),
        message(
            "Volcano 1.10 and older have no NotReady node in the session: pods there go without "
            "grace"
        ),
        message(
            "MindCluster v6.0.0 and older take remaining retries over when the scheduler restarts"
        ),
        message("MindCluster v6.0.0-RC3 and older delete pods of a node whose NodeD is silent"),
    ),
)
"""Of the branch ``master`` of MindCluster. Sources: docs/spec/consumers.md#2.7, 5.2, 8-9."""


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
    return msgspec.structs.replace(
        options,
        use_cluster_info=arguments.get(scheduling.USE_CLUSTER_INFO, "true") == "true",
        self_maintain=arguments.get(scheduling.SELF_MAINTAIN, "true") == "true",
        grace_over_time=legal_grace(arguments.get(scheduling.GRACE_OVER_TIME, ""))
        or DEFAULT_GRACE_OVER_TIME,
    )


def legal_grace(text: str) -> int | None:
    """Return the seconds of a ``grace-over-time``; ``None`` where the default counts instead."""
    seconds = go_integer(text)
    is_legal = seconds is not None and _MIN_GRACE_SECONDS <= seconds <= _MAX_GRACE_SECONDS
    return seconds if is_legal else None
