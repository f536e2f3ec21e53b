"""An InferenceService together with its runtime: what the service has beats the runtime.

Source: docs/spec/consumers.md#6.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.lint.labels import both_kept
from advisor.lint.model import empty, whole
from advisor.lint.pods import take_metadata, take_spec, text_of
from advisor.lint.reach import take_read
from advisor.lint.workload import (
    Component,
    Role,
    Service,
    Workload,
    WorkloadForm,
    WorkloadGroup,
)

if TYPE_CHECKING:
    from advisor.lint.finding import FindingPlace
    from advisor.lint.model import Mapping

GROUP, VERSION = "ome.io", "v1beta1"
KINDS = ("InferenceService", "ServingRuntime", "ClusterServingRuntime")
COMPONENTS = ("engine", "decoder", "router")
_KNOWN_MODES = ("RawDeployment", "MultiNode")
"""Those whose pods a Deployment or a LeaderWorkerSet makes."""
_MODE = "ome.io/deploymentMode"


_ROUTER = "router"
_PATHS = {
    "InferenceService": "spec.engine, spec.decoder, spec.router",
    "runtime of OME": "spec.engineConfig, spec.decoderConfig, spec.routerConfig",
}


def component_key(name: str, kind: str) -> str:
    """Return the key of a component below ``spec`` of an object of ``KINDS``."""
    return f"{name}Config" if kind.endswith("Runtime") else name


def service(root: Mapping, place: FindingPlace, kind: str) -> Service:
    """Return an InferenceService or a runtime."""
    metadata, spec = root.mapping("metadata") or root, root.mapping("spec") or empty(root.line)
    is_runtime = kind.endswith("Runtime")
    row = "runtime of OME" if is_runtime else "InferenceService"
    labels, annotations = both_kept(metadata, place.file)
    unread = take_read(row, "metadata", labels, annotations, place)
    if is_runtime:
        # The definition of the kind has labels for pods here, which OME does not use.
        unread += take_read(row, "spec", *both_kept(spec, place.file), place)
    components = {}
    modes = [metadata.mapping("annotations")]
    for name in COMPONENTS:
        key = component_key(name, kind)
        part = spec.mapping(key)
        if part is not None:
            component = _component(name, part, place.file, spec.line_of(key))
            texts = (component.pod.labels, component.pod.annotations)
            unread += take_read(row, _PATHS[row], *texts, place)
            components[name] = component
            modes.append(part.mapping("annotations"))
    names = [
        mode
        for mode_object in modes
        if mode_object is not None and (mode := mode_object.scalar(_MODE))
    ]
    return Service(
        place,
        metadata.text("name"),
        "" if kind.startswith("Cluster") else metadata.text("namespace") or "default",
        labels,
        annotations,
        components,
        None if is_runtime else text_of(spec.scalar("runtime", "name"), place.file),
        root.line_of("spec"),
        is_runtime,
        unread=unread,
        mode=next((text_of(mode, place.file) for mode in names), None),
    )


def _component(name: str, part: Mapping, file: str, line: int) -> Component:
    pod = Role(name, file, line, spec_line=line, has_spec=part.mapping("runner") is not None)
    take_metadata(pod, part, line)
    take_spec(pod, part)
    leader = _member("leader", part, file, 1)
    worker = _member("worker", part, file, whole(part.scalar("worker", "size")))
    replicas, most = (whole(part.scalar(key)) for key in ("minReplicas", "maxReplicas"))
    return Component(pod, leader, worker, replicas, most)


def _member(name: str, part: Mapping, file: str, pods: int | None) -> Role | None:
    spec = part.mapping(name)
    if spec is None:
        return None
    line = part.line_of(name)
    role = Role(name, file, line, spec_line=line, labels_line=line, annotations_line=line)
    role.pods = pods
    take_spec(role, spec)
    return role


def is_known_mode(service: Service) -> bool:
    """Return whether it is known what makes the pods of a service."""
    return service.mode is None or service.mode.value in _KNOWN_MODES


def workload(service: Service, runtime: Service | None) -> Workload:
    """Return what a service makes with its runtime; of a runtime, what it makes by itself."""
    groups = []
    for name in COMPONENTS:
        own = service.components.get(name)
        base = runtime.components.get(name) if runtime is not None else None
        if own is None:
            continue
        labels = {**service.labels, **own.pod.labels}
        annotations = {**service.annotations, **own.pod.annotations}
        if base is not None:
            labels = {**base.pod.labels, **labels}
            annotations = {**base.pod.annotations, **annotations}
        roles = _roles(own, base)
        for role in roles:
            role.labels, role.annotations = labels, annotations
            role.labels_line = own.pod.labels_line
            role.annotations_line = own.pod.annotations_line
            # The size of a group without one is 1; the size in a runtime alone may be a service's.
            if role.name == "worker" and role.pods is None and not service.is_runtime:
                role.pods = 0
        group = WorkloadGroup(tuple(roles), members=1)
        # Each pod is an instance, and all share a PodGroup; a leader has one with its workers.
        group.is_shared = len(roles) == 1 and roles[0].name == name
        if group.is_shared:
            roles[0].pods = own.replicas or (base and base.replicas) or 1
            group.most_pods = _most_pods(service, own, base, roles[0].pods)
        else:
            group.members = group.most_pods = group.pods()
        # A router has no fault labels (consumers#6.2), so it matters only where it names a
        # scheduler.
        if name != _ROUTER or any(role.scheduler is not None for role in roles):
            groups.append(group)
    return Workload(
        WorkloadForm.OME,
        service.place,
        service.name,
        service.namespace,
        tuple(groups),
        is_rendered=service.is_rendered,
        is_partial=runtime is None,
        unread=service.unread + (runtime.unread if runtime is not None else ()),
    )


def _most_pods(
    service: Service, own: Component, base: Component | None, replicas: int
) -> int | None:
    """Return how far a component grows by itself; ``None`` where its other half is not known.

    ``maxReplicas`` below ``minReplicas`` counts as ``minReplicas``.
    """
    most = own.most_replicas or (base and base.most_replicas)
    if service.is_runtime or (base is None and (own.replicas is None or most is None)):
        return None
    return max(replicas, most or 0)


def _roles(own: Component, base: Component | None) -> list[Role]:
    has_own_pod = own.pod.has_spec and own.leader is None
    in_group = own.leader or own.worker or (not has_own_pod and base and base.leader)
    if not in_group:
        return [_over(own.pod, base.pod if base is not None else None)]
    roles = []
    leader, worker = (base.leader, base.worker) if base is not None else (None, None)
    for mine, theirs in ((own.leader, leader), (own.worker, worker)):
        if mine is not None:
            roles.append(_over(mine, theirs))
        elif theirs is not None:
            roles.append(replace(theirs))
    if roles and roles[0].name != "leader":
        leader_pod = _over(own.pod, base.pod if base is not None else None)
        roles.insert(0, replace(leader_pod, name="leader", pods=1))
    return roles


def _over(own: Role, base: Role | None) -> Role:
    """Return the role of a service over that of its runtime."""
    if base is None:
        return replace(own)
    return replace(
        own,
        selector={**base.selector, **own.selector},
        scheduler=own.scheduler or base.scheduler,
        restart=own.restart or base.restart,
        termination=own.termination or base.termination,
        pre_stop=own.pre_stop or base.pre_stop,
        cards=own.cards or base.cards,
        cards_line=own.cards_line or base.cards_line,
        visible=own.visible or base.visible,
        visible_variable=own.visible_variable or base.visible_variable,
        pods=own.pods if own.pods is not None else base.pods,
        has_spec=own.has_spec or base.has_spec,
    )
