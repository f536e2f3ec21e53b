"""Sizes and offsets against a table that a C compiler made."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pytest

from dcmi_shim.library import abi
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
}
_OURS: dict[str, Any] = {
    "dcmi_chip_info": abi.ChipInfo,
    "dcmi_chip_info_v2": abi.ChipInfoV2,
    "dcmi_pcie_info_all": abi.PcieInfoAll,
    "dcmi_die_id": abi.DieId,
    "dcmi_hbm_info": abi.HbmInfo,
    "dcmi_ip_addr": abi.IpAddress,
    "dcmi_spod_info": abi.SuperPodInfo,
    "dcmi_dms_fault_event": abi.DmsFaultEvent,
    "dcmi_event": abi.DcmiEvent,
    "dcmi_event_filter": abi.DcmiEventFilter,
    "dcmi_proc_mem_info": abi.ProcessMemory,
    "dcmi_board_info": abi.BoardInfo,
    "dcmi_elabel_info": abi.ElabelInfo,
}
_RESERVED_AT = {"dcmi_dms_fault_event": 320}
_MEMBER = re.compile(r"(\d+): (?:struct |enum |union )?(\w+) (\w+)((?:\[\d+\])*)")

_TABLE = [
    line.split(" ", 3)
    for line in (VECTORS / "dcmi" / "structs.txt").read_text().splitlines()
    if not line.startswith("#") and line.split(" ", 1)[0] in _OURS
]
"""The rows about structures that are used."""


def test_every_structure_is_in_the_table() -> None:
    assert {row[0] for row in _TABLE} == _OURS.keys()
    assert set(_OURS.values()) == abi.SIZES.keys()


@pytest.mark.parametrize(("name", "size", "align", "members"), _TABLE, ids=lambda text: text[:30])
def test_layout(name: str, size: str, align: str, members: str) -> None:
    ours = _OURS[name]
    length = int(size)
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
