"""Jobs of Volcano on an API server: followed, changed by patches, and commanded.

A patch names the version that it fits; another one is a ``StoreConflict``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from contract.errors import StoreNotFound
from contract.kubernetes import decode_object
from stores.document_names import check_names
from stores.kubernetes_api import wire
from stores.kubernetes_api.cluster import KubernetesCluster
from stores.kubernetes_api.leader import KubernetesLeaderLease
from stores.kubernetes_api.objects import KubernetesObjects
from stores.kubernetes_api.pages import ObjectPages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_API = "/apis/batch.volcano.sh/v1alpha1"
PATH = f"{_API}/jobs"
_JSON_PATCH = {"Content-Type": "application/json-patch+json"}


class _VcJobList(msgspec.Struct):
    items: list[msgspec.Raw]


_lists = msgspec.json.Decoder(_VcJobList)


class VcJobs(ObjectPages):
    """Asks the API server that ``kubeconfig`` names, or this pod's. Raises ``StoreError``."""

    def __init__(self, kubeconfig: str | None) -> None:
        super().__init__(kubeconfig)
        self.cluster = KubernetesCluster(self.connection)
        self.objects = KubernetesObjects(self.connection)

    def leader_lease(self, name: str) -> KubernetesLeaderLease:
        """Return the Lease of this name."""
        return KubernetesLeaderLease(self.connection, name)

    async def read(self, namespace: str, name: str) -> bytes:
        """Return a job as it is now."""
        return await self.get(_path(namespace, name))

    async def jobs(self) -> list[msgspec.Raw]:
        """Return all jobs as they are now."""
        jobs: list[msgspec.Raw] = []
        async for page in self.pages(PATH):
            jobs += _items(page)
        return jobs

    async def pods(self, namespace: str, name: str) -> list[msgspec.Raw]:
        """Return the pods that the controller made for a job, as they are now."""
        check_names(namespace, name)
        selector = quote(f"volcano.sh/job-name={name}", safe="")
        path = wire.object_path("/api/v1", "pods", namespace)
        return _items(await self.get(f"{path}?labelSelector={selector}"))

    async def patch(self, namespace: str, name: str, patch: Sequence[Mapping[str, Any]]) -> str:
        """Change a job by a JSON patch; return its new version."""
        body = msgspec.json.encode(patch)
        return await self._patch(_path(namespace, name), body, _JSON_PATCH, f"{namespace}/{name}")

    async def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> str:
        """Change the status of a job by a merge patch; return its new version."""
        path = f"{_path(namespace, name)}/status"
        body = msgspec.json.encode(patch)
        return await self._patch(path, body, wire.MERGE_PATCH_HEADERS, f"{namespace}/{name}")

    async def annotate(
        self, namespace: str, name: str, annotations: Mapping[str, str | None]
    ) -> None:
        """Set these annotations of a job, ``None`` removes one; all others stay."""
        body = msgspec.json.encode({"metadata": {"annotations": annotations}})
        path = _path(namespace, name)
        await self._patch(path, body, wire.MERGE_PATCH_HEADERS, f"{namespace}/{name}")

    async def node(self, name: str) -> bytes:
        """Return a Node as it is now."""
        return await self.get(wire.object_path("/api/v1", "nodes", None, name))

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete a pod by force, whatever runs of it; another one of its name stays."""
        check_names(namespace, name)
        path = wire.object_path("/api/v1", "pods", namespace, name)
        # The kubelet of a dead node confirms no deletion, so none is waited for (decision 37).
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        answer = await self.connection.request(
            "DELETE", path, msgspec.json.encode(options), headers=wire.ONLY_METADATA
        )
        wire.accepted(answer, f"delete pod {namespace}/{name}")

    async def terminate(self, namespace: str, name: str, uid: str) -> None:
        """Command the controller to end a job; its pods keep their grace (consumers#2.9).

        A Command that waits already is enough: one that comes later would end the next start.
        """
        check_names(namespace, name)
        owner = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "name": name,
            "uid": uid,
            "controller": True,
        }
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {
                "name": _command(name, uid),
                "namespace": namespace,
                "ownerReferences": [owner],
            },
            "action": "TerminateJob",
            "target": owner,
            "reason": "NPUVigilElastic",
        }
        path = f"{_commands(namespace)}?{wire.FIELD_MANAGER}"
        answer = await self.connection.request("POST", path, msgspec.json.encode(command))
        wire.accepted(answer, f"end Job {namespace}/{name}", HTTPStatus.CONFLICT)

    async def is_commanded(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether a Command that ends a job waits for the controller."""
        check_names(namespace, name)
        try:
            await self.get(_commands(namespace, _command(name, uid)))
        except StoreNotFound:
            return False
        return True

    async def _patch(self, path: str, body: bytes, headers: Mapping[str, str], job: str) -> str:
        answer = await self.connection.request(
            "PATCH", f"{path}?{wire.FIELD_MANAGER}", body, headers={**headers, **wire.ONLY_METADATA}
        )
        written = wire.accepted(answer, f"write Job {job}")
        item = wire.decoded(decode_object, written, f"the answer for Job {job} is none")
        return item.metadata.resource_version


def _items(page: bytes) -> list[msgspec.Raw]:
    return wire.decoded(_lists.decode, page, "a list makes no sense").items


def _command(name: str, uid: str) -> str:
    # One name for each job, so that a second Command is a conflict and not one more end.
    return f"{name}-terminatejob-{uid}"


def _commands(namespace: str, name: str | None = None) -> str:
    return wire.object_path("/apis/bus.volcano.sh/v1alpha1", "commands", namespace, name)


def _path(namespace: str, name: str) -> str:
    check_names(namespace, name)
    return wire.object_path(_API, "jobs", namespace, name)
