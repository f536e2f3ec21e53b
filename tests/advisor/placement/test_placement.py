"""Where pods can go, and whether gangs fit (``docs/spec/consumers.md#1.6``, 1.7 and 1.9)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from advisor.advise import Advisor
from advisor.options import AdvisorOptions
from advisor.snapshot import ApartTerm, Requirement, SelectorTerm, Taint, Toleration
from tests.advisor.scene import FORCE, RESOURCE, Chips, Scene, corrected, fault

A2 = {"accelerator": "huawei-Ascend910", "accelerator-type": "module-910b-8"}


def _refusals(scene: Scene, **changes: Any) -> dict[str, str]:
    scene.add("w", [""], FORCE, **changes)
    (placed,) = scene.session().placement
    assert sorted([*placed.accepts, *placed.refuses]) == scene.names()
    return placed.refuses


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_ready": False}, "NotReady"),
        ({"labels": {"accelerator": "huawei-Ascend910"}}, "Selector"),
        ({"taints": (Taint("k", "v", "NoSchedule"),)}, "Taint"),
        ({"taints": (Taint("k", "v", "NoExecute"),)}, "Taint"),
        ({"taints": (Taint("k", "v", "PreferNoSchedule"),)}, None),
        ({"is_cordoned": True}, "Cordoned"),
        ({"allocatable": {"cpu": 500, "pods": 110, RESOURCE: 8}}, "Insufficient"),
        ({"allocatable": {"cpu": 192_000, "pods": 0, RESOURCE: 8}}, "Insufficient"),
        ({"allocatable": {"cpu": 192_000, "pods": 110, RESOURCE: 7}}, "FreeCards"),
        ({"capacity": {RESOURCE: 7}}, "FreeCards"),
        ({"labels": {"accelerator-type": "module-910b-8"}}, "NotInFaultTable"),
    ],
)
def test_reasons_of_nodes(changes: dict[str, Any], reason: str | None) -> None:
    scene = Scene(count=1)
    scene.node_changes["n1"] = changes
    found = _refusals(scene, npus=7)
    assert [why.partition(": ")[0] for why in found.values()] == ([reason] if reason else [])
    assert all(": " in why for why in found.values())


def test_the_first_reason_counts() -> None:
    scene = Scene(count=2)
    scene.hosts["n1"] = "UnHealthy"
    scene.node_changes["n1"] = {"is_cordoned": True, "taints": (Taint("k", "", "NoSchedule"),)}
    scene.add("full", ["n2"], {})
    scene.hosts["n2"] = "UnHealthy"
    found = _refusals(scene)
    assert found["n1"].startswith("NodeUnhealthy: ")
    assert found["n2"].startswith("Insufficient: ")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("l", "Exists"), False),
        (Toleration("", "Equal", "v"), False),
    ],
)
def test_tolerations(toleration: Toleration, is_tolerated: bool) -> None:
    scene = Scene(count=1)
    scene.node_changes["n1"] = {"taints": (Taint("k", "v", "NoSchedule"),)}
    assert (_refusals(scene, tolerations=(toleration,)) == {}) == is_tolerated


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"), True),
        (Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoExecute"), False),
        (Toleration("node.kubernetes.io/not-ready", "Exists"), False),
    ],
)
def test_cordoned_nodes_take_pods_that_tolerate_it(
    toleration: Toleration, is_tolerated: bool
) -> None:
    """As Kubernetes' own filter: ``spec.unschedulable`` counts as the taint of that name."""
    scene = Scene(count=1)
    scene.node_changes["n1"] = {"is_cordoned": True}
    found = _refusals(scene, tolerations=(toleration,))
    assert [why.partition(": ")[0] for why in found.values()] == ["Cordoned"] * (not is_tolerated)


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ("module-910b-8", "x"), True),
        ("In", (), False),
        ("NotIn", ("x",), True),
        ("NotIn", ("module-910b-8",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Gt", ("1",), False),
        ("Unknown", ("x",), False),
    ],
)
def test_required_affinity(operator: str, values: tuple[str, ...], matches: bool) -> None:
    term = SelectorTerm(labels=(Requirement("accelerator-type", operator, values),))
    assert (_refusals(Scene(count=1), node_affinity=(term,)) == {}) == matches


def test_affinity_by_name_and_number() -> None:
    by_name = SelectorTerm(fields=(Requirement("metadata.name", "In", ("n2",)),))
    assert set(_refusals(Scene(count=2), node_affinity=(by_name,))) == {"n1"}
    scene = Scene(count=2)
    scene.node_changes = {name: {"labels": A2 | {"rack": name[1:]}} for name in ("n1", "n2")}
    above = SelectorTerm(labels=(Requirement("rack", "Gt", ("1",)),))
    assert set(_refusals(scene, node_affinity=(above,))) == {"n1"}
    assert set(_refusals(Scene(count=2), node_affinity=(SelectorTerm(),))) == {"n1", "n2"}


A3, SUPER_POD = "module-a3-16", "module-a3-16-super-pod"


@pytest.mark.parametrize(
    ("selected", "annotations", "legal"),
    [
        ("", {}, {1, 2, 4, 8}),
        ("module", {}, {1, 2, 4, 8}),
        ("module-910b-8", {}, {1, 2, 3, 4, 5, 6, 7, 8}),
        ("", {"huawei.com/schedule_policy": "chip8-node8"}, {1, 2, 3, 4, 5, 6, 7, 8}),
        (A3, {}, {1, 2, 4, 6, 8}),
        ("", {"huawei.com/schedule_policy": "chip2-node16"}, {1, 2, 4, 6, 8}),
        ("", {"sp-block": "8"}, {1, 2, 4, 6, 8}),
    ],
)
def test_card_counts(selected: str, annotations: dict[str, str], legal: set[int]) -> None:
    selector = {"accelerator-type": selected} if selected else {}
    found = set()
    for npus in range(1, 9):
        scene = Scene(count=1)
        scene.node_changes["n1"] = {"labels": A2 | selector}
        why = _refusals(scene, npus=npus, node_selector=selector, annotations=annotations)
        assert why == {} or why["n1"].startswith(f"CardCount: {npus} cards; ")
        if why == {}:
            found.add(npus)
    assert found == legal


@pytest.mark.parametrize(
    ("selected", "npus", "is_legal"),
    [
        (A3, 1, False),
        (A3, 2, True),
        (SUPER_POD, 8, False),
        (SUPER_POD, 16, True),
        ("module-a3-8-super-pod", 8, True),
        ("module-910b-16", 15, False),
        ("module-910b-16", 14, True),
    ],
)
def test_card_counts_of_distributed_jobs(selected: str, npus: int, is_legal: bool) -> None:
    scene = Scene(count=1, size=16)
    scene.node_changes["n1"] = {"labels": A2 | {"accelerator-type": selected}}
    scene.chips["n1"] = Chips(free=range(16))
    selector = {"accelerator-type": selected}
    scene.add("j", ["", ""], FORCE, npus=npus, node_selector=selector)
    (placed,) = scene.session().placement
    assert (placed.refuses == {}) == is_legal
    assert is_legal or placed.refuses["n1"].startswith("CardCount: ")


@pytest.mark.parametrize(
    ("annotations", "accepts"),
    [({}, ("n2",)), ({"huawei.com/schedule_policy": "chip1-node8"}, ("n1", "n2"))],
)
def test_inference_cards_have_no_network(
    annotations: dict[str, str], accepts: tuple[str, ...]
) -> None:
    scene = Scene(count=2)
    scene.chips["n1"] = Chips(omit=[f"{RESOURCE}-NetworkUnhealthy"])
    scene.add("j", ["", ""], FORCE, npus=1, annotations=annotations)
    (placed,) = scene.session().placement
    assert placed.accepts == accepts


def test_pods_without_chips_stay_off_nodes_at_fault() -> None:
    scene = Scene(count=4)
    scene.hosts = {"n1": "UnHealthy", "n2": "PreSeparate"}
    scene.node_changes["n3"] = {"labels": {"accelerator-type": "module-910b-8"}}
    found = _refusals(scene, npus=0)
    assert {name: why.partition(":")[0] for name, why in found.items()} == {
        "n1": "NodeUnhealthy",
        "n2": "PreSeparate",
        "n3": "NotInFaultTable",
    }
    other = Scene(count=3, options=corrected())
    other.node_changes["n3"] = {"labels": {"accelerator-type": "module-910b-8"}}
    assert _refusals(other, npus=0) == {}


def test_gangs_name_what_is_short() -> None:
    scene = Scene(count=3)
    scene.chips["n2"] = Chips(unhealthy=[3])
    scene.add("j", ["", ""], FORCE)
    (gang,) = scene.session().gangs
    assert gang.fits
    scene.chips["n3"] = Chips(unhealthy=[1])
    (gang,) = scene.session().gangs
    assert not gang.fits
    assert gang.short == (
        "needs 2 × 8 cards, 1 node takes 1; n2 lacks Ascend910-3; n3 lacks Ascend910-1"
    )


def test_a_node_takes_several_pods_of_a_gang() -> None:
    scene = Scene(count=1)
    scene.add("j", ["", ""], FORCE, npus=4)
    assert [gang.fits for gang in scene.session().gangs] == [True]
    scene.add("k", ["", "", ""], FORCE, npus=4)
    found = {gang.name: gang for gang in scene.session().gangs}
    assert (found["j"].fits, found["k"].fits) == (True, False)


def test_a_gang_of_unlike_pods() -> None:
    scene = Scene(count=2)
    scene.add("j", ["", ""], FORCE)
    scene.pod("j", "small", "", FORCE, npus=1)
    assert not scene.session().gangs[0].short
    scene.pod("j", "more", "", FORCE, npus=1)
    group = scene.groups["j"]
    scene.groups["j"] = msgspec.structs.replace(group, min_member=4, phase="Inqueue")
    (gang,) = scene.session().gangs
    assert gang.short.startswith("2 of 4 pods fit; needs ")


def test_an_incomplete_gang_and_an_invalid_one() -> None:
    scene = Scene(count=2)
    scene.add("j", ["", ""], FORCE)
    del scene.pods["j-1"]
    assert scene.session().gangs[0].short == "1 of 2 pods exist"
    scene.add("k", [""], FORCE, annotations={"huawei.com/schedule_minAvailable": "two"})
    assert "is not an integer" in scene.session().gangs[1].short


def test_a_job_with_a_pod_that_ends_waits_for_it() -> None:
    scene = Scene(count=2)
    scene.add("j", ["n1", ""], FORCE, annotations={"huawei.com/schedule_minAvailable": "1"})
    scene.groups["j"] = msgspec.structs.replace(scene.groups["j"], min_member=1)
    scene.change("j-0", is_terminating=True)
    report = scene.session()
    assert report.placement[0].accepts == ("n2",)
    assert report.gangs[0].short == "j-0 has not ended: no pod of the job is placed before that"
    del scene.pods["j-0"]
    assert scene.session().gangs[0].fits


def test_a_podgroup_that_names_no_chips_is_placed_by_kubernetes_count_alone() -> None:
    scene = Scene(count=2)
    scene.chips["n1"] = Chips(unhealthy=[3])
    scene.add("j", [""], FORCE)
    named = scene.groups["j"]
    scene.groups["j"] = msgspec.structs.replace(named, min_resources={})
    assert scene.session().placement[0].accepts == ("n1", "n2")
    chosen = {"volcano.sh/schedule.plugin": "Ascend910"}
    scene.groups["j"] = msgspec.structs.replace(named, min_resources={}, annotations=chosen)
    assert scene.session().placement[0].accepts == ("n2",)


@pytest.mark.parametrize(
    ("npus", "taints", "upstream", "better"),
    [
        (0, (), {}, {"n1": "NotReady"}),
        (8, (), {"n1": "NotReady"}, {"n1": "NotReady"}),
        (
            0,
            (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),),
            {"n1": "Taint"},
            {"n1": "NotReady"},
        ),
    ],
)
def test_a_node_that_is_not_ready_takes_pods_without_chips_until_it_has_a_taint(
    npus: int, taints: tuple[Taint, ...], upstream: dict[str, str], better: dict[str, str]
) -> None:
    for options, expected in ((AdvisorOptions(), upstream), (corrected(), better)):
        scene = Scene(count=1, options=options)
        scene.not_ready.add("n1")
        scene.node_changes["n1"] = {"taints": taints}
        found = _refusals(scene, npus=npus)
        assert {name: why.partition(": ")[0] for name, why in found.items()} == expected


@pytest.mark.parametrize(
    ("annotations", "labels", "text"),
    [
        ({"sp-block": "16"}, {}, "super pods"),
        ({"huawei.com/schedule_policy": "multilevel"}, {}, "tree of blocks"),
        ({}, {"tor-affinity": "normal-schema"}, "switches"),
        ({}, {"tor-affinity": "null"}, ""),
    ],
)
def test_topology_is_named_where_it_is_not_predicted(
    annotations: dict[str, str], labels: dict[str, str], text: str
) -> None:
    scene = Scene(size=16, chips={f"n{n}": Chips(free=range(16)) for n in range(1, 5)})
    npus = 16 if annotations else 8
    scene.add("w", ["", ""], FORCE | labels, npus=npus, annotations=annotations)
    for number in range(2):
        scene.change(f"w-{number}", node_selector={})
    report = scene.session()
    (gang,) = report.gangs
    assert gang.fits
    assert report.is_known is not bool(text)
    assert all(text in gap.text and gap.object == "PodGroup default/w" for gap in report.gaps)
    assert text in gang.not_predicted


_ALIKE = (Requirement("a", "In", ("b",)),)
_HOST = {f"n{number}": {"labels": {**A2, "host": f"n{number}"}} for number in range(1, 5)}


def _apart(topology: str = "host", *, namespaces: tuple[str, ...] | None = ("default",)) -> Any:
    return {"anti_affinity": (ApartTerm(topology, _ALIKE, namespaces),)}


@pytest.mark.parametrize(
    ("runs", "waits", "refused"),
    [
        ({}, _apart(), True),
        (_apart(), {}, True),
        (_apart(), _apart(), True),
        ({}, _apart(namespaces=("other",)), False),
        ({}, _apart(namespaces=None), True),
        ({}, _apart("zone"), False),
        ({}, {"anti_affinity": (ApartTerm("host", (), ("default",)),)}, True),
        ({}, {"anti_affinity": (ApartTerm("host", None, ("default",)),)}, False),
        ({}, {}, False),
    ],
)
def test_required_anti_affinity_is_kept(
    runs: dict[str, Any], waits: dict[str, Any], refused: bool
) -> None:
    """In both directions: a pod that runs may keep others away, too."""
    scene = Scene(count=2, node_changes=dict(_HOST))
    scene.add("r", ["n1"], {"a": "b"}, npus=2, **runs)
    scene.chips["n1"] = Chips(free=range(2, 8))
    scene.add("w", [""], {"a": "b"}, npus=2, **waits)
    (placed,) = scene.session().placement
    assert list(placed.refuses) == (["n1"] if refused else [])
    assert all(
        why == "AntiAffinity: default/r-0 is at the same host" for why in placed.refuses.values()
    )


def test_pods_that_stay_away_from_each_other_need_a_domain_each() -> None:
    for topology, fits in (("host", True), ("zone", False)):
        scene = Scene(
            count=3,
            node_changes={
                name: {"labels": {**one["labels"], "zone": "z"}} for name, one in _HOST.items()
            },
        )
        scene.add("w", ["", "", ""], {"a": "b"}, npus=2, **_apart(topology))
        (gang,) = scene.session().gangs
        assert gang.fits is fits


def test_a_pod_is_made_anew_where_the_one_before_it_was() -> None:
    scene = Scene(count=1, node_changes=dict(_HOST))
    scene.add("j", ["n1"], FORCE | {"a": "b"}, npus=2, **_apart())
    scene.chips["n1"] = Chips(free=range(2, 8), unhealthy=[0], faults=[fault(0)])
    (one,) = scene.session().decisions
    assert one.replacement == "made anew, they fit"


def test_anti_affinity_of_others_keeps_one_pod_of_a_job_away() -> None:
    """Pods at both free nodes select the label that only the second pod of the job has."""
    scene = Scene(count=4, node_changes=dict(_HOST))
    scene.add("r", ["n2", "n3"], npus=0, **_apart())
    scene.add("j", ["n1", "n4"], FORCE)
    scene.change("j-1", labels=FORCE | {"a": "b"})
    for name in ("n1", "n4"):
        scene.chips[name] = Chips(free=range(1, 8), unhealthy=[0], faults=[fault(0)])
    (decision,) = scene.session().decisions
    short = "made anew, they do not fit: 1 × 8 cards are needed, there is room for 0"
    assert decision.replacement == short


def test_anti_affinity_of_pods_that_come_and_go_is_followed() -> None:
    scene, advisor = Scene(count=2, node_changes=dict(_HOST)), Advisor()
    scene.add("w", [""], {"a": "b"}, npus=2)
    refused = []
    for step in range(4):
        if step == 1:
            scene.add("r", ["n1"], {"a": "b"}, npus=2, **_apart())
        if step == 3:
            del scene.pods["r-0"]
        report, scene.state = advisor.advise(scene.snapshot(), scene.state, scene.options)
        scene.is_first = False
        scene.now += 1
        (placed,) = report.placement
        refused.append([name for name, why in placed.refuses.items() if "AntiAffinity" in why])
    assert refused == [[], ["n1"], ["n1"], []]
