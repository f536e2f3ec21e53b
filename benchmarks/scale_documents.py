"""What a cluster of many nodes holds: device-infos, Leases, Nodes and pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import advise
from contract.codes.families import FAMILIES
from contract.documents import device_info, dpu_info
from contract.documents.device_info import DeviceFault, DeviceInfo, TimeAndLevel
from contract.documents.dpu_info import DpuFault
from contract.go import encode as go_json
from contract.names import DEVICE_INFO_NAMESPACE, REPORT_LABEL, device_info_name
from stores.base import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE_OBJECT_BYTES = 8192
"""A Node of a real cluster: most of it are the images that its kubelet has."""

_IMAGE_BYTES = 160

_PODS_OF_A_NODE = 2
_CODE = "80E18402"
_LEVEL = "RestartNPU"


def node_names(count: int) -> list[str]:
    """Return the nodes of a cluster."""
    return [f"node-{number:05}" for number in range(count)]


def chip(number: int) -> str:
    """Return the name of a chip."""
    return FAMILIES["Ascend910B"].device_name(number)


def device_document(node: str, stamp: int, faulty: int | None, chips: int = 8) -> Document:
    """Return the document of a node of ``chips`` chips, one of which may be faulty; with 16 it has
    a switch.
    """
    family = FAMILIES["Ascend910B" if chips <= 8 else "Ascend910A3"]
    names = [family.device_name(number) for number in range(chips)]
    bad = () if faulty is None else (names[faulty],)
    times = {_CODE: TimeAndLevel(stamp * 1000, _LEVEL)}
    info = DeviceInfo(
        device_type=family.device_type,
        free=tuple(name for name in names if name not in bad),
        unhealthy=bad,
        network_unhealthy=(),
        recovering=(),
        faults=tuple(
            DeviceFault("CardUnhealthy", name, _LEVEL, _LEVEL, _LEVEL, _CODE, times) for name in bad
        ),
        update_time=stamp,
        switch_info=device_info.clean_switch_info(family, stamp),
    )
    data = device_info.encode(info, family)
    return Document(DEVICE_INFO_NAMESPACE, device_info_name(node), data, dict([REPORT_LABEL]))


def dpu_document(node: str, at_ms: int) -> Document:
    """Return the document of an RDMA plugin with eight devices; on one node in a hundred with a
    fault.
    """
    hcas = tuple(f"mlx5_{number}" for number in range(8))
    lane = DpuFault("mlx5_1", "21000023", "SubHealthFault", 1_760_000_000_000, "lane is down")
    faults = (lane,) if node.endswith("00") else ()
    data = dpu_info.encode_dpu_info(node, hcas, faults, at_ms)
    return Document(dpu_info.NAMESPACE, dpu_info.PREFIX + node, data, dict([dpu_info.LABEL]))


def config_map(document: Document) -> dict[str, Any]:
    """Return the document as the API server accepts it."""
    metadata = {
        "name": document.name,
        "namespace": document.namespace,
        "labels": document.labels,
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": document.data}


def node_object(number: int, node: str) -> dict[str, Any]:
    """Return a Node of 8 KB with what is read of it."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node,
            "labels": {"kubernetes.io/hostname": node, "host-arch": "huawei-arm"},
            "annotations": {"product-serial-number": f"SN-{number:08}"},
        },
        "status": {
            "addresses": [
                {
                    "type": "InternalIP",
                    "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
                }
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    images = (NODE_OBJECT_BYTES - len(go_json.encode(body))) // _IMAGE_BYTES
    body["status"]["images"] = [_image(one) for one in range(images)]
    return body


def _image(number: int) -> dict[str, Any]:
    name = f"registry.example/image-{number:03}@sha256:"
    empty: dict[str, Any] = {"names": [name], "sizeBytes": 1_000_000}
    return empty | {"names": [name + "0" * (_IMAGE_BYTES - 1 - len(go_json.encode(empty)))]}


def slice_object(node: str, chips: int) -> dict[str, Any]:
    """Return the ResourceSlice with which the vendor's driver publishes the chips of a node."""
    devices = [
        {"name": f"npu-{number}", "attributes": {"physicId": {"int": number}}}
        for number in range(chips)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "npu.huawei.com", "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-npu"}, "spec": spec}


def pod_object(number: int, names: list[str], chips: int) -> dict[str, Any]:
    """Return the pod of this number; two on each node that has some, each with half of
    its chips.
    """
    half = chips // _PODS_OF_A_NODE
    first = number % _PODS_OF_A_NODE * half
    used = ",".join(chip(one) for one in range(first, first + half))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:05}",
            "namespace": "default",
            "annotations": {"huawei.com/AscendReal": used},
        },
        "spec": {
            "nodeName": names[number // _PODS_OF_A_NODE % len(names)],
            "containers": [{"name": "train", "image": "registry.example/train:1"}],
        },
    }


_PLACES = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
    "Job": "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs",
}


def scheduled_objects(
    names: list[str], pods: int, jobs: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the advisor follows beside documents: where each object is made, and itself.

    It is the cluster of ``benchmarks.advise``, on nodes of these names.
    """
    place = {f"node-{number}": name for number, name in enumerate(names)}
    for one in advise.objects(len(names), pods, jobs, 0):
        path = _PLACES.get(one["kind"])
        if path is None:
            continue
        metadata = {key: value for key, value in one["metadata"].items() if key not in _OF_SERVER}
        if one["kind"] == "Node":
            metadata["name"] = place[metadata["name"]]
        else:
            metadata["namespace"] = "default"
        if "nodeName" in one.get("spec", {}):
            one["spec"]["nodeName"] = place[one["spec"]["nodeName"]]
        yield path, {**one, "metadata": metadata}


_OF_SERVER = ("uid", "resourceVersion", "creationTimestamp")
