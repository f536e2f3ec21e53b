"""What agents report of blind sources: read, shown by node and chip, and never in the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aggregator.agent_reports.blindness import BlindChanges, blind_statuses
from aggregator.inputs.node_documents import DocumentSource
from aggregator.merge.pipeline import Pipeline
from contract.documents.node_info import encode_node_info
from contract.documents.vigil_key import VIGIL_KEY, BlindSource, encode_vigil_key
from contract.names import NODE_INFO_NAMESPACE, REPORT_LABEL, node_info_name
from contract.pages.blind import BlindStatus
from service.clock import Instant
from stores.base import Beat, Changed, Deleted, Document, DocumentsListed
from stores.interruption import Interrupted
from tests.aggregator.nodes import T0, faulty, healthy, report
from tests.aggregator.notify.event_reader import listening, next_event

if TYPE_CHECKING:
    from stores.base import Store
    from tests.aggregator.daemon import Daemon

SINCE_MS = 1_795_000_000_000
WHY = "dcmi_get_device_errorcode_v2 on chip 3 does not return"
CHIP_3 = BlindSource("chip-faults", SINCE_MS, WHY, 3)
BMC = BlindSource("bmc", SINCE_MS + 1, "ipmitool: no answer")
SHOWN = BlindStatus("chip-faults", SINCE_MS, WHY, "Ascend910-3")
NOW = Instant(SINCE_MS + 5, 1_000)


def with_key(data: dict[str, str], *blind: BlindSource, changed_at_ms: int = 0) -> dict[str, str]:
    text = encode_vigil_key(blind, changed_at_ms)
    return data if text is None else data | {VIGIL_KEY: text}


class Bench:
    """A pipeline that reads one store or more."""

    def __init__(self, *stores: str) -> None:
        self.pipeline = Pipeline(map(DocumentSource, stores or ("test:",)), 45.0)
        self.changes = BlindChanges(self.pipeline)

    def put(self, data: dict[str, str], node: str = "n1", store: int = 0) -> frozenset[str]:
        """Apply a device-info; return the nodes that are merged anew."""
        watch = self.pipeline.sources[store].devices
        return watch.observe_event(Changed(report(node, data)), NOW.wall_ms + store)

    def put_node_info(self, *blind: BlindSource, node: str = "n1", changed_at_ms: int = 0) -> None:
        upstream = encode_node_info((), "Healthy", "2026-11-23T08:00:00Z")
        data = with_key(upstream, *blind, changed_at_ms=changed_at_ms)
        document = Document(NODE_INFO_NAMESPACE, node_info_name(node), data, dict([REPORT_LABEL]))
        self.pipeline.sources[0].nodes.observe_event(Changed(document), NOW.wall_ms)

    def blind(
        self, node: str = "n1", heartbeat: bool | None = None
    ) -> tuple[BlindStatus, ...] | None:
        return blind_statuses(self.pipeline, node, heartbeat)

    def changed(self) -> list[tuple[str, str | None, str, bool]]:
        return [
            (one.node, one.chip, one.source, one.is_over)
            for one in self.changes.pop_changes(NOW.wall_ms)
        ]


def test_a_blind_chip_is_shown_with_since_and_why() -> None:
    bench = Bench()
    bench.put(with_key(healthy(), CHIP_3, BMC))
    assert bench.blind() == (
        SHOWN,
        BlindStatus("bmc", SINCE_MS + 1, "ipmitool: no answer"),
    )
    assert bench.changed() == [
        ("n1", "Ascend910-3", "chip-faults", False),
        ("n1", None, "bmc", False),
    ]
    bench.put(with_key(healthy(T0 + 1), BMC))
    assert bench.changed() == [("n1", "Ascend910-3", "chip-faults", True)]
    bench.put(healthy(T0 + 2))
    assert bench.changed() == [("n1", None, "bmc", True)]
    assert bench.changed() == []


def test_without_the_key_nothing_is_known_unless_the_heartbeat_has_it() -> None:
    bench = Bench()
    bench.put(healthy())
    assert bench.blind() is None, "an agent of an earlier release"
    assert bench.blind(heartbeat=False) == ()
    (only,) = bench.blind(heartbeat=True) or ()
    assert (only.chip, only.source, only.since_ms) == (None, "heartbeat", None)
    bench.put(with_key(healthy(T0 + 1), CHIP_3))
    assert bench.blind(heartbeat=True) == (SHOWN,), "the key has more"
    assert bench.blind(heartbeat=None) == (SHOWN,)


@pytest.mark.parametrize("bad", ["{", '{"version":2}', '{"version":1,"blind":[{}]}'])
def test_a_malformed_key_leaves_the_last_good_one_and_changes_nothing_else(bad: str) -> None:
    bench = Bench()
    bench.put(with_key(healthy(), CHIP_3))
    cache = bench.pipeline.sources[0].devices.own_key
    for number in range(3):
        assert bench.put(faulty(update_time=T0 + 1 + number) | {VIGIL_KEY: bad}) == {"n1"}
        assert bench.blind() == (SHOWN,)
    assert cache.rejected_total == 1, "named once, while it stays the same"
    assert VIGIL_KEY in cache.rejected["n1"].reason
    device = bench.pipeline.sources[0].device
    assert device.reports["n1"].record.update_time == T0 + 3, "the document itself counts"
    assert not device.rejected
    bench.put(healthy(T0 + 9))
    assert not cache.rejected
    assert bench.blind() is None


def test_of_a_key_that_was_never_good_nothing_is_known() -> None:
    bench = Bench()
    bench.put(healthy() | {VIGIL_KEY: "{"})
    assert bench.blind(heartbeat=False) is None
    assert bench.blind(heartbeat=True) is not None


def test_a_document_that_is_refused_ends_nothing() -> None:
    bench = Bench()
    bench.put(with_key(healthy(), CHIP_3))
    bench.put({})
    assert bench.blind() == (SHOWN,)
    bench.put({"DeviceInfoCfg": "{"})
    assert bench.blind() == (SHOWN,)


def test_the_key_alone_merges_nothing_anew() -> None:
    bench = Bench()
    assert bench.put(healthy()) == {"n1"}
    assert bench.put(with_key(healthy(), CHIP_3)) == frozenset()
    assert bench.put(healthy()) == frozenset()


@pytest.mark.slow
def test_a_deleted_document_takes_its_key_along_and_a_missing_store_does_not() -> None:
    bench = Bench()
    watch = bench.pipeline.sources[0].devices
    bench.put(with_key(healthy(), CHIP_3))
    bench.changed()
    watch.observe_event(Interrupted("no route to host"), NOW.wall_ms)
    assert bench.blind() == (SHOWN,)
    watch.observe_event(DocumentsListed((report("n1", with_key(healthy(), CHIP_3)),)), NOW.wall_ms)
    assert bench.changed() == []
    place = report("n1", {})
    watch.observe_event(Deleted(place.namespace, place.name), NOW.wall_ms)
    assert bench.blind() is None
    assert [is_over for *_, is_over in bench.changed()] == [True]


def test_the_key_of_a_node_counts_for_this_node_only() -> None:
    bench = Bench()
    bench.put(healthy(), "n2")
    bench.put(with_key(healthy(), CHIP_3), "n1")
    assert bench.blind("n2", heartbeat=False) == ()
    assert {node for node, *_ in bench.changed()} == {"n1"}


def test_the_key_in_node_info_counts_before_the_one_in_device_info() -> None:
    bench = Bench()
    bench.put(with_key(healthy(), CHIP_3))
    bench.put_node_info(BMC)
    assert [one.source for one in bench.blind() or ()] == ["bmc"]


@pytest.mark.parametrize("is_node_info_first", [True, False])
def test_of_two_documents_with_the_key_the_one_that_changed_last_counts(
    is_node_info_first: bool,
) -> None:
    """Whichever arrives first, as when an aggregator starts: what is older is not shown."""
    for at_ms, expected in ((SINCE_MS + 10, "chip-faults"), (SINCE_MS + 5, "bmc")):
        bench = Bench()
        if is_node_info_first:
            bench.put_node_info(BMC, changed_at_ms=SINCE_MS + 7)
        bench.put(with_key(healthy(), CHIP_3, changed_at_ms=at_ms))
        if not is_node_info_first:
            bench.put_node_info(BMC, changed_at_ms=SINCE_MS + 7)
        assert [one.source for one in bench.blind() or ()] == [expected]
        assert {source for _, _, source, _ in bench.changed()} == {expected}


def test_of_two_stores_the_newer_report_counts() -> None:
    bench = Bench("one:", "two:")
    bench.put(with_key(healthy(), CHIP_3), store=0)
    bench.put(with_key(healthy(), BMC), store=1)
    assert [one.source for one in bench.blind() or ()] == ["bmc"]


def test_a_chip_of_unknown_type_has_its_number() -> None:
    bench = Bench()
    bench.put_node_info(CHIP_3)
    assert [one.chip for one in bench.blind() or ()] == ["chip 3"]


@pytest.mark.parametrize("kind", ["directory"])
@pytest.mark.timeout(120)
async def test_a_real_aggregator_shows_it_and_after_a_restart_as_well(
    store: Store, daemon: Daemon
) -> None:
    await store.put(report("n1", with_key(healthy(), CHIP_3, BMC)))
    await store.put(report("n2", healthy()))
    await store.put(report("n3", healthy()))
    await store.beat(Beat("n3", "host", 5.0, 1, blind=False))
    await asyncio.to_thread(daemon.start)
    blind_chip = {
        "chip": "Ascend910-3",
        "source": "chip-faults",
        "since_ms": SINCE_MS,
        "reason": WHY,
    }
    for is_restarted in (False, True):
        if is_restarted:
            daemon.stop()
            await asyncio.to_thread(daemon.start)
        assert blind_chip in daemon.node("n1")["blind"]
        assert daemon.node("n2")["blind"] is None
        daemon.process.wait_until(lambda: daemon.node("n3")["blind"] == [], 10)
        explained = daemon.ask("/api/v1/nodes/n1")[1]
        (chip,) = (one for one in explained["chips"] if one["blind"])
        assert (chip["chip"], chip["published"]) == ("Ascend910-3", "available")
        assert chip["blind"] == [blind_chip]
        assert f"no answer since 2026-11-18 11:06:40 UTC: {WHY}" in chip["because"][-1]
        assert any("the source bmc gives" in line for line in explained["because"])
        place = '{chip="Ascend910-3",node="n1",source="chip-faults"}'
        assert daemon.metric(f"npu_vigil_cluster_blind{place}") == 1
        assert (
            daemon.metric(f"npu_vigil_cluster_blind_since_timestamp_seconds{place}")
            == SINCE_MS / 1000
        )
        assert daemon.metric('npu_vigil_blind_nodes{state="blind"}') == 1
        assert daemon.metric('npu_vigil_blind_nodes{state="none"}') == 1
        assert daemon.metric('npu_vigil_blind_nodes{state="unknown"}') == 1
    with listening(daemon) as answer:
        for is_over in (False, True):
            blind = () if is_over else (CHIP_3,)
            await store.put(report("n2", with_key(healthy(T0 + 1 + is_over), *blind)))
            event = next_event(answer)
            assert event.kind == "blind"
            assert event.data.pop("at_ms")
            assert event.data == {"node": "n2", **blind_chip, "is_over": is_over}
    writes = daemon.metric("npu_vigil_publication_writes_total")
    assert writes == 0, "nothing of it is published for upstream's readers"
