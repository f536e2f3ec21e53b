"""Reads the objects of a file: findings about each by itself, and the values to judge later."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from advisor.lint import deploy_tool, gangs, jobs, ome, reach, scaling_rule, scheduler
from advisor.lint.elastic import ELASTIC_DAEMON
from advisor.lint.finding import FindingPlace, finding
from advisor.lint.labels import KNOWN, judge_keys, kept
from advisor.lint.model import Mapping, Scalar, ScalarKind, Sequence
from advisor.lint.workload import MadeObject, WorkloadScalingRule
from contract.scheduling import SCALING_KEY, SCHEDULER_CONFIG_KEY
from contract.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from advisor.lint.finding import LintFinding
    from advisor.lint.model import Node
    from advisor.lint.workload import Collected, Workload

_MAX_OBJECTS = 100_000
"""Of one document, whatever its aliases make of it."""
_NESTED_LISTS = 5


@dataclass(frozen=True, slots=True)
class _JudgedKind:
    """A kind that is judged: its version, and what makes a workload of it."""

    version: str
    make: Callable[[Mapping, FindingPlace], Workload] | None = None
    is_general: bool = False
    """Whether most objects of the kind have nothing to do with chips; those are only counted."""


_KINDS = {
    ("batch.volcano.sh", "Job"): _JudgedKind("v1alpha1", jobs.vcjob),
    ("mindxdl.gitee.com", "AscendJob"): _JudgedKind("v1", jobs.ascendjob),
    ("apps", "Deployment"): _JudgedKind("v1", jobs.deployment),
    ("apps", "ReplicaSet"): _JudgedKind("v1", jobs.deployment, is_general=True),
    ("apps", "StatefulSet"): _JudgedKind("v1", jobs.stateful_set, is_general=True),
    ("batch", "Job"): _JudgedKind("v1", jobs.batch_job, is_general=True),
    ("", "Pod"): _JudgedKind("v1", jobs.pod, is_general=True),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _JudgedKind("v1", jobs.leader_worker_set),
    ("orchestration.aibrix.ai", "StormService"): _JudgedKind("v1alpha1", jobs.storm_service),
    ("orchestration.aibrix.ai", "RoleSet"): _JudgedKind("v1alpha1", jobs.role_set),
    ("orchestration.aibrix.ai", "PodSet"): _JudgedKind("v1alpha1", jobs.pod_set),
    ("scheduling.volcano.sh", "PodGroup"): _JudgedKind("v1beta1", jobs.pod_group),
    **{(ome.GROUP, kind): _JudgedKind(ome.VERSION) for kind in ome.KINDS},
    ("", "ConfigMap"): _JudgedKind("v1"),
}
# A Job without apiVersion may be that of Kubernetes or of Volcano.
_BY_KIND = {kind: group for group, kind in _KINDS if kind != "Job"}
_CONTROLLERS = frozenset(kind for _, kind in _KINDS) - {"ConfigMap", "PodGroup"}
"""Kinds that make others of these kinds."""
_BUILT_IN = frozenset(("", "apps", "batch", "autoscaling", "policy", "extensions"))


@dataclass(frozen=True, slots=True)
class Texts:
    """How the texts inside ConfigMaps are read; the reader of files gives it.

    Each returns the value and, where the text cannot be read, findings.
    """

    rule: Callable[[Scalar, FindingPlace], tuple[Mapping | None, list[LintFinding]]]
    configuration: Callable[[Scalar, FindingPlace], tuple[Mapping | None, list[LintFinding]]]


def take(root: Mapping, file: str, into: Collected, texts: Texts) -> Iterator[LintFinding]:
    """Read a document: an object, a List of objects, or a file of the deploy tool."""
    remaining = _MAX_OBJECTS
    stack = [(root, root.text("kind"), root.text("apiVersion"), 0)]
    while stack:
        nested, kind, version, depth = stack.pop()
        items = nested.get("items")
        if kind.endswith("List") and isinstance(items, Sequence) and depth < _NESTED_LISTS:
            for item in islice(items.mappings(), remaining):
                remaining -= 1
                # Items of a typed list have neither kind nor version.
                typed = kind.removesuffix("List")
                of_item = item.text("kind") or typed, item.text("apiVersion") or version
                stack.append((item, *of_item, depth + 1))
            if depth == 0:
                # Items are taken from the end, and findings come in the order of the file.
                stack.reverse()
            continue
        yield from _take_one(
            nested,
            kind,
            version,
            FindingPlace(file, nested.line, _shown(nested, kind)),
            into,
            texts,
        )


def is_manifest(root: Node) -> bool:
    """Return whether a document has a kind, or is a file of the deploy tool or a scaling rule."""
    if not isinstance(root, Mapping):
        return False
    keys = (scaling_rule.LIST, deploy_tool.OME_KEY, deploy_tool.STORM_KEY)
    return bool(root.text("kind")) or any(key in root for key in keys)


def object_at(root: Node, line: int) -> str:
    """Return how the object of a document in ``line`` is named, empty where it has no name."""
    if not isinstance(root, Mapping):
        return ""
    items = root.get("items") if root.text("kind").endswith("List") else None
    if isinstance(items, Sequence):
        before = [item for item in items.mappings() if item.line <= line]
        if before:
            root = before[-1]
    return _shown(root, root.text("kind"))


def _take_one(
    root: Mapping, kind: str, version: str, place: FindingPlace, into: Collected, texts: Texts
) -> Iterator[LintFinding]:
    if not kind:
        yield from _take_bare(root, place, into)
        return
    group, _, number = version.rpartition("/")
    _take_elastic_daemon(root, kind, into)
    if kind == "Deployment" and (operator := gangs.operator(root, place)) is not None:
        into.operators.append(operator)
    handler = _KINDS.get((group, kind))
    if handler is None:
        yield from _unknown(kind, version, group, place.at(root.line_of("kind")), into)
        return
    if number != handler.version:
        here = place.at(root.line_of("apiVersion"))
        words = {"kind": kind, "known": "/".join(filter(None, (group, handler.version)))}
        yield finding("UNKNOWN_VERSION", here, given=version, **words)
        return
    metadata_findings = _judge_metadata(root.mapping("metadata"), place)
    if handler.make is not None:
        workload = handler.make(root, place)
        if handler.is_general and not _is_ours(workload):
            into.not_judged[kind] = into.not_judged.get(kind, 0) + 1
            return
        both = (*metadata_findings, *_judge_templates(root, kind, place))
        controller = workload.controller
        if controller is not None and controller.kind in _CONTROLLERS:
            into.made.append(MadeObject(workload, controller, both))
        else:
            # What another program made is all that there is to judge.
            workload.controller = None
            yield from both
            into.workloads.append(workload)
        return
    yield from metadata_findings
    if kind == "ConfigMap":
        yield from _take_config_map(root, place, into, texts)
    else:
        for name in ome.COMPONENTS:
            part = root.mapping("spec", ome.component_key(name, kind))
            yield from _judge_metadata(part, place)
        into.services.append(ome.service(root, place, kind))


def _is_ours(workload: Workload) -> bool:
    """Return whether a workload asks for chips, or has a key that decides about its faults."""
    if workload.unread or any(role.cards for role in workload.roles()):
        return True
    texts = [workload.labels, workload.annotations]
    for role in workload.roles():
        texts += [role.labels, role.annotations]
    return any(key in KNOWN for text in texts for key in text)


def _shown(root: Mapping, kind: str) -> str:
    name, namespace = root.text("metadata", "name"), root.text("metadata", "namespace")
    name = name if kind else root.text("app_name")
    return " ".join(filter(None, (kind, f"{namespace}/{name}" if namespace else name)))


def _unknown(
    kind: str, version: str, group: str, place: FindingPlace, into: Collected
) -> Iterator[LintFinding]:
    """Report a kind that is not judged: one of Kubernetes is counted, any other is named."""
    known_group = _BY_KIND.get(kind)
    if known_group is not None and not version:
        words = {
            "kind": kind,
            "known": f"{known_group}/{_KINDS[known_group, kind].version}".lstrip("/"),
        }
        yield finding("UNKNOWN_VERSION", place, given=sentence("(nothing)"), **words)
    elif group in _BUILT_IN or group.endswith(".k8s.io"):
        into.not_judged[kind] = into.not_judged.get(kind, 0) + 1
    else:
        yield finding("UNKNOWN_KIND", place, kind=f"{kind} ({version or 'no apiVersion'})")


def _judge_metadata(
    metadata: Mapping | None, place: FindingPlace, *, rendered: bool = False
) -> Iterator[LintFinding]:
    """Check labels and annotations of an object or a template."""
    if metadata is None:
        return
    for key in ("labels", "annotations"):
        value = metadata.get(key)
        is_null = isinstance(value, Scalar) and value.kind is ScalarKind.NULL
        if value is not None and not is_null and not isinstance(value, Mapping):
            yield finding("METADATA_NOT_MAP", place.at(metadata.line_of(key)), key=key)
    labels, annotations = metadata.mapping("labels"), metadata.mapping("annotations")
    yield from judge_keys(labels, place, labels=True, beside=annotations, rendered=rendered)
    yield from judge_keys(annotations, place, labels=False, beside=labels, rendered=rendered)


def _judge_templates(root: Mapping, kind: str, place: FindingPlace) -> Iterator[LintFinding]:
    spec = root.mapping("spec")
    if spec is None:
        return
    templates: list[Mapping | None] = []
    match kind:
        case "Job":
            templates += [task.mapping("template") for task in spec.sequence("tasks")]
            templates += [spec.mapping("template")] if "template" in spec else []
        case "AscendJob":
            replicas = spec.mapping("replicaSpecs")
            for name in replicas if replicas is not None else ():
                templates.append(replicas.mapping(name, "template") if replicas else None)
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "PodSet":
            templates.append(spec.mapping("template"))
        case "LeaderWorkerSet":
            for name in ("leaderTemplate", "workerTemplate"):
                templates.append(spec.mapping("leaderWorkerTemplate", name))
        case "StormService":
            templates.append(spec.mapping("template"))
            roles = spec.sequence("template", "spec", "roles")
            templates += [role.mapping("template") for role in roles]
        case "RoleSet":
            templates += [role.mapping("template") for role in spec.sequence("roles")]
    for template in templates:
        if template is not None:
            yield from _judge_metadata(template.mapping("metadata"), place)


def _take_bare(root: Mapping, place: FindingPlace, into: Collected) -> Iterator[LintFinding]:
    """Read a file that is not a Kubernetes object."""
    if root.get(scaling_rule.LIST) is not None:
        yield from scaling_rule.judge(root, place)
        groups = scaling_rule.groups(root)
        into.rules.append(
            WorkloadScalingRule(place, "", "", root.line, root.line, groups, is_bare=True)
        )
    elif root.mapping(deploy_tool.OME_KEY) is not None:
        yield from deploy_tool.judge(root, place)
        yield from _judge_parts(root, deploy_tool.OME_KEY, place)
        into.services.append(deploy_tool.inference_service(root, place))
    elif root.mapping(deploy_tool.STORM_KEY) is not None:
        yield from deploy_tool.judge(root, place)
        yield from _judge_parts(root, deploy_tool.STORM_KEY, place)
        into.workloads.append(deploy_tool.storm_service(root, place))
    else:
        yield finding("UNKNOWN_KIND", place, kind="(no kind)")


def _judge_parts(root: Mapping, key: str, place: FindingPlace) -> Iterator[LintFinding]:
    """Check labels and annotations of the parts of a configuration of the deploy tool."""
    inside = root.mapping(key)
    for name in inside or ():
        part = inside.mapping(name) if inside is not None else None
        yield from _judge_metadata(part, place, rendered=True)


def _take_elastic_daemon(root: Mapping, kind: str, into: Collected) -> None:
    """Keep the Deployment of the elastic daemon and its rights, which are judged with the jobs."""
    name = root.text("metadata", "name")
    if kind == "ClusterRole":
        into.elastic.roles.add(name)
    elif kind == "Deployment" and name == ELASTIC_DAEMON:
        flags = set()
        for container in root.sequence("spec", "template", "spec", "containers"):
            arguments = container.get("args")
            if isinstance(arguments, Sequence):
                flags |= {argument.text for argument in arguments if isinstance(argument, Scalar)}
        into.elastic.arguments = frozenset(flags)


def _take_config_map(
    root: Mapping, place: FindingPlace, into: Collected, texts: Texts
) -> Iterator[LintFinding]:
    data = root.mapping("data")
    metadata = root.mapping("metadata")
    if data is None or metadata is None:
        return
    name, namespace = metadata.text("name"), metadata.text("namespace") or "default"
    if name.startswith(reach.RANK_TABLE) and metadata.mapping("labels") is not None:
        keys = reach.rank_table_keys(kept(metadata.mapping("labels"), place.file), place)
        if keys:
            into.rank_tables[namespace, name.removeprefix(reach.RANK_TABLE)] = keys
    key = scaling_rule.data_key(data)
    text = data.scalar(key) if key is not None else None
    if key is not None and text is not None:
        if key != SCALING_KEY:
            yield finding("SCALING_RULE_KEY", place.at(data.line_of(key)), key=key)
        yield from _inside(text, _take_rule(text, metadata, place, into, texts))
    text = data.scalar(SCHEDULER_CONFIG_KEY)
    if text is not None:
        yield from _inside(text, _take_configuration(text, place, into, texts))


def _inside(text: Scalar, findings: Iterator[LintFinding]) -> Iterator[LintFinding]:
    """Return findings inside a text: in quotes, its lines are not those of the file."""
    for inner in findings:
        yield inner if text.is_block else inner._replace(place=inner.place.at(text.line))


def _take_rule(
    text: Scalar, metadata: Mapping, place: FindingPlace, into: Collected, texts: Texts
) -> Iterator[LintFinding]:
    rule, findings = texts.rule(text, place)
    yield from findings
    groups = None
    if rule is not None:
        yield from scaling_rule.judge(rule, place)
        groups = scaling_rule.groups(rule)
        if not text.is_block:
            groups = {name: group._replace(line=text.line) for name, group in groups.items()}
    namespace = metadata.text("namespace") or "default"
    lines = (metadata.line_of("name"), metadata.line_of("namespace"))
    here = place.at(text.line)
    into.rules.append(WorkloadScalingRule(here, metadata.text("name"), namespace, *lines, groups))


def _take_configuration(
    text: Scalar, place: FindingPlace, into: Collected, texts: Texts
) -> Iterator[LintFinding]:
    configuration, findings = texts.configuration(text, place)
    yield from findings
    if configuration is not None:
        arguments = scheduler.init_arguments(configuration)
        yield from scheduler.judge(arguments, place)
        if into.grace_over_time is None:
            into.grace_over_time = scheduler.grace_over_time(arguments)
