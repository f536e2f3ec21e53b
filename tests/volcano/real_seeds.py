"""Network faults and a dead node while everything else fails, too, with the real job controller.

By a seed two daemons are killed, the controller is restarted, and the owner resizes or deletes a
job. ``tests/elastic/seeded_run.py`` does the same many times over in memory.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from contract.documents.elastic_job import KEPT, CauseSource, read_cause
from tests.elastic.bed import Bed
from tests.parts.controlplane import ControlPlane
from tests.parts.deadlines import let_time_pass
from tests.parts.volcano import GROUPS, JOBS, PODS
from tests.volcano.changes import Changes
from tests.volcano.programs import controllers, install
from tests.volcano.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.elastic.bed import Elastic

pytestmark = [pytest.mark.server, pytest.mark.daemon, pytest.mark.timeout(300)]

_NODES = 7
_GRACE_OVER_TIME = 3
_LINK_DOWN_SECONDS = 20.0
_TROUBLE_SECONDS = 12.0
"""Kills of a daemon end then: each costs the time for which it has seen a fault."""
_ENDS_SECONDS = 180.0


class Cluster:
    """Seven nodes; jobs ``a`` and ``b`` are to run over network faults, ``c`` on a dead node."""

    def __init__(self, plane: ControlPlane, built: Path, directory: Path) -> None:
        self.plane = plane
        self._built = built
        self.stack = ExitStack()
        self.stack.enter_context(controllers(plane, built))
        self.around = Surroundings(plane)
        self.bed = Bed(directory, self.around, _NODES)
        self.faulty: set[str] = set()
        cards = [f"Ascend910-{number}" for number in range(8)]
        self.around.free = lambda node: [] if node in self.faulty else cards

    def restart_controller(self, seconds: float) -> None:
        """Stop the controller for some time (s), then start it again."""
        self.stack.close()
        let_time_pass(seconds)
        self.stack.enter_context(controllers(self.plane, self._built))

    def node_of(self, pod: str) -> str:
        """Return where a pod is bound."""
        found: str = self.plane.request("GET", f"{PODS}/{pod}")["spec"]["nodeName"]
        return found

    def clean(self) -> None:
        """Delete all jobs, and make all nodes healthy."""
        self.around.holds, self.faulty = set(), set()
        for one in self.plane.request("GET", JOBS)["items"]:
            name = one["metadata"]["name"]
            self.plane.request("DELETE", f"{JOBS}/{name}")
            for pod in self.around.pods(name):
                self.plane.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")
            self.bed.sees(partial(self._is_empty, name), "its pods stay")
            self.plane.ask("DELETE", f"{GROUPS}/{name}-{one['metadata']['uid']}")
        for node in self.bed.nodes:
            self.bed.report(node)

    def _is_empty(self, name: str) -> bool:
        return not self.around.pods(name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, volcano_built: Path) -> Iterator[Cluster]:
    with ControlPlane(tmp_path_factory.mktemp("seeds"), audited=True) as plane:
        install(plane, volcano_built)
        made = Cluster(plane, volcano_built, tmp_path_factory.mktemp("bed"))
        try:
            with made.around:
                yield made
        finally:
            made.bed.stop()
            made.stack.close()


class Daemons:
    """Two instances of ``vigil elastic``, of which one leads."""

    def __init__(self, bed: Bed, name: str) -> None:
        options = ("--act", "--network-faults", "--dead-nodes")
        self.both = [bed.elastic(f"{name}-{index}", *options) for index in range(2)]

    def __enter__(self) -> Daemons:
        for one in self.both:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.both:
            one.stop()

    @staticmethod
    def kill(one: Elastic) -> None:
        """End a daemon without warning, and start it again."""
        one.kill()
        one.start()

    @property
    def leader(self) -> Elastic:
        """Return the program that acts; either one if none does at the time."""
        leading = (one for one in self.both if json.loads(one.ask("/api/v1/elastic"))["leads"])
        return next(leading, self.both[0])


@contextmanager
def _faults(cluster: Cluster) -> Iterator[dict[str, float]]:
    """Cut a link under ``a`` and ``b``, and let a node of ``c`` die; yields since when (steady)."""
    since = {}
    for name in ("a", "b"):
        node = cluster.node_of(f"{name}-w-0")
        cluster.faulty.add(node)
        since[name] = time.monotonic()
        cluster.bed.report(node, network=(3,))
    dead = cluster.node_of("c-w-1")
    cluster.faulty.add(dead)
    cluster.around.holds = {"c-w-0", "c-w-1"}
    since["c"] = time.monotonic()
    with cluster.bed.grace_over_time(_GRACE_OVER_TIME), cluster.bed.dead(dead):
        cluster.around.evict("c", reason="NodeUnhealthy", node=dead)
        yield since


def _plan(chance: random.Random, cluster: Cluster, daemons: Daemons) -> list[tuple[float, Any]]:
    """Return what happens when, in seconds."""
    owner: Callable[[], object] = chance.choice(
        (lambda: None, lambda: _resize(cluster, "b"), lambda: _delete(cluster, "b"))
    )
    plan: list[tuple[float, Callable[[], object]]] = [
        (chance.uniform(0, _TROUBLE_SECONDS), partial(Daemons.kill, chance.choice(daemons.both)))
        for _ in range(3)
    ]
    plan += [
        (chance.uniform(0, _TROUBLE_SECONDS), owner),
        (_TROUBLE_SECONDS, lambda: cluster.around.holds.discard("c-w-0")),
        (chance.uniform(15, 30), partial(cluster.restart_controller, chance.uniform(2, 12))),
    ]
    return sorted(plan, key=lambda one: one[0])


def _resize(cluster: Cluster, name: str) -> None:
    spec = cluster.around.job(name)["spec"]
    spec["tasks"][0]["replicas"] = spec["tasks"][0]["minAvailable"] = spec["minAvailable"] = 1
    cluster.plane.request("PATCH", f"{JOBS}/{name}", {"spec": spec})


def _delete(cluster: Cluster, name: str) -> None:
    cluster.plane.request("DELETE", f"{JOBS}/{name}")
    for pod in cluster.around.pods(name):
        cluster.plane.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_goes_wrong(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    bed, began = cluster.bed, time.time()
    uids = {name: bed.train(name, 2) for name in ("a", "b", "c")}
    try:
        with (
            Changes(cluster.plane) as changes,
            Daemons(bed, f"seed-{seed}") as daemons,
            _faults(cluster) as since,
        ):
            started = time.monotonic()
            for at, happens in _plan(chance, cluster, daemons):
                let_time_pass(started + at - time.monotonic())
                happens()
            is_annotated = partial(
                changes.all, "job", "MODIFIED", lambda one: _is_commanded(one.item)
            )
            bed.sees(lambda: bool(is_annotated()), "a job is to be ended", 90)
            Daemons.kill(daemons.leader)
            for name in uids:
                bed.sees(partial(_is_done, cluster, name), f"{name} runs again", _ENDS_SECONDS)
            _check_commands(changes, since, uids)
            _check_sizes(changes, uids)
            _check_deletions(cluster, began, since["c"])
    finally:
        cluster.clean()


def _has(job: dict[str, Any], annotation: str) -> bool:
    return annotation in job["metadata"].get("annotations", {})


def _is_commanded(job: dict[str, Any]) -> bool:
    """Return whether our Command is kept on a job as the cause of its end."""
    cause = read_cause(job["metadata"].get("annotations", {}))
    return cause is not None and cause.source is CauseSource.COMMAND


def _is_done(cluster: Cluster, name: str) -> bool:
    """Return whether a job runs again, runs with its one remaining pod, or was deleted."""
    status, job = cluster.plane.ask("GET", f"{JOBS}/{name}")
    if status == 404:
        return name == "b"
    is_left_alone = name == "b" and job["spec"]["tasks"][0]["replicas"] == 1
    phase = job["status"]["state"]["phase"]
    return phase == "Running" and (is_left_alone or _has(job, KEPT))


def _check_commands(changes: Changes, since: dict[str, float], uids: dict[str, str]) -> None:
    """Check that a link was down for 20 s, and that of two jobs one ran again before the next."""
    commands = changes.all("command", "ADDED", lambda _: True)
    assert commands, "no job was ended"
    before = None
    for one in commands:
        name = one.item["target"]["name"]
        assert one.item["target"]["uid"] == uids[name]
        assert name in ("a", "b")
        assert one.at - since[name] >= _LINK_DOWN_SECONDS, name
        if before is not None:
            assert _runs_again(changes, before[0], before[1], one.revision), f"{name} beside it"
        before = (name, one.revision)


def _runs_again(changes: Changes, name: str, since: int, until: int) -> bool:
    """Return whether a job was started again and ran, or was deleted, between two revisions."""
    mine = [
        one
        for how in ("MODIFIED", "DELETED")
        for one in changes.all("job", how, lambda one: one.name == name)
        if since < one.revision < until
    ]
    return any(
        one.how == "DELETED"
        or (one.item["status"]["state"]["phase"] == "Running" and not _is_commanded(one.item))
        for one in mine
    )


def _check_sizes(changes: Changes, uids: dict[str, str]) -> None:
    """Check that each job is the same object of one or two pods.

    A job is written only after its pods have ended.
    """
    for name, uid in uids.items():
        for one in changes.all("job", "MODIFIED", lambda one, name=name: one.name == name):  # type: ignore[misc]
            assert one.item["metadata"]["uid"] == uid
            assert one.item["spec"]["tasks"][0]["replicas"] in (1, 2)
        written = changes.all(
            "job",
            "MODIFIED",
            lambda one, name=name: one.name == name and _has(one.item, KEPT),  # type: ignore[misc]
        )
        if written:
            gone = changes.all(
                "pod",
                "DELETED",
                lambda one, name=name: one.name.startswith(f"{name}-w-"),  # type: ignore[misc]
            )
            first = [one for one in gone if one.revision < written[0].revision]
            assert len(first) >= 2, f"{name} is written while a pod lives"


def _check_deletions(cluster: Cluster, began: float, dead_at: float) -> None:
    """Check that our account deleted one pod only, and not before ``grace-over-time``."""
    found = [
        one
        for one in cluster.plane.audit()
        if one["user"]["username"].endswith(":npu-vigil-elastic")
        and one["verb"] == "delete"
        and datetime.fromisoformat(one["requestReceivedTimestamp"]).timestamp() > began
    ]
    assert {(one["objectRef"]["resource"], one["objectRef"]["name"]) for one in found} == {
        ("pods", "c-w-1")
    }
    dead_wall = time.time() - (time.monotonic() - dead_at)
    for one in found:
        at = datetime.fromisoformat(one["requestReceivedTimestamp"]).timestamp()
        assert at - dead_wall > _GRACE_OVER_TIME
