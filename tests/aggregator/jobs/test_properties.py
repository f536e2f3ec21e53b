"""Messages depend on the present state alone, not on the order of events or on restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from aggregator.jobs.relations import SHIPPED, RelationTables
from tests.aggregator.jobs.scene import (
    CQE,
    LINK_DOWN,
    MAKES_SUB_HEALTHY,
    PORT_DOWN,
    SEPARATES,
    Scene,
    fault,
    part,
    parts,
    switch,
)
from tests.aggregator.kept_texts import kept_texts
from tests.parts.examples import examples

if TYPE_CHECKING:
    from aggregator.jobs.job_view import JobView

NODES = ["n0", "n1", "n2"]
JOBS = ["one", "two"]
SLOTS = ["a", "b", "c", "d"]
NO_RELATIONS = RelationTables((), {})

node = st.sampled_from(NODES)
faults = st.builds(
    fault,
    st.integers(0, 2),
    st.sampled_from(["NotHandleFault", "SubHealthFault", "RestartNPU", "FreeRestartNPU"]),
    st.sampled_from([LINK_DOWN, LINK_DOWN, SEPARATES, MAKES_SUB_HEALTHY, CQE, "80E18402"]),
)
links = st.lists(
    st.sampled_from(
        [
            fault(0, "NotHandleFault", code)
            for code in (LINK_DOWN, SEPARATES, MAKES_SUB_HEALTHY, CQE)
        ]
    ),
    max_size=2,
)
switches = st.one_of(
    st.none(),
    st.builds(
        switch,
        st.sampled_from(["Healthy", "SubHealthy", "UnHealthy"]),
        st.sampled_from(["NotHandle", "SubHealthFault"]),
        st.just((PORT_DOWN, 1, 2)),
    ),
)
servers = st.one_of(
    st.none(),
    st.builds(
        parts,
        st.sampled_from(["Healthy", "UnHealthy"]),
        st.just(part("CPU", 1, "SeparateFault", "00000001")),
    ),
)
pods = st.tuples(
    st.sampled_from(SLOTS), node, st.sampled_from(JOBS), st.sampled_from(["", "0", "1 2"])
)
events = st.one_of(
    st.tuples(st.just("chips"), node, st.lists(faults, max_size=3), st.sampled_from([-2, 0])),
    st.tuples(st.just("switch"), node, switches),
    st.tuples(st.just("server"), node, servers),
    st.tuples(st.just("pod"), pods),
    st.tuples(st.just("end"), st.sampled_from(SLOTS)),
    st.tuples(st.just("ready"), node, st.sampled_from([True, False, None])),
    st.tuples(st.just("wait"), st.sampled_from([1, 150_000, 299_999, 300_000])),
)


def happen(scene: Scene, event: tuple[Any, ...]) -> None:
    match event:
        case ("chips", str(name), list(found), int(super_pod)):
            scene.chips(name, *found, super_pod=super_pod)
        case ("switch", str(name), record):
            scene.publish(name, switch=record)
        case ("server", str(name), record):
            scene.publish(name, node=record)
        case ("pod", (str(pod), str(name), str(job), str(chips))):
            end(scene, pod)
            labels = {"jobID": "service", "app": "app"} if job == "two" else {}
            scene.pod(pod, name, job, chips, rank=SLOTS.index(pod), labels=labels)
        case ("end", str(pod)):
            end(scene, pod)
        case ("ready", str(name), None):
            scene.lookup.nodes.pop(name, None)
            scene.look(name)
        case ("ready", str(name), bool(ready)):
            scene.node(name, ready=ready)
        case ("wait", int(ms)):
            scene.wait(ms)


def end(scene: Scene, pod: str) -> None:
    for name, there in scene.lookup.pods.items():
        if pod in there:
            scene.end(pod, name)


def messages_of(job_view: JobView) -> dict[str, object]:
    """Return everything that can be asked of a job view."""
    status = [
        (hit.job, hit.health, [one.faults for one in hit.nodes], job_view.ranks(hit.job))
        for hit in job_view.hit()
    ]
    return {
        **{job: job_view.message(job) for job in [*JOBS, "service"]},
        "cluster": job_view.cluster(),
        "faulty": set(job_view.faulty()),
        "labels": job_view.labels(),
        "status": status,
    }


def another(scene: Scene, kept: dict[str, str] | None = None) -> JobView:
    """Make a job view that restores nothing."""
    job_view = scene.fresh()
    if kept is not None:
        assert list(job_view.restore(kept, scene.instant())) == []
    job_view.changed(NODES, scene.instant())
    return job_view


def nodes_go(scene: Scene) -> None:
    """Add the missing Nodes: only a job view that saw a deleted one knows its address."""
    for name in NODES:
        if name not in scene.lookup.nodes:
            scene.node(name, ready=False)


@examples(100)
@given(st.lists(events, max_size=25))
def test_messages_are_the_same_step_by_step_and_at_once(
    happened: list[tuple[Any, ...]],
) -> None:
    scene = Scene(nodes=3, tables=NO_RELATIONS)
    for event in happened:
        happen(scene, event)
    nodes_go(scene)
    assert messages_of(scene.job_view) == messages_of(another(scene))


@examples(100)
@given(st.lists(events, max_size=20), st.lists(events, max_size=20))
def test_a_restart_changes_nothing(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    scene = Scene(nodes=3, tables=SHIPPED)
    for slot, name in zip(SLOTS, NODES, strict=False):
        happen(scene, ("pod", (slot, name, "one", "0")))
    kept: dict[str, str] = {}
    for event in before:
        happen(scene, event)
        kept = kept_texts(scene.job_view, kept)
    nodes_go(scene)
    kept = kept_texts(scene.job_view, kept)
    first, second = scene.job_view, another(scene, kept)
    assert messages_of(first) == messages_of(second)
    scene.job_view = Both(first, second)  # type: ignore[assignment]
    for event in after:
        happen(scene, event)
        assert messages_of(first) == messages_of(second), event


class Both:
    """Two job views with the same input."""

    def __init__(self, *boards: JobView) -> None:
        self._boards = boards

    def changed(self, nodes: tuple[str, ...], now: Any) -> None:
        for job_view in self._boards:
            job_view.changed(nodes, now)

    def step(self, now: Any) -> None:
        for job_view in self._boards:
            job_view.step(now)

    def next_due_ms(self) -> int | None:
        due = [at for job_view in self._boards if (at := job_view.next_due_ms()) is not None]
        return min(due, default=None)
