"""Answers of the A5 hccn_tool (docs/spec/dcmi.md#7.5)."""

from __future__ import annotations

import pytest

from contract.errors import ToolInvalidOutput
from dcmi_shim.hccn.tables import (
    A5Port,
    parse_port_enabled,
    parse_ports,
)

PORTS = """\
+--------+--------+--------+----------+-------------+------------+
| UdieID | PortID | Speed  | PortType | Link Status | Media Type |
+--------+--------+--------+----------+-------------+------------+
| 0      | 4      | 200    | ETH      | DOWN        | Electrical |
| 1      | 0      | 200    | UB       | UP          | Optical    |
+--------+--------+--------+----------+-------------+------------+

+--------+--------+
| Other  | Table  |
+--------+--------+
| 9      | 9      |
+--------+--------+
"""


def test_a_table_without_data() -> None:
    header = "".join(PORTS.splitlines(keepends=True)[:3])
    for text in (header, "", "+-----+\n"):
        with pytest.raises(ToolInvalidOutput, match="no ports of chip 0"):
            parse_ports(text, 0)


def test_ports_are_those_of_the_first_table() -> None:
    assert parse_ports(PORTS, 0) == (A5Port(0, 4, "ETH", False), A5Port(1, 0, "UB", True))
    with pytest.raises(ToolInvalidOutput, match="no link status of a port"):
        parse_ports(PORTS.replace("DOWN", "????"), 0)
    with pytest.raises(ToolInvalidOutput, match="no ports"):
        parse_ports(PORTS.replace("| 1 ", "| x "), 0)


def test_port_info() -> None:
    assert parse_port_enabled("port_enable: on\nport_type: UB\n", 0) is True
    assert parse_port_enabled("port_enable : off\n", 0) is False
    with pytest.raises(ToolInvalidOutput, match="no port_enable"):
        parse_port_enabled("port_type: UB\n", 0)
