"""Changes that a replica reports of what is published: once, also what it did not publish
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.inputs.cluster_state import ClusterState
from aggregator.notify.notifier import Notifier
from aggregator.notify.pod_labels import PodLabelWriter
from aggregator.rank_tables.plugin import RankTables
from contract.pages.changes import JobChange
from pacing.cooperative import run_to_completion
from service.election.leadership import AlwaysLeader
from service.pages.event_stream import Stream
from stores.base import Changed
from tests.aggregator.dpu_faults.scene import without_documents
from tests.aggregator.jobs.scene import Scene, fault
from tests.aggregator.nodes import T0, faulty, healthy, instant, report
from tests.aggregator.notify.notifiers import Book, Pair, Replica
from tests.aggregator.pipelines import LeaderAndFollower, gone, listed
from tests.aggregator.pipelines import PendingPipeline as Nodes

if TYPE_CHECKING:
    import msgspec


CODE = "80E18402"


async def test_a_follower_reports_what_is_published_when_it_is() -> None:
    pair = await Pair().begin()
    pair.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    assert pair.first.rows == [("Ascend910-3", "RestartNPU")]
    assert pair.second.rows == []
    pair.publish(1.1)
    pair.publish(1.2)
    assert pair.second.rows == pair.first.rows
    pair.observe(2, Changed(report("n1", healthy(T0 + 2))))
    pair.publish(2.1)
    assert pair.second.rows == pair.first.rows
    assert pair.second.rows[-1] == ("Ascend910-3", None)


async def test_a_follower_reports_unseen_changes_from_the_document() -> None:
    pair = await Pair().begin()
    changed = Changed(report("n2", faulty(5, T0 + 1)))
    pair.leader.observe(instant(1), changed)
    pair.publish(1.1)
    assert pair.second.rows == [("Ascend910-5", "RestartNPU")]
    pair.follower.observe(instant(1.2), changed)
    pair.second.notifier.inform((), instant(1.2), leads=False)
    pair.publish(1.3)
    assert len(pair.second.rows) == 1


async def test_a_new_leader_reports_what_is_not_published_yet() -> None:
    pair = await Pair().begin()
    pair.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    pair.publish(1.1)
    pair.follower.observe(instant(2), Changed(report("n2", faulty(5, T0 + 2))))
    pair.second.notifier.inform((), instant(2), leads=False)
    pair.take_over(3)
    run_to_completion(pair.second.notifier.begin_leading(lambda: instant(3)))
    run_to_completion(pair.second.notifier.begin_leading(lambda: instant(3)))
    assert pair.second.rows == [("Ascend910-3", "RestartNPU"), ("Ascend910-5", "RestartNPU")]


async def test_changes_while_a_new_leader_informs_are_reported_once() -> None:
    pair = await Pair().begin()
    pair.take_over(3)
    second = pair.second.notifier
    for node, chip in (("n1", 1), ("n2", 2)):
        pair.follower.observe(instant(2), Changed(report(node, faulty(chip, T0 + 2))))
    second.inform((), instant(2), leads=False)
    work = second.begin_leading(lambda: instant(3))
    assert next(work) == 1
    assert pair.second.rows == [("Ascend910-1", "RestartNPU")]
    pair.follower.observe(instant(4), Changed(report("n2", faulty(5, T0 + 4))))
    second.inform((), instant(4), leads=True)
    run_to_completion(work)
    assert pair.second.rows == [("Ascend910-1", "RestartNPU"), ("Ascend910-5", "RestartNPU")]


async def test_a_deleted_node_is_over_for_both() -> None:
    pair = await Pair().begin()
    pair.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    pair.publish(1.1)
    pair.observe(2, gone("n1"))
    pair.publish(2.1)
    assert pair.first.rows[-1] == ("Ascend910-3", None)
    assert pair.second.rows == pair.first.rows


async def test_after_a_restart_what_is_published_is_no_news() -> None:
    pair = await Pair().begin()
    pair.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    pair.publish(1.1)
    again = LeaderAndFollower()
    again.leader.pipeline.restore_documents(pair.stored())
    replica = Replica(again.leader)
    await replica.notifier.seed(instant(2))
    again.leader.observe(instant(2), listed(n1=faulty(3, T0 + 1), n2=healthy()))
    run_to_completion(replica.notifier.begin_leading(lambda: instant(2)))
    assert replica.rows == []
    again.leader.observe(instant(3), Changed(report("n1", healthy(T0 + 3))))
    replica.notifier.inform((), instant(3), leads=True)
    assert replica.rows == [("Ascend910-3", None)]


async def test_a_client_of_the_stream_is_sent_which_jobs_are_hit() -> None:
    scene = Scene(nodes=2)
    sent: list[tuple[msgspec.Struct, object]] = []

    class Sent(Stream):
        def send(self, name: str, change: msgspec.Struct, nodes: object = ()) -> None:
            assert name == "job"
            sent.append((change, nodes))

    nodes = Nodes()
    notifier = Notifier(
        nodes.pipeline,
        ClusterState([True]),
        scene.job_view,
        RankTables(1),
        Sent("1"),
        Book(),  # type: ignore[arg-type]
        PodLabelWriter((), scene.job_view.labels, AlwaysLeader("")),
        without_documents(),
    )
    scene.pod("a", "n0", "job", "0 1")
    scene.chips("n0", fault(1, "RestartNPU", "80E18402"))
    notifier.inform((), instant(1), leads=True)
    scene.chips("n0")
    notifier.inform((), instant(2), leads=True)
    notifier.inform((), instant(3), leads=True)
    (began, about), (ended, _) = sent
    assert isinstance(began, JobChange)
    assert isinstance(ended, JobChange)
    assert about == ("n0",)
    assert (began.job, began.health, began.nodes, began.is_over) == (
        *("job", "UnHealthy", ("n0",)),
        False,
    )
    assert (ended.health, ended.nodes, ended.is_over) == ("Healthy", ("n0",), True)
