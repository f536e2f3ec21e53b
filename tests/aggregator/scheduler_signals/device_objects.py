"""Devices, slices of pools and names of rules for tests of device taints."""

from __future__ import annotations

from contract.documents.device_taints import ChipDevice, Device, DeviceSlice, rule_name

NPU, HAMI = "npu.huawei.com", "ascend.project-hami.io"


def a_slice(
    *devices: tuple[str, int],
    node: str = "n1",
    generation: int = 1,
    slices: int = 1,
    driver: str = NPU,
    pool: str | None = None,
) -> DeviceSlice:
    members = tuple(ChipDevice(*device) for device in devices)
    return DeviceSlice(driver, pool or node, generation, slices, node, members)


def device(chip: int = 3, node: str = "n1") -> Device:
    return Device(NPU, node, f"npu-{chip}")


def name(chip: int = 3, node: str = "n1") -> str:
    return rule_name(device(chip, node))
