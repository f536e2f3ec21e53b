"""The cluster state after events of Nodes, pods and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.node_context import JobState, NodeContext, NodeState, PodState
from stores.cluster import KindUnavailable, Snapshot, Update
from stores.interruption import Interrupted
from tests.parts.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DataObject

NOTHING: frozenset[str] = frozenset()


def pod(uid: str, node: str, *chips: str, job: str = "", app: str = "") -> PodState:
    labels = {"app": app} if app else {}
    return PodState(uid, node, "default", f"pod-{uid}", job, chips, {}, labels, f"name-{job}")


def listed(*pods: PodState) -> Snapshot[PodState]:
    return Snapshot({one.uid: one for one in pods})


def nodes(*found: NodeState) -> Snapshot[NodeState]:
    return Snapshot({one.name: one for one in found})


def used(cluster_state: ClusterState, node: str = "n1") -> frozenset[str] | None:
    return cluster_state.node_context(node).used


def test_before_the_first_list_usage_is_unknown() -> None:
    cluster_state = ClusterState([True])
    assert used(cluster_state) is None
    assert not cluster_state.answered(0)
    assert cluster_state.observe_pods(0, Interrupted("no rights")) == NOTHING
    assert cluster_state.observe_jobs(0, KindUnavailable("no Volcano")) is None
    assert used(cluster_state) is None
    assert not cluster_state.pods_known
    assert not cluster_state.nodes_known
    assert cluster_state.answered(0)
    assert cluster_state.observe_pods(0, listed()) is None  # of all nodes more is known now
    assert used(cluster_state) == NOTHING
    assert cluster_state.node_context("n1") == NodeContext(NOTHING)


def test_pods_come_and_go() -> None:
    cluster_state = ClusterState([True])
    cluster_state.observe_pods(0, listed(pod("a", "n1", "Ascend910-0")))
    b = pod("b", "n1", "Ascend910-1", "Ascend910-2")
    assert cluster_state.observe_pods(0, Update("b", b)) == frozenset({"n1"})
    assert used(cluster_state) == frozenset({"Ascend910-0", "Ascend910-1", "Ascend910-2"})
    assert cluster_state.observe_pods(0, Update("b", b)) == NOTHING
    assert cluster_state.observe_pods(0, Update("b", pod("b", "n2", "Ascend910-7"))) == frozenset(
        {"n1", "n2"}
    )
    assert used(cluster_state) == frozenset({"Ascend910-0"})
    assert cluster_state.observe_pods(0, Update("a", None)) == frozenset({"n1"})
    assert cluster_state.observe_pods(0, Update("a", None)) == NOTHING
    assert used(cluster_state) == NOTHING
    assert cluster_state.node_context("n2").pods == (pod("b", "n2", "Ascend910-7"),)
    assert len(cluster_state.pods_of(0).items) == 1


def test_two_pods_that_share_a_chip() -> None:
    cluster_state = ClusterState([True])
    cluster_state.observe_pods(
        0, listed(pod("a", "n1", "Ascend910-0"), pod("b", "n1", "Ascend910-0"))
    )
    cluster_state.observe_pods(0, Update("a", None))
    assert used(cluster_state) == frozenset({"Ascend910-0"})


def test_a_later_list_names_the_nodes_that_differ() -> None:
    cluster_state = ClusterState([True])
    cluster_state.observe_pods(
        0, listed(pod("a", "n1", "x"), pod("b", "n2", "x"), pod("c", "n3", "x"))
    )
    cluster_state.observe_pods(0, Interrupted("away"))
    assert used(cluster_state) == frozenset({"x"})
    assert cluster_state.pods_of(0).interrupted == "away"
    again = listed(pod("b", "n2", "x"), pod("c", "n4", "x"), pod("d", "n5", "x"))
    assert cluster_state.observe_pods(0, again) == frozenset({"n1", "n3", "n4", "n5"})
    assert cluster_state.pods_of(0).interrupted is None


def test_of_what_cannot_be_read_the_last_stays() -> None:
    cluster_state = ClusterState([True])
    cluster_state.observe_pods(0, listed(pod("a", "n1", "x"), pod("b", "n2", "x")))
    assert cluster_state.observe_pods(0, Snapshot({}, frozenset({"a", "never-seen"}))) == frozenset(
        {"n2"}
    )
    assert used(cluster_state) == frozenset({"x"})


def test_pods_of_several_stores_are_counted_together() -> None:
    cluster_state = ClusterState([True, True, False])
    assert cluster_state.answered(2)
    assert cluster_state.observe_pods(1, listed(pod("a", "n1", "x"))) is None
    assert used(cluster_state) == frozenset({"x"})
    assert cluster_state.observe_pods(0, listed(pod("b", "n1", "y"), pod("a", "n1", "z"))) is None
    assert used(cluster_state) == frozenset(
        {"z", "y"}
    )  # of an object in two stores the first one counts
    assert cluster_state.observe_pods(0, Update("a", None)) == frozenset({"n1"})
    assert used(cluster_state) == frozenset({"x", "y"})
    assert cluster_state.observe_pods(1, Update("b", pod("b", "n9"))) == NOTHING


def test_a_job_is_what_its_pod_group_contains() -> None:
    cluster_state = ClusterState([True])
    cluster_state.observe_pods(0, listed(pod("a", "n1", job="j", app="x"), pod("b", "n2", job="j")))
    assert cluster_state.jobs()["j"] == JobState(
        "j", "default", "name-j"
    )  # pods differ: the smallest counts
    assert cluster_state.observe_pods(0, Update("b", None)) == frozenset({"n1", "n2"})
    by_pods = JobState("j", "default", "name-j", {}, {"app": "x"})
    assert cluster_state.node_context("n1").jobs == {"j": by_pods}
    group = JobState("j", "default", "train", {"recover-strategy": "retry"})
    cluster_state.observe_jobs(0, KindUnavailable("no Volcano"))
    assert cluster_state.observe_jobs(0, Update("pg", group)) == frozenset({"n1"})
    assert cluster_state.node_context("n1").jobs == {"j": group}
    assert cluster_state.jobs() == {"j": group}
    assert cluster_state.observe_jobs(0, KindUnavailable("no Volcano any more")) == frozenset(
        {"n1"}
    )
    assert cluster_state.jobs()["j"] == by_pods
    assert cluster_state.observe_pods(0, Update("a", None)) == frozenset({"n1"})
    assert cluster_state.jobs() == {}


def test_a_job_may_have_no_pods_yet_and_several_pod_groups() -> None:
    cluster_state = ClusterState([True])
    first, second = (
        JobState("j", "default", name, created_at_ms=at) for name, at in (("b", 1), ("a", 2))
    )
    assert cluster_state.observe_jobs(0, Snapshot({"u2": second, "u1": first})) is None
    assert cluster_state.jobs() == {"j": first}
    cluster_state.observe_jobs(0, Update("u1", None))
    assert cluster_state.jobs()["j"] == second


def test_a_job_whose_pods_are_gone_is_looked_at_where_the_last_one_was() -> None:
    cluster_state = ClusterState([True])
    group = JobState("j", "default", "b", created_at_ms=1, size=2)
    cluster_state.observe_jobs(0, Snapshot({"u1": group}))
    cluster_state.observe_pods(
        0, listed(pod("a", "n1", "x", job="j"), pod("b", "n2", "x", job="j"))
    )
    cluster_state.observe_pods(0, Update("a", None))
    cluster_state.observe_pods(0, Update("b", None))
    smaller = replace(group, size=1)
    assert cluster_state.observe_jobs(0, Update("u1", smaller)) == frozenset({"n2"})
    assert cluster_state.jobs() == {"j": smaller}
    assert cluster_state.observe_jobs(0, Update("u1", None)) == frozenset({"n2"})
    assert cluster_state.jobs() == {}
    assert cluster_state.observe_jobs(0, Update("u1", group)) == NOTHING


def test_two_pods_of_a_job_on_one_node_both_count() -> None:
    cluster_state = ClusterState([True])
    a, b = pod("a", "n1", "x", job="j"), pod("b", "n1", "y", job="j")
    cluster_state.observe_pods(0, listed(b, a))
    assert cluster_state.node_context("n1").pods == (a, b)


def test_nodes_by_name_and_by_serial_number() -> None:
    cluster_state = ClusterState([True, True])
    n1, n2 = NodeState("n1", "10.0.0.1", "SN-1"), NodeState("n2", "10.0.0.2", "")
    assert cluster_state.observe_nodes(0, nodes(n1, n2)) == NOTHING
    assert cluster_state.nodes_of_store(0).known
    assert cluster_state.node("n1") == n1
    assert cluster_state.node("n3") is None
    assert cluster_state.node_by_serial_number("SN-1") == n1
    assert cluster_state.node_by_serial_number("") is None
    other = NodeState("n1", "10.0.0.9", "SN-1")
    assert (
        cluster_state.observe_nodes(1, nodes(other, NodeState("n4", serial_number="SN-4")))
        == NOTHING
    )
    assert cluster_state.nodes_known
    assert cluster_state.node("n1") == n1
    assert sorted(cluster_state.nodes()) == ["n1", "n2", "n4"]
    assert cluster_state.observe_nodes(0, Update("n1", n1)) == NOTHING  # a heartbeat
    not_ready = NodeState("n1", "10.0.0.1", "SN-1", is_ready=False)
    assert cluster_state.observe_nodes(0, Update("n1", not_ready)) == frozenset({"n1"})
    assert cluster_state.observe_nodes(0, Update("n1", None)) == frozenset({"n1"})
    assert cluster_state.node("n1") == other


def test_a_serial_number_of_two_nodes_names_none() -> None:
    cluster_state = ClusterState([True])
    a, b, c = (NodeState(name, serial_number="SN") for name in "abc")
    cluster_state.observe_nodes(0, nodes(a, b))
    assert cluster_state.node_by_serial_number("SN") is None
    assert cluster_state.shared_serial_numbers == {"SN": {"a", "b"}}
    cluster_state.observe_nodes(0, Update("c", c))
    cluster_state.observe_nodes(0, Update("a", NodeState("a", serial_number="SN-a")))
    assert cluster_state.shared_serial_numbers == {"SN": {"b", "c"}}
    assert cluster_state.node_by_serial_number("SN-a") == NodeState("a", serial_number="SN-a")
    cluster_state.observe_nodes(0, Update("b", None))
    assert cluster_state.shared_serial_numbers == {}
    assert cluster_state.node_by_serial_number("SN") == c
    cluster_state.observe_nodes(0, nodes())
    assert cluster_state.node_by_serial_number("SN") is None


SOURCES = 2
NODES = ("n1", "n2", "n3")
JOBS = ("", "j1", "j2")
PODS = st.builds(
    lambda uid, node, chips, job, app: pod(uid, node, *chips, job=job, app=app),
    st.sampled_from("abcd"),
    st.sampled_from(NODES),
    st.lists(st.sampled_from("xyz"), max_size=2),
    st.sampled_from(JOBS),
    st.sampled_from(("", "p", "q")),
)
STATES = st.builds(
    NodeState,
    st.sampled_from(NODES),
    st.just(""),
    st.sampled_from(("", "SN-1", "SN-2")),
    st.booleans(),
)
GROUPS = st.tuples(
    st.sampled_from(("u1", "u2", "u3")),
    st.builds(
        lambda key, name, at: JobState(key, "default", name, created_at_ms=at),
        st.sampled_from(JOBS[1:]),
        st.sampled_from("vw"),
        st.integers(0, 1),
    ),
)


class Randomly:
    """What each store has, and the cluster state that observed it."""

    def __init__(self) -> None:
        self.cluster_state = ClusterState([True] * SOURCES)
        self.kinds: dict[str, Callable[[int, Any], frozenset[str] | None]] = {
            "pods": self.cluster_state.observe_pods,
            "nodes": self.cluster_state.observe_nodes,
            "jobs": self.cluster_state.observe_jobs,
        }
        self.last: dict[tuple[str, int], dict[str, object]] = {}

    def everything(self) -> object:
        """Return the answers of all queries."""
        cluster_state = self.cluster_state
        return (
            {node: (cluster_state.node_context(node), cluster_state.node(node)) for node in NODES},
            dict(cluster_state.jobs()),
            {node: cluster_state.pods_on(node) for node in NODES},
            {
                number: cluster_state.node_by_serial_number(number)
                for number in ("SN-1", "SN-2", "")
            },
            cluster_state.shared_serial_numbers,
            (cluster_state.nodes_known, cluster_state.pods_known),
        )

    def observe(self, kind: str, source: int, event: object) -> frozenset[str] | None:
        """Pass an event to the cluster state, and remember what is true now."""
        match event:
            case Snapshot(items, _):
                self.last[kind, source] = dict(items)
            case Update(key, value):
                if value is None:
                    self.last[kind, source].pop(key, None)
                else:
                    self.last[kind, source][key] = value
        return self.kinds[kind](source, event)


@pytest.mark.slow
@examples()
@given(st.data())
def test_any_order_of_events_and_lists_ends_in_the_same_facts(data: DataObject) -> None:
    """The last event counts, and every node whose context changed is returned."""
    reported = Randomly()
    for _ in range(data.draw(st.integers(0, 12))):
        kind = data.draw(st.sampled_from(("pods", "nodes", "jobs")))
        source = data.draw(st.integers(0, SOURCES - 1))
        kinds: dict[str, st.SearchStrategy[tuple[str, object]]] = {
            "pods": PODS.map(lambda pod: (pod.uid, pod)),
            "nodes": STATES.map(lambda node: (node.name, node)),
            "jobs": GROUPS.map(lambda group: group),
        }
        one = kinds[kind]
        key, value = data.draw(one)
        event: object
        if (kind, source) not in reported.last or data.draw(st.integers(0, 3)) == 0:
            event = Snapshot(dict(data.draw(st.lists(one, max_size=4))))
        elif data.draw(st.integers(0, 5)) == 0:
            event = Interrupted("away")
        else:
            event = Update(key, data.draw(st.sampled_from((value, None))))
        is_first = (kind, source) not in reported.last
        before = {
            node: (reported.cluster_state.node_context(node), reported.cluster_state.node(node))
            for node in NODES
        }
        changed = reported.observe(kind, source, event)
        for node in NODES:
            if changed is not None and node not in changed:
                now = reported.cluster_state.node_context(node), reported.cluster_state.node(node)
                assert now[0] == before[node][0], f"{node} changed and was not returned"
                assert is_first or now == before[node], f"{node} changed and was not returned"
    again = Randomly()
    for (kind, source), items in data.draw(st.permutations(list(reported.last.items()))):
        order = dict(data.draw(st.permutations(list(items.items()))))
        again.observe(kind, source, Snapshot({}))
        for key, value in order.items():
            again.observe(kind, source, Update(key, value))
    assert again.everything() == reported.everything()
