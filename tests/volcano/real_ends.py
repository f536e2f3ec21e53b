"""The leader is killed within 3 s of the end of a job, and programs restart while a job waits.

With the real job controller, as in ``real_chain``. Each round is a job of its own, by a seed.
``ELASTIC_ROUNDS=40`` plays 40 ends, 10 waits and 5 ends without a fault, in 20 minutes.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from contract.documents.elastic_job import CAUSE, ENDED, KEPT
from tests.parts.deadlines import let_time_pass, nothing_happens_for
from tests.parts.volcano import JOBS, PODS
from tests.volcano.changes import Change, Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.elastic.bed import Elastic
    from tests.volcano.site import Site

pytestmark = [pytest.mark.server, pytest.mark.daemon, pytest.mark.timeout(300)]

ROUNDS = int(os.environ.get("ELASTIC_ROUNDS", "8"))
_CODE = "80C98001"
"""Recovers however often it occurs."""
_AROUND_SECONDS = 3.0
_EVICTED_SECONDS = 1.5
"""From a fault in the driver to the deletion of the pods, roughly."""
_LONGEST_SECONDS = 60.0
"""A job has ended for no longer while there is room."""
_QUIET_SECONDS = 3.0
"""In which another start would be made."""
_BEFORE_SECONDS = 15.0
"""A fault that has passed for so long before an end is none of its causes."""
_LEAST = 2


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    yield whole_site
    whole_site.clean()


@contextmanager
def _daemons(site: Site, name: str, count: int) -> Iterator[list[Elastic]]:
    with ExitStack() as stack:
        found = [site.elastic(f"{name}-{number}", "--act") for number in range(count)]
        for one in found:
            one.start()
            stack.callback(one.stop)
        yield found


def _leader(site: Site, daemons: list[Elastic]) -> Elastic:
    leading: list[Elastic] = []

    def leads() -> bool:
        leading[:] = [one for one in daemons if json.loads(one.ask("/api/v1/elastic"))["leads"]]
        return bool(leading)

    site.sees(leads, "one of them leads")
    return leading[0]


def _train(site: Site, name: str, grace: int, least: int, action: str) -> str:
    """Create a job of three hosts, and wait until it runs; returns its uid."""
    item = site.fresh(name, 3, least=str(least), action=action)
    site.around.graces = {f"{name}-w-{number}": grace for number in range(3)}
    uid: str = site.plane.request("POST", JOBS, item)["metadata"]["uid"]
    site.volcano.until(name, "Running")
    return uid


def _phase(one: Change) -> str:
    found: str = one.item.get("status", {}).get("state", {}).get("phase", "")
    return found


def _has_ended(one: Change) -> bool:
    return _phase(one) in ENDED


def _starts(changes: Changes) -> list[Change]:
    """Return each change by which the job went from its end to ``Pending``."""
    steps = changes.all("job", "MODIFIED", lambda _: True)
    pairs = itertools.pairwise(steps)
    return [after for before, after in pairs if _has_ended(before) and _phase(after) == "Pending"]


def _kill(
    leader: Elastic, changes: Changes, offset: float, end_seconds: float, pause: float
) -> float:
    """Kill the leader ``offset`` seconds from the end of the job, and start it after ``pause``.

    ``end_seconds`` is when the end is due, from now. Returns when it was killed (steady).
    """
    if offset < 0:
        let_time_pass(end_seconds + offset)
    else:
        changes.first("job", "MODIFIED", _has_ended, 90)
        let_time_pass(offset)
    at = time.monotonic()
    leader.kill()
    let_time_pass(pause)
    leader.start()
    return at


def _check_start(
    site: Site, changes: Changes, name: str, uid: str, size: int, room_at: float = 0.0
) -> float:
    """Check that the job is started once, and how; returns for how long (s) it had ended.

    That counts from the last of: the phase, the last pod, and ``room_at`` (steady).
    """
    site.sees(lambda: bool(_starts(changes)), f"{name} is started", _LONGEST_SECONDS + 30)
    site.volcano.until(name, "Running", 60)
    nothing_happens_for(_QUIET_SECONDS, because="another start would follow the end at once")
    (start,) = _starts(changes)
    steps = changes.all("job", "MODIFIED", lambda _: True)
    assert {one.item["metadata"]["uid"] for one in steps} == {uid}
    assert {one.item["spec"]["tasks"][0]["replicas"] for one in steps} <= {3, size}
    ended = next(one.at for one in steps if _has_ended(one))
    # The controller makes pods anew before it fails a job with ``RestartJob``.
    made = changes.all("pod", "ADDED", lambda one: one.revision < start.revision)
    gone = changes.all("pod", "DELETED", lambda one: one.revision < start.revision)
    assert len(gone) == 3 + len(made), "it is started while a pod lives"
    seconds = start.at - max(ended, gone[-1].at, room_at)
    assert seconds <= _LONGEST_SECONDS
    job = site.volcano.job(name)
    assert site.size(name) == (size, size)
    annotations = job["metadata"]["annotations"]
    assert CAUSE not in annotations
    kept: dict[str, Any] = msgspec.json.decode(annotations[KEPT])
    assert (kept["start"], job["status"]["state"]["phase"]) == (1, "Running")
    assert len(site.volcano.pods(name)) == size
    return seconds


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_leader_is_killed_around_the_end(
    site: Site, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Half of them have two replicas; one in ten has a grace of 30 s."""
    chance, name = random.Random(seed), f"end-{seed}"
    grace = 30 if seed % 20 in (6, 7) else 1
    offset = chance.uniform(-_AROUND_SECONDS, _AROUND_SECONDS)
    pause = chance.choice((0.0, 0.0, 3.0, 8.0))
    action = chance.choice(("TerminateJob", "RestartJob", "AbortJob"))
    with (
        _daemons(site, name, 1 + seed % 2) as daemons,
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        uid = _train(site, name, grace, _LEAST, action)
        leader = _leader(site, daemons)
        node = site.node_of(f"{name}-w-{chance.randrange(3)}")
        with Changes(site.plane) as changes:
            due = _EVICTED_SECONDS + grace
            killed = pool.submit(_kill, leader, changes, offset, due, pause)
            site.breaks(node, chance.randrange(8), _CODE)
            killed_at = killed.result()
            seconds = _check_start(site, changes, name, uid, 2)
            end = next(one for one in changes.all("job", "MODIFIED", _has_ended))
    record_property("round", f"{action}, grace {grace} s, {len(daemons)} replicas")
    record_property("killed, from the end", f"{killed_at - end.at:+.2f} s, for {pause:.0f} s")
    record_property("ended for", f"{seconds:.2f} s")


@pytest.mark.parametrize("seed", range(ROUNDS // 4))
def test_programs_restart_while_a_job_waits_for_room(
    site: Site, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """There is room again while they run, or while none does."""
    chance, name = random.Random(1000 + seed), f"wait-{seed}"
    with _daemons(site, name, 1 + seed % 2) as daemons:
        uid = _train(site, name, 1, 3, "TerminateJob")
        node = site.node_of(f"{name}-w-{chance.randrange(3)}")
        with Changes(site.plane) as changes:
            site.breaks(node, chance.randrange(8), _CODE)
            leader = _leader(site, daemons)
            site.sees(lambda: leader.state(name)[0] == "waiting-for-room", "it waits")
            is_back = chance.random() < 0.5
            for one in daemons:
                chance.choice((one.kill, one.stop))()
            let_time_pass(chance.uniform(0, 5))
            if is_back:
                site.repair()
            for one in daemons:
                one.start()
            room_at = time.monotonic()
            if not is_back:
                leader = _leader(site, daemons)
                site.sees(lambda: leader.state(name)[0] == "waiting-for-room", "it waits still")
                assert not _starts(changes)
                site.repair()
                room_at = time.monotonic()
            seconds = _check_start(site, changes, name, uid, 3, room_at)
    record_property("ended for, with room", f"{seconds:.2f} s")


@pytest.mark.parametrize("seed", range(max(1, ROUNDS // 8)))
def test_no_start_follows_an_end_without_a_fault(site: Site, seed: int) -> None:
    """A program fails while all nodes are healthy, and the leader is killed around that."""
    chance, name = random.Random(2000 + seed), f"fails-{seed}"
    let_time_pass(_BEFORE_SECONDS)
    with (
        _daemons(site, name, 1 + seed % 2) as daemons,
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        item = site.fresh(name, 3, least=str(_LEAST))
        item["spec"]["policies"].append({"event": "PodFailed", "action": "TerminateJob"})
        site.plane.request("POST", JOBS, item)
        site.volcano.until(name, "Running")
        leader = _leader(site, daemons)
        with Changes(site.plane) as changes:
            offset = chance.uniform(-1, _AROUND_SECONDS)
            killed = pool.submit(_kill, leader, changes, offset, 1.0, chance.choice((0.0, 3.0)))
            let_time_pass(1.0)
            change = {"status": {"phase": "Failed"}}
            site.plane.request("PATCH", f"{PODS}/{name}-w-1/status", change)
            killed.result()
            leader = _leader(site, daemons)
            site.sees(lambda: leader.state(name)[0] == "no-cause", "no fault ended it", 60)
            nothing_happens_for(_QUIET_SECONDS, because="a start would follow the end at once")
            assert not _starts(changes)
            assert KEPT not in site.volcano.job(name)["metadata"]["annotations"]
