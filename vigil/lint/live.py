"""What runs in a cluster, judged like files, with the rights of the caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from contract.errors import StoreError, StoreForbidden, StoreNotFound, StoreUnavailable
from contract.scheduling import (
    SCALING_RULE,
    SCHEDULER_CONFIGMAP,
    SCHEDULER_NAMESPACE,
)
from stores.address import kubeconfig_files
from stores.kubernetes_pages import Objects
from vigil.lint.reading import File
from vigil.lint.run import lint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from vigil.lint.run import Report

_LISTS = {
    "Job": "/apis/batch.volcano.sh/v1alpha1/jobs",
    "AscendJob": "/apis/mindxdl.gitee.com/v1/ascendjobs",
    "Deployment": "/apis/apps/v1/deployments",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
    "StormService": "/apis/orchestration.aibrix.ai/v1alpha1/stormservices",
    "InferenceService": "/apis/ome.io/v1beta1/inferenceservices",
    "ServingRuntime": "/apis/ome.io/v1beta1/servingruntimes",
    "ClusterServingRuntime": "/apis/ome.io/v1beta1/clusterservingruntimes",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
}
_SECONDS = 60.0


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = "default"
    labels: dict[str, str] | None = None


class _Named(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _List(msgspec.Struct):
    items: list[_Named] = []


def judge_live(files: Iterable[File], kubeconfig: Path | None) -> Report:
    """Judge the objects of a cluster together with ``files``.

    What cannot be read for want of rights or of a CRD is named in the report. Raises
    ``ConfigurationError``, ``StoreUnavailable``.
    """
    not_known: list[str] = []
    pages = asyncio.run(_read(kubeconfig_files(kubeconfig), not_known))
    report = lint([*files, *pages])
    report.not_known = not_known
    return report


async def _read(kubeconfig: str | None, not_known: list[str]) -> list[File]:
    objects = Objects(kubeconfig)
    found: list[File] = []
    rules: set[tuple[str, str]] = set()
    try:
        async with asyncio.timeout(_SECONDS):
            for kind, path in _LISTS.items():
                try:
                    async for page in objects.pages(path):
                        found.append(_file(kind, page))
                        if kind == "AscendJob":
                            rules |= _rules(page)
                except (StoreForbidden, StoreNotFound) as error:
                    not_known.append(f"not known: {kind}: {error}")
            async for file in _config_maps(objects, rules, not_known):
                found.append(file)
    except TimeoutError:
        raise StoreUnavailable(f"the API server took more than {_SECONDS:g} s") from None
    finally:
        await objects.close()
    return found


async def _config_maps(
    objects: Objects, rules: set[tuple[str, str]], not_known: list[str]
) -> AsyncIterator[File]:
    """The scheduler's configuration, and the scaling rules that jobs name."""
    for namespace, name in ((SCHEDULER_NAMESPACE, SCHEDULER_CONFIGMAP), *sorted(rules)):
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        try:
            yield _file("ConfigMap", await objects.get(path))
        except StoreNotFound:
            continue
        except StoreError as error:
            not_known.append(f"not known: ConfigMap {namespace}/{name}: {error}")


def _rules(page: bytes) -> set[tuple[str, str]]:
    named = set()
    for one in msgspec.json.decode(page, type=_List).items:
        rule = (one.metadata.labels or {}).get(SCALING_RULE)
        if rule:
            named.add((one.metadata.namespace, rule))
    return named


def _file(kind: str, page: bytes) -> File:
    return File(f"kubernetes:{kind}", page.decode(errors="replace"), is_live=True)
