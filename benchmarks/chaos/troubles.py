"""The troubles of all platforms: what each does, what it excuses, and for how long.

A trouble excuses documents about nodes from its beginning until ``bound_seconds`` after its end:
they may be late. One that excuses nothing must not be visible at all.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.chaos.plan import AGGREGATORS, NODES, STORE, Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.chaos.stage import Stage

DEVICE_INFO, CLUSTER_INFO = "device-info", "cluster-info"
BOTH = frozenset({DEVICE_INFO, CLUSTER_INFO})
CODES, HEALTH = "dcmi_get_device_errorcode_v2", "dcmi_get_device_health"


SHORT = 1.0, 6.0
_OUTLASTS_LEASE = 11.0, 16.0
"""Another aggregator leads by then: a Lease lasts 10 s."""
_STALLS = 26.0, 30.0
"""The judge expects the loss of a node whose agent makes no progress for ``SILENCE_SECONDS``."""


def _nothing(site: Stage, subject: str) -> None:
    """Undo nothing: the trouble is over by itself."""


@dataclass(frozen=True)
class Trouble:
    """What happens to a subject. ``excuses`` are documents about the subject's nodes.

    ``lasts`` is whether there is anything between ``apply`` and ``undo``; a trouble at one time
    excuses only its bound. ``length`` are the shortest and the longest (seconds). ``forgets``,
    ``loses`` and ``retimes`` are those of ``Excuse``. ``silences``: the agent makes no progress.
    ``virtual_seconds`` is the bound in virtual time, where no machine is busy; ``None``: documents
    may not be late there. ``needs_audit``: only an audit finds what happens meanwhile.
    """

    name: str
    subjects: tuple[str, ...]
    apply: Callable[[Stage, str], None]
    undo: Callable[[Stage, str], None]
    bound_seconds: float
    excuses: frozenset[str] = frozenset()
    platforms: frozenset[str] = frozenset({"directory", "kubernetes", "simulated"})
    lasts: bool = True
    virtual_seconds: float | None = None
    length: tuple[float, float] = SHORT
    forgets: bool = False
    loses: bool = False
    retimes: bool = False
    silences: bool = False
    needs_audit: bool = False


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
    site.nodes[subject].disk.is_full = True


def _empty_disk(site: Stage, subject: str) -> None:
    site.nodes[subject].disk.is_full = False


def _lose_events(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.lose_events()


def _keep_events(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.keep_events(dropped=False)


def _report_dropped(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.keep_events(dropped=True)


def _hang_task(site: Stage, subject: str) -> None:
    site.nodes[subject].hang_task("chip-faults audits")


def _release_task(site: Stage, subject: str) -> None:
    site.nodes[subject].release_task()


def _kill_at_write(site: Stage, subject: str) -> None:
    site.nodes[subject].kill_at_write(_simulated(site).api)


def _start_after_write(site: Stage, subject: str) -> None:
    site.nodes[subject].start_after_write(_simulated(site).api)


def _set_clock(milliseconds: int) -> Callable[[Stage, str], None]:
    def apply(site: Stage, subject: str) -> None:
        programs = site.nodes if subject in NODES else site.aggregators
        programs[subject].clock_ahead_ms = milliseconds

    return apply


def _simulated(site: Stage) -> Any:
    """Return the store of the simulated platform, which no other one has."""
    return site.store


_ON_NODES, _ON_AGGREGATORS, _ON_STORE = NODES, AGGREGATORS, (STORE,)

_NONE: frozenset[str] = frozenset()
_CLUSTER = frozenset({CLUSTER_INFO})
_HOUR_MS = 3_600_000


def _virtual(
    name: str,
    subjects: tuple[str, ...],
    apply: Callable[[Stage, str], None],
    undo: Callable[[Stage, str], None],
    seconds: float,
    excuses: frozenset[str],
    **options: Any,
) -> Trouble:
    """Return a trouble of the simulated platform alone."""
    platforms = frozenset({"simulated"})
    arguments = name, subjects, apply, undo, seconds, excuses, platforms
    return Trouble(*arguments, virtual_seconds=seconds, **options)


_SIMULATED_TROUBLES = (
    _virtual("store-late", _ON_STORE, _be_late, _be_on_time, 2.0, BOTH),
    _virtual("store-refuses", _ON_STORE, _refuse_writes, _accept_writes, 3.0, BOTH),
    _virtual("watches-cut", _ON_STORE, _cut_watches, _nothing, 0.0, _NONE, lasts=False),
    _virtual("store-set-back", _ON_STORE, _keep_store, _set_store_back, 2.0, BOTH, forgets=True),
    _virtual("agent-apart", _ON_NODES, _separate, _join, 3.0, BOTH, loses=True),
    _virtual("aggregator-apart", _ON_AGGREGATORS, _separate, _join, 3.0, _CLUSTER),
    _virtual(
        *("aggregator-apart-long", _ON_AGGREGATORS, _separate, _join, 3.0, _CLUSTER),
        length=_OUTLASTS_LEASE,
    ),
    _virtual(
        *("aggregator-paused-long", _ON_AGGREGATORS, _stop_aggregator, _continue_aggregator),
        *(1.0, _CLUSTER),
        length=_OUTLASTS_LEASE,
    ),
    _virtual("driver-crashes", _ON_NODES, _crash_driver, _nothing, 0.0, _NONE, lasts=False),
    _virtual("driver-garbled", _ON_NODES, _garble_driver, _nothing, 0.0, _NONE, lasts=False),
    _virtual("library-replaced", _ON_NODES, _replace_library, _nothing, 0.0, _NONE, lasts=False),
    _virtual("events-lost", _ON_NODES, _lose_events, _keep_events, 0.0, _NONE, needs_audit=True),
    _virtual("events-overrun", _ON_NODES, _lose_events, _report_dropped, 0.0, _NONE),
    _virtual(
        *("task-hangs", _ON_NODES, _hang_task, _release_task, 6.0, BOTH),
        length=_STALLS,
        loses=True,
        silences=True,
    ),
    _virtual(
        *("agent-killed-at-write", _ON_NODES, _kill_at_write, _start_after_write, 3.0, BOTH),
        loses=True,
    ),
    _virtual("disk-full", _ON_NODES, _fill_disk, _empty_disk, 0.0, _NONE),
    _virtual(
        *("clock-ahead", (*NODES, *AGGREGATORS), _set_clock(_HOUR_MS), _set_clock(0), 17.0, _NONE),
        retimes=True,
    ),
    _virtual(
        *(
            "clock-behind",
            (*NODES, *AGGREGATORS),
            _set_clock(-_HOUR_MS),
            _set_clock(0),
            17.0,
            _NONE,
        ),
        retimes=True,
    ),
)

TROUBLES = {
    trouble.name: trouble
    for trouble in (
        # An agent needs up to 4 s to start and to hear of every chip on a busy machine.
        Trouble(
            *("agent-killed", _ON_NODES, _kill_agent, _start_agent, 8.0, BOTH),
            loses=True,
            virtual_seconds=2.0,
        ),
        Trouble(
            *("agent-restarted", _ON_NODES, _restart_agent, _nothing, 10.0, BOTH),
            lasts=False,
            loses=True,
            virtual_seconds=2.0,
        ),
        Trouble(
            *("agent-paused", _ON_NODES, _stop_agent, _continue_agent, 8.0, BOTH),
            loses=True,
            virtual_seconds=2.0,
        ),
        Trouble(
            *("aggregator-killed", _ON_AGGREGATORS, _kill_aggregator, _start_aggregator, 20.0),
            frozenset({CLUSTER_INFO}),
            virtual_seconds=2.0,
        ),
        Trouble(
            *("aggregator-paused", _ON_AGGREGATORS, _stop_aggregator, _continue_aggregator, 20.0),
            frozenset({CLUSTER_INFO}),
            virtual_seconds=1.0,
        ),
        Trouble(
            *("aggregators-restarted", _ON_STORE, _restart_aggregators, _nothing, 20.0),
            frozenset({CLUSTER_INFO}),
            lasts=False,
            virtual_seconds=2.0,
        ),
        # Without the list events still count, but their order is confirmed late.
        Trouble(
            *("codes-hang", _ON_NODES, _hang_codes, _release_codes, 12.0, BOTH),
            virtual_seconds=3.0,
        ),
        Trouble(
            *("codes-fail", _ON_NODES, _fail_codes, _release_codes, 8.0, BOTH),
            virtual_seconds=3.0,
        ),
        Trouble(
            *("codes-slow", _ON_NODES, _slow_codes, _release_codes, 8.0, BOTH),
            virtual_seconds=3.0,
        ),
        Trouble("health-fails", _ON_NODES, _fail_health, _release_health, 0.0),
        Trouble(
            *("event-lost", _ON_NODES, _lose_event, _nothing, 0.0, frozenset()),
            platforms=frozenset({"directory", "kubernetes"}),
        ),
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
        Trouble(
            *("store-away", _ON_STORE, _take_store, _give_store, 15.0, BOTH),
            loses=True,
            virtual_seconds=3.0,
        ),
    )
}


def troubles_of(platform: str, periods: str = "short") -> dict[str, tuple[str, ...]]:
    """Return the subjects of each trouble of a platform, by name.

    With the shipped periods an audit comes later than the judge waits.
    """
    return {
        trouble.name: trouble.subjects
        for trouble in TROUBLES.values()
        if platform in trouble.platforms
        and not (periods == "shipped" and (trouble.needs_audit or trouble.silences))
    }


def read_plan(file: Path) -> Plan:
    """Return a kept plan. Raises ``ValueError`` with the file and a remedy."""
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
        for planned in plan.troubles:
            if planned.subject not in TROUBLES[planned.name].subjects:
                raise ValueError(f"{planned.name} has no subject {planned.subject}")
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{file} is no plan of this version: {error}. Play its seed with --keep to make it anew"
        ) from error
    return plan


def plan_of(platform: str, seed: int) -> Plan:
    """Return the plan of this seed; of the simulated platform each tenth has shipped periods."""
    is_shipped = platform == "simulated" and seed % 10 == 0
    periods = "shipped" if is_shipped else "short"
    lengths = {trouble.name: trouble.length for trouble in TROUBLES.values()}
    return make_plan(platform, seed, troubles_of(platform, periods), lengths, periods)
