"""The scheduler's own configuration: the switches of ``docs/spec/consumers.md#1.1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.lint.finding import finding
from advisor.options import DEFAULT_GRACE_OVER_TIME, legal_grace
from advisor.similar_words import nearest
from contract.scheduling import (
    GRACE_OVER_TIME,
    INIT_PARAMS,
    SELF_MAINTAIN,
    USE_CLUSTER_INFO,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.lint.finding import FindingPlace, LintFinding
    from advisor.lint.model import Mapping

_KEYS = (
    GRACE_OVER_TIME,
    USE_CLUSTER_INFO,
    SELF_MAINTAIN,
    "presetVirtualDevice",
    "nslb-version",
    "shared-tor-num",
    "super-pod-size",
    "reserve-nodes",
    "forceEnqueue",
    "prefer-previous-node",
)
_BOOLEANS = {
    USE_CLUSTER_INFO: sentence("it counts as false: cluster-info is not read"),
    SELF_MAINTAIN: sentence("it counts as false: the free list is not computed anew"),
}


def init_arguments(configuration: Mapping) -> Mapping | None:
    """Return the arguments of ``init-params``."""
    for plugin in configuration.sequence("configurations"):
        if plugin.text("name") == INIT_PARAMS:
            return plugin.mapping("arguments")
    return None


def grace_over_time(arguments: Mapping | None) -> int:
    """Return the effective ``grace-over-time`` in seconds."""
    scalar = arguments.scalar(GRACE_OVER_TIME) if arguments is not None else None
    return legal_grace(scalar.text if scalar is not None else "") or DEFAULT_GRACE_OVER_TIME


def judge(arguments: Mapping | None, place: FindingPlace) -> Iterator[LintFinding]:
    """Return the switches that have another effect than their values suggest."""
    for key in arguments if arguments is not None else ():
        value = arguments.scalar(key) if arguments is not None else None
        if value is None:
            continue
        here = place.at(value.line)
        if key == GRACE_OVER_TIME:
            if legal_grace(value.text) is None:
                yield finding(
                    "GRACE_OVER_TIME_INVALID", here, value=value.text or sentence("(empty)")
                )
        elif key in _BOOLEANS and value.text not in ("true", "false"):
            reason = sentence(
                "{text} is neither true nor false, so {booleans}",
                text=value.text,
                booleans=_BOOLEANS[key],
            )
            instead = sentence('Write "true" or "false".')
            yield finding("SCHEDULER_CONFIGURATION", here, key=key, why=reason, instead=instead)
        elif (meant := nearest(key, _KEYS)) is not None:
            reason = sentence("no program reads this key")
            instead = sentence("Write {meant}.", meant=meant)
            yield finding("SCHEDULER_CONFIGURATION", here, key=key, why=reason, instead=instead)
