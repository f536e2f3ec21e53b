"""What of relation faults the next leader finds (``aggregator.plugin.Keeper``)."""

from __future__ import annotations

import pytest

from aggregator.cluster_documents.published_node import PublishedNode
from tests.aggregator.jobs.scene import (
    CQE,
    LINK_DOWN,
    MAKES_SUB_HEALTHY,
    SEPARATES,
    Scene,
    fault,
    healthy,
)

WINDOW_MS = 300_000
LINK = fault(0, "NotHandleFault", LINK_DOWN)


class Kept:
    """A scene whose job view may be replaced by one with the persistent state alone."""

    def __init__(self) -> None:
        self.scene = Scene(nodes=2)
        self.scene.pod("a", "n0", "job", "0 1")
        self.scene.pod("b", "n1", "job", "0 1")
        self.texts: dict[str, str] = {}

    def restart(self) -> None:
        self.keep()
        self.scene.job_view = self.scene.fresh()
        assert list(self.scene.job_view.restore(self.texts, self.scene.instant())) == []
        self.scene.look("n0", "n1")

    def keep(self) -> None:
        for bucket in self.scene.job_view.pop_changed():
            text = self.scene.job_view.text(bucket)
            if text is None:
                del self.texts[bucket]
            else:
                self.texts[bucket] = text


def test_results_of_relation_faults_are_restored() -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    kept.scene.chips("n1")
    kept.restart()
    assert kept.scene.labels() == {"a": "Separate"}
    kept.scene.chips("n0")
    kept.keep()
    kept.scene.wait(WINDOW_MS)
    kept.keep()
    assert kept.texts == {}, "nothing is left"


def test_how_long_a_fault_waits_already() -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.wait(WINDOW_MS - 1)
    kept.restart()
    kept.scene.wait(1)
    kept.restart()
    kept.scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    assert kept.scene.labels() == {}, "its time was over"


def test_that_a_late_trigger_came() -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK, super_pod=0)
    kept.scene.chips("n1", fault(1, "NotHandleFault", CQE), super_pod=0)
    kept.scene.chips("n1", super_pod=0)
    kept.restart()
    kept.scene.wait(WINDOW_MS)
    assert kept.scene.labels() == {"a": "Separate"}


def test_a_link_that_is_well_again() -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.chips("n0")
    kept.restart()
    kept.scene.chips("n1", fault(1, "NotHandleFault", CQE))
    assert kept.scene.labels() == {"a": "Separate"}


def test_a_fault_that_went_between_two_readings() -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    kept.keep()
    kept.scene.published["n0"] = PublishedNode(device=healthy())
    kept.scene.job_view = kept.scene.fresh()
    kept.scene.job_view.restore(kept.texts, kept.scene.instant())
    kept.scene.look("n0", "n1")
    assert kept.scene.labels() == {}
    message = kept.scene.job_view.message("job")
    assert message is not None
    assert [node.node_name for node in message.nodes] == ["n1"]


@pytest.mark.parametrize("reads", [True, False])
def test_before_pods_and_documents_are_known_nothing_is_forgotten(reads: bool) -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    kept.keep()
    kept.scene.wait(2 * WINDOW_MS)
    if reads:
        kept.scene.lookup.pods_known = False
    else:
        kept.scene.is_read = False
    kept.restart()
    assert kept.scene.job_view.next_due_ms() is None
    kept.keep()
    assert kept.texts
    kept.scene.lookup.pods_known = kept.scene.is_read = True
    kept.scene.look()
    assert kept.scene.labels() == {"a": "Separate"}


def test_of_two_memories_the_one_with_the_stronger_result_counts() -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.chips("n1", fault(1, "NotHandleFault", MAKES_SUB_HEALTHY))
    kept.keep()
    kept.scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    kept.scene.chips("n1")
    assert list(kept.scene.job_view.restore(kept.texts, kept.scene.instant())) == []
    kept.scene.look()
    assert kept.scene.labels() == {"a": "Separate"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"job":[[["n0","x"],{"since_ms":1}]]}',
        '{"job":[[["n0","x","y"],{"since_ms":"1"}]]}',
        '{"job":[[["n0","x","y"],{"since_ms":1,"result":"Restart"}]]}',
        "\ud800",
    ],
)
def test_an_unreadable_bucket_is_reported_and_the_rest_counts(text: str) -> None:
    kept = Kept()
    kept.scene.chips("n0", LINK)
    kept.scene.chips("n1", fault(1, "NotHandleFault", SEPARATES))
    kept.scene.chips("n1")
    kept.keep()
    job_view = kept.scene.fresh()
    (problem,) = job_view.restore({"zz": text, **kept.texts}, kept.scene.instant())
    assert problem.startswith("zz: ")
    kept.scene.job_view = job_view
    kept.scene.look("n0", "n1")
    assert kept.scene.labels() == {"a": "Separate"}
