"""The troubles of all platforms: what each does, what it excuses, and for how long.

A trouble excuses documents about nodes: they may be late, and what its effects permit may happen
until its bound after its end (``benchmarks.chaos.excuses``). One that excuses nothing must not be
visible at all.
"""

from __future__ import annotations

import contextlib
import http.client
import signal
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import TYPE_CHECKING, Any

from benchmarks.chaos.plan import AGGREGATORS, NODES, STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.chaos.stage import Stage

DEVICE_INFO, CLUSTER_INFO = "device-info", "cluster-info"
CLUSTER = frozenset({CLUSTER_INFO})
BOTH = frozenset({DEVICE_INFO, CLUSTER_INFO})
CODES, HEALTH = "dcmi_get_device_errorcode_v2", "dcmi_get_device_health"


SHORT = 1.0, 6.0
_OUTLASTS_LEASE = 11.0, 16.0
"""Another aggregator leads by then: a Lease lasts 10 s."""
_STALLS = 26.0, 30.0
"""The judge expects the loss of a node whose agent makes no progress for ``SILENCE_SECONDS``."""
_UNDO_SECONDS = 2.0
"""``undo`` takes so long with real parts, unless the trouble has a figure of its own."""


def _nothing(site: Stage, subject: str) -> None:
    """Undo nothing: the trouble is over by itself."""


class Effect(Flag):
    """What belongs to a trouble. The first three are those of ``Excuse``."""

    NOTHING = 0
    FORGETS = auto()
    LOSES = auto()
    RETIMES = auto()
    AT_ONCE = auto()
    """Nothing lies between ``apply`` and ``undo``, so only the bound is excused."""
    ENDS_VISIBLY = auto()
    """``apply`` changes nothing, so only the bound behind ``undo`` is excused."""
    STOPS = auto()
    """Whoever repairs its documents cannot write them meanwhile, or not in time."""
    SILENCES = auto()
    """The agent makes no progress."""
    HIDES_EVENTS = auto()
    """No event reports what happens meanwhile, so a plan has a fault that begins then."""
    NEEDS_AUDIT = auto()
    """Only a periodic audit finds what happened meanwhile."""
    ROLLS_BACK = auto()
    """The journal loses its last second, and a list of the driver shows what is over since then."""
    HIDES_LISTS = auto()
    """The driver shows no lists of codes, or late."""
    SHORTENS = auto()
    """The journal loses that a fault is a one-off; the document does not have that."""
    LOSES_NEXT_EVENT = auto()
    """The next event is lost, whenever it comes, so a plan has no one-off fault then."""


def _bounds(*, real: float | None = None, virtual: float | None = None) -> dict[str, float]:
    """Return the bound of each platform; ``None``: the platforms have no such trouble."""
    seconds = {"directory": real, "kubernetes": real, "mqtt": real, "simulated": virtual}
    return {platform: bound for platform, bound in seconds.items() if bound is not None}


@dataclass(frozen=True)
class Trouble:
    """What happens to a subject. ``documents`` about the subject's nodes may be late.

    ``bounds`` are by platform how long after the end (seconds). In virtual time no machine is busy.
    ``length`` are the shortest and the longest (seconds). ``undo_seconds`` are by platform how long
    ``undo`` takes on a busy machine, where that is more than two seconds.
    """

    name: str
    subjects: tuple[str, ...]
    apply: Callable[[Stage, str], None]
    undo: Callable[[Stage, str], None]
    documents: frozenset[str]
    bounds: Mapping[str, float]
    effects: Effect = Effect.NOTHING
    length: tuple[float, float] = SHORT
    undo_seconds: Mapping[str, float] = field(default_factory=dict)

    def seconds_to_end(self, platform: str) -> float:
        """Return how long its last step takes on a busy machine; none in virtual time."""
        return 0.0 if platform == "simulated" else self.undo_seconds.get(platform, _UNDO_SECONDS)


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


@contextlib.contextmanager
def _unless_away() -> Iterator[None]:
    """Change nothing while another trouble has taken the store, as any client that gives up."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        yield


def _write_foreign(site: Stage, subject: str) -> None:
    name = site.nodes[subject].document
    with _unless_away():
        data = site.place.read(name)
        if data is not None:
            site.place.write(name, data | {"DeviceInfoCfg": "spoilt by a stranger"})


def _delete_document(site: Stage, subject: str) -> None:
    _delete(site, site.nodes[subject].document)


def _delete_cluster_info(site: Stage, _: str) -> None:
    _delete(site, "cluster-info-device-0")


def _delete(site: Stage, name: str) -> None:
    with _unless_away():
        if site.place.read(name) is not None:
            site.place.delete(name)


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
    site.crash_driver(subject)


def _garble_driver(site: Stage, subject: str) -> None:
    site.nodes[subject].emulator.garble()


def _replace_library(site: Stage, subject: str) -> None:
    site.nodes[subject].replace_library()


def _truncate_journal(site: Stage, subject: str) -> None:
    site.nodes[subject].kill_and_truncate_journal()


def _limit_memory(site: Stage, subject: str) -> None:
    site.nodes[subject].limit_memory()


def _end_memory_limit(site: Stage, subject: str) -> None:
    site.nodes[subject].end_memory_limit()


def _start_second(site: Stage, subject: str) -> None:
    site.nodes[subject].start_second()


def _end_second(site: Stage, subject: str) -> None:
    site.nodes[subject].end_second()


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


def _keep_synced(site: Stage, subject: str) -> None:
    site.nodes[subject].begin_losing_power()


def _lose_power(site: Stage, subject: str) -> None:
    site.nodes[subject].lose_power()


def _disk(attribute: str) -> tuple[Callable[[Stage, str], None], Callable[[Stage, str], None]]:
    """Return what gives the disk of a node this attribute, and what takes it again."""

    def set_to(value: bool) -> Callable[[Stage, str], None]:
        def apply(site: Stage, subject: str) -> None:
            disk = site.nodes[subject].disk
            assert hasattr(disk, attribute), attribute
            setattr(disk, attribute, value)

        return apply

    return set_to(True), set_to(False)


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
_HOUR_MS = 3_600_000

_TABLE = (
    # A real agent starts and has read the lists of all chips within 2 s, and its node is not lost
    # any more when the aggregator has read its next heartbeat.
    Trouble(
        *("agent-killed", _ON_NODES, _kill_agent, _start_agent, BOTH),
        *(_bounds(real=6.0, virtual=2.0), Effect.STOPS | Effect.LOSES),
    ),
    Trouble(
        *("agent-restarted", _ON_NODES, _restart_agent, _nothing, BOTH),
        *(_bounds(real=6.0, virtual=2.0), Effect.STOPS | Effect.LOSES | Effect.AT_ONCE),
    ),
    Trouble(
        *("agent-paused", _ON_NODES, _stop_agent, _continue_agent, BOTH),
        *(_bounds(real=6.0, virtual=2.0), Effect.STOPS | Effect.LOSES),
    ),
    # An agent that maps no more memory may end, and its service starts it again.
    Trouble(
        *("agent-memory-limited", _ON_NODES, _limit_memory, _end_memory_limit, BOTH),
        *(_bounds(real=6.0), Effect.STOPS | Effect.LOSES),
    ),
    # With the journal it is gone when a fault began, and that it is a one-off.
    Trouble(
        *("journal-truncated", _ON_NODES, _truncate_journal, _start_agent, BOTH),
        _bounds(real=6.0, virtual=3.0),
        Effect.STOPS | Effect.LOSES | Effect.RETIMES | Effect.SHORTENS,
    ),
    # It waits for the name, so it writes nothing.
    Trouble(
        *("second-agent", _ON_NODES, _start_second, _end_second, _NONE),
        _bounds(real=0.0),
    ),
    Trouble(
        *("agent-killed-at-write", _ON_NODES, _kill_at_write, _start_after_write, BOTH),
        *(_bounds(virtual=3.0), Effect.STOPS | Effect.LOSES),
    ),
    # The last second of history is gone (decision 2), and with it when a fault began.
    Trouble(
        *("power-lost", _ON_NODES, _keep_synced, _lose_power, BOTH),
        _bounds(real=6.0, virtual=3.0),
        (Effect.STOPS | Effect.LOSES | Effect.RETIMES | Effect.SHORTENS)
        | (Effect.ENDS_VISIBLY | Effect.ROLLS_BACK),
    ),
    Trouble(
        *("agent-apart", _ON_NODES, _separate, _join, BOTH),
        *(_bounds(virtual=3.0), Effect.STOPS | Effect.LOSES),
    ),
    Trouble(
        *("task-hangs", _ON_NODES, _hang_task, _release_task, _NONE),
        *(_bounds(virtual=4.0), Effect.LOSES | Effect.SILENCES, _STALLS),
    ),
    Trouble(
        *("aggregator-killed", _ON_AGGREGATORS, _kill_aggregator, _start_aggregator, CLUSTER),
        *(_bounds(real=8.0, virtual=2.0), Effect.STOPS),
    ),
    Trouble(
        *("aggregator-paused", _ON_AGGREGATORS, _stop_aggregator, _continue_aggregator),
        *(CLUSTER, _bounds(real=8.0, virtual=1.0), Effect.STOPS),
    ),
    Trouble(
        *("aggregator-paused-long", _ON_AGGREGATORS, _stop_aggregator, _continue_aggregator),
        *(CLUSTER, _bounds(virtual=1.0), Effect.STOPS, _OUTLASTS_LEASE),
    ),
    Trouble(
        *("aggregators-restarted", _ON_STORE, _restart_aggregators, _nothing, CLUSTER),
        *(_bounds(real=8.0, virtual=2.0), Effect.STOPS | Effect.AT_ONCE),
        # Both end and start, one after the other.
        undo_seconds=dict.fromkeys(("directory", "kubernetes"), 4.0),
    ),
    Trouble(
        *("aggregator-apart", _ON_AGGREGATORS, _separate, _join, CLUSTER),
        *(_bounds(virtual=3.0), Effect.STOPS),
    ),
    Trouble(
        *("aggregator-apart-long", _ON_AGGREGATORS, _separate, _join, CLUSTER),
        *(_bounds(virtual=3.0), Effect.STOPS, _OUTLASTS_LEASE),
    ),
    # Without the list events still count, but their order is confirmed late. With the shipped
    # periods a call that hung is tried again after six seconds.
    Trouble(
        *("codes-hang", _ON_NODES, _hang_codes, _release_codes, BOTH),
        *(_bounds(real=10.0, virtual=7.0), Effect.HIDES_LISTS),
    ),
    Trouble(
        *("codes-fail", _ON_NODES, _fail_codes, _release_codes, BOTH),
        *(_bounds(real=8.0, virtual=3.0), Effect.HIDES_LISTS),
    ),
    Trouble(
        *("codes-slow", _ON_NODES, _slow_codes, _release_codes, BOTH),
        *(_bounds(real=8.0, virtual=3.0), Effect.HIDES_LISTS),
    ),
    Trouble(
        *("health-fails", _ON_NODES, _fail_health, _release_health, _NONE),
        _bounds(real=0.0, virtual=0.0),
    ),
    Trouble(
        *("event-lost", _ON_NODES, _lose_event, _nothing, _NONE),
        *(_bounds(real=0.0), Effect.NEEDS_AUDIT | Effect.LOSES_NEXT_EVENT),
    ),
    Trouble(
        *("events-lost", _ON_NODES, _lose_events, _keep_events, _NONE),
        *(_bounds(virtual=0.0), Effect.HIDES_EVENTS | Effect.NEEDS_AUDIT),
    ),
    Trouble(
        *("events-overrun", _ON_NODES, _lose_events, _report_dropped, _NONE),
        *(_bounds(virtual=0.0), Effect.HIDES_EVENTS),
    ),
    Trouble(
        *("driver-crashes", _ON_NODES, _crash_driver, _nothing, _NONE),
        *(_bounds(real=0.0, virtual=0.0), Effect.AT_ONCE),
    ),
    Trouble(
        *("driver-garbled", _ON_NODES, _garble_driver, _nothing, _NONE),
        *(_bounds(virtual=0.0), Effect.AT_ONCE),
    ),
    Trouble(
        *("library-replaced", _ON_NODES, _replace_library, _nothing, _NONE),
        *(_bounds(real=0.0, virtual=0.0), Effect.AT_ONCE),
    ),
    # A store that is a directory would be full, too.
    Trouble(
        *("disk-full", _ON_NODES, *_disk("is_full"), _NONE),
        dict.fromkeys(("kubernetes", "mqtt", "simulated"), 0.0),
    ),
    Trouble(
        *("disk-read-only", _ON_NODES, *_disk("is_read_only"), _NONE),
        dict.fromkeys(("kubernetes", "mqtt", "simulated"), 0.0),
    ),
    Trouble(
        *("disk-slow", _ON_NODES, *_disk("is_slow"), _NONE),
        dict.fromkeys(("kubernetes", "mqtt", "simulated"), 0.0),
    ),
    Trouble(
        *("foreign-write", _ON_NODES, _write_foreign, _nothing, BOTH),
        *(_bounds(real=8.0, virtual=0.0), Effect.AT_ONCE),
    ),
    Trouble(
        *("document-deleted", _ON_NODES, _delete_document, _nothing, BOTH),
        *(_bounds(real=8.0, virtual=0.0), Effect.AT_ONCE),
    ),
    Trouble(
        *("cluster-info-deleted", _ON_STORE, _delete_cluster_info, _nothing, CLUSTER),
        *(_bounds(real=8.0, virtual=0.0), Effect.AT_ONCE),
    ),
    Trouble(
        *("store-away", _ON_STORE, _take_store, _give_store, BOTH),
        *({"kubernetes": 12.0, "mqtt": 12.0, "simulated": 3.0}, Effect.STOPS | Effect.LOSES),
        # An API server starts.
        undo_seconds={"kubernetes": 10.0},
    ),
    # Writers make the directory anew, and what they wrote there goes when the old one comes back.
    Trouble(
        *("directory-renamed", _ON_STORE, _take_store, _give_store, BOTH),
        *({"directory": 12.0}, Effect.STOPS | Effect.LOSES | Effect.FORGETS),
    ),
    # A request that was made before the end takes another second.
    Trouble(
        *("store-late", _ON_STORE, _be_late, _be_on_time, BOTH),
        *(_bounds(virtual=3.0), Effect.STOPS),
    ),
    Trouble(
        *("store-refuses", _ON_STORE, _refuse_writes, _accept_writes, BOTH),
        *(_bounds(virtual=3.0), Effect.STOPS),
    ),
    Trouble(
        *("store-set-back", _ON_STORE, _keep_store, _set_store_back, BOTH),
        *(_bounds(virtual=3.0), Effect.STOPS | Effect.FORGETS | Effect.ENDS_VISIBLY),
    ),
    Trouble(
        *("watches-cut", _ON_STORE, _cut_watches, _nothing, _NONE),
        *(_bounds(virtual=0.0), Effect.AT_ONCE),
    ),
    Trouble(
        *("clock-ahead", (*NODES, *AGGREGATORS), _set_clock(_HOUR_MS), _set_clock(0), _NONE),
        *(_bounds(virtual=17.0), Effect.RETIMES),
    ),
    Trouble(
        *("clock-behind", (*NODES, *AGGREGATORS), _set_clock(-_HOUR_MS), _set_clock(0), _NONE),
        *(_bounds(virtual=17.0), Effect.RETIMES),
    ),
    # The events of the emulator have the time of this program, so a real node has the same clock.
    Trouble(
        *("aggregator-clock-ahead", _ON_AGGREGATORS, _set_clock(_HOUR_MS), _set_clock(0), _NONE),
        _bounds(real=0.0),
    ),
    Trouble(
        *("aggregator-clock-behind", _ON_AGGREGATORS, _set_clock(-_HOUR_MS), _set_clock(0), _NONE),
        _bounds(real=0.0),
    ),
)
TROUBLES = {trouble.name: trouble for trouble in _TABLE}
