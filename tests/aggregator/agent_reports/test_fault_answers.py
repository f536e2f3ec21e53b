"""Severity and ``device_fault`` in the aggregator: the agent's answer, else the catalogue's."""

from __future__ import annotations

import msgspec
import pytest

from aggregator.agent_reports.fault_answers import ChipFaultDetails, FaultDetail
from aggregator.api.fault_status import fault_statuses
from aggregator.inputs.cluster_state import ClusterState as Around
from aggregator.inputs.node_documents import DocumentSource
from aggregator.jobs.job_view import JobView
from aggregator.merge.pipeline import Pipeline
from aggregator.notify.notifier import Notifier
from aggregator.notify.pod_labels import PodLabelWriter
from aggregator.rank_tables.plugin import RankTables
from contract.documents.vigil_key import VIGIL_KEY, BlindSource, FaultAnswer, encode_vigil_key
from contract.pages.changes import FaultChange
from service.election.leadership import AlwaysLeader
from service.pages.event_stream import Stream
from stores.base import Changed
from tests.aggregator.api.explained import explained
from tests.aggregator.dpu_faults.scene import without_documents
from tests.aggregator.nodes import T0, healthy, instant, report
from tests.aggregator.notify.notifiers import Book
from tests.aggregator.pipelines import WrittenPipeline
from tests.contract.documents.node_documents import config, fault

LINK = "81078603"
"""Minor in the catalogue, and a device fault where the tool finds the link down."""
MINOR = "80C98008"
"""Minor in the catalogue."""
UNKNOWN = "80FF1234"
ANSWERS = (
    FaultAnswer(3, LINK, "minor", device_fault=True),
    FaultAnswer(4, MINOR, "critical", device_fault=True),
    FaultAnswer(5, UNKNOWN, "critical", device_fault=True),
)


def with_answers(update_time: int = T0, *answers: FaultAnswer) -> dict[str, str]:
    faults = [
        fault(3, "PreSeparateNPU", LINK),
        fault(4, "NotHandleFault", MINOR),
        fault(5, "SeparateNPU", UNKNOWN),
    ]
    data = config(faults, unhealthy=(5,), update_time=update_time)
    text = encode_vigil_key([], 0, answers)
    return data if text is None else data | {VIGIL_KEY: text}


def shown(bench: WrittenPipeline) -> dict[str, tuple[str | None, bool | None, str | None]]:
    """Return code to what ``/api/v1/faults`` shows of it."""
    return {
        one.code: (one.severity, one.device_fault, one.severity_source)
        for one in fault_statuses(bench.pipeline)
    }


def test_the_agents_answer_counts() -> None:
    bench = WrittenPipeline(report("n1", with_answers(T0, *ANSWERS)))
    assert shown(bench) == {
        LINK: ("minor", True, "agent"),
        MINOR: ("critical", True, "agent"),
        UNKNOWN: ("critical", True, "agent"),
    }


def test_of_a_real_plugins_document_the_catalogue_answers() -> None:
    bench = WrittenPipeline(report("n1", with_answers()))
    assert shown(bench) == {
        LINK: ("minor", False, "catalogue"),
        MINOR: ("minor", False, "catalogue"),
        UNKNOWN: (None, None, "catalogue"),
    }


def test_details_that_the_agent_left_out_come_from_the_catalogue() -> None:
    bench = WrittenPipeline(report("n1", with_answers(T0, FaultAnswer(5, UNKNOWN))))
    assert shown(bench) == {
        LINK: ("minor", False, "catalogue"),
        MINOR: ("minor", False, "catalogue"),
        UNKNOWN: (None, False, "agent"),
    }


def test_an_answer_ends_with_its_document() -> None:
    bench = WrittenPipeline(report("n1", with_answers(T0, *ANSWERS)))
    bench.put(report("n1", with_answers(T0 + 1)), 1)
    assert {source for _, _, source in shown(bench).values()} == {"catalogue"}


def test_the_document_that_counts_has_the_answer() -> None:
    """A node may be in two stores: what an older document has is about that one."""
    pipeline = Pipeline(map(DocumentSource, ("one:", "two:")), 45.0)
    for number, data in enumerate((with_answers(T0, *ANSWERS), with_answers(T0 + 1))):
        pipeline.sources[number].devices.observe_event(Changed(report("n1", data)), T0 * 1000)
    assert ChipFaultDetails(pipeline, "n1").of("Ascend910-5", UNKNOWN) == FaultDetail(
        None, None, "catalogue"
    )


def test_the_explanation_has_the_same() -> None:
    found = explained(WrittenPipeline(report("n1", with_answers(T0, *ANSWERS))), "n1").chips
    (*_, chip) = (one for one in found if one.faults)
    (one,) = chip.faults
    assert (one.code, one.severity, one.device_fault, one.severity_source) == (
        UNKNOWN,
        "critical",
        True,
        "agent",
    )


async def test_the_history_has_the_same() -> None:
    bench = WrittenPipeline(report("n1", healthy()))
    around = Around([True])
    job_view = JobView(around, bench.pipeline.published)
    book = Book()
    notifier = Notifier(
        bench.pipeline,
        around,
        job_view,
        RankTables(1),
        Stream("1"),
        book,  # type: ignore[arg-type]
        PodLabelWriter((), job_view.labels, AlwaysLeader("")),
        without_documents(),
    )
    await notifier.seed(instant(0))

    def step(at: float, data: dict[str, str]) -> None:
        bench.pipeline.observe_event(bench.devices, Changed(report("n1", data)), instant(at))
        bench.pipeline.step(instant(at))
        notifier.inform((), instant(at), leads=True)

    step(1, with_answers(T0 + 1, *ANSWERS))
    kept = {one.code: (one.severity, one.device_fault, one.severity_source) for one in book.changes}
    assert kept == shown(bench)
    again = msgspec.json.decode(msgspec.json.encode(book.changes[0]), type=FaultChange)
    assert again == book.changes[0]
    book.changes.clear()
    step(2, healthy(T0 + 2))
    assert {one.severity_source for one in book.changes} == {None}


@pytest.mark.parametrize("count", [1, 5000])
def test_blind_sources_go_before_answers(count: int) -> None:
    many = [BlindSource("links", 1, "x" * 200, chip) for chip in range(16)]
    answers = [FaultAnswer(3, f"{number:08X}", "minor") for number in range(count)]
    bench = WrittenPipeline(
        report("n1", healthy() | {VIGIL_KEY: encode_vigil_key(many, 7, answers) or ""})
    )
    (cache,) = (source.devices.own_key for source in bench.pipeline.sources)
    record = cache.reports["n1"].record
    assert len(record.blind) == 16
    assert 0 < len(record.faults) <= count
    assert record.faults == tuple(answers[: len(record.faults)])
