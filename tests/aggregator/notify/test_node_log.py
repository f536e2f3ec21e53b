"""What an aggregator logs of nodes: those that come, go and change, ten lines a minute at most."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from aggregator.inputs.node_document_watch import read_documents
from aggregator.inputs.node_documents import DocumentSource
from aggregator.notify.notifier import NodeLog
from contract.pages.changes import FaultChange
from pacing.cooperative import run_to_completion
from service.watchdog import Watchdog
from stores.base import Changed, DocumentsListed
from tests.aggregator.daemon import OUTPUTS, entries
from tests.aggregator.nodes import T0, faulty, healthy, instant, report, unhealthy
from tests.aggregator.notify.notifiers import Pair
from tests.parts.log_lines import lines_of
from tests.parts.watching import watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aggregator.inputs.node_documents import DocumentWatch
    from stores.base import PagedWatchEvent, Selection, Store, WatchEvent
    from tests.aggregator.daemon import Daemon

LOGGER = "aggregator.notify.notifier"
CODE = "80E18402"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


@pytest.mark.looptime
async def test_a_leader_logs_what_nodes_do(log: pytest.LogCaptureFixture) -> None:
    pair = await Pair().begin()
    pair.first.notifier.log = NodeLog()  # what was observed before this was not published by us
    log.clear()
    run_to_completion(pair.first.notifier.begin_leading(lambda: instant(0)))
    assert lines_of(LOGGER, log) == []
    pair.observe(1, Changed(report("n1", faulty(3, T0 + 1))))
    assert lines_of(LOGGER, log) == [
        ("WARNING", f"node n1: Ascend910-3 {CODE}: nothing -> RestartNPU"),
    ]
    pair.observe(2, Changed(report("n1", healthy(T0 + 2))))
    assert lines_of(LOGGER, log)[1:] == [
        ("INFO", f"node n1: Ascend910-3 {CODE}: RestartNPU -> nothing")
    ]
    pair.observe(3, Changed(report("n7", healthy(T0 + 3))))
    assert lines_of(LOGGER, log)[2:] == [("INFO", "node n7 came")]


@pytest.mark.looptime
async def test_standing_faults_are_one_warning(log: pytest.LogCaptureFixture) -> None:
    node_log = NodeLog()
    chips = {(f"Ascend910-{chip}", CODE): "RestartNPU" for chip in range(8)}
    node_log.log_standing({"n2": {("Fan 1", "06000025"): "NotHandleFault"}, "n1": chips})
    ((level, text),) = lines_of(LOGGER, log)
    assert level == "WARNING"
    assert text.startswith("9 faults on 2 nodes: node n1: Ascend910-0 80E18402 RestartNPU; ")
    assert text.endswith(" and 1 more")


@pytest.mark.looptime
async def test_what_waits_for_a_later_line_is_logged_at_the_end(
    log: pytest.LogCaptureFixture,
) -> None:
    node_log = NodeLog()
    for number in range(5):
        node_log.observe_changes(
            [FaultChange(f"n{number}", 0, "Ascend910-3", CODE, None, "RestartNPU")]
        )
    assert len(lines_of(LOGGER, log)) == 3
    node_log.flush()
    level, text = lines_of(LOGGER, log)[3]
    assert (level, text[:40]) == ("WARNING", "2 faults take chips, switches or nodes o")
    node_log.flush()
    assert len(lines_of(LOGGER, log)) == 4


@pytest.mark.slow
@pytest.mark.looptime
async def test_a_fleet_in_trouble_is_ten_lines_a_minute(log: pytest.LogCaptureFixture) -> None:
    node_log = NodeLog()
    node_log.begin_leading([])
    for number in range(3000):
        node = f"n{number}"
        node_log.observe_node(node, is_known=True)
        node_log.observe_changes([FaultChange(node, 0, "Ascend910-3", CODE, None, "RestartNPU")])
        node_log.observe_changes([FaultChange(node, 0, "Ascend910-3", CODE, "RestartNPU", None)])
        node_log.observe_changes(
            [FaultChange(node, 0, "Ascend910-4", CODE, None, "NotHandleFault")]
        )
        node_log.observe_node(node, is_known=False)
        node_log.refuse(node, "device-info", "it is bad")
        node_log.accept(node, "device-info")
        await asyncio.sleep(0.019)
    texts = [text for _, text in lines_of(LOGGER, log)]
    assert 6 <= len(texts) <= 10, texts
    await asyncio.sleep(60)
    counts = [text for _, text in lines_of(LOGGER, log) if "2999 nodes came: n1; n2; " in text]
    assert len(counts) == 1


class Stranger:
    """A store that lists more nodes than are known."""

    url = "a store"

    def __init__(self, events: list[WatchEvent]) -> None:
        self._events = events

    async def watch_by_page(self, _: Selection) -> AsyncIterator[WatchEvent]:
        """Yield the events, and nothing more."""
        for event in self._events:
            yield event
        await asyncio.Event().wait()


@pytest.mark.looptime
async def test_nodes_beyond_the_limit_are_one_line(log: pytest.LogCaptureFixture) -> None:
    watch = DocumentSource("a store", max_nodes=10).devices
    store: Store = Stranger(
        [DocumentsListed(tuple(report(f"n{n}", healthy()) for n in range(500)))]
    )  # type: ignore[assignment]

    def observe(watch: DocumentWatch, event: PagedWatchEvent) -> None:
        watch.observe_event(event, 0)

    reading = asyncio.create_task(read_documents(watch, store, observe, Watchdog(), NodeLog()))
    await asyncio.sleep(61)
    reading.cancel()
    lines = lines_of(LOGGER, log)
    assert len(lines) <= 3
    assert all(level == "WARNING" and "there are already 10 nodes" in text for level, text in lines)
    assert lines[-1][1].startswith("488 documents are refused: ")


@pytest.mark.parametrize("kind", ["directory"])
async def test_a_real_aggregator_names_nodes_and_faults(store: Store, daemon: Daemon) -> None:
    await store.put(report("n1", faulty(3)))
    await store.put(report("n2", healthy()))
    async with watching(store, OUTPUTS) as seen:
        await asyncio.to_thread(daemon.start)
        await seen.until(lambda seen: set(entries(seen)) == {"n1", "n2"})
        await store.put(report("n9", healthy()))
        await store.put(report("n2", faulty(5, T0 + 1)))
        await seen.until(lambda seen: unhealthy(entries(seen)["n2"]) == "Ascend910-5")
        await seen.until(lambda seen: "n9" in entries(seen))
    daemon.stop()
    text = daemon.log.read_text()
    assert "INFO aggregator.api.readiness: everything known is published: 2 nodes" in text
    assert f"WARNING {LOGGER}: 1 fault on 1 node: node n1: Ascend910-3 {CODE} " in text
    assert f"INFO {LOGGER}: node n9 came" in text
    assert f"WARNING {LOGGER}: node n2: Ascend910-5 {CODE}: nothing -> RestartNPU" in text
