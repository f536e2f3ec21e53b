"""An aggregator in virtual time for tests that are no recordings."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

from contract.documents.cluster_info import cluster_device_index
from contract.names import CLUSTER_LABEL, CLUSTER_NODE_NAME, REPORT_LABEL
from tests.cluster.player import Player
from tests.contract.documents.node_documents import config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = "huawei.com/Ascend910"
DEVICE = "cluster-info-device-0"
_DEVICES = "mindx-dl-deviceinfo-"
JOB = "11111111-1111-4111-8111-111111111111"
SOON = 0.1
"""What is new is published within this time; requests take 4 ms here."""


class Cluster(Player):
    """A cluster in which things are put with few words."""

    async def device(self, node: str, data: dict[str, str], seconds: float = 0.0) -> None:
        """Write a device-info, then let time pass."""
        await self._put("kube-system", f"{_DEVICES}{node}", data, seconds)

    async def server(self, node: str, data: dict[str, str], seconds: float = 0.0) -> None:
        """Write a node-info, then let time pass."""
        await self._put("mindx-dl", f"mindx-dl-nodeinfo-{node}", data, seconds)

    async def gone(self, node: str, seconds: float = 0.0) -> None:
        """Delete the device-info of a node, then let time pass."""
        thing = {"namespace": "kube-system", "name": f"{_DEVICES}{node}"}
        await self.do({"do": "delete-configmap", "object": thing})
        await self.pass_time(seconds)

    async def edit(self, name: str, data: dict[str, str] | None) -> None:
        """Edit or delete one of the documents that are ours, as an operator does."""
        thing: dict[str, Any] = {"namespace": "mindx-dl", "name": name}
        kept = {"labels": dict([CLUSTER_LABEL]), "data": data}
        thing |= {"delete": True} if data is None else kept
        await self.do({"do": "edit-output", "object": thing})

    async def public(self, name: str, message: dict[str, Any]) -> None:
        """Write a message about public faults."""
        labels = {"mc-consumer-publicfault": "true"}
        data = {"PublicFault": json.dumps(message)}
        thing = {"namespace": "default", "name": name, "labels": labels, "data": data}
        await self.do({"do": "put-configmap", "object": thing})

    async def node(
        self, name: str, *, serial_number: str | None = None, ready: bool = True
    ) -> None:
        """Write a Node object."""
        annotations = {} if serial_number is None else {"product-serial-number": serial_number}
        status = {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        }
        await self.do(
            {
                "do": "put-node",
                "object": {"name": name, "annotations": annotations, "status": status},
            }
        )

    async def _put(self, namespace: str, name: str, data: dict[str, str], seconds: float) -> None:
        labels = dict([REPORT_LABEL])
        thing = {"namespace": namespace, "name": name, "labels": labels, "data": data}
        await self.do({"do": "put-configmap", "object": thing})
        await self.pass_time(seconds)

    @property
    def devices(self) -> dict[str, dict[str, Any]]:
        """Return the entry of each node in all device documents; check that each occurs once."""
        found: dict[str, dict[str, Any]] = {}
        for name, data in self.outputs.items():
            if cluster_device_index(name) is not None:
                for key, entry in json.loads(data[name] or "{}").items():
                    assert key not in found, f"{key} is there twice"
                    found[key] = entry
        return {key.removeprefix(_DEVICES): entry for key, entry in found.items()}

    @property
    def servers(self) -> dict[str, dict[str, Any]]:
        """Return the entry of each node in the document of servers."""
        text = self.outputs[CLUSTER_NODE_NAME][CLUSTER_NODE_NAME]
        found: dict[str, dict[str, Any]] = json.loads(text or "{}")
        return {key.removeprefix("mindx-dl-nodeinfo-"): entry for key, entry in found.items()}

    def unhealthy(self, node: str) -> str:
        """Return the published list of unhealthy chips of a node."""
        text: str = self.devices[node]["DeviceList"][f"{KEY}-Unhealthy"]
        return text

    def shown_entries(self, node: str) -> list[dict[str, Any] | None]:
        """Return the entry of a node in each state of the first document of devices."""
        texts = [(one.data or {}).get(DEVICE) for one in self.played.shown if one.name == DEVICE]
        return [json.loads(text or "{}").get(f"{_DEVICES}{node}") for text in texts]

    def shown_unhealthy(self, node: str) -> list[str | None]:
        """Return the lists of unhealthy chips that were published one after the other."""
        found = [
            None if entry is None else entry["DeviceList"][f"{KEY}-Unhealthy"]
            for entry in self.shown_entries(node)
        ]
        return [text for text, _ in itertools.groupby(found)]


@contextlib.asynccontextmanager
async def cluster(place: Path, **configuration: Any) -> AsyncIterator[Cluster]:
    """Yield an empty cluster; the aggregator is not started."""
    made = Cluster(place, configuration=configuration)
    with made.replaced():
        try:
            yield made
        finally:
            await made.close()


def broken(*chips: int, update_time: int = 1_760_000_000) -> dict[str, str]:
    """Return a device-info of eight chips, of which the given ones are unhealthy."""
    return config(unhealthy=chips, update_time=update_time)


def public_message(
    assertion: str, *, number: int = 1, node: str | None = "n1", chips: tuple[int, ...] = (0,)
) -> dict[str, Any]:
    """Return a message about one public fault that separates chips."""
    influence: dict[str, Any] = {"deviceIds": list(chips)}
    if node is not None:
        influence["nodeName"] = node
    one = {
        "faultId": f"fault-{number:04}",
        "faultType": "NPU",
        "faultCode": "220001001",
        "faultTime": 1_760_000_100_000,
        "assertion": assertion,
        "influence": [influence],
    }
    return {
        "id": f"{assertion}-{number:06}",
        "timestamp": 1_760_000_100_000,
        "version": "1.0",
        "resource": "CCAE",
        "faults": [one],
    }


async def put_job(site: Cluster, **annotations: str) -> None:
    """Write a job of one pod on chips 0 and 1 of n1."""
    owner = {"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "train"}
    owners = [owner | {"uid": JOB, "controller": True}]
    await site.node("n1", serial_number="SN-1")
    group = {
        "namespace": "default",
        "name": "pg-train",
        "metadata": {"annotations": annotations, "ownerReferences": owners},
        "spec": {"minMember": 1},
        "status": {"phase": "Running"},
    }
    await site.do({"do": "put-podgroup", "object": group})
    devices = [{"device_id": str(n), "device_ip": f"10.1.0.{n}"} for n in (0, 1)]
    ranks = {"pod_name": "train-0", "server_id": "10.0.0.1", "devices": devices}
    reported = {
        "huawei.com/AscendReal": "Ascend910-0,Ascend910-1",
        "hccl/rankIndex": "0",
        "scheduling.k8s.io/group-name": "pg-train",
        "ascend.kubectl.kubernetes.io/ascend-910-configuration": json.dumps(ranks),
    }
    pod = {
        "namespace": "default",
        "name": "train-0",
        "metadata": {"annotations": reported, "ownerReferences": owners},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running"},
    }
    await site.do({"do": "put-pod", "object": pod})
