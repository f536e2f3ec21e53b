"""What a reader of a device-info document sees, for assertions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.replay.player import Played, Shown

OPERATOR = "operator"


@dataclass(frozen=True)
class Seen:
    """One state: levels by chip and code, chips that are unhealthy or isolated, all by number."""

    at_ms: int
    levels: dict[int, dict[str, str]]
    unhealthy: frozenset[int]
    isolated: frozenset[int]
    reasons: int


def seen(shown: Shown) -> Seen:
    """Return the content of a document of ours."""
    assert shown.data is not None
    devices = json.loads(shown.data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    levels: dict[int, dict[str, str]] = {}
    for key, text in devices.items():
        for fault in json.loads(text) if key.endswith("-Fault") else ():
            codes = fault["fault_time_and_level_map"]
            levels.setdefault(_chip(fault["npu_name"]), {}).update(
                {code: entry["fault_level"] for code, entry in codes.items()}
            )
    unhealthy = next(text for key, text in devices.items() if key.endswith("Ascend910-Unhealthy"))
    reasons = json.loads(shown.data["UpgradeFaultReason"])
    return Seen(
        shown.at_ms,
        levels,
        _chips(unhealthy),
        _chips(shown.data["ManuallySeparateNPU"]),
        sum(map(len, reasons.values())),
    )


def all_seen(played: Played) -> list[Seen]:
    """Return everything that we published, in order of time."""
    return [seen(one) for one in played.shown if one.by != OPERATOR]


def at(played: Played, at_ms: int) -> Seen:
    """Return what a reader saw at ``at_ms``."""
    return [one for one in all_seen(played) if one.at_ms <= at_ms][-1]


def seconds_shown(played: Played, chip: int, code: str) -> list[float]:
    """Return how long (s) ``code`` was shown on ``chip`` each time; infinite if it still is."""
    spans: list[float] = []
    since: int | None = None
    for one in all_seen(played):
        holds = code in one.levels.get(chip, {})
        if holds and since is None:
            since = one.at_ms
        elif not holds and since is not None:
            spans.append((one.at_ms - since) / 1000)
            since = None
    return spans if since is None else [*spans, float("inf")]


def _chips(names: str) -> frozenset[int]:
    return frozenset(_chip(name) for name in names.split(",") if name)


def _chip(name: str) -> int:
    return int(name.rpartition("-")[2])
