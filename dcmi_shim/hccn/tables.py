"""What the A5 ``hccn_tool`` prints where it differs (``docs/spec/dcmi.md#7.2`` and 7.5). Pure.

The same rules as in ``answers`` hold. Only positions of columns matter; a table without a row
of data is nonsense, not an end of the program (upstream's parser panics there).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from contract.errors import ToolNonsense
from dcmi_shim.hccn.answers import lines_of, nonsense, number

if TYPE_CHECKING:
    from collections.abc import Mapping

Row: TypeAlias = tuple[str, ...]

_POWER = re.compile(r"[TR]xPower\d", re.ASCII)
_VALUE_COLUMN = 3


class A5Port(msgspec.Struct, frozen=True):
    """One port of a chip; ``kind`` is ``ETH`` or ``UB``."""

    udie: int
    port: int
    kind: str
    up: bool


def tables_of(text: str, chip: int) -> list[list[Row]]:
    """The tables: each its header and its rows, as cells without the blanks around them.

    A row about another chip, in a table whose first column is the chip, is ``ToolNonsense``.
    """
    tables: list[list[Row]] = []
    separators = 0
    for line in lines_of(text, chip):
        bare = line.strip()
        if bare.startswith("+-"):
            separators += 1
            if separators % 3 == 1:
                tables.append([])
        elif bare.startswith("|") and tables:
            row = tuple(cell.strip() for cell in bare.strip("|").split("|"))
            tables[-1].append(row)
            header = tables[-1][0]
            is_about_chip = header[0] == "NPU" and row is not header
            if is_about_chip and row[0].isdecimal() and row[0] != str(chip):
                what = f"hccn_tool answered for chip {row[0]} when chip {chip} was asked for"
                raise ToolNonsense(what, text)
    return tables


def _value(text: str, chip: int, asked: str) -> str:
    """The cell with the value in the first row of the first table."""
    tables = tables_of(text, chip)
    if not tables or len(tables[0]) < 2 or len(tables[0][1]) <= _VALUE_COLUMN:
        raise nonsense(asked, chip, text)
    return tables[0][1][_VALUE_COLUMN]


def parse_port_speed(text: str, chip: int) -> float | None:
    """``-g -speed -i L -u U -p P``: G, or ``None`` for ``NA``."""
    value = _value(text, chip, "speed")
    speed = number(value)
    if speed is None and "NA" not in value:
        raise nonsense("speed", chip, text)
    return speed


def parse_ports(text: str, chip: int) -> tuple[A5Port, ...]:
    """``-g -dev_info -i L``: the ports in the first table; more tables may follow."""
    ports = []
    for row in tables_of(text, chip)[:1]:
        for cells in row[1:]:
            if len(cells) < 5 or not (cells[0].isdecimal() and cells[1].isdecimal()):
                raise nonsense("ports", chip, text)
            if cells[4] not in ("UP", "DOWN"):
                raise nonsense("link status of a port", chip, text)
            ports.append(A5Port(int(cells[0][:9]), int(cells[1][:9]), cells[3], cells[4] == "UP"))
    if not ports:
        raise nonsense("ports", chip, text)
    return tuple(ports)


def parse_port_enabled(text: str, chip: int) -> bool:
    """``-g -port_info -i L -u U -p P``: whether the port is wired."""
    for line in lines_of(text, chip):
        key, colon, value = line.partition(":")
        if colon and key.strip() == "port_enable":
            return value.strip() == "on"
    raise nonsense("port_enable", chip, text)


def parse_port_powers(text: str, chip: int) -> Mapping[str, float | None]:
    """``-g -optical -i L -u U -p P``: mW by name (``TxPower0``), ``None`` for ``NA``."""
    powers = {}
    for table in tables_of(text, chip):
        for row in table:
            for name, value in pairwise(row):
                if _POWER.fullmatch(name):
                    powers[name] = number(value)
    if not powers:
        raise nonsense("optical powers", chip, text)
    return powers
