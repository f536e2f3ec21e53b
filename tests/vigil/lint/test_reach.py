"""From where labels reach a job: each row of the table, and objects that controllers make."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import pytest
import yaml

from advisor.lint.reach import PLACES, PROVED_KINDS, MetadataPlace, Reach
from tests.vigil.lint.manifests import (
    Object,
    deployment,
    inference_service,
    leader_worker_set,
    runner,
    runtime,
    storm_service,
    template,
    vcjob,
)
from tests.vigil.lint.placed_labels import OBJECTS, ON, RETRIES, metadata_at, place, stateful
from tests.volcano.real_labels import KINDS
from vigil.lint.reading import File
from vigil.lint.run import lint

if TYPE_CHECKING:
    from advisor.lint.finding import LintFinding

CODES = ("PLACE_WITHOUT_EFFECT", "PLACE_DEPENDS", "PLACE_REPEATED", "RESCHEDULING_OFF")


_NOT_HERE = ("PodGroup", "ConfigMap of a rank table")
ROWS = [row for row in PLACES if row.kind not in _NOT_HERE]


def findings(*objects: Object) -> list[LintFinding]:
    """Return what is found about objects of one file, of the codes of this subject."""
    report = lint([File("x.yaml", yaml.safe_dump_all(objects))])
    return [one for one in report.findings if one.rule.code in CODES]


def codes(*objects: Object) -> list[str]:
    """Return the codes of this subject."""
    return [one.rule.code for one in findings(*objects)]


def test_each_kind_is_off_without_the_label() -> None:
    for kind, objects in OBJECTS.items():
        assert codes(*objects) == ["RESCHEDULING_OFF"], kind


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind} {row.path}")
def test_a_label_counts_where_the_table_has_it(row: MetadataPlace) -> None:
    found = codes(*place(row, ON))
    if row.reach is Reach.NOTHING:
        assert sorted(found) == ["PLACE_WITHOUT_EFFECT", "RESCHEDULING_OFF"]
    elif row.reach is Reach.DEPENDS:
        assert found == ["PLACE_DEPENDS"]
    else:
        assert found == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.reach is Reach.NOTHING])
def test_what_is_written_instead_counts(row: MetadataPlace) -> None:
    """The finding names the place, and from there the same label reaches pods."""
    (wrong,) = [one for one in findings(*place(row, ON)) if one.rule.code == CODES[0]]
    assert row.write in wrong.write
    right = row.write.split(" ")[0]
    if row.kind == "runtime of OME":
        right = "spec.engineConfig, spec.decoderConfig, spec.routerConfig"
    (there,) = [one for one in PLACES if (one.kind, one.path) == (row.kind, right)]
    assert codes(*place(there, ON)) == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.reach is Reach.NOTHING])
def test_a_label_at_both_places_is_right(row: MetadataPlace) -> None:
    objects = place(row, ON)
    (there,) = [
        one
        for one in PLACES
        if one.kind == row.kind and one.reach is Reach.PODS and "leaderTemplate" not in one.path
    ]
    item = objects[-1] if row.kind == "runtime of OME" else objects[0]
    for one in metadata_at(item, there.path.partition(", ")[0]):
        one["labels"] = {**one.get("labels", {}), **ON}
    if row.kind == "LeaderWorkerSet":
        templates = item["spec"]["leaderWorkerTemplate"]
        templates["leaderTemplate"]["metadata"]["labels"] = dict(ON)
    assert codes(*objects) == ["PLACE_REPEATED"]


def test_each_row_names_its_source() -> None:
    """The program with its commit, and the file in it; PodGroups are what Volcano itself reads."""
    for row in PLACES:
        assert row.kind == "PodGroup" or ("/" in row.source and ".go" in row.source), row


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("ProcessRecoverStrategy", ["PLACE_WITHOUT_EFFECT"]),
        ("recover-strategy", ["PLACE_WITHOUT_EFFECT"]),
        ("minReplicas", ["PLACE_WITHOUT_EFFECT"]),
        ("sp-block", []),
        ("huawei.com/recover_policy_path", []),
        ("example.com/any", []),
    ],
)
def test_of_the_annotations_of_a_pod_volcano_reads_eight(key: str, found: list[str]) -> None:
    job = vcjob(RETRIES | ON, template={"annotations": {key: "pod"}, "restartPolicy": "Never"})
    assert codes(job) == found


def test_a_router_without_chips_needs_no_label() -> None:
    made = storm_service(2, ON | RETRIES, restartPolicy="Never")
    router = {"name": "router", "replicas": 1, "template": template({}, cards=0)}
    made["spec"]["template"]["spec"]["roles"].append(router)
    made["metadata"]["labels"] = ON
    assert codes(made) == ["PLACE_REPEATED"]


def test_samples_of_elastic_training_repeat_their_label_in_the_template() -> None:
    labels, annotations = RETRIES | ON | {"elastic-scheduling": "on"}, {"minReplicas": "1"}
    pods: Object = {"labels": {"elastic-scheduling": "on"}, "restartPolicy": "Never"}
    assert codes(vcjob(labels, annotations, template=pods)) == []
    assert codes(vcjob(RETRIES | ON, template=pods)) == ["PLACE_WITHOUT_EFFECT"]


def test_a_key_that_reaches_nothing_counts_nowhere_else() -> None:
    """Its value would be in conflict with that of the pods, and its retries would hide a policy."""
    made = storm_service(2, ON | RETRIES, restartPolicy="Never")
    made["metadata"]["labels"] = {"fault-scheduling": "force", "fault-retry-times": "5"}
    report = lint([File("x.yaml", yaml.safe_dump(made))])
    assert [one.rule.code for one in report.findings] == ["PLACE_WITHOUT_EFFECT"] * 2


def _made_by(kind: str, name: str, item: Object) -> Object:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": True}
    item["metadata"]["ownerReferences"] = [owner]
    return item


def test_what_a_controller_made_is_judged_at_its_owner() -> None:
    """A ReplicaSet and a PodGroup have copies of the labels that people write."""
    owner = deployment(RETRIES | {"fault-scheduling": "Force"}, {})
    replica_set = stateful("ReplicaSet")
    replica_set["metadata"] = {"name": "d-1", "labels": {"fault-scheduling": "Force"}}
    pod = deepcopy(OBJECTS["Pod"][0])
    pod["metadata"]["labels"] = {"fault-scheduling": "Force"}
    made = [_made_by("Deployment", "d", replica_set), _made_by("ReplicaSet", "d-1", pod)]
    report = lint([File("x.yaml", yaml.safe_dump_all([*made, owner]))])
    objects = {one.place.object for one in report.findings}
    assert objects == {"Deployment d"}


def test_what_a_controller_made_of_something_else_is_judged_as_it_is() -> None:
    """Its labels were copied, so that they reach nothing is no mistake; their values may be."""
    replica_set = stateful("ReplicaSet")
    replica_set["metadata"] = {"name": "d-1", "labels": {"fault-scheduling": "Force"}}
    _made_by("Deployment", "d", replica_set)
    report = lint([File("x.yaml", yaml.safe_dump(replica_set))])
    assert [one.rule.code for one in report.findings] == ["FAULT_SCHEDULING_UNSUPPORTED"]
    # The owner is another kind's, so it is judged nowhere else.
    foreign = _made_by("InferSet", "d", deepcopy(OBJECTS["StatefulSet"][0]))
    assert codes(foreign) == ["RESCHEDULING_OFF"]


def test_the_workers_of_a_group_are_judged_at_its_leaderworkerset() -> None:
    """Their StatefulSet and the PodGroup are made in the name of the leader's pod."""
    owner = leader_worker_set(RETRIES | {"fault-scheduling": "Force"})
    labels = {"leaderworkerset.sigs.k8s.io/name": "l", "fault-scheduling": "Force"}
    workers = stateful("StatefulSet")
    workers["metadata"] = {"name": "l-0", "labels": labels}
    group: Object = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    group |= {"metadata": {"name": "l-0", "labels": labels}, "spec": {"minMember": 2}}
    made = [_made_by("Pod", "l-0", one) for one in (workers, group)]
    report = lint([File("x.yaml", yaml.safe_dump_all([owner, *made]))])
    assert {one.place.object for one in report.findings} == {"LeaderWorkerSet l"}


def test_a_podgroup_of_an_elastic_job_has_the_labels_of_the_job() -> None:
    labels = RETRIES | ON | {"ring-controller.atlas": "ascend-910b", "elastic-scheduling": "on"}
    job = vcjob(labels, {"minReplicas": "1"}, maxRetry=0)
    group = {"metadata": {"name": "j-1", "labels": labels}, "spec": {"minMember": 2}}
    group |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    report = lint([File("x.yaml", yaml.safe_dump_all([job, _made_by("Job", "j", group)]))])
    assert report.findings == []


def test_labels_at_the_configmap_of_a_rank_table() -> None:
    """As in samples of the vendor: it counts at the job only."""
    table: Object = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"hccl.json": "{}"}}
    table["metadata"] = {"name": "rings-config-j", "labels": ON}
    assert codes(table) == []
    assert codes(table, vcjob(RETRIES | ON)) == []
    assert sorted(codes(table, vcjob(RETRIES))) == ["PLACE_WITHOUT_EFFECT", "RESCHEDULING_OFF"]
    table["metadata"]["name"] = "rings-config-other"
    assert codes(table, vcjob(RETRIES)) == ["RESCHEDULING_OFF"]


def test_a_service_and_a_runtime_of_one_name_in_namespaces() -> None:
    """Each service gets the labels of the runtime in its own namespace, or of the cluster."""
    services = [inference_service({"minReplicas": 1}, "r") for _ in range(3)]
    runtimes = [
        runtime(labels, None, **runner()) | {"kind": "ServingRuntime"}
        for labels in ({}, RETRIES | ON)
    ]
    for one, namespace in (*zip(services, "abc", strict=True), *zip(runtimes, "ab", strict=True)):
        one["metadata"] |= {"name": "r", "namespace": namespace}
    found = findings(*services, *runtimes, runtime(RETRIES | ON, None, **runner()))
    assert [(one.rule.code, one.place.object) for one in found] == [
        ("RESCHEDULING_OFF", "InferenceService a/r"),
    ]


def test_a_runtime_of_two_services_is_found_once() -> None:
    wrong = runtime({}, None, **runner())
    wrong["metadata"]["labels"] = ON
    services = [inference_service({"minReplicas": 1}, "r") for _ in range(2)]
    services[1]["metadata"]["name"] = "other"
    shown = sorted((one.rule.code, one.place.object) for one in findings(*services, wrong))
    assert [code for code, _ in shown] == ["PLACE_WITHOUT_EFFECT"] + ["RESCHEDULING_OFF"] * 2
    assert [name for _, name in shown[1:]] == ["InferenceService i", "InferenceService other"]


def test_a_label_of_the_service_reaches_engine_decoder_and_router() -> None:
    service = inference_service(runner())
    service["spec"]["decoder"] = runner()
    service["spec"]["router"] = runner(0)
    service["spec"]["runtime"] = {"name": "r"}
    service["metadata"]["labels"] = RETRIES | ON
    assert codes(service, runtime({}, None)) == []


@pytest.mark.parametrize("labels", [["fault-scheduling"], "fault-scheduling", 7, None])
def test_labels_that_are_no_map(labels: object) -> None:
    for kind, objects in OBJECTS.items():
        item, *others = deepcopy(objects)
        item["metadata"]["labels"] = labels
        assert codes(item, *others) == ["RESCHEDULING_OFF"], kind


@pytest.mark.parametrize(
    "engine", [{}, {"minReplicas": 0}, {"runner": {}}, {"leader": None}, None, [], "engine"]
)
def test_an_engine_without_pods(engine: object) -> None:
    """What OME makes of it is not known without its runtime, and no pod is judged."""
    service = inference_service({}, "r")
    service["spec"]["engine"] = engine
    assert codes(service, runtime(RETRIES | ON, None, **runner())) == []
    del service["spec"]["runtime"]
    report = lint([File("x.yaml", yaml.safe_dump(service))])
    expected = ["RUNTIME_NOT_NAMED"] if isinstance(engine, dict) else []
    assert [one.rule.code for one in report.findings] == expected


def test_rows_that_name_the_test_with_real_controllers_are_in_it() -> None:
    assert KINDS.keys() == PROVED_KINDS
