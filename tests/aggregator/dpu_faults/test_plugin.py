"""Which public faults follow from documents of RDMA plugins, and only by an option."""

from __future__ import annotations

import json

from aggregator.public_faults.plugin import PublicFaultsPlugin
from contract.documents.dpu_info import DpuFault
from tests.aggregator.dpu_faults.scene import (
    CARD_DROP,
    LANE_DOWN,
    PORT_DOWN,
    Scene,
    dpu_document,
)
from tests.aggregator.kept_texts import kept_texts
from tests.aggregator.nodes import T0, healthy, instant, record

ALL = tuple(range(8))


def short(scene: Scene) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(one.code, one.level, one.devices) for one in scene.published()]


def test_without_the_option_nothing_is_published() -> None:
    scene = Scene(chips={"mlx5_0": (0,)})
    scene.lists(dpu_document("n1", PORT_DOWN, CARD_DROP))
    assert short(scene) == []
    (_, because) = scene.dpu_faults.explained("n1")[0]
    assert because == "it is only shown: dpu_faults.publish is off"


def test_without_a_map_the_whole_node_is_at_most_pre_separated() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN, LANE_DOWN, CARD_DROP))
    assert sorted(short(scene)) == [
        ("021000023", "SubHealthFault", ALL),
        ("021000024", "PreSeparateNPU", ALL),
        ("022000026", "PreSeparateNPU", ALL),
    ]
    assert {one.time_seconds for one in scene.published()} == {T0 - 60}


def test_a_device_in_the_map_separates_its_chips() -> None:
    scene = Scene(publishes=True, chips={"mlx5_0": (2, 3, 31), "mlx5_1": ()})
    scene.lists(dpu_document("n1", PORT_DOWN, LANE_DOWN))
    assert short(scene) == [("021000024", "SeparateNPU", (2, 3))]
    (explained,) = [one for one in scene.dpu_faults.explained("n1") if one[0] == PORT_DOWN]
    (other,) = [one for one in scene.dpu_faults.explained("n1") if one[0] == LANE_DOWN]
    assert other[1] == "it is only shown: dpu_faults.chips has no chip for mlx5_1"
    assert explained[1] == "published as public fault 021000024 at SeparateNPU of chips 2, 3"


def test_a_map_to_chips_that_the_node_lacks_counts_as_none_and_is_named() -> None:
    scene = Scene(publishes=True, chips={"mlx5_0": (30,)})
    scene.lists(dpu_document("n1", PORT_DOWN))
    assert short(scene) == [("021000024", "PreSeparateNPU", ALL)]
    assert "names no chip of the node for mlx5_0" in scene.dpu_faults.status().problems["n1"]


def test_a_level_or_code_that_is_not_known_is_shown_and_not_published() -> None:
    scene = Scene(publishes=True)
    strange = DpuFault("mlx5_0", "21000024", "Separate"), DpuFault("mlx5_1", "7", "SeparateDPU")
    scene.lists(dpu_document("n1", *strange))
    assert len(scene.codes()) == 2
    assert short(scene) == []
    assert "'Separate' is not known" in scene.dpu_faults.status().problems["n1"]
    assert "'7' is not known" in scene.dpu_faults.status().problems["n1"]


def test_a_fault_that_ends_is_published_for_5_s_at_least() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN))
    scene.shows(dpu_document("n1", at=1), at=1)
    assert len(scene.published()) == 1
    scene.step(5)
    assert scene.published() == []


def test_a_fault_that_returns_before_its_end_stays() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN))
    scene.shows(dpu_document("n1", at=1), at=1)
    scene.shows(dpu_document("n1", PORT_DOWN, at=2), at=2)
    scene.step(60)
    (fault,) = scene.published()
    assert fault.ends_at_ms is None


def test_another_level_replaces_the_published_one() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN))
    milder = DpuFault("mlx5_0", "21000024", "SubHealthFault", PORT_DOWN.since_ms)
    scene.shows(dpu_document("n1", milder, at=9), at=9)
    assert short(scene) == [("021000024", "SubHealthFault", ALL)]


def test_a_document_that_falls_silent_changes_nothing_that_is_published() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN))
    scene.step(3600)
    assert len(scene.published()) == 1


def test_chips_that_are_reported_later_are_published_then() -> None:
    scene = Scene(publishes=True)
    scene.places.see_report("n1", None)
    scene.places.synced = False
    scene.lists(dpu_document("n1", PORT_DOWN))
    assert "no chip of the node is known yet" in scene.dpu_faults.status().problems["n1"]
    assert short(scene) == []
    scene.places.see_report("n1", record(healthy()))
    scene.places.synced = True
    scene.step(1)
    assert short(scene) == [("021000024", "PreSeparateNPU", ALL)]
    assert scene.dpu_faults.status().problems == {}


def restarted(scene: Scene, *, publishes: bool) -> Scene:
    """Return the next run, which restores what this one has kept, before it has read anything."""
    public = PublicFaultsPlugin(scene.places)
    public.restore(kept_texts(scene.public), instant(10))
    return Scene(publishes=publishes, public=public)


def test_a_restart_keeps_what_is_published_until_the_documents_are_listed() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN, LANE_DOWN))
    again = restarted(scene, publishes=True)
    again.step(11)
    assert len(again.published()) == 2
    again.lists(dpu_document("n1", LANE_DOWN, at=12), at=12)
    assert [one.code for one in again.published()] == ["021000023"]
    gone = restarted(again, publishes=True)
    gone.lists(at=20)
    assert gone.published() == []


def test_a_restart_without_the_option_ends_what_was_published() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN))
    again = restarted(scene, publishes=False)
    again.step(11)
    assert again.published() == []


def test_another_table_of_public_codes_changes_no_level() -> None:
    scene = Scene(publishes=True)
    scene.lists(dpu_document("n1", PORT_DOWN))
    table = {
        "publicFaultCode": {"SeparateNPUCodes": ["021000024"]},
        "publicFaultResource": ["CCAE"],
    }
    scene.public.configure(json.dumps(table))
    assert short(scene) == [("021000024", "PreSeparateNPU", ALL)]
