"""The part of the DCMI v1 ABI that every driver child needs (``docs/spec/dcmi.md#2.1``, 2.2, 4.1).

Runs in the driver child: ctypes only, so that a child starts quickly and stays small. The other
structures of v1 are in ``structs``.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    Structure,
    Union,
    c_char,
    c_char_p,
    c_int,
    c_ubyte,
    c_uint,
    c_uint16,
    c_uint64,
    c_void_p,
    sizeof,
)

Text32 = c_ubyte * 32
_ON_CHIP = (c_int, c_int)
_ONE_OUTPUT = (c_int, c_int, c_void_p)
_ON_DEVICE = (c_int, c_void_p)


class ChipInfo(Structure):
    _fields_ = (
        ("chip_type", Text32),
        ("chip_name", Text32),
        ("chip_ver", Text32),
        ("aicore_cnt", c_uint),
    )


class ChipInfoV2(Structure):
    _fields_ = (
        *ChipInfo._fields_,
        ("npu_name", Text32),
    )


class BoardInfo(Structure):
    _fields_ = (
        ("board_id", c_uint),
        ("pcb_id", c_uint),
        ("bom_id", c_uint),
        ("slot_id", c_uint),
    )


class PcieInfoAll(Structure):
    _fields_ = (
        ("venderid", c_uint),
        ("subvenderid", c_uint),
        ("deviceid", c_uint),
        ("subdeviceid", c_uint),
        ("domain", c_int),
        ("bdf_busid", c_uint),
        ("bdf_deviceid", c_uint),
        ("bdf_funcid", c_uint),
        ("reserve", Text32),
    )


class DieId(Structure):
    _fields_ = (("soc_die", c_uint * 5),)


class ElabelInfo(Structure):
    _fields_ = (
        ("product_name", c_char * 256),
        ("model", c_char * 256),
        ("manufacturer", c_char * 256),
        ("manufacturer_date", c_char * 256),
        ("serial_number", c_char * 256),
    )


class SuperPodInfo(Structure):
    """``dcmi_spod_info``, with the vendor's member names (dcmi#4.1, details)."""

    _fields_ = (
        ("sdid", c_uint),
        ("super_pod_size", c_uint),
        ("super_pod_id", c_uint),
        ("server_index", c_uint),
        ("chassis_id", c_uint),
        ("super_pod_type", c_uint),
        ("reserve", c_uint * 6),
    )


class HbmInfo(Structure):
    _fields_ = (
        ("memory_size", c_uint64),
        ("freq", c_uint),
        ("memory_usage", c_uint64),
        ("temp", c_int),
        ("bandwith_util_rate", c_uint),
    )


class IpAddress(Structure):
    _fields_ = (
        ("u_addr", c_ubyte * 16),
        ("ip_type", c_int),
    )


class ProcessMemory(Structure):
    """``dcmi_proc_mem_info``: a process that has memory of a chip, in bytes."""

    _fields_ = (
        ("proc_id", c_int),
        ("proc_mem_usage", c_uint64),
    )


class DmsFaultEvent(Structure):
    """``dcmi_dms_fault_event``, the reserve split as the vendor does (dcmi#4.1, details)."""

    _fields_ = (
        ("event_id", c_uint),
        ("deviceid", c_uint16),
        # Unsigned: as signed bytes, like upstream's, a port (0x83) would be -125 (dcmi#12).
        ("node_type", c_ubyte),
        ("node_id", c_ubyte),
        ("sub_node_type", c_ubyte),
        ("sub_node_id", c_ubyte),
        ("severity", c_ubyte),
        ("assertion", c_ubyte),
        ("event_serial_num", c_int),
        ("notify_serial_num", c_int),
        ("alarm_raised_time", c_uint64),
        ("event_name", c_char * 256),
        ("additional_info", c_char * 32),
        ("os_id", c_ubyte),
        ("resv_1", c_ubyte),
        ("node_type_ex", c_uint16),
        ("sub_node_type_ex", c_uint16),
        ("resv", c_ubyte * 26),
    )


class EventUnion(Union):
    _fields_ = (("dms_event", DmsFaultEvent),)


class DcmiEvent(Structure):
    """``dcmi_event``: what the callback points to."""

    _fields_ = (
        ("type", c_int),
        ("event_t", EventUnion),
    )


class DcmiEventFilter(Structure):
    """``dcmi_event_filter``, passed by value; all zero lets everything through."""

    _fields_ = (
        ("filter_flag", c_uint64),
        ("event_id", c_uint),
        ("severity", c_ubyte),
        ("node_type", c_ubyte),
        ("resv", Text32),
    )


def check_sizes(expected: dict[type[Structure | Union], int]) -> None:
    """Refuse to run where a structure's size differs from the driver's (LP64 Linux is assumed)."""
    for struct, size in expected.items():
        if sizeof(struct) != size:
            raise TypeError(
                f"{struct.__name__} has {sizeof(struct)} bytes, the driver's has {size}"
            )


SIZES: dict[type[Structure | Union], int] = {
    ChipInfo: 100,
    ChipInfoV2: 132,
    BoardInfo: 16,
    PcieInfoAll: 64,
    DieId: 20,
    ElabelInfo: 1280,
    SuperPodInfo: 48,
    HbmInfo: 32,
    IpAddress: 20,
    ProcessMemory: 16,
    DmsFaultEvent: 352,
    DcmiEvent: 360,
    DcmiEventFilter: 48,
}
check_sizes(SIZES)


FaultHandler = CFUNCTYPE(None, c_void_p)
"""``void (*)(struct dcmi_event *)``, called on a thread of the library."""

SIGNATURES = {
    "dcmi_init": (),
    "dcmiv2_init": (),
    # The list comes first here.
    "dcmiv2_get_device_list": (c_void_p, c_void_p, c_int),
    "dcmiv2_get_chip_phy_id_by_dev_id": (c_uint, c_void_p),
    "dcmiv2_get_dcmi_version": (c_char_p, c_int),
    "dcmiv2_get_device_chip_info": _ON_DEVICE,
    "dcmiv2_get_device_board_info": _ON_DEVICE,
    "dcmiv2_get_mainboard_id": _ON_DEVICE,
    "dcmiv2_get_device_hbm_info": _ON_DEVICE,
    "dcmiv2_get_device_pcie_info": _ON_DEVICE,
    "dcmiv2_get_device_die_id": (c_int, c_int, c_void_p),
    "dcmiv2_get_device_info": (c_int, c_int, c_uint, c_void_p, c_void_p),
    "dcmiv2_get_device_proc_mem_info": (c_int, c_void_p, c_void_p),
    "dcmiv2_get_device_utilization_rate": (c_int, c_int, c_void_p),
    "dcmiv2_get_device_health": _ON_DEVICE,
    "dcmiv2_get_device_network_health": _ON_DEVICE,
    "dcmiv2_get_device_error_code_list": (c_int, c_void_p, c_void_p, c_uint),
    "dcmiv2_subscribe_fault_event": (c_int, DcmiEventFilter, FaultHandler),
    "dcmi_get_dcmi_version": (c_char_p, c_int),
    "dcmi_get_card_list": (c_void_p, c_void_p, c_int),
    "dcmi_get_card_num_list": (c_void_p, c_void_p, c_int),
    "dcmi_get_device_num_in_card": (c_int, c_void_p),
    "dcmi_get_device_id_in_card": (c_int, c_void_p, c_void_p, c_void_p),
    # These three take their outputs first.
    "dcmi_get_device_logic_id": (c_void_p, c_int, c_int),
    "dcmi_get_card_id_device_id_from_logicid": (c_void_p, c_void_p, c_uint),
    "dcmi_get_card_id_device_id_from_phyid": (c_void_p, c_void_p, c_uint),
    "dcmi_get_device_phyid_from_logicid": (c_uint, c_void_p),
    "dcmi_get_device_logicid_from_phyid": (c_uint, c_void_p),
    "dcmi_get_device_type": _ONE_OUTPUT,
    "dcmi_get_device_chip_info": _ONE_OUTPUT,
    "dcmi_get_device_chip_info_v2": _ONE_OUTPUT,
    "dcmi_get_device_board_info": _ONE_OUTPUT,
    "dcmi_get_mainboard_id": _ONE_OUTPUT,
    "dcmi_get_product_type": (*_ON_CHIP, c_char_p, c_int),
    "dcmi_get_card_elabel_v2": (c_int, c_void_p),
    "dcmi_get_device_die_v2": (*_ON_CHIP, c_int, c_void_p),
    "dcmi_get_device_pcie_info_v2": _ONE_OUTPUT,
    "dcmi_get_affinity_cpu_info_by_device_id": (*_ON_CHIP, c_char_p, c_void_p),
    "dcmi_get_npu_work_mode": (c_int, c_void_p),
    "dcmi_get_device_health": _ONE_OUTPUT,
    "dcmi_get_device_errorcode_v2": (*_ON_CHIP, c_void_p, c_void_p, c_uint),
    # The filter goes by value, and the handler is a fourth parameter that headers leave out.
    "dcmi_subscribe_fault_event": (*_ON_CHIP, DcmiEventFilter, FaultHandler),
    "dcmi_get_device_network_health": _ONE_OUTPUT,
    "dcmi_get_device_boot_status": _ONE_OUTPUT,
    "dcmi_get_device_temperature": _ONE_OUTPUT,
    "dcmi_get_device_voltage": _ONE_OUTPUT,
    "dcmi_get_device_power_info": _ONE_OUTPUT,
    "dcmi_get_device_frequency": (*_ON_CHIP, c_int, c_void_p),
    "dcmi_get_device_utilization_rate": (*_ON_CHIP, c_int, c_void_p),
    "dcmi_get_device_multi_utilization_rate": _ONE_OUTPUT,
    "dcmi_get_device_multi_utilization_rate_period": (*_ON_CHIP, c_void_p, c_int),
    "dcmi_get_device_hbm_info": _ONE_OUTPUT,
    "dcmi_get_device_ecc_info": (*_ON_CHIP, c_int, c_void_p),
    "dcmi_get_device_ip": (*_ON_CHIP, c_int, c_int, c_void_p, c_void_p),
    "dcmi_get_device_resource_info": (*_ON_CHIP, c_void_p, c_void_p),
    "dcmi_get_device_info": (*_ON_CHIP, c_int, c_uint, c_void_p, c_void_p),
    "dcmi_set_device_reset": (*_ON_CHIP, c_int),
    "dcmi_get_device_outband_channel_state": _ONE_OUTPUT,
    "dcmi_pre_reset_soc": _ON_CHIP,
    "dcmi_rescan_soc": _ON_CHIP,
    "dcmi_get_multi_die_policy": (c_void_p,),
    "dcmi_set_multi_die_policy": (c_int,),
    "dcmi_get_spod_node_status": (*_ON_CHIP, c_uint, c_void_p),
    "dcmi_set_spod_node_status": (*_ON_CHIP, c_uint, c_uint),
}
"""Parameters of the v1 functions of ``docs/spec/dcmi.md#10.7``; all of them return ``int``."""
