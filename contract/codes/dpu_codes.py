"""Codes of RDMA NICs and DPUs, as MindCluster's RDMA device plugin has them.

Source: ``docs/spec/dpu-info.md``.
"""

from __future__ import annotations

from typing import NamedTuple

SUB_HEALTH, SEPARATE = "SubHealthFault", "SeparateDPU"
_CODE_BYTES = 8


class DpuCode(NamedTuple):
    """What is known of a code: the plugin's name and level of it."""

    name: str
    level: str


DPU_CODES = {
    "21000022": DpuCode("ub_port_down", SUB_HEALTH),
    "21000023": DpuCode("ub_lane_down", SUB_HEALTH),
    "21000024": DpuCode("hca_port_down", SEPARATE),
    "22000025": DpuCode("bond_member_down", SUB_HEALTH),
    "22000026": DpuCode("dpu_card_drop", SEPARATE),
}
"""All codes that the plugin has."""


def public_code(code: str) -> str:
    """Return the code as a public fault has it: with nine bytes (``clusterd#4.2``)."""
    return f"0{code}" if len(code.encode()) == _CODE_BYTES else code


def dpu_code(code: str) -> str:
    """Return the plugin's code for one of ``public_code``; any other code as it is."""
    return code[1:] if code[:1] == "0" and code[1:] in DPU_CODES else code
