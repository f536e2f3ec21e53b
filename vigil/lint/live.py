"""What runs in a cluster and what its scheduler decides, judged with the rights of the caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from advisor.advise import advise
from advisor.findings import LIVE_CODES
from advisor.inputs.scheduler_options import scheduler_options
from advisor.lint.elastic import ELASTIC_DAEMON, ELASTIC_PARTS
from advisor.lint.finding import FindingPlace, finding
from advisor.options import AdvisorOptions
from advisor.scheduler_view.state import SchedulerState
from contract.errors import (
    ConfigurationError,
    StoreError,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
)
from contract.names import CLUSTER_NAMESPACE
from contract.scheduling import (
    SCALING_RULE,
    SCHEDULER_CONFIGMAP,
    SCHEDULER_NAMESPACE,
)
from stores.address import kubeconfig_files
from stores.kubernetes_api.pages import ObjectPages
from vigil.advise.dump import sessions_of
from vigil.lint.reading import File
from vigil.lint.run import lint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from advisor.lint.finding import LintFinding
    from vigil.lint.run import LintReport

_SCHEDULER, _RULE = "scheduler", "scaling-rule"
"""ConfigMaps that are read by name."""
_LISTS = {
    "Job": "/apis/batch.volcano.sh/v1alpha1/jobs",
    "AscendJob": "/apis/mindxdl.gitee.com/v1/ascendjobs",
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "Job (batch)": "/apis/batch/v1/jobs",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
    "StormService": "/apis/orchestration.aibrix.ai/v1alpha1/stormservices",
    "InferenceService": "/apis/ome.io/v1beta1/inferenceservices",
    "ServingRuntime": "/apis/ome.io/v1beta1/servingruntimes",
    "ClusterServingRuntime": "/apis/ome.io/v1beta1/clusterservingruntimes",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
}
_OF_THE_SCHEDULER = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "ConfigMap": f"/api/v1/namespaces/{CLUSTER_NAMESPACE}/configmaps",
}
_CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_DAEMON = f'"{ELASTIC_DAEMON}"'.encode()
# All lists together: a cluster that needs longer is not judged by half.
_SECONDS = 60.0
SCHEDULER = "kubernetes:scheduler"
"""The file of findings about decisions."""


class _NamedMetadata(msgspec.Struct):
    name: str = ""
    namespace: str = "default"
    labels: dict[str, str] | None = None


class _NamedObject(msgspec.Struct):
    metadata: _NamedMetadata = msgspec.field(default_factory=_NamedMetadata)


class _NamedList(msgspec.Struct):
    items: list[_NamedObject] = []


def judge_live(files: Iterable[File], kubeconfig: Path | None) -> LintReport:
    """Judge the objects of a cluster together with ``files``.

    What cannot be read for want of rights or of a CRD is named in the report. Raises
    ``ConfigurationError``, ``StoreUnavailable``.
    """
    not_known: list[str] = []
    cluster = asyncio.run(_read(kubeconfig_files(kubeconfig), not_known))
    # The scheduler knows no scaling rules.
    decided = _judge_decisions([item for item in cluster if item[0] != _RULE], not_known)
    judged = [
        File(f"kubernetes:{kind}", page.decode(errors="replace"), is_live=True)
        for kind, page in cluster
        if kind not in _OF_THE_SCHEDULER
    ]
    # Without the right to list Deployments, it is not known whether ``vigil elastic`` runs.
    is_cluster = any(kind == "Deployment" for kind, _ in cluster)
    report = lint([*files, *judged], decided, is_cluster=is_cluster)
    report.not_known = not_known
    return report


def _judge_decisions(pages: Iterable[tuple[str, bytes]], not_known: list[str]) -> list[LintFinding]:
    """Return what the scheduler is not shown, or decides by a defect of its own.

    ``pages`` are lists and objects of an API server with a name for each. What cannot be read is
    added to ``not_known``.
    """
    objects_read = []
    try:
        for snapshot in sessions_of(pages):
            options = scheduler_options(snapshot.configmaps)
            report, _ = advise(
                snapshot, SchedulerState(), options[0] if options else AdvisorOptions()
            )
            for item in report.findings:
                if item.code in LIVE_CODES:
                    place = FindingPlace(SCHEDULER, 0, item.object)
                    objects_read.append(finding(item.code, place, text=item.text))
    except ConfigurationError as error:
        not_known.append(f"not known: what the scheduler decides: {error}")
    return objects_read


async def _read(kubeconfig: str | None, not_known: list[str]) -> list[tuple[str, bytes]]:
    """Return the pages of all kinds, and the ConfigMaps that are read by name."""
    objects = ObjectPages(kubeconfig)
    objects_read: list[tuple[str, bytes]] = []
    rules: set[tuple[str, str]] = set()
    try:
        async with asyncio.timeout(_SECONDS):
            for kind, path in (_LISTS | _OF_THE_SCHEDULER).items():
                try:
                    async for page in objects.pages(path):
                        objects_read.append((kind, page))
                        if kind == "AscendJob":
                            rules |= _rules(page)
                # A kind without its CRD, or without a right, is named; the others are judged.
                except (StoreForbidden, StoreNotFound) as error:
                    not_known.append(f"not known: {kind}: {error}")
            objects_read += await _read_objects(objects, _config_maps(rules), not_known)
            # The roles matter only where the daemon of elastic jobs runs.
            if any(kind == "Deployment" and _DAEMON in page for kind, page in objects_read):
                objects_read += await _read_objects(objects, _roles(), not_known)
    except TimeoutError:
        raise StoreUnavailable(f"the API server took more than {_SECONDS:g} s") from None
    finally:
        await objects.close()
    return objects_read


def _config_maps(rules: set[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield the scheduler's configuration, and the scaling rules that jobs name."""
    scheduler = (_SCHEDULER, SCHEDULER_NAMESPACE, SCHEDULER_CONFIGMAP)
    for kind, namespace, name in (scheduler, *((_RULE, *rule) for rule in sorted(rules))):
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        yield kind, f"ConfigMap {namespace}/{name}", path


def _roles() -> Iterator[tuple[str, str, str]]:
    """Yield the rights of ``vigil elastic`` and of its parts."""
    for name in (ELASTIC_DAEMON, *(f"{ELASTIC_DAEMON}-{part}" for part in ELASTIC_PARTS)):
        yield "ClusterRole", f"ClusterRole {name}", f"{_CLUSTER_ROLES}/{name}"


async def _read_objects(
    objects: ObjectPages, wanted: Iterable[tuple[str, str, str]], not_known: list[str]
) -> list[tuple[str, bytes]]:
    """Return each object that is there with its kind; ``wanted`` are kind, name and path."""
    objects_read = []
    for kind, name, path in wanted:
        try:
            objects_read.append((kind, await objects.get(path)))
        except StoreNotFound:
            continue
        except StoreError as error:
            not_known.append(f"not known: {name}: {error}")
    return objects_read


def _rules(page: bytes) -> set[tuple[str, str]]:
    named = set()
    for item in msgspec.json.decode(page, type=_NamedList).items:
        rule = (item.metadata.labels or {}).get(SCALING_RULE)
        if rule:
            named.add((item.metadata.namespace, rule))
    return named
