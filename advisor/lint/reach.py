"""From where labels and annotations reach a job as Volcano sees it (``consumers#2.1``).

Volcano joins the labels of a PodGroup with those of its pods. It reads the annotations of the
PodGroup, and eight keys of one pod besides. ``PLACES`` has what the controllers copy there.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from contract.documents.elastic_job import SWITCH
from contract.scheduling import (
    ELASTIC_SCHEDULING,
    FAULT_RETRY_TIMES,
    FAULT_SCHEDULING,
    MIN_REPLICAS,
    POD_RESCHEDULING,
    POD_TO_JOB_ANNOTATIONS,
    PROCESS_RECOVER,
    PROCESS_RECOVER_STRATEGY,
    RECOVER_STRATEGY,
    SUB_HEALTH_STRATEGY,
    TOR_AFFINITY,
)
from contract.sentences import sentence

if TYPE_CHECKING:
    from advisor.lint.finding import FindingPlace, PlacedText

    Texts = dict[str, PlacedText]

JOB_LABELS = (
    FAULT_SCHEDULING,
    POD_RESCHEDULING,
    FAULT_RETRY_TIMES,
    PROCESS_RECOVER,
    SUB_HEALTH_STRATEGY,
    TOR_AFFINITY,
)
"""Labels that count at the PodGroup and at each of its pods."""
GROUP_ANNOTATIONS = (PROCESS_RECOVER_STRATEGY, RECOVER_STRATEGY)
"""Annotations that count at the PodGroup alone."""
OBJECT_KEYS = (ELASTIC_SCHEDULING, MIN_REPLICAS, SWITCH)
"""Keys that are read from the job itself, by the programs that train it elastically."""
_OF_THE_GROUP = frozenset((*GROUP_ANNOTATIONS, *OBJECT_KEYS))


class Reach(Enum):
    """How far the labels and annotations of a place come."""

    GROUP = "the PodGroup"
    PODS = "the pods"
    DEPENDS = "the PodGroup, where Ascend Operator with enableGangScheduling makes it"
    NOTHING = "no pod and no PodGroup"


class MetadataPlace(NamedTuple):
    """A place of labels and annotations in objects of a kind.

    ``write``: where keys count that reach nothing from here. ``source``: the program that copies
    them, or does not, with its commit.
    """

    kind: str
    path: str
    reach: Reach
    write: str
    source: str


_VOLCANO = "volcano ed72c7c8"
_OPERATOR = "mind-cluster 22bb3d98 component/ascend-operator"
_AIBRIX = "aibrix e3e10f9e"
_LWS = "lws 060ab4da"
_OME = "ome 17b77eda pkg/controller/v1beta1/inferenceservice/components"
_POD_GROUPS = f"{_VOLCANO} pkg/controllers/podgroup/pg_controller_handler.go buildPodGroupFromPod"
_TEMPLATE = "spec.template.metadata"
_ROLES = "spec.template.spec.roles[].template.metadata"
_ROLES_OF_SET = "spec.roles[].template.metadata"
_LWS_TEMPLATES = sentence(
    "spec.leaderWorkerTemplate.leaderTemplate.metadata and workerTemplate.metadata"
)
_COMPONENTS = sentence(
    "spec.engineConfig (decoderConfig, routerConfig), or metadata of the InferenceService"
)

PLACES = (
    MetadataPlace(
        "Job (batch.volcano.sh)",
        "metadata",
        Reach.GROUP,
        "",
        f"{_VOLCANO} pkg/controllers/job/job_controller_actions.go createOrUpdatePodGroup",
    ),
    MetadataPlace(
        "Job (batch.volcano.sh)",
        "spec.tasks[].template.metadata",
        Reach.PODS,
        "metadata",
        f"{_VOLCANO} pkg/controllers/job/job_controller_util.go createJobPod",
    ),
    MetadataPlace(
        "AscendJob",
        "metadata",
        Reach.GROUP,
        "",
        f"{_OPERATOR}/pkg/controllers/v1/job.go createPodGroup",
    ),
    MetadataPlace(
        "AscendJob",
        "spec.replicaSpecs.*.template.metadata",
        Reach.PODS,
        "metadata",
        f"{_OPERATOR}/pkg/controllers/v1/pod.go createPodSpec, labels.go setPodLabels",
    ),
    MetadataPlace(
        "Deployment",
        "metadata",
        Reach.DEPENDS,
        _TEMPLATE,
        f"{_POD_GROUPS}; in {_OPERATOR}/pkg/controllers/v1/ascendjob_controller.go isJobDecorator "
        "makes a rank table only",
    ),
    MetadataPlace("Deployment", _TEMPLATE, Reach.PODS, "", _POD_GROUPS),
    MetadataPlace("ReplicaSet", "metadata", Reach.NOTHING, _TEMPLATE, _POD_GROUPS),
    MetadataPlace("ReplicaSet", _TEMPLATE, Reach.PODS, "", _POD_GROUPS),
    MetadataPlace("StatefulSet", "metadata", Reach.NOTHING, _TEMPLATE, _POD_GROUPS),
    MetadataPlace("StatefulSet", _TEMPLATE, Reach.PODS, "", _POD_GROUPS),
    MetadataPlace("Job (batch)", "metadata", Reach.NOTHING, _TEMPLATE, _POD_GROUPS),
    MetadataPlace("Job (batch)", _TEMPLATE, Reach.PODS, "", _POD_GROUPS),
    MetadataPlace("Pod", "metadata", Reach.PODS, "", _POD_GROUPS),
    MetadataPlace("PodGroup", "metadata", Reach.GROUP, "", "consumers#2.1"),
    MetadataPlace(
        sentence("ConfigMap of a rank table"),
        "metadata",
        Reach.NOTHING,
        "the job itself, or of its pods",
        "mind-cluster 22bb3d98 component/ascend-for-volcano/plugin/job.go getJobLabelFromVcJob",
    ),
    MetadataPlace(
        "LeaderWorkerSet",
        "metadata",
        Reach.NOTHING,
        _LWS_TEMPLATES,
        f"{_LWS} pkg/schedulerprovider/volcano_provider.go inheritVolcanoAnnotations, "
        "pkg/controllers/leaderworkerset_controller.go "
        "constructLeaderStatefulSetApplyConfiguration",
    ),
    MetadataPlace(
        "LeaderWorkerSet",
        "spec.leaderWorkerTemplate.leaderTemplate.metadata",
        Reach.PODS,
        "",
        f"{_LWS} pkg/controllers/leaderworkerset_controller.go "
        "constructLeaderStatefulSetApplyConfiguration",
    ),
    MetadataPlace(
        "LeaderWorkerSet",
        "spec.leaderWorkerTemplate.workerTemplate.metadata",
        Reach.PODS,
        "",
        f"{_LWS} pkg/controllers/pod_controller.go constructWorkerStatefulSetApplyConfiguration",
    ),
    MetadataPlace(
        "StormService",
        "metadata",
        Reach.NOTHING,
        _ROLES,
        f"{_AIBRIX} pkg/controller/stormservice/rolesetoperations.go renderRoleSet",
    ),
    MetadataPlace(
        "StormService",
        _TEMPLATE,
        Reach.NOTHING,
        _ROLES,
        f"{_AIBRIX} pkg/controller/stormservice/rolesetoperations.go renderRoleSet, "
        "pkg/controller/roleset/utils.go renderStormServicePod, "
        "pkg/controller/roleset/podset_rollsyncer.go createPodSetForRole",
    ),
    MetadataPlace(
        "StormService",
        _ROLES,
        Reach.PODS,
        "",
        f"{_AIBRIX} pkg/controller/roleset/utils.go renderStormServicePod, "
        "pkg/controller/podset/podset_controller.go createPodFromTemplate",
    ),
    MetadataPlace(
        "RoleSet",
        "metadata",
        Reach.NOTHING,
        _ROLES_OF_SET,
        f"{_AIBRIX} pkg/controller/roleset/utils.go roleSetInheritLabels, "
        "pkg/controller/roleset/podset_rollsyncer.go createPodSetForRole",
    ),
    MetadataPlace(
        "RoleSet",
        _ROLES_OF_SET,
        Reach.PODS,
        "",
        f"{_AIBRIX} pkg/controller/roleset/utils.go renderStormServicePod, "
        "pkg/controller/podset/podset_controller.go createPodFromTemplate",
    ),
    MetadataPlace(
        "PodSet",
        "metadata",
        Reach.PODS,
        "",
        f"{_AIBRIX} pkg/controller/podset/podset_controller.go createPodFromTemplate",
    ),
    MetadataPlace(
        "PodSet",
        _TEMPLATE,
        Reach.PODS,
        "",
        f"{_AIBRIX} pkg/controller/podset/podset_controller.go createPodFromTemplate",
    ),
    MetadataPlace(
        "InferenceService",
        "metadata",
        Reach.PODS,
        "",
        f"{_OME}/engine.go, decoder.go, router.go processLabels, processAnnotations",
    ),
    MetadataPlace(
        "InferenceService",
        "spec.engine, spec.decoder, spec.router",
        Reach.PODS,
        "",
        f"{_OME}/engine.go, decoder.go, router.go processLabels, processAnnotations",
    ),
    MetadataPlace(
        "runtime of OME",
        "metadata",
        Reach.NOTHING,
        _COMPONENTS,
        "ome 17b77eda pkg/runtimeselector/fetcher.go GetRuntime",
    ),
    MetadataPlace(
        "runtime of OME",
        "spec",
        Reach.NOTHING,
        _COMPONENTS,
        f"{_OME}/engine.go, decoder.go, router.go: no use of ServingRuntimePodSpec.Labels",
    ),
    MetadataPlace(
        "runtime of OME",
        "spec.engineConfig, spec.decoderConfig, spec.routerConfig",
        Reach.PODS,
        "",
        "ome 17b77eda pkg/controller/v1beta1/inferenceservice/utils/merging.go MergeEngineSpec, "
        "MergeDecoderSpec, MergeRouterSpec",
    ),
)
PROVED_KINDS = frozenset(
    (
        "Job (batch.volcano.sh)",
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "Job (batch)",
        "Pod",
        "LeaderWorkerSet",
        "StormService",
        "RoleSet",
        "PodSet",
    )
)
"""Kinds whose rows ``tests/volcano/real_labels.py`` compares with what real controllers make."""
_BY_PLACE = {(place.kind, place.path): place for place in PLACES}
assert len(_BY_PLACE) == len(PLACES)


RANK_TABLE = "rings-config-"
"""The name of the ConfigMap for the rank table of a job begins so, and ends with the job's."""


class UnreadKey(NamedTuple):
    """A label or annotation that stands where it reaches nothing, or may reach nothing."""

    key: str
    text: PlacedText
    is_label: bool
    source: MetadataPlace
    place: FindingPlace


def take_read(
    kind: str, path: str, labels: Texts, annotations: Texts, place: FindingPlace
) -> tuple[UnreadKey, ...]:
    """Take the keys that reach nothing out of ``labels`` and ``annotations``, and return them."""
    source = _BY_PLACE[kind, path]
    # The quick test first: at most places there is nothing to take out.
    if source.reach is Reach.GROUP or (
        source.reach is Reach.PODS and _OF_THE_GROUP.isdisjoint((*labels, *annotations))
    ):
        return ()
    unread = []
    for texts, is_label in ((labels, True), (annotations, False)):
        for key in [key for key in texts if not _is_read(key, source, is_label=is_label)]:
            unread.append(UnreadKey(key, texts.pop(key), is_label, source, place))
    return tuple(unread)


def _is_read(key: str, source: MetadataPlace, *, is_label: bool) -> bool:
    if key in OBJECT_KEYS:
        # At objects that no program trains elastically these names may be another program's.
        return source.kind != "Job (batch.volcano.sh)"
    if not is_label and key in GROUP_ANNOTATIONS:
        return False
    ours = JOB_LABELS if is_label else POD_TO_JOB_ANNOTATIONS
    return source.reach is Reach.PODS or key not in ours


def rank_table_keys(labels: Texts, place: FindingPlace) -> tuple[UnreadKey, ...]:
    """Return the labels of a job that stand at the ConfigMap for its rank table."""
    return take_read("ConfigMap of a rank table", "metadata", labels, {}, place)
