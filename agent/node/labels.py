"""Labels and annotations of a Node about its chips (``docs/spec/device-plugin.md#6.2``, 6.3).

Pure. Without ``ResetInfo``, because we do not reset chips.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from agent.publishing.chip_lists import family_of, super_pod_ids
from contract.go import encode as go_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dcmi_shim.values import Inventory, NodeFacts
    from stores.base import NodeObject

Key: TypeAlias = tuple[str, str]
"""``label`` or ``annotation``, and its name."""

LABEL, ANNOTATION = "label", "annotation"

SERVER_TYPE = "servertype"
BASE_DEVICE_INFOS = "baseDeviceInfos"

_A3, _A5 = "Ascend910A3", "Ascend910A5"
_SUPER_POD_FAMILIES = (_A3, _A5)
_RACK_TYPES = (1, 2)
_ACCELERATORS = {
    "Ascend910": "huawei-Ascend910",
    "Ascend910B": "huawei-Ascend910",
    _A3: "huawei-Ascend910",
    _A5: "huawei-npu",
    "Ascend310": "huawei-Ascend310",
    "Ascend310P": "huawei-Ascend310P",
}
_CARD_TYPES = {0x68: "300I-Atlas350", 0x6C: "300I-Atlas350-4p"}
_CARD_BOARDS = range(0x1A, 0x1D)
"""Names by main board, and the boards, of an A5 that is a card."""
_SERVER_TYPES = {_A3: "A3", _A5: "npu"}
# The Atlas 300I A2 (dcmi#1.6).
_INFERENCE_BOARDS = (0x28, 0x29)
_DUO = "Atlas 300I Duo"
_MB_PER_GB = 1024
_INVALID = 0xFFFFFFFF

# Kubernetes' rule for values of labels. One bad value would have the whole patch refused.
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_OLD_LABELS = ("-Recover", "-NetworkRecover")
_OLD_ANNOTATIONS = ("", "-Unhealthy", "-NetworkUnhealthy", "-Fault", "-Recovering", *_OLD_LABELS)


class DesiredLabels(msgspec.Struct, frozen=True):
    """The desired keys; ``refused`` are labels that Kubernetes would not accept, and are left out.

    ``server_type`` is written only where the Node has none.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    server_type: str | None
    refused: dict[str, str]


class _BaseDevice(msgspec.Struct):
    """An element of ``baseDeviceInfos``, with Go's names."""

    ip: str = msgspec.field(default="", name="IP")
    super_device: int = msgspec.field(default=0, name="SuperDeviceID")


_devices_decoder = msgspec.json.Decoder(dict[str, _BaseDevice])


def desired_labels(
    inventory: Inventory, facts: NodeFacts, addresses: Mapping[int, str]
) -> DesiredLabels:
    """Return the keys for the Node of a server with these chips.

    ``addresses`` are by physical id.
    """
    labels = _labels(inventory, facts)
    refused = {key: value for key, value in labels.items() if not _LABEL_VALUE.fullmatch(value)}
    server_type = None
    # On an A5 it is overwritten, on others kept where the Node has one (device-plugin#6.2).
    if inventory.family != _A5:
        server_type = labels.pop(SERVER_TYPE, None)
    return DesiredLabels(
        {key: value for key, value in labels.items() if key not in refused},
        _annotations(inventory, facts, addresses),
        None if SERVER_TYPE in refused else server_type,
        refused,
    )


def _labels(inventory: Inventory, facts: NodeFacts) -> dict[str, str]:
    family, pod = inventory.family, inventory.super_pod
    labels = {"node.kubernetes.io/npu.chip.name": inventory.chip_name}
    if facts.aicores is not None:
        labels[SERVER_TYPE] = f"{'npu' if family == _A5 else family}-{facts.aicores}"
    if inventory.driver_version:
        labels["huawei.com/driver.version"] = inventory.driver_version
    if facts.memory_mb is not None:
        labels["mind-cluster/npu-chip-memory"] = f"{facts.memory_mb // _MB_PER_GB}G"
    if family == "Ascend910B" and inventory.board_id in _INFERENCE_BOARDS:
        labels["accelerator-type"] = "card-910b-infer"
    # ``all`` holds for no products at all, too.
    if facts.products and all(product == _DUO for product in facts.products):
        labels["infer-card-type"] = "card-300i-duo"
    if family in _ACCELERATORS:
        labels["accelerator"] = _ACCELERATORS[family]
    if family not in _SUPER_POD_FAMILIES:
        return labels
    super_pod_id, server_index, rack_id = super_pod_ids(pod, family_of(inventory))
    topology = {"superpodid": super_pod_id}
    if family == _A5:
        topology["serverid"] = server_index
        if pod is not None and pod.super_pod_type in _RACK_TYPES:
            topology["rackid"] = rack_id
    plausible = {key: value for key, value in topology.items() if value >= 0}
    return labels | {f"huawei.com/topotree.{key}": str(value) for key, value in plausible.items()}


def _annotations(
    inventory: Inventory, facts: NodeFacts, addresses: Mapping[int, str]
) -> dict[str, str]:
    family = family_of(inventory)
    is_a5 = inventory.family == _A5
    devices: dict[str, dict[str, go_json.Value]] = {}
    for chip in inventory.chips:
        sdid = facts.super_devices.get(chip.physical_id, 0)
        devices[family.device_name(chip.physical_id)] = {
            **({"DeviceID": chip.logic_id} if is_a5 else {}),
            "IP": addresses.get(chip.physical_id, ""),
            "SuperDeviceID": _INVALID if sdid is None else sdid,
        }
    super_pod_id, server_index, rack_id = super_pod_ids(inventory.super_pod, family)
    annotations = {
        "superPodID": str(super_pod_id),
        "serverIndex": str(server_index),
        "serverType": _SERVER_TYPES.get(inventory.family, ""),
    }
    if not inventory.virtual:
        annotations[BASE_DEVICE_INFOS] = go_json.encode(go_json.sorted_map(devices))
    pod = inventory.super_pod
    if is_a5 and pod is not None and pod.super_pod_type in _RACK_TYPES:
        annotations["rackID"] = str(rack_id)
    is_card = is_a5 and inventory.board_id in _CARD_BOARDS
    if is_card and facts.main_board in _CARD_TYPES:
        annotations["cardType"] = _CARD_TYPES[facts.main_board]
    return annotations


def addresses_in(node: NodeObject, inventory: Inventory) -> dict[int, str]:
    """Return the addresses on the Node by physical id, for chips that have no address now."""
    try:
        devices = _devices_decoder.decode(node.annotations.get(BASE_DEVICE_INFOS, "{}"))
    except msgspec.DecodeError:
        return {}
    family = family_of(inventory)
    names = {family.device_name(chip.physical_id): chip.physical_id for chip in inventory.chips}
    return {
        names[name]: device.ip for name, device in devices.items() if name in names and device.ip
    }


def obsolete_keys(node: NodeObject, inventory: Inventory) -> tuple[frozenset[str], frozenset[str]]:
    """Return the labels and annotations of older releases that no program updates
    (device-plugin#1.8).
    """
    resource = family_of(inventory).resource
    labels = {resource + end for end in _OLD_LABELS} & node.labels.keys()
    annotations = {resource + end for end in _OLD_ANNOTATIONS} & node.annotations.keys()
    return frozenset(labels), frozenset(annotations)
