"""What documents of RDMA plugins show, and when they show nothing any more."""

from __future__ import annotations

import json

import msgspec
import pytest

from contract.documents.dpu_info import DATA_KEY
from stores.base import Document
from stores.cluster import Snapshot
from stores.interruption import Interrupted
from tests.aggregator.dpu_faults.scene import (
    CARD_DROP,
    LANE_DOWN,
    PORT_DOWN,
    Scene,
    dpu_document,
)
from tests.aggregator.nodes import T0, instant

MINUTE = 60.0


def altered(document: Document, text: str) -> Document:
    return msgspec.structs.replace(document, data={DATA_KEY: text})


def test_faults_of_devices_and_of_the_node_are_shown() -> None:
    scene = Scene()
    assert scene.lists(dpu_document("n1", PORT_DOWN, LANE_DOWN, CARD_DROP))
    assert scene.codes() == ["22000026", "21000024", "21000023"]
    assert scene.documents.status().devices == 2
    assert scene.shows(dpu_document("n1", LANE_DOWN, at=5), at=5)
    assert scene.codes() == ["21000023"]


def test_a_document_that_is_only_newer_needs_no_step() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN))
    for minutes in range(5, 60, 5):
        assert not scene.shows(
            dpu_document("n1", PORT_DOWN, at=minutes * MINUTE), at=minutes * MINUTE
        )
    assert scene.documents.blind("n1") is None


def test_a_document_of_more_than_15_minutes_is_blind_and_its_faults_stay() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN))
    assert scene.dpu_faults.next_due_ms() == 15 * 60_000
    scene.step(15 * MINUTE - 1)
    assert scene.documents.blind("n1") is None
    scene.step(15 * MINUTE)
    blind = scene.documents.blind("n1")
    assert blind is not None
    assert blind.since_ms == (T0 + 15 * 60) * 1000
    assert "has not been written for 15 minutes" in blind.reason
    assert scene.codes() == ["21000024"]
    (began,) = scene.documents.pop_blind_changes(instant(15 * MINUTE))
    assert (began.node, began.source, began.is_over) == ("n1", "dpuinfo", False)
    assert scene.shows(dpu_document("n1", at=20 * MINUTE), at=20 * MINUTE)
    assert scene.documents.blind("n1") is None
    (ended,) = scene.documents.pop_blind_changes(instant(20 * MINUTE))
    assert ended.is_over
    assert scene.codes() == []


def test_a_document_that_is_old_when_it_is_read_first_is_blind_at_once() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN, at=-16 * MINUTE))
    assert scene.documents.blind("n1") is not None
    assert scene.codes() == ["21000024"]


def test_a_document_that_becomes_old_sooner_than_others_starts_a_step() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1"))
    assert scene.shows(dpu_document("n2", at=-14 * MINUTE))
    assert scene.dpu_faults.next_due_ms() == 60_000


def test_a_clock_that_is_ahead_hides_no_silence() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", at=3600))
    scene.step(15 * MINUTE)
    assert scene.documents.blind("n1") is not None


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"UpdateTime":-1}'])
def test_a_malformed_document_changes_nothing_and_is_named(text: str) -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN))
    assert scene.shows(altered(dpu_document("n1"), text), at=1)
    assert scene.codes() == ["21000024"]
    blind = scene.documents.blind("n1")
    assert blind is not None
    assert "DpuInfoCfg" in blind.reason
    assert "its last good content counts" in blind.reason
    assert scene.documents.status().unreadable == 1
    scene.shows(dpu_document("n1", at=2), at=2)
    assert scene.documents.blind("n1") is None
    assert scene.codes() == []


def test_a_document_without_its_key_that_never_was_good_is_blind() -> None:
    scene = Scene()
    scene.lists(Document("kube-system", "dpuinfo-n1", {}))
    blind = scene.documents.blind("n1")
    assert blind is not None
    assert "it never was good" in blind.reason


def test_a_node_event_of_another_node_is_left_out_and_named() -> None:
    scene = Scene()
    document = dpu_document("n1", CARD_DROP, LANE_DOWN)
    content = json.loads(document.data[DATA_KEY])
    content["DPUInfo"]["NodeEvent"]["NodeName"] = "n2"
    scene.places.see_report("n2", None)
    scene.lists(altered(document, json.dumps(content)))
    assert scene.codes() == ["21000023"]
    assert scene.codes("n2") == []
    (problem,) = scene.documents.problems("n1")
    assert "counts for node 'n1' only" in problem


def test_what_no_fault_can_be_is_left_out_and_named() -> None:
    scene = Scene()
    document = dpu_document("n1", LANE_DOWN, PORT_DOWN)
    content = json.loads(document.data[DATA_KEY])
    content["DPUInfo"]["DPUList"][1]["FaultList"][0]["FaultCode"] = ""
    content["DPUInfo"]["DPUList"] += [
        {"HcaName": "", "FaultList": content["DPUInfo"]["DPUList"][0]["FaultList"]},
        {"HcaName": "mlx5_2", "FaultList": None},
    ]
    content["DPUInfo"]["NodeEvent"] = None
    scene.lists(altered(document, json.dumps(content)))
    assert scene.codes() == ["21000024"]
    assert len(list(scene.documents.problems("n1"))) == 2


def test_a_document_of_a_node_that_does_not_exist_is_counted_and_not_shown() -> None:
    scene = Scene()
    scene.lists(dpu_document("gone", PORT_DOWN))
    assert scene.codes("gone") == []
    assert scene.documents.status().without_node == 1
    assert scene.documents.status().faults == 0


def test_a_document_that_is_deleted_ends_its_faults() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN))
    assert scene.deletes("n1", at=1)
    assert scene.codes() == []
    scene.lists(dpu_document("n1", PORT_DOWN, at=2), at=2)
    assert scene.lists(at=3)
    assert scene.codes() == []


def test_a_document_that_a_list_cannot_read_keeps_its_faults() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN))
    scene.documents.observe_event(0, Snapshot({}, frozenset({"dpuinfo-n1"})), instant(1))
    assert scene.codes() == ["21000024"]


def test_an_interrupted_watch_changes_no_fault_and_is_named() -> None:
    scene = Scene()
    scene.lists(dpu_document("n1", PORT_DOWN))
    scene.documents.observe_event(0, Interrupted("the API server is away"), instant(1))
    assert scene.codes() == ["21000024"]
    assert scene.documents.status().interrupted == {"0": "the API server is away"}


def test_of_two_stores_the_newest_document_counts() -> None:
    scene = Scene(stores=2)
    scene.lists(dpu_document("n1", PORT_DOWN, at=-10))
    scene.lists(dpu_document("n1", LANE_DOWN), store=1)
    assert scene.codes() == ["21000023"]
