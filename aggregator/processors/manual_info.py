"""Upstream's document of the separated chips, ``clusterd-manual-info-cm``: a key for each node.

Source: ``docs/spec/clusterd.md#2.7``, E27.
"""

from __future__ import annotations

import msgspec

from contract.codes.levels import ChipLevel
from contract.go import encode as go_json
from contract.go.decode import GoStruct, Int64, decode

NAME = "clusterd-manual-info-cm"
NAMESPACE = "cluster-system"
_LEVEL = ChipLevel.MANUALLY_SEPARATE_NPU.value

Codes = dict[str, int]
"""Fault code to the time at which it separated the chip last (wall milliseconds)."""


class _Fault(GoStruct, frozen=True):
    code: str = msgspec.field(default="", name="FaultCode")
    level: str = msgspec.field(default="", name="FaultLevel")
    separated_at_ms: Int64 = msgspec.field(default=0, name="LastSeparateTime")


class _Node(GoStruct, frozen=True):
    total: list[str] | None = msgspec.field(default=None, name="Total")
    detail: dict[str, list[_Fault] | None] | None = msgspec.field(default=None, name="Detail")


def read_chips(node: str, text: str) -> dict[str, Codes]:
    """Return the separated chips of a node's value, and why; raises ``DocumentError``.

    ``Total`` decides. A chip with other levels only is none of ours.
    """
    node_info = decode(text, _Node, NAME, f"$['{node}']")
    chips: dict[str, Codes] = {}
    for chip in node_info.total or ():
        faults = (node_info.detail or {}).get(chip) or []
        codes = {one.code: one.separated_at_ms for one in faults if one.level == _LEVEL}
        if chip and (codes or not faults):
            chips[chip] = codes
    return chips


def render_chips(chips: dict[str, Codes]) -> str:
    """Return the value of a node."""
    return go_json.encode(
        {
            "Total": sorted(chips),
            "Detail": {
                chip: [
                    {"FaultCode": code, "FaultLevel": _LEVEL, "LastSeparateTime": at_ms}
                    for code, at_ms in sorted(chips[chip].items())
                ]
                for chip in sorted(chips)
                if chips[chip]
            },
        }
    )
