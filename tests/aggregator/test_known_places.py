"""Which nodes and chips there are, from documents, Nodes and pods."""

from __future__ import annotations

from aggregator.facts import NodeState
from aggregator.known_places import ClusterPlaces
from aggregator.world import World
from stores.base import Changed, Interrupted
from stores.cluster import Update
from tests.aggregator.nodes import healthy, moment, report
from tests.aggregator.test_pipeline import World as Nodes
from tests.aggregator.test_pipeline import gone, listed
from tests.aggregator.test_world import listed as pods
from tests.aggregator.test_world import nodes, pod


class Both:
    """A pipeline and a world, and the places that they make."""

    def __init__(self) -> None:
        self.reports = Nodes()
        self.world = World([True])
        self.places = ClusterPlaces(self.reports.pipeline, self.world)

    def observe(self, *events: object) -> None:
        """Events of device-infos; the places look before they are judged, as in the daemon."""
        pipeline = self.reports.pipeline
        for event in events:
            pipeline.observe(pipeline.sources[0].devices, event, moment(0))  # type: ignore[arg-type]
        self.places.look(pipeline.dirty)
        pipeline.step(moment(0))


def is_synced(both: Both) -> bool:
    """Whether nobody is unknown only because nothing was read yet."""
    return both.places.synced


def state(name: str, serial_number: str = "") -> NodeState:
    return NodeState(name, serial_number=serial_number)


def test_nobody_is_unknown_before_documents_and_nodes_were_listed() -> None:
    both = Both()
    both.observe(Interrupted("not yet"))
    assert not is_synced(both)
    both.world.observe_nodes(0, nodes(state("n2", "SN-2")))
    both.observe()
    assert not is_synced(both), "no document was read"
    both.observe(listed(n1=healthy()))
    assert is_synced(both)
    assert both.places.has_node("n1")
    assert both.places.has_node("n2"), "the first list of Nodes is told of by no node"
    assert both.places.node_of("SN-2") == "n2"
    assert both.places.node_of("") is None
    assert not both.places.has_node("n3")
    assert both.places.chips("n2") is None


def test_without_rights_to_nodes_the_documents_say_which_there_are() -> None:
    both = Both()
    both.observe(listed(n1=healthy()))
    assert not is_synced(both)
    both.world.observe_nodes(0, Interrupted("no rights"))
    both.observe()
    assert is_synced(both)
    assert both.places.has_node("n1")


def test_a_node_goes_with_its_document_and_its_object() -> None:
    both = Both()
    both.world.observe_nodes(0, nodes(state("n1", "SN-1")))
    both.observe(listed(n1=healthy()))
    chips = both.places.chips("n1")
    assert chips is not None
    assert len(chips) == 8
    both.observe(gone("n1"))
    assert both.places.has_node("n1")
    moved = both.world.observe_nodes(0, Update("n1", None))
    both.places.look(moved or ())
    assert not both.places.has_node("n1")
    assert both.places.node_of("SN-1") is None
    assert both.places.chips("n1") is None


def test_a_chip_that_only_a_pod_names_is_there() -> None:
    both = Both()
    both.world.observe_nodes(0, nodes())
    both.observe(listed(n1=healthy()))
    assert "Ascend910-15" not in (both.places.chips("n1") or ())
    both.world.observe_pods(0, pods(pod("a", "n1", "Ascend910-15")))
    both.observe(Changed(report("n1", healthy(1_760_000_001))))
    assert "Ascend910-15" in (both.places.chips("n1") or ())


def test_a_serial_number_that_moves() -> None:
    both = Both()
    both.world.observe_nodes(0, nodes(state("n1", "SN-1"), state("n2")))
    both.observe(listed())
    both.world.observe_nodes(0, Update("n1", state("n1")))
    both.world.observe_nodes(0, Update("n2", state("n2", "SN-1")))
    both.places.look(["n2", "n1"])
    assert both.places.node_of("SN-1") == "n2"
