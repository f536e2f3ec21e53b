"""Selectors of DCMI v1 (``docs/spec/dcmi.md#4.2``)."""

from __future__ import annotations

from enum import IntEnum


class MainCommand(IntEnum):
    """``dcmi_main_cmd``: first selector of ``dcmi_get_device_info``."""

    CHIP_INFO = 12
    VDEV_MANAGEMENT = 52


class Utilization(IntEnum):
    """What ``dcmi_get_device_utilization_rate`` is asked for."""

    AI_CORE = 2
    HBM = 6
