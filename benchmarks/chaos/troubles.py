"""The troubles of the real platforms: what each does, what it excuses, and for how long.

A trouble excuses documents about nodes from its beginning until ``bound_seconds`` after its end.
One that excuses nothing must not be visible at all.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.chaos.plan import AGGREGATORS, NODES, STORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.chaos.stage import Stage

DEVICE_INFO, CLUSTER_INFO = "device-info", "cluster-info"
BOTH = frozenset({DEVICE_INFO, CLUSTER_INFO})
CODES, HEALTH = "dcmi_get_device_errorcode_v2", "dcmi_get_device_health"


def _nothing(site: Stage, subject: str) -> None:
    """Undo nothing: the trouble is over by itself."""


@dataclass(frozen=True)
class Trouble:
    """What happens to a subject. ``excuses`` are documents about the subject's nodes.

    ``lasts`` is whether there is anything between ``apply`` and ``undo``; a trouble at one time
    excuses only ``bound_seconds``.
    """

    name: str
    subjects: tuple[str, ...]
    apply: Callable[[Stage, str], None]
    undo: Callable[[Stage, str], None]
    bound_seconds: float
    excuses: frozenset[str] = frozenset()
    platforms: frozenset[str] = frozenset({"directory", "kubernetes", "simulated"})
    lasts: bool = True


def _kill_agent(site: Stage, subject: str) -> None:
    site.nodes[subject].kill()


def _start_agent(site: Stage, subject: str) -> None:
    site.nodes[subject].start()


def _restart_agent(site: Stage, subject: str) -> None:
    site.nodes[subject].stop()
    site.nodes[subject].start()


def _stop_agent(site: Stage, subject: str) -> None:
    site.nodes[subject].process.signal(signal.SIGSTOP)


def _continue_agent(site: Stage, subject: str) -> None:
    site.nodes[subject].process.signal(signal.SIGCONT)


def _kill_aggregator(site: Stage, subject: str) -> None:
    site.aggregators[subject].kill()


def _start_aggregator(site: Stage, subject: str) -> None:
    site.aggregators[subject].spawn()


def _stop_aggregator(site: Stage, subject: str) -> None:
    site.aggregators[subject].process.signal(signal.SIGSTOP)


def _continue_aggregator(site: Stage, subject: str) -> None:
    site.aggregators[subject].process.signal(signal.SIGCONT)


def _restart_aggregators(site: Stage, _: str) -> None:
    for aggregator in site.aggregators.values():
        aggregator.stop()
        aggregator.spawn()


def _hang_codes(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.hang(CODES)


def _release_codes(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.clear(CODES)


def _fail_codes(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.fail(CODES, -8255)


def _slow_codes(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.slow(CODES, 300)


def _fail_health(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.fail(HEALTH, -8255)


def _release_health(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.clear(HEALTH)


def _lose_event(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.lose_next_event()


def _write_foreign(site: Stage, subject: str) -> None:
    name = site.nodes[subject].document
    data = site.place.read(name)
    if data is not None:
        site.place.write(name, data | {"DeviceInfoCfg": "spoilt by a stranger"})


def _delete_document(site: Stage, subject: str) -> None:
    if site.place.read(site.nodes[subject].document) is not None:
        site.place.delete(site.nodes[subject].document)


def _delete_cluster_info(site: Stage, _: str) -> None:
    if site.place.read("cluster-info-device-0") is not None:
        site.place.delete("cluster-info-device-0")


def _take_store(site: Stage, _: str) -> None:
    site.store.take()


def _give_store(site: Stage, _: str) -> None:
    site.store.give()


def _be_late(site: Stage, _: str) -> None:
    _simulated(site).api.seconds = 1.0


def _be_on_time(site: Stage, _: str) -> None:
    _simulated(site).api.seconds = 0.0


def _refuse_writes(site: Stage, _: str) -> None:
    _simulated(site).api.refuses = lambda method, _: method != "GET"


def _accept_writes(site: Stage, _: str) -> None:
    _simulated(site).api.refuses = lambda *_: False


def _cut_watches(site: Stage, _: str) -> None:
    _simulated(site).api.cut_watches()


def _keep_store(site: Stage, _: str) -> None:
    _simulated(site).api.keep()


def _set_store_back(site: Stage, _: str) -> None:
    _simulated(site).api.set_back()


def _separate(site: Stage, subject: str) -> None:
    _simulated(site).api.separate(subject)


def _join(site: Stage, subject: str) -> None:
    _simulated(site).api.join(subject)


def _crash_driver(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.crash()


def _garble_driver(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.garble()


def _replace_library(site: Stage, subject: str) -> None:
    site.nodes[subject].replace_library()


def _fill_disk(site: Stage, subject: str) -> None:
    site.nodes[subject].disk_is_full = True


def _empty_disk(site: Stage, subject: str) -> None:
    site.nodes[subject].disk_is_full = False


def _set_clock(milliseconds: int) -> Callable[[Stage, str], None]:
    def apply(site: Stage, subject: str) -> None:
        programs = site.nodes if subject in NODES else site.aggregators
        programs[subject].clock_ahead_ms = milliseconds

    return apply


def _simulated(site: Stage) -> Any:
    """Return the store of the simulated platform, which no other one has."""
    return site.store


_ON_NODES, _ON_AGGREGATORS, _ON_STORE = NODES, AGGREGATORS, (STORE,)

_SIMULATED = frozenset({"simulated"})
_HOUR_MS = 3_600_000
_SIMULATED_TROUBLES = (
    Trouble("store-late", _ON_STORE, _be_late, _be_on_time, 6.0, BOTH, _SIMULATED),
    Trouble("store-refuses", _ON_STORE, _refuse_writes, _accept_writes, 15.0, BOTH, _SIMULATED),
    Trouble(
        *("watches-cut", _ON_STORE, _cut_watches, _nothing, 0.0, frozenset(), _SIMULATED),
        lasts=False,
    ),
    Trouble("store-set-back", _ON_STORE, _keep_store, _set_store_back, 15.0, BOTH, _SIMULATED),
    Trouble("agent-apart", _ON_NODES, _separate, _join, 15.0, BOTH, _SIMULATED),
    Trouble(
        *("aggregator-apart", _ON_AGGREGATORS, _separate, _join, 20.0),
        *(frozenset({CLUSTER_INFO}), _SIMULATED),
    ),
    Trouble(
        *("driver-crashes", _ON_NODES, _crash_driver, _nothing, 0.0, frozenset(), _SIMULATED),
        lasts=False,
    ),
    Trouble(
        *("driver-garbled", _ON_NODES, _garble_driver, _nothing, 0.0, frozenset(), _SIMULATED),
        lasts=False,
    ),
    Trouble(
        *("library-replaced", _ON_NODES, _replace_library, _nothing, 0.0),
        *(frozenset(), _SIMULATED),
        lasts=False,
    ),
    Trouble("disk-full", _ON_NODES, _fill_disk, _empty_disk, 0.0, frozenset(), _SIMULATED),
    Trouble(
        *("clock-ahead", (*NODES, *AGGREGATORS), _set_clock(_HOUR_MS), _set_clock(0), 0.0),
        *(frozenset(), _SIMULATED),
    ),
    Trouble(
        *("clock-behind", (*NODES, *AGGREGATORS), _set_clock(-_HOUR_MS), _set_clock(0), 0.0),
        *(frozenset(), _SIMULATED),
    ),
)

TROUBLES = {
    trouble.name: trouble
    for trouble in (
        # An agent needs up to 4 s to start and to hear of every chip on a busy machine.
        Trouble("agent-killed", _ON_NODES, _kill_agent, _start_agent, 8.0, BOTH),
        Trouble(*("agent-restarted", _ON_NODES, _restart_agent, _nothing, 10.0, BOTH), lasts=False),
        Trouble("agent-paused", _ON_NODES, _stop_agent, _continue_agent, 8.0, BOTH),
        Trouble(
            *("aggregator-killed", _ON_AGGREGATORS, _kill_aggregator, _start_aggregator, 20.0),
            frozenset({CLUSTER_INFO}),
        ),
        Trouble(
            *("aggregator-paused", _ON_AGGREGATORS, _stop_aggregator, _continue_aggregator, 20.0),
            frozenset({CLUSTER_INFO}),
        ),
        Trouble(
            *("aggregators-restarted", _ON_STORE, _restart_aggregators, _nothing, 20.0),
            frozenset({CLUSTER_INFO}),
            lasts=False,
        ),
        # Without the list events still count, but their order is confirmed late.
        Trouble("codes-hang", _ON_NODES, _hang_codes, _release_codes, 12.0, BOTH),
        Trouble("codes-fail", _ON_NODES, _fail_codes, _release_codes, 8.0, BOTH),
        Trouble("codes-slow", _ON_NODES, _slow_codes, _release_codes, 8.0, BOTH),
        Trouble("health-fails", _ON_NODES, _fail_health, _release_health, 0.0),
        Trouble("event-lost", _ON_NODES, _lose_event, _nothing, 0.0),
        Trouble(*("foreign-write", _ON_NODES, _write_foreign, _nothing, 8.0, BOTH), lasts=False),
        Trouble(
            *("document-deleted", _ON_NODES, _delete_document, _nothing, 8.0, BOTH), lasts=False
        ),
        Trouble(
            *("cluster-info-deleted", _ON_STORE, _delete_cluster_info, _nothing, 8.0),
            frozenset({CLUSTER_INFO}),
            lasts=False,
        ),
        *_SIMULATED_TROUBLES,
        Trouble("store-away", _ON_STORE, _take_store, _give_store, 15.0, BOTH),
    )
}


def troubles_of(platform: str) -> dict[str, tuple[str, ...]]:
    """Return the subjects of each trouble of a platform, by name."""
    return {
        trouble.name: trouble.subjects
        for trouble in TROUBLES.values()
        if platform in trouble.platforms
    }
