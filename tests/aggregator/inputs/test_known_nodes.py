"""Which nodes and chips there are, for public faults: from documents, Nodes and pods."""

from __future__ import annotations

from aggregator.inputs.cluster_state import ClusterState
from aggregator.inputs.known_nodes import PATIENCE_MS, KnownNodes
from aggregator.inputs.node_context import NodeState, PodState
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from stores.base import Changed, Deleted, Document, DocumentsListed
from stores.cluster import Snapshot, Update
from stores.interruption import Interrupted
from tests.aggregator.nodes import healthy, instant, report

KUBERNETES, BROKER = 0, 1
FOREVER = PATIENCE_MS / 1000


class Scene:
    """A cluster with an API server and, on demand, a broker."""

    def __init__(self, *stores: bool) -> None:
        self.cluster_state = ClusterState(stores)
        sources = tuple(DocumentSource(f"store-{number}:") for number in range(len(stores)))
        self.pipeline = Pipeline(sources, 45)
        self.places = KnownNodes(sources, self.cluster_state)
        self.look(0)

    def documents(self, source: int, *documents: Document) -> None:
        self.pipeline.observe_event(
            self.pipeline.sources[source].devices, DocumentsListed(documents), instant(0)
        )

    def nodes(self, source: int, *states: NodeState) -> None:
        self.cluster_state.observe_nodes(source, Snapshot({one.name: one for one in states}))

    def look(self, seconds: float, *nodes: str) -> None:
        self.places.update({*self.pipeline.dirty, *nodes}, instant(seconds))

    def synced(self) -> bool:
        return self.places.synced


def test_nodes_that_are_listed_late_are_there_with_their_serial_numbers() -> None:
    """The first list of Nodes failed, or the right to it came later: no event comes for each."""
    scene = Scene(True)
    scene.documents(KUBERNETES)
    scene.cluster_state.observe_nodes(KUBERNETES, Interrupted("no rights"))
    scene.look(FOREVER)
    assert scene.synced()
    assert not scene.places.has_node("n1")
    scene.nodes(KUBERNETES, NodeState("n1", serial_number="SN-1"))
    scene.look(FOREVER)
    assert scene.places.has_node("n1")
    assert scene.places.node_of("SN-1") == "n1"


def test_a_list_of_nodes_that_failed_once_is_waited_for() -> None:
    scene = Scene(True)
    scene.documents(KUBERNETES)
    scene.cluster_state.observe_nodes(KUBERNETES, Interrupted("no answer"))
    scene.look(1)
    assert not scene.synced()
    scene.nodes(KUBERNETES, NodeState("n1"))
    scene.look(1)
    assert scene.synced()


def test_without_the_right_to_nodes_documents_name_them() -> None:
    scene = Scene(True)
    scene.documents(KUBERNETES, report("n1", healthy()))
    scene.cluster_state.observe_nodes(KUBERNETES, Interrupted("no rights"))
    scene.look(FOREVER)
    assert scene.synced()
    assert scene.places.has_node("n1")
    assert "Ascend910-3" in (scene.places.chips("n1") or ())


def test_a_store_that_is_away_for_ever_blocks_no_other_for_long() -> None:
    scene = Scene(True, False)
    scene.nodes(KUBERNETES, NodeState("n1"))
    scene.documents(KUBERNETES)
    scene.look(FOREVER - 1)
    assert not scene.synced()
    scene.look(FOREVER)
    assert scene.synced()
    assert scene.places.has_node("n1")
    scene.documents(BROKER, report("n2", healthy()))
    scene.look(100)
    assert scene.places.has_node("n2")


def test_while_no_store_answers_nothing_is_known() -> None:
    scene = Scene(True)
    scene.look(1000)
    assert not scene.synced()


def test_a_node_whose_document_is_refused_is_there() -> None:
    scene = Scene(False)
    scene.documents(KUBERNETES, report("n1", {"DeviceInfoCfg": "{"}))
    scene.look(0)
    assert scene.places.has_node("n1")
    assert scene.places.chips("n1") is None


def test_chips_are_known_as_long_as_their_node_is() -> None:
    scene = Scene(True)
    watch = scene.pipeline.sources[KUBERNETES].devices
    scene.documents(KUBERNETES, report("n1", healthy()))
    used = PodState("uid", "n1", chips=("Ascend910-9",))
    scene.cluster_state.observe_pods(KUBERNETES, Snapshot({"uid": used}))
    scene.nodes(KUBERNETES, NodeState("n1"))
    scene.look(0)
    assert len(scene.places.chips("n1") or ()) == 9
    scene.cluster_state.observe_pods(KUBERNETES, Update("uid", None))
    scene.pipeline.observe_event(watch, Changed(report("n1", healthy(1_760_000_001))), instant(1))
    scene.look(1, "n1")
    assert "Ascend910-9" in (scene.places.chips("n1") or ())
    gone = report("n1", {})
    scene.pipeline.observe_event(watch, Deleted(gone.namespace, gone.name), instant(2))
    scene.look(2)
    assert len(scene.places.chips("n1") or ()) == 9
    scene.cluster_state.observe_nodes(KUBERNETES, Update("n1", None))
    scene.look(3, "n1")
    assert scene.places.chips("n1") is None
