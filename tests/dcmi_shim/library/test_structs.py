"""Sizes and offsets against a table that a C compiler made."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pytest

from dcmi_shim.library import abi, structs
from dcmi_shim.library.enums import BootStatus, EventAssertion, NetworkHealth
from tests.vectors import VECTORS

_CTYPES: dict[str, Any] = {
    "u8": ctypes.c_ubyte,
    "char": ctypes.c_char,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "dcmi_urma_eid_t": structs.UrmaEid,
}
_OURS: dict[str, Any] = {
    "dcmi_chip_info": abi.ChipInfo,
    "dcmi_chip_info_v2": abi.ChipInfoV2,
    "dcmi_pcie_info_all": abi.PcieInfoAll,
    "dcmi_die_id": abi.DieId,
    "dcmi_ecc_info": structs.EccInfo,
    "dcmi_hbm_info": abi.HbmInfo,
    "dcmi_get_memory_info_stru": structs.MemoryInfoV3,
    "dcmi_ip_addr": abi.IpAddress,
    "dcmi_base_resource": structs.BaseResource,
    "dcmi_computing_resource": structs.ComputingResource,
    "dcmi_media_resource": structs.MediaResource,
    "dcmi_create_vdev_out": structs.CreateVdevOut,
    "dcmi_create_vdev_res_stru": structs.CreateVdevResource,
    "dcmi_vdev_query_info": structs.VdevQueryInfo,
    "dcmi_vdev_query_stru": structs.VdevQuery,
    "dcmi_ub_ping_mesh_operate": structs.UbPingMeshOperate,
    "dcmi_ub_ping_mesh_info": structs.UbPingMeshInfo,
    "dcmi_soc_free_resource": structs.SocFreeResource,
    "dcmi_soc_total_resource": structs.SocTotalResource,
    "dcmi_spod_info": abi.SuperPodInfo,
    "dcmi_dms_fault_event": abi.DmsFaultEvent,
    "dcmi_event": abi.Event,
    "dcmi_event_filter": abi.EventFilter,
    "dcmi_proc_mem_info": abi.ProcessMemory,
    "dcmi_board_info": abi.BoardInfo,
    "dcmi_pcie_link_bandwidth_info": structs.PcieLinkBandwidth,
    "dcmi_hccs_statistic_info": structs.HccsStatistic,
    "dcmi_hccs_statistic_info_u64": structs.HccsStatisticU64,
    "dcmi_hccs_bandwidth_info": structs.HccsBandwidth,
    "dcmi_sio_crc_err_statistic_info": structs.SioCrcErrors,
    "dcmi_elabel_info": abi.ElabelInfo,
    "dcmi_hccsping_mesh_operate": structs.HccsPingMeshOperate,
    "dcmi_hccsping_mesh_info": structs.HccsPingMeshInfo,
    "dcmi_multi_utilization_info": structs.MultiUtilization,
    "dcmi_urma_eid": structs.UrmaEid,
    "dcmi_urma_eid_info": structs.UrmaEidInfo,
    "dcmi_memory_info_stru": structs.MemoryInfo,
}
# The vendor's structure ends before the last two members of the table's (28 bytes instead of 36).
_VENDOR_SIZES = {"dcmi_ecc_info": 28}
_RESERVED_AT = {"dcmi_dms_fault_event": 320}
_MEMBER = re.compile(r"(\d+): (?:struct |enum |union )?(\w+) (\w+)((?:\[\d+\])*)")

_TABLE = [
    line.split(" ", 3)
    for line in (VECTORS / "dcmi" / "structs.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_every_structure_of_the_table_is_there() -> None:
    assert {row[0] for row in _TABLE} == _OURS.keys()
    assert set(_OURS.values()) == (abi.SIZES | structs.SIZES).keys()


@pytest.mark.parametrize(("name", "size", "align", "members"), _TABLE, ids=lambda text: text[:30])
def test_layout(name: str, size: str, align: str, members: str) -> None:
    ours = _OURS[name]
    length = _VENDOR_SIZES.get(name, int(size))
    assert ctypes.sizeof(ours) == length
    assert ctypes.alignment(ours) == int(align)
    offsets = {
        offset: (getattr(ours, field[0]).offset, getattr(ours, field[0]).size)
        for field in ours._fields_
        for offset in (getattr(ours, field[0]).offset,)
    }
    for offset, kind, _, dimensions in _MEMBER.findall(members):
        if int(offset) >= min(length, _RESERVED_AT.get(name, length)):
            continue
        assert int(offset) in offsets
        if kind in _CTYPES:
            wanted = ctypes.sizeof(_CTYPES[kind])
            for dimension in re.findall(r"\d+", dimensions):
                wanted *= int(dimension)
            assert offsets[int(offset)][1] == wanted


def test_a_wrong_size_is_refused() -> None:
    with pytest.raises(TypeError, match="BoardInfo has 16 bytes, the driver's has 20"):
        abi.check_sizes({abi.BoardInfo: 20})


def test_enums_take_unknown_values() -> None:
    assert BootStatus(16) is BootStatus.SYSTEM_START_FINISHED
    assert EventAssertion(9) == 9
    assert NetworkHealth(77).name == "UNKNOWN_77"
    wrong: Any = "abc"
    with pytest.raises(ValueError, match="abc"):
        NetworkHealth(wrong)
