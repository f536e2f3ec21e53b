"""Enums of DCMI v1 (``dcmi#4.2``, 4.3 and 5.2), tolerant of values of a newer library."""

from __future__ import annotations

from enum import IntEnum


class OpenEnum(IntEnum):
    """An enum that a newer library may extend: an unknown value becomes a nameless member."""

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member


class UnitType(OpenEnum):
    """``dcmi_unit_type``."""

    NPU = 0
    MCU = 1
    CPU = 2
    INVALID = 0xFF


class PortType(OpenEnum):
    """``dcmi_port_type``."""

    VNIC = 0
    ROCE = 1
    INVALID = 2


class MainCommand(OpenEnum):
    """``dcmi_main_cmd``: first selector of ``dcmi_get_device_info``."""

    DVPP = 0
    ISP = 1
    TS_GROUP = 2
    CAN = 3
    UART = 4
    UPGRADE = 5
    CHIP_INFO = 12
    HCCS = 16
    TEMPERATURE = 50
    SVM = 51
    VDEV_MANAGEMENT = 52
    SIO = 56
    DEVICE_SHARE = 0x8001


class Utilization(OpenEnum):
    """What ``dcmi_get_device_utilization_rate`` is asked for."""

    AI_CORE = 2
    HBM = 6


class FrequencyType(OpenEnum):
    """``dcmi_freq_type``."""

    DDR = 1
    CONTROL_CPU = 2
    HBM = 6
    AI_CORE_CURRENT = 7
    AI_CORE_MAX = 9
    VECTOR_CORE = 12


class ResetChannel(OpenEnum):
    """``dcmi_reset_channel``."""

    OUT_OF_BAND = 0
    IN_BAND = 1


class BootStatus(OpenEnum):
    """``dcmi_boot_status``; only 16 ends a reset."""

    UNINITIALISED = 0
    BIOS = 1
    OS = 2
    FINISHED = 3
    SYSTEM_START_FINISHED = 16


class DeviceType(OpenEnum):
    """``dcmi_device_type``: whose ECC counters."""

    DDR = 0
    SRAM = 1
    HBM = 2
    NPU = 3
    NONE = 0xFF


class EventType(OpenEnum):
    """``dcmi_event_type``."""

    DMS_FAULT = 0


class DieType(OpenEnum):
    """``dcmi_die_type``."""

    NDIE = 0
    VDIE = 1
    DDIE = 2


class MultiDiePolicy(OpenEnum):
    """``dcmi_multi_die_policy``."""

    UNION = 0
    INDEPENDENT = 1


class NetworkHealth(OpenEnum):
    """``dcmi_rdfx_detect_result`` (dcmi#4.3). ``OK`` and ``INIT`` are healthy."""

    OK = 0
    SOCKET_FAILED = 1
    RECEIVE_TIMEOUT = 2
    UNREACHABLE = 3
    TIME_EXCEEDED = 4
    FAULT = 5
    INIT = 6
    THREAD_ERROR = 7
    IP_SET = 8
    MAX = 0xFF


class EventAssertion(OpenEnum):
    """``assertion`` of a fault event (dcmi#5.2)."""

    RECOVER = 0
    OCCUR = 1
    ONCE = 2
