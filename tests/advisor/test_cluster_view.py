"""What the scheduler makes of documents, and findings where that differs (1.2 to 1.8, R4)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from advisor.advise import advise
from advisor.inputs.scheduler_options import scheduler_options
from advisor.options import AdvisorOptions, with_init_params
from advisor.scheduler_view.state import SchedulerState
from advisor.snapshot import ClusterSnapshot, StoredConfigMap
from contract import scheduling
from tests.advisor.scene import (
    FORCE,
    RESOURCE,
    T0,
    Chips,
    Scene,
    codes,
    corrected,
    deleted,
    document,
    fault,
    sections,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _findings(scene: Scene) -> list[tuple[str, str]]:
    return [(one.code, one.object) for one in scene.session().findings]


def _run(configmaps: list[StoredConfigMap], scene: Scene) -> Any:
    """Return the report of a session with other documents."""
    snapshot = msgspec.structs.replace(scene.snapshot(), configmaps=tuple(configmaps))
    report, scene.state = advise(snapshot, scene.state, scene.options)
    scene.now += 1
    scene.is_first = False
    return report


def test_a_healthy_cluster_at_rest_gives_no_finding() -> None:
    scene = Scene()
    scene.add("j", ["n1", "n2"], FORCE)
    touched = datetime.fromtimestamp(T0 + 3555, UTC).isoformat(timespec="microseconds")
    documents = [
        msgspec.structs.replace(
            one, annotations={"npu-vigil/touched": touched.replace("+00:00", "Z")}
        )
        for one in scene.configmaps()
    ]
    for _ in range(3):
        assert not scene.session().findings
    scene.now = T0 + 3600
    assert not _run(documents, scene).findings
    scene.now = T0 + 3616
    assert {one.code for one in _run(documents, scene).findings} == {"STALE_INPUT"}


def test_age_without_a_touch_is_that_of_the_newest_entry() -> None:
    scene = Scene(count=2)
    scene.chips["n1"] = Chips(stamp=T0 - 7200)
    assert not scene.session().findings
    scene.chips["n2"] = Chips(stamp=T0 - 60)
    scene.now = T0 + 1
    assert ("STALE_INPUT", "ConfigMap mindx-dl/cluster-info-device-0") in _findings(scene)


@pytest.mark.parametrize(
    "text", ["", "now", "2020-01-01T00:00:00", "9" * 50, "0001-01-01T00:00:00Z"]
)
def test_a_touch_that_is_no_time_counts_for_nothing(text: str) -> None:
    scene = Scene(count=1)
    documents = [
        msgspec.structs.replace(one, annotations={"npu-vigil/touched": text})
        for one in scene.configmaps()
    ]
    assert not _run(documents, scene).findings


def test_agents_write_less_often_than_an_aggregator() -> None:
    def direct(age: int) -> StoredConfigMap:
        inner = {"DeviceList": {RESOURCE: ""}, "UpdateTime": T0 - age}
        return StoredConfigMap(
            "kube-system",
            "mindx-dl-deviceinfo-n1",
            {"DeviceInfoCfg": json.dumps({"DeviceInfo": inner, "CheckCode": ""})},
            {"mx-consumer-cim": "true"},
        )

    for age, is_stale in ((310, False), (600, False), (601, True)):
        scene = Scene(count=1, options=AdvisorOptions(use_cluster_info=False))
        assert ("STALE_INPUT" in codes(_run([direct(age)], scene))) == is_stale


def test_an_omitted_entry_stays_as_a_ghost() -> None:
    scene = Scene(count=2)
    scene.add("j", ["", ""], FORCE)
    scene.switches["n2"] = "UnHealthy"
    scene.session()
    devices, switches, hosts = scene.configmaps()
    entries = json.loads(switches.data[switches.name])
    del entries["mindx-dl-switchinfo-n2"]
    report = _run([devices, document(switches.name, json.dumps(entries)), hosts], scene)
    assert {(one.code, one.object) for one in report.findings} == {("GHOST_ENTRY", "Node n2")}
    assert report.placement[0].refuses["n2"] == "NodeUnhealthy: its switch is NodeUnhealthy"
    assert scene.session().placement[0].accepts == ("n1",)


def test_a_deleted_configmap_leaves_the_faults_in_force() -> None:
    scene = Scene(count=1)
    scene.add("j", ["n1"], FORCE, phase="Pending")
    scene.chips["n1"] = Chips(unhealthy=[3], free=[0, 1, 2, 4, 5, 6, 7])
    scene.session()
    _, switches, hosts = scene.configmaps()
    report = _run([switches, hosts], scene)
    assert report.node_verdicts[0].unhealthy == ("Ascend910-3",)
    assert codes(report) == {"GHOST_ENTRY"}
    scene.hosts["n1"] = "UnHealthy"
    assert scene.session().node_verdicts[0].state == "NodeUnhealthy"
    devices, switches, _ = scene.configmaps()
    assert _run([devices, switches], scene).node_verdicts[0].state == "CardUnhealthy"


@pytest.mark.parametrize(
    ("member", "value", "is_skipped"),
    [
        ("UpdateTime", 1.0, True),
        ("UpdateTime", "1", True),
        ("UpdateTime", None, False),
        ("SuperPodID", 2**31, True),
        ("RackID", -(2**31), False),
        ("DeviceList", {RESOURCE: 1}, True),
        ("DeviceList", {f"{RESOURCE}-Fault": []}, True),
        ("DeviceList", None, False),
        ("CmName", 5, False),
        ("ServerIndex", "x", False),
        ("Anything", {}, False),
    ],
)
def test_one_wrong_type_drops_the_whole_document(
    member: str, value: object, is_skipped: bool
) -> None:
    scene = Scene(count=2)
    scene.session()
    scene.chips["n2"] = Chips(unhealthy=[3])
    devices, *others = scene.configmaps()
    entries = json.loads(devices.data[devices.name])
    entries["mindx-dl-deviceinfo-n1"][member] = value
    report = _run([document(devices.name, json.dumps(entries)), *others], scene)
    assert ("CONFIGMAP_SKIPPED" in codes(report)) == is_skipped
    assert report.node_verdicts[1].unhealthy == (() if is_skipped else ("Ascend910-3",))


def test_member_names_match_without_regard_to_case() -> None:
    scene = Scene(count=1)
    devices, *others = scene.configmaps()
    entries = json.loads(devices.data[devices.name])
    entry = entries["mindx-dl-deviceinfo-n1"]
    entry["devicelist"] = entry.pop("DeviceList") | {f"{RESOURCE}-Unhealthy": "Ascend910-1"}
    report = _run([document(devices.name, json.dumps(entries)), *others], scene)
    assert report.node_verdicts[0].unhealthy == ("Ascend910-1",)


@pytest.mark.parametrize(
    ("changes", "is_named"),
    [
        ({"labels": {"mx-consumer-volcano": "yes"}}, True),
        ({"labels": {}}, True),
        ({"namespace": "kube-system"}, True),
        ({"name": "cluster-info-dev-0"}, False),
    ],
)
def test_an_invisible_configmap_counts_as_deleted(changes: dict[str, Any], is_named: bool) -> None:
    scene = Scene(count=1)
    scene.session()
    scene.chips["n1"] = Chips(unhealthy=[3])
    devices, *others = scene.configmaps()
    report = _run([msgspec.structs.replace(devices, **changes), *others], scene)
    assert report.node_verdicts[0].unhealthy == ()
    assert scene.state.devices == {}
    assert codes(report) == {"GHOST_ENTRY"} | ({"CONFIGMAP_INVISIBLE"} if is_named else set())


def test_documents_of_agents_without_their_label_are_named_in_direct_mode() -> None:
    hidden = document("mindx-dl-deviceinfo-n1", "{}", namespace="kube-system")
    shown = Scene(count=1)
    assert "CONFIGMAP_INVISIBLE" not in codes(_run([*shown.configmaps(), hidden], shown))
    direct = Scene(count=1, options=AdvisorOptions(use_cluster_info=False))
    report = _run([*direct.configmaps(), hidden], direct)
    assert [one.object for one in report.findings if one.code == "CONFIGMAP_INVISIBLE"] == [
        "ConfigMap kube-system/mindx-dl-deviceinfo-n1"
    ]


def test_versions_of_one_document_are_read_in_their_order() -> None:
    scene = Scene(count=2)
    scene.session()
    first, *others = scene.configmaps()
    entries = json.loads(first.data[first.name])
    only_n2 = {key: entries[key] for key in entries if key.endswith("n2")}
    scene.chips["n1"] = Chips(unhealthy=[3])
    bad, *_ = scene.configmaps()
    healed = document(first.name, json.dumps(only_n2))
    report = _run([bad, healed, *others], scene)
    assert report.node_verdicts[0].unhealthy == ("Ascend910-3",)
    assert "GHOST_ENTRY" in codes(report)


def test_a_node_in_two_documents_is_named() -> None:
    scene = Scene(count=2)
    devices, *others = scene.configmaps()
    report = _run(
        [devices, document("cluster-info-device-1", devices.data[devices.name]), *others], scene
    )
    assert codes(report) == {"DUPLICATE_ENTRY"}


@pytest.mark.parametrize("level", ["SubHealthFault", "PreSeparateNPU", "NotHandleFault"])
def test_a_handling_that_is_not_the_level_is_named(level: str) -> None:
    scene = Scene(count=1)
    scene.chips["n1"] = Chips(faults=[fault(3, level)])
    assert codes(scene.session()) == set()
    scene.chips["n1"] = Chips(faults=[fault(3, level) | {"fault_handling": ""}])
    assert codes(scene.session()) == {"FAULT_HANDLING_DIFFERS"}


@pytest.mark.parametrize(("depth", "is_read"), [(50, True), (51, False)])
def test_options_nested_deeper_than_fifty_are_not_read(depth: int, is_read: bool) -> None:
    nested = "[" * (depth - 1) + "]" * (depth - 1)
    key, name = scheduling.SCHEDULER_CONFIG_KEY, scheduling.SCHEDULER_CONFIGMAP
    data = {key: f"actions: {nested}"}
    config_map = StoredConfigMap(scheduling.SCHEDULER_NAMESPACE, name, data)
    options = scheduler_options([config_map])
    assert options is not None
    assert ("is nested too deeply" in options[1]) is not is_read


def test_nothing_is_kept_of_a_node_that_is_not_ready() -> None:
    scene = Scene(count=1)
    scene.session()
    assert set(scene.state.memories) == {"n1"}
    scene.not_ready.add("n1")
    scene.session()
    assert set(scene.state.memories) == set()


def test_a_trusted_list_needs_a_larger_stamp() -> None:
    scene = Scene(count=1, options=AdvisorOptions(self_maintain=False))
    scene.chips["n1"] = Chips(stamp=T0)
    scene.session()
    scene.chips["n1"] = Chips(stamp=T0, unhealthy=[3])
    report = scene.session()
    assert (codes(report), report.node_verdicts[0].unhealthy) == ({"UPDATE_LOST"}, ())
    scene.chips["n1"] = Chips(stamp=T0 + 1, unhealthy=[3])
    report = scene.session()
    assert (codes(report), report.node_verdicts[0].unhealthy) == (set(), ("Ascend910-3",))


def test_a_quick_update_of_a_trusted_list_is_limited() -> None:
    scene = Scene(count=1, options=AdvisorOptions(self_maintain=False))
    scene.add("wait", [""], FORCE, npus=7)
    scene.chips["n1"] = Chips(stamp=T0, free=range(8))
    scene.session()
    scene.chips["n1"] = Chips(stamp=T0 + 1, free=[0, 1, 2, 3, 4, 5, 6])
    assert scene.session().placement[0].accepts == ("n1",)
    scene.chips["n1"] = Chips(stamp=T0 + 2, free=range(8))
    assert scene.session().placement[0].accepts == ("n1",)


def test_a_quick_update_of_an_empty_list_is_taken_as_it_is() -> None:
    scene = Scene(count=1, options=AdvisorOptions(self_maintain=False))
    scene.add("j", ["n1"], FORCE)
    scene.add("wait", [""], FORCE)
    scene.chips["n1"] = Chips(stamp=T0, free=())
    scene.session()
    scene.chips["n1"] = Chips(stamp=T0 + 1, free=range(8))
    scene.session()
    del scene.pods["j-0"]
    assert scene.session().placement[0].accepts == ("n1",)


@pytest.mark.parametrize("omitted", ["-Unhealthy", "-Fault", "-NetworkUnhealthy", "-Recovering"])
def test_a_key_that_is_left_out_keeps_its_value(omitted: str) -> None:
    scene = Scene(count=1)
    scene.chips["n1"] = Chips(unhealthy=[3], network=[4], faults=[fault(5, "SubHealthFault")])
    before = scene.session().node_verdicts
    scene.chips["n1"] = Chips(
        unhealthy=[3] if omitted != "-Unhealthy" else [],
        network=[4] if omitted != "-NetworkUnhealthy" else [],
        faults=[fault(5, "SubHealthFault")] if omitted != "-Fault" else [],
        omit=[RESOURCE + omitted],
    )
    report = scene.session()
    assert report.node_verdicts == before
    assert "KEY_OMITTED" in codes(report)


def test_an_unreadable_fault_list_has_no_levels() -> None:
    def broken(options: AdvisorOptions) -> Any:
        scene = Scene(count=1, options=options)
        scene.chips["n1"] = Chips(faults=[fault(5, "SubHealthFault")])
        scene.session()
        devices, *others = scene.configmaps()
        text = devices.data[devices.name].replace('[{\\"fault_type', '[{\\"fault_type\\": 1')
        return _run([document(devices.name, text), *others], scene)

    report = broken(AdvisorOptions())
    assert codes(report) == {"FAULT_LIST_UNREADABLE"}
    assert not report.node_verdicts[0].card_sub_health
    report = broken(corrected())
    assert (sections(report), report.node_verdicts[0].card_sub_health) == ({16}, True)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"Ascend910-0":{"IP":5}}'])
def test_a_node_without_base_device_infos_is_frozen(text: str | None) -> None:
    scene = Scene(count=1)
    scene.session()
    scene.node_changes["n1"] = {
        "annotations": {} if text is None else {"baseDeviceInfos": text},
    }
    scene.chips["n1"] = Chips(unhealthy=[3])
    report = scene.session()
    assert (codes(report), report.node_verdicts[0].unhealthy) == ({"NODE_FROZEN"}, ())


def test_a_frozen_node_has_passed_the_stamps_that_it_did_not_apply() -> None:
    scene = Scene(count=1, options=AdvisorOptions(self_maintain=False))
    scene.chips["n1"] = Chips(stamp=T0)
    scene.session()
    scene.node_changes["n1"] = {"annotations": {}}
    scene.chips["n1"] = Chips(stamp=T0 + 1, unhealthy=[3])
    scene.session()
    del scene.node_changes["n1"]
    assert scene.session().node_verdicts[0].unhealthy == ()
    scene.chips["n1"] = Chips(stamp=T0 + 2, unhealthy=[3])
    assert scene.session().node_verdicts[0].unhealthy == ("Ascend910-3",)


def test_an_ascend_950_node_without_ids_is_dropped() -> None:
    scene = Scene(count=2)
    scene.add("j", ["n1"], FORCE)
    labels = {"accelerator": "huawei-Ascend910", "node.kubernetes.io/npu.chip.name": "Ascend950PR"}
    scene.node_changes["n1"] = {"labels": labels | {"accelerator-type": "module-910b-8"}}
    assert not deleted(scene.session())
    assert deleted(scene.session()) == {"j-0": 0}
    with_ids = json.dumps({f"Ascend910-{n}": {"IP": "", "DeviceID": n} for n in range(8)})
    other = Scene(count=2)
    other.add("j", ["n1"], FORCE)
    other.node_changes["n1"] = {"labels": labels, "annotations": {"baseDeviceInfos": with_ids}}
    assert not any(map(deleted, other.sessions(3)))


def test_virtual_cards_and_shared_nodes_keep_the_reported_list() -> None:
    virtual = json.dumps({"Ascend910-2c-100-0": {"IP": ""}, "Ascend910-1": {"IP": ""}})
    shared = {"accelerator": "huawei-Ascend910", "accelerator-type": "module-910b-8"}
    shared |= {"huawei.com/scheduler.chip1softsharedev.enable": "true"}
    for changes in ({"annotations": {"baseDeviceInfos": virtual}}, {"labels": shared}):
        scene = Scene(count=1)
        scene.node_changes["n1"] = changes
        scene.chips["n1"] = Chips(free=[0, 1])
        scene.add("wait", [""], FORCE, npus=4)
        (placed,) = scene.session().placement
        assert placed.refuses == {"n1": "FreeCards: 4 asked, 2 free"}


def test_other_flaws_are_named() -> None:
    scene = Scene(count=4)
    scene.chips["n1"] = Chips(stamp=T0 + 60)
    scene.chips["n2"] = Chips(faults=[fault(3, "SeparateNPU")])
    scene.switches["n3"] = "Unhealthy"
    scene.node_changes["n4"] = {"labels": {"accelerator-type": "module-910b-8"}}
    assert _findings(scene) == [
        ("STAMP_AHEAD", "Node n1"),
        ("FAULT_NOT_LISTED", "Node n2"),
        ("STATUS_WORD_UNKNOWN", "Node n3"),
        ("ACCELERATOR_MISSING", "Node n4"),
    ]
    devices, *others = scene.configmaps()
    text = devices.data[devices.name].replace(
        'Ascend910-Unhealthy": ""', 'Ascend910-Unhealthy": "3"', 1
    )
    report = _run([document(devices.name, text), *others], scene)
    assert "CARD_NAME_UNUSABLE" in codes(report)


def test_an_empty_device_info_ends_the_scheduler() -> None:
    empty = StoredConfigMap(
        "kube-system",
        "mindx-dl-deviceinfo-n1",
        {"DeviceInfoCfg": ""},
        {"mx-consumer-cim": "true"},
    )
    direct = {"useClusterInfoManager": "false"}
    for options, expected in (
        (AdvisorOptions(), "SCHEDULER_CRASHES"),
        (corrected(), "UPSTREAM_DIVERGES"),
    ):
        scene = Scene(options=with_init_params(options, direct))
        assert codes(_run([empty], scene)) >= {expected, "CONFIGMAP_SKIPPED"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2", 2), ("3600", 3600), ("1", 900), ("3601", 900), ("1_0", 900)],
)
def test_switches_of_the_scheduler(text: str, seconds: int) -> None:
    assert with_init_params(AdvisorOptions(), {"grace-over-time": text}).grace_over_time == seconds
    found = with_init_params(
        AdvisorOptions(), {"useClusterInfoManager": "True", "self-maintain-available-card": "false"}
    )
    assert (found.use_cluster_info, found.self_maintain) == (False, False)


def test_unknown_objects_are_named_in_the_report() -> None:
    snapshot = ClusterSnapshot(now_ms=T0 * 1000, unread=frozenset({"vcjobs"}))
    report, state = advise(snapshot, SchedulerState(), AdvisorOptions())
    assert len(report.not_known) == 2
    first = msgspec.structs.replace(snapshot, first_session=True, unread=frozenset())
    report, state = advise(first, state, AdvisorOptions())
    assert report.not_known == ()
    assert advise(snapshot, state, AdvisorOptions())[0].not_known == (
        "vcjobs: they could not be read",
    )


def test_a_start_lists_documents_by_name() -> None:
    def second(scene: Scene) -> list[StoredConfigMap]:
        first, *others = scene.configmaps()
        scene.chips["n1"] = Chips(unhealthy=[3])
        bad, *_ = scene.configmaps()
        text = bad.data[bad.name]
        return [document("cluster-info-device-1", text), first, *others]

    scene = Scene(count=1)
    assert _run(second(scene), scene).node_verdicts[0].unhealthy == ("Ascend910-3",)
    scene = Scene(count=1, is_first=False)
    assert _run(second(scene), scene).node_verdicts[0].unhealthy == ()


@pytest.mark.parametrize("options", [AdvisorOptions(), corrected()])
def test_a_node_that_loses_its_label_leaves_the_fault_table(options: AdvisorOptions) -> None:
    """Its host, its switch and its cards move no pod; one that fails is still seen."""
    spoils: tuple[Callable[[Scene], None], ...] = (
        lambda scene: scene.hosts.update(n1="UnHealthy"),
        lambda scene: scene.switches.update(n1="UnHealthy"),
        lambda scene: scene.chips.update(n1=Chips(unhealthy=[3], faults=[fault(3)])),
        lambda scene: scene.chips.update(n1=Chips(faults=[fault(3, "SubHealthFault")])),
    )
    for spoil in spoils:
        scene = Scene(options=options)
        labels = FORCE | {"fault-retry-times": "1", "subHealthyStrategy": "forceExit"}
        scene.add("j", ["n1"], labels)
        scene.session()
        scene.node_changes["n1"] = {"labels": {"accelerator-type": "module-910b-8"}}
        spoil(scene)
        report = scene.session()
        assert not deleted(report)
        assert "ACCELERATOR_MISSING" in codes(report)
        scene.change("j-0", phase="Failed")
        assert deleted(scene.session()) == {"j-0": 0}
        assert scene.state.jobs
