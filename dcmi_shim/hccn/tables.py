"""Parses the output of the A5 ``hccn_tool`` where it differs (``docs/spec/dcmi.md#7.2`` and 7.5).

Pure.

The same rules as in ``answers`` hold. Only positions of columns matter; a table without a row of
data is an invalid output, not an end of the program (upstream's parser panics there).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dcmi_shim.hccn.answers import invalid_output, lines_of

Row: TypeAlias = tuple[str, ...]


class A5Port(msgspec.Struct, frozen=True):
    """One port of a chip; ``kind`` is ``ETH`` or ``UB``."""

    udie: int
    port: int
    kind: str
    up: bool


def _first_table(text: str, chip: int) -> list[Row]:
    """Return the header and the rows of the first table, as cells without blanks around them."""
    rows: list[Row] = []
    separators = 0
    for line in lines_of(text, chip):
        bare = line.strip()
        separators += bare.startswith("+-")
        if separators > 3:
            break
        if bare.startswith("|") and separators:
            rows.append(tuple(cell.strip() for cell in bare.strip("|").split("|")))
    return rows


def parse_ports(text: str, chip: int) -> tuple[A5Port, ...]:
    """Return from ``-g -dev_info -i L`` the ports in the first table; more tables may follow."""
    ports = []
    # Names in the header differ between tools; only positions count (dcmi#7.5).
    for cells in _first_table(text, chip)[1:]:
        if len(cells) < 5 or not (cells[0].isdecimal() and cells[1].isdecimal()):
            raise invalid_output("ports", chip, text)
        if cells[4] not in ("UP", "DOWN"):
            raise invalid_output("link status of a port", chip, text)
        ports.append(A5Port(int(cells[0][:9]), int(cells[1][:9]), cells[3], cells[4] == "UP"))
    if not ports:
        raise invalid_output("ports", chip, text)
    return tuple(ports)


def parse_port_enabled(text: str, chip: int) -> bool:
    """Return from ``-g -port_info -i L -u U -p P`` whether the port is wired."""
    for line in lines_of(text, chip):
        key, colon, value = line.partition(":")
        if colon and key.strip() == "port_enable":
            return value.strip() == "on"
    raise invalid_output("port_enable", chip, text)
